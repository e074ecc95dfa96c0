// The page: its current run or turn, and the tabs.

import { beginning, composed, first, session as asked } from "./begin.js";
import { get, post, hasToken, keepToken, onToken } from "./api.js";
import { TABS, address, ownerOf, read } from "./place.js";
import { h, replace, shown, number, money, percent, problem, empty, choice, icon, say, plain, tagsOf, toolErrors } from "./dom.js";
import { agentView } from "./agent.js";
import { changesView } from "./changes.js";
import { compareView } from "./compare.js";
import { evaluationList, evaluationView } from "./evaluation.js";
import { WORDS } from "./filters.js";
import { Form } from "./form.js";
import { LayersView, bar } from "./layers.js";
import { Parts } from "./parts.js";
import { PayloadView } from "./payload.js";
import { PlayView } from "./play.js";
import { recallView } from "./recall.js";
import { Side } from "./side.js";
import { TimelineView } from "./timeline.js";
import { duration, moment } from "./times.js";

const POLL = 700;
const TITLE = 200;
const TARGETS = { openai: "OpenAI", responses: "Responses", anthropic: "Anthropic", text: "Local" };

const app = document.getElementById("app");
const main = document.getElementById("main");
const state = { overview: null, session: null, run: null, data: null, place: {}, view: null, payload: { target: "openai", chat_template: "qwen3" } };
let turnNumber = 0; // number of the latest navigation: answers to earlier navigations are ignored
let timer = 0;

function go(place, { replaceState = false } = {}) {
  const tab = place.tab || (place.run || place.turn !== undefined ? state.place.tab : undefined);
  const target = address({ ...place, tab });
  if (target === location.hash) return draw();
  if (replaceState) history.replaceState(null, "", target);
  else history.pushState(null, "", target);
  return draw();
}

// --- theme

const THEME = "agentkit-inspector-theme";
const paint = (theme) => {
  state.dark ||= [...document.styleSheets[0].cssRules].find((rule) => rule.media?.mediaText.includes("prefers-color-scheme"));
  state.dark.media.mediaText = theme === "dark" ? "all" : "not all";
};
const themeButton = h("button", { type: "button", class: "quiet round", "aria-label": "Switch between light and dark", onclick: () => {
  const other = getComputedStyle(document.documentElement).colorScheme === "dark" ? "light" : "dark";
  localStorage.setItem(THEME, other);
  paint(other);
} }, icon("sun"));
if (localStorage.getItem(THEME)) paint(localStorage.getItem(THEME));

// The newest runs, and the newest sessions, or all sessions after the user scrolled to their end.
const listed = async () => (await first("overview")) || get("overview", state.isWhole ? { all: "yes" } : {});

async function more() {
  if (state.isWhole) return;
  state.isWhole = true;
  try {
    state.overview = await listed();
    side.show(state.overview, state.session, state.place);
  } catch (error) {
    state.isWhole = false;
    say(error.message);
  }
}

const side = new Side(document.getElementById("side"), { go, more, theme: themeButton });

// --- drawing

async function draw() {
  const mine = ++turnNumber;
  clearTimeout(timer);
  const place = read();
  const isSame = state.place.run === place.run && state.place.session === place.session && state.place.turn === place.turn && state.place.step === place.step && !place.create && !state.place.create;
  state.place = place;
  // Requested together with the lists, not after them. The prompt of a run is requested after the run.
  const isNew = !place.create && !(isSame && state.data && !state.data.stale);
  const answer = isNew && !place.run ? ask(place) : null;
  const run = isNew && place.run ? first("run").then((known) => known || beginning(place.run)) : null;
  run?.catch(() => {}); // `detail` shows the error
  app.classList.toggle("has-content", Boolean(place.run || place.turn !== undefined || place.create || place.agent !== undefined || place.compare || place.evaluation));
  // A run is drawn beside the known lists, which are requested at the same time.
  const isListed = place.run && state.overview && !isSame;
  if (isListed) relist(mine);
  try {
    const isOther = place.session !== undefined && state.session?.session !== place.session;
    const [overview, session] = await Promise.all([
      state.overview && (isSame || isListed) ? state.overview : listed(),
      isOther ? opened(place.session, place.turn) : place.session === undefined ? null : state.session,
    ]);
    if (mine !== turnNumber) return;
    Object.assign(state, { overview, session });
  } catch (error) {
    if (mine === turnNumber) fail(error);
    return;
  }
  if (place.session !== undefined && place.turn === undefined && state.session.count) {
    Object.assign(place, await last(state.session));
    if (mine !== turnNumber) return;
    history.replaceState(null, "", address(place));
    app.classList.add("has-content");
  }
  const isOne = place.run || place.turn !== undefined;
  const drawn = isOne && !place.create ? detail(mine, isSame, answer, run) : null;
  side.show(state.overview, state.session, place);
  if (place.agent !== undefined || place.compare || place.evaluation) await report(place, mine);
  else if (place.create) create(place);
  else if (isOne) await drawn;
  else welcome();
}

async function relist(mine) {
  try {
    const overview = await listed();
    if (mine !== turnNumber) return;
    state.overview = overview;
    side.show(overview, state.session, state.place);
  } catch (error) {
    if (mine === turnNumber) say(error.message);
  }
}

// The prompt of a place, with its run; or the error if it cannot be composed. With `is_beginning`, the prompt of an
// early model call if the call of the place is late in its run.
async function ask(place, is_beginning = false) {
  if (!place.run && place.session === undefined) return null;
  const kwargs = place.run ? undefined : state.kwargs?.[place.session];
  try {
    return (await first("composed")) || (await composed(place, { ...(kwargs ? { kwargs } : {}), is_beginning }, state.agentOf?.[place.session]));
  } catch (error) {
    return { error };
  }
}

// A session with the turns around one turn, or its last turns.
async function opened(name, turn) {
  const known = await first("session");
  const session = known?.session === name ? known : await asked(name, turn);
  session.turns = new Parts(session.count, session.turns, "turn", (start) => get("turns", { name, start }).then(({ turns }) => turns));
  return session;
}

async function last(session) {
  const turn = session.count - 1;
  return { turn, run: (await session.turns.fetch(turn))?.run };
}

function fail(error) {
  state.view?.destroy?.();
  state.view = null;
  if (error.status === 401) return;
  replace(main, h("div", { class: "scroll page" }, back(), problem(error, () => { state.overview = null; draw(); })));
}

const back = () => h("button", { type: "button", class: "quiet only-narrow", onclick: () => go(state.place.session !== undefined && state.place.turn !== undefined ? { session: state.place.session } : {}), "aria-label": "Back to the list" }, icon("back"), "Back");

// A page without tabs: an agent, or two runs side by side.
async function report(place, mine) {
  state.view?.destroy?.();
  state.view = null;
  state.run = state.data = null;
  try {
    const { title, content } = await reported(place);
    if (mine !== turnNumber) return;
    document.title = plain(`${title} · agentkit inspector`);
    replace(main, h("div", { class: "scroll page report" }, back(), content));
  } catch (error) {
    if (mine === turnNumber) fail(error);
  }
}

async function reported({ evaluation, compare, agent }) {
  if (evaluation) return { title: "Evaluation", content: await evaluated(evaluation) };
  if (compare) return { title: "Two runs", content: await compared(compare) };
  return { title: agent, content: agentView(await get("agent", { name: agent })) };
}

async function evaluated([name, before]) {
  if (!name) return evaluationList(state.overview.evaluations);
  return evaluationView(await get("evaluation", before ? { name, before } : { name }), state.overview.evaluations);
}

async function compared([first, second]) {
  const [one, other, { diff }] = await Promise.all([get("run", { id: first }), get("run", { id: second }), post("compose", { base: { run: second }, against: { run: first } })]);
  return [h("h1", null, "Two runs side by side"), compareView(one, other, diff)];
}

function welcome() {
  state.view?.destroy?.();
  state.view = null;
  const { runs, sessions, agents, evaluations } = state.overview;
  const waiting = runs.filter((run) => run.status === "waiting");
  replace(
    main,
    h(
      "div",
      { class: "welcome" },
      h("div", { class: "mark big", "aria-hidden": "true" }, h("i"), h("i"), h("i"), h("i")),
      h("h1", null, runs.length || sessions.length ? "Inspect a prompt" : "Nothing here yet"),
      h("p", null, runs.length || sessions.length ? "Choose a run or a session. Every piece of a prompt shows its origin." : agents.length ? "Start a run: its prompt, its tools and its costs appear here." : "No agents: open the inspector with an agent to start runs."),
      waiting.length ? h("p", null, h("a", { class: "button warn", href: address({ run: waiting[0].id, tab: "timeline" }) }, icon("approval"), waiting.length === 1 ? "1 run waits for approval" : `${waiting.length} runs wait for approval`)) : null,
      evaluations.length ? h("p", null, h("a", { class: "button", href: address({ evaluation: [] }) }, evaluations.length === 1 ? "1 evaluation" : `${evaluations.length} evaluations`)) : null,
      h("div", { class: "agents" }, agents.map((agent) =>
        h("a", { class: "agent-card", href: address({ agent: agent.name }) }, h("b", { dir: "auto" }, shown(agent.name)), h("span", { dir: "auto" }, shown(agent.model)), h("small", null, [agent.tools.length ? `${number(agent.tools.length)} tools` : null, agent.memory ? "memory" : null].filter(Boolean).join(" · ") || "no tools")))),
    ),
  );
}

function base() {
  const { run, session, turn, step } = state.place;
  if (run) return { run, ...(step ? { step } : {}) };
  return { session, turn, ...(step ? { step } : {}), ...(agentName() ? { agent: agentName() } : {}) };
}

function agentName() {
  if (state.run) return state.run.agent;
  return state.agentOf?.[state.place.session] || state.data?.agent || state.session?.agents?.[0] || state.overview.agents[0]?.name;
}

const agentOf = (name) => state.overview.agents.find((agent) => agent.name === name);

// Draws a run or a turn. A run is drawn before its prompt is composed, which takes long after many steps.
async function detail(mine, isSame, answer = null, run = null) {
  const { place } = state;
  const onlyTab = isSame && state.data && !state.data.stale && state.tabs && main.contains(state.tabs);
  if (onlyTab) tab();
  else if (!isSame || !state.data || state.data.stale) {
    state.view?.destroy?.();
    state.view = null;
    if (!isSame) main.classList.add("waiting");
    try {
      if (!place.run) state.run = null;
      if (place.run && !answer) {
        const known = run ? await run : state.run;
        if (mine !== turnNumber) return;
        Object.assign(state, { run: known, data: { pending: ask(place, !known.journal.is_whole), isEarly: !known.journal.is_whole } });
      } else {
        const data = await (answer || ask(place));
        if (mine !== turnNumber || data.error?.status === 401) return;
        Object.assign(state, { run: data.run, data });
        if (data.run) {
          place.run = data.run.id;
          history.replaceState(null, "", address(place));
        }
      }
    } catch (error) {
      main.classList.remove("waiting");
      if (mine === turnNumber) fail(error);
      return;
    }
    main.classList.remove("waiting");
    present();
  } else present();
  await Promise.all([complete(mine), settle(mine)]);
  if (mine === turnNumber && ["queued", "running"].includes(state.run?.status)) timer = setTimeout(() => poll(mine), POLL);
}

// Reads the further events and the figures of a long run, whose first events are displayed.
async function complete(mine) {
  if (!state.run || state.run.journal.is_whole) return;
  try {
    const run = await get("run", { id: state.run.id });
    if (mine !== turnNumber) return;
    state.run = run;
    if (currentTab() === "timeline") redraw();
  } catch (error) {
    if (mine === turnNumber) say(error.message);
  }
}

// Waits for the prompt of the displayed run, and draws it. Of a long run, the prompt of an early model call is drawn
// until the requested prompt is composed.
async function settle(mine) {
  while (state.data.pending) {
    const { data, place } = state;
    const prompt = await data.pending;
    if (mine !== turnNumber || state.data !== data || prompt.error?.status === 401) return;
    state.data = data.isEarly && prompt.step !== place.step ? { ...prompt, pending: ask(place) } : prompt;
    showSteps();
    if (currentTab() === "timeline") showBar();
    else redraw();
  }
}

// Draws the tab again at its scroll position.
function redraw() {
  const before = state.view?.rows && { rows: state.view.rows, top: state.view.top };
  tab(before);
}

function present() {
  const { place } = state;
  const title = (state.run ? state.run.input : state.data.input ?? state.session?.turns.at(place.turn)?.input)?.slice(0, TITLE);
  document.title = plain(`${(title || "run").slice(0, 60)} · agentkit inspector`);
  header(title || "(no input)");
  tab();
}

async function poll(mine) {
  if (mine !== turnNumber) return;
  try {
    const { count } = state.run.journal;
    const run = await get("run", { id: state.place.run });
    if (mine !== turnNumber) return;
    const isChanged = run.status !== state.run.status || run.journal.count !== count;
    if (run.status !== state.run.status) say(`Run: ${run.status}`);
    state.run = run;
    if (isChanged) {
      state.overview = await listed();
      if (state.session) state.session = await opened(state.session.session, state.place.turn);
      if (mine !== turnNumber) return;
      side.show(state.overview, state.session, state.place);
      const playing = state.place.tab === "play";
      if (!playing) {
        state.data = { ...(state.data || {}), stale: true };
        return detail(mine, true);
      }
    }
  } catch {
    // the next try may succeed
  }
  timer = setTimeout(() => poll(mine), POLL);
}

// Start, duration and class of the error of a run. A run of another program has only the times of its journal.
function timeChips({ started_at: started, journal, seconds, error_class: kind }) {
  const start = started ?? journal.began;
  const length = seconds ?? (journal.ended === null ? null : journal.ended - journal.began);
  return [
    start === null ? null : h("span", { class: "chip" }, "started ", h("b", null, moment(start))),
    length === null ? null : h("span", { class: "chip", title: seconds === null ? "from the first to the last result in the journal" : "from the request to the end, with waiting for decisions" }, "took ", h("b", null, duration(length))),
    kind ? h("span", { class: "tag failed", dir: "auto" }, shown(kind)) : null,
  ];
}

function header(title) {
  const { run, session, place } = state;
  const used = run?.journal.usage;
  const chips = [
    run ? h("span", { class: `pill ${run.status}` }, WORDS[run.status] || run.status) : h("span", { class: "pill", title: "This turn has no journal: the agent composes its prompt again from the conversation, with its present prompts" }, "composed again"),
    agentName() ? h("a", { class: "chip", href: address({ agent: agentName() }) }, "agent ", h("b", { dir: "auto" }, shown(agentName()))) : h("span", { class: "chip" }, "no agent"),
    session ? h("span", { class: "chip" }, "turn ", h("b", null, `${number((place.turn ?? 0) + 1)} of ${number(session.count)}`)) : run?.session ? h("a", { class: "chip", href: address({ session: run.session }) }, "session ", h("b", { dir: "auto" }, shown(run.session))) : null,
    used && (used.input || used.output) ? h("span", { class: "chip" }, `${number(used.input)} in, ${number(used.output)} out`) : null,
    used?.money ? h("span", { class: "chip" }, h("b", null, money(used.money))) : null,
    ...(run ? timeChips(run) : []),
    toolErrors(run?.tool_errors),
    ...(run ? tagsOf(run) : []),
    run ? h("code", { class: "chip id", title: "id of the run" }, shown(run.id)) : null,
  ];
  const agents = state.overview.agents;
  const chooser = !run && agents.length > 1
    ? h("select", { "aria-label": "Agent", onchange: (event) => { (state.agentOf ||= {})[place.session] = event.target.value; state.data = null; draw(); } }, agents.map((agent) => h("option", { value: agent.name, selected: agent.name === agentName() }, agent.name)))
    : null;
  if (document.activeElement?.closest?.(".steps")) state.stepped = true;
  state.steps = h("div", { class: "steps", hidden: true });
  state.hero = h("div", { class: "hero" });
  state.panel = h("section", { id: "panel", class: "panel", role: "tabpanel", tabindex: "-1" });
  state.tabs = h("div", { class: "tabrow" });
  replace(
    main,
    h("header", { class: "top" }, h("div", { class: "titles" }, back(), h("h1", { dir: "auto" }, shown(title)), h("div", { class: "chips" }, chips)), chooser, state.steps),
    state.hero,
    state.tabs,
    state.panel,
  );
  showSteps();
}

// The last model calls of the run.
function showSteps() {
  const { data, place } = state;
  state.steps.hidden = !(data.steps > 1) || Boolean(data.pending);
  if (state.steps.hidden) return;
  const first = Math.max(1, data.steps - 29);
  const options = Array.from({ length: data.steps - first + 1 }, (_, at) => [first + at, String(first + at)]);
  replace(state.steps, h("span", null, "Model call"), choice("Model call", options, data.step, (step) => go({ ...place, step }, { replaceState: true })));
  if (state.stepped) state.steps.querySelector('[aria-checked="true"]')?.focus();
  state.stepped = false;
}

// The bar of the layers, and the number of failed tool calls.
function showBar() {
  const { data, place } = state;
  const current = currentTab();
  const failures = current === "timeline" ? null : toolErrors(state.run?.tool_errors, "a", { href: address({ ...state.place, tab: "timeline" }) });
  const early = data.view && data.pending ? h("p", { class: "loading", role: "status" }, `This is the prompt of model call ${number(data.step)}. Composing the prompt of ${place.step ? `model call ${number(place.step)}` : "the last model call"}…`) : null;
  replace(state.hero, early, data.view && current !== "play" ? bar(data.view, { onpick: (layer) => pick(layer), cache: data.cache, reported: data.cached }) : null, failures);
}

function currentTab() {
  const { tab: wanted } = state.place;
  if (wanted === "timeline" && !state.run) return "layers";
  return wanted || (["waiting", "failed"].includes(state.run?.status) ? "timeline" : "layers");
}

function tab(before = null) {
  state.view?.destroy?.();
  state.view = null;
  const current = currentTab();
  const waiting = state.run?.waiting.length;
  const tabs = TABS.filter(([name]) => name !== "timeline" || state.run).map(([name, text]) => [name, text, name === "timeline" && waiting ? String(waiting) : null]);
  const views = choice("Views", tabs, current, (name) => { go({ ...state.place, tab: name }, { replaceState: true }); }, { kind: "tab" });
  const old = state.tabs.firstElementChild;
  const hadFocus = old?.contains(document.activeElement);
  // The form stays, because the user can be typing in it.
  if (old) old.replaceWith(views);
  else state.tabs.append(views, why());
  if (hadFocus || state.focusTab) state.tabs.querySelector('[aria-selected="true"]').focus();
  state.focusTab = false;
  state.panel.setAttribute("aria-labelledby", `tab-${current}`);
  const { data } = state;
  showBar();
  const isShown = current === "timeline" || (current === "layers" && data.view);
  if (data.pending && !isShown) return replace(state.panel, h("p", { class: "loading" }, "Composing the prompt…"));
  const needsView = ["layers", "changes", "payload"].includes(current);
  if (needsView && data.error) return unknown(data.error);
  ({ layers, timeline, changes, payload, recall, play })[current](before);
}

function pick(layer) {
  if (currentTab() !== "layers") go({ ...state.place, tab: "layers" }, { replaceState: true });
  setTimeout(() => state.view?.pick?.(layer));
}

// Why is something (not) in the prompt?
function why() {
  const input = h("input", { type: "text", placeholder: "Why documents[0]?", "aria-label": "Why is a part of the context in the prompt, or not?", list: "pointers", maxlength: "400" });
  const result = h("output", { class: "why-answer", "aria-live": "polite" });
  const ask = async () => {
    const pointer = input.value.trim();
    if (!pointer) return replace(result);
    try {
      const found = await post("why", { base: base(), pointer });
      replace(result, h("b", null, shown(found.pointer)), ": ", shown(found.reason));
    } catch (error) {
      replace(result, h("span", { class: "wrong" }, shown(error.message)));
    }
  };
  const list = h("datalist", { id: "pointers" });
  const suggest = () => {
    const pointers = new Set();
    for (const row of state.data?.view?.layers || []) pointers.add(row.layer);
    for (const message of state.data?.view?.messages.slice(-6) || []) for (const piece of message.pieces) if (piece.pointer && !piece.pointer.includes(",")) pointers.add(piece.pointer);
    replace(list, [...pointers].slice(0, 60).map((one) => h("option", { value: one })));
  };
  input.addEventListener("focus", suggest);
  state.ask = (pointer) => { input.value = pointer; ask(); };
  state.closeWhy = () => replace(result);
  return h("form", { class: "why-form", onkeydown: (event) => { if (event.key === "Escape") state.closeWhy(); }, onsubmit: (event) => { event.preventDefault(); ask(); } }, input, list, result);
}

// The prompts need kwargs that this turn does not have: shows a form.
function unknown(error) {
  const agent = agentOf(agentName());
  if (error.kind !== "KwargsError" || state.run || !agent) {
    replace(state.panel, h("div", { class: "scroll page" }, problem(error, () => { state.data = null; draw(); })));
    return;
  }
  const form = new Form(agent.schema, state.session?.kwargs || {});
  replace(
    state.panel,
    h(
      "div",
      { class: "scroll page" },
      empty("This turn does not store the values of its prompts", "The agent composes the prompt again from the conversation, and needs the required values."),
      h("form", { class: "card wide", onsubmit: (event) => {
        event.preventDefault();
        const kwargs = form.values();
        if (!kwargs) return;
        (state.kwargs ||= {})[state.place.session] = kwargs;
        state.data = null;
        draw();
      } }, h("h2", null, "Fill them in to see the prompt"), form.element, h("button", { type: "submit", class: "primary" }, "Compose")),
    ),
  );
  form.fields.values().next().value?.control.focus();
}

const kwargsOf = () => (!state.run && state.kwargs?.[state.place.session] ? { kwargs: state.kwargs[state.place.session] } : {});

function layers(before) {
  const own = state.data.pending ? { ...base(), step: state.data.step } : base();
  const is_beginning = Boolean(state.data.pending);
  state.view = new LayersView(state.panel, state.data, { load: (path, message) => post(path, { base: own, message, is_beginning, ...kwargsOf() }), before });
}

function timeline(before) {
  state.view = new TimelineView(state.panel, state.run, {
    before,
    load: (start, calls) => post("events", { run: state.place.run, start, calls }).then(({ events }) => events),
    onstep: (step) => go({ ...state.place, step, tab: "layers" }),
    decide: async (decisions) => {
      await post("decide", { run: state.run.id, decisions });
      say("Decided");
      state.data = null;
      state.overview = null;
      await draw();
    },
  });
}

async function changes() {
  const mine = turnNumber;
  const { place, data, session, run } = state;
  const options = [];
  for (let step = data.step - 1; step >= 1 && options.length < 30; step--) options.push([`step:${step}`, `model call ${step} of this ${run ? "run" : "turn"}`]);
  if (session && place.turn > 0) options.push(["turn", "another turn"]);
  const others = state.overview.runs.filter((one) => one.id !== place.run).slice(0, 50);
  options.push(...others.map((one) => [`run:${one.id}`, `run: ${plain(one.input || one.id).slice(0, 50)}`]));
  const select = h("select", { "aria-label": "Compare with" }, options.map(([value, text]) => h("option", { value }, text)));
  const turn = h("input", { type: "number", min: "1", max: String(session ? session.count : 1), value: String(place.turn || 1), "aria-label": "Turn to compare with" });
  const turnBox = h("label", { class: "inline" }, "turn", turn);
  const pair = h("a", { class: "button" }, "Side by side");
  const picker = options.length ? [h("span", { class: "quiet" }, "Compared with"), select, turnBox, pair] : [];
  const load = async () => {
    turnBox.hidden = select.value !== "turn";
    const [kind, value] = [select.value.split(":")[0], select.value.slice(select.value.indexOf(":") + 1)];
    let against = null;
    if (kind === "step") against = { ...base(), step: Number(value) };
    else if (kind === "run") against = { run: value };
    else if (kind === "turn") {
      const at = Math.max(0, Math.min(session.count, Number(turn.value) || 1) - 1);
      const known = (await session.turns.fetch(at))?.run;
      if (mine !== turnNumber) return;
      against = known ? { run: known } : { session: place.session, turn: at, agent: agentName() };
    }
    pair.hidden = !run || !against?.run || against.run === run.id;
    if (!pair.hidden) pair.href = address({ compare: [against.run, run.id] });
    if (!against) return changesView(state.panel, null, picker);
    const isFocused = document.activeElement;
    try {
      const answer = await post("compose", { base: base(), against, ...kwargsOf() });
      if (mine !== turnNumber) return;
      changesView(state.panel, answer.diff, picker);
      if (picker.includes(isFocused) || turnBox.contains(isFocused)) isFocused.focus();
    } catch (error) {
      if (mine === turnNumber) replace(state.panel, h("div", { class: "scroll page" }, h("div", { class: "toolbar" }, picker), problem(error)));
    }
  };
  select.addEventListener("change", load);
  turn.addEventListener("change", load);
  await load();
}

async function payload() {
  const mine = turnNumber;
  const chosen = state.payload;
  const again = () => payload();
  const targets = choice("Target", state.overview.targets.map((name) => [name, TARGETS[name] || name]), chosen.target, (target) => { chosen.target = target; chosen.focus = true; again(); });
  const templates = h("select", { "aria-label": "Chat template", hidden: chosen.target !== "text", onchange: (event) => { chosen.chat_template = event.target.value; again(); } }, h("option", { value: "" }, "plain roles"), state.overview.chat_templates.map((name) => h("option", { value: name, selected: name === chosen.chat_template }, name)));
  const toolbar = [targets, templates];
  const body = { base: base(), target: chosen.target, ...kwargsOf() };
  if (chosen.target === "text" && chosen.chat_template) body.chat_template = chosen.chat_template;
  try {
    const answer = await post("payload", body);
    if (mine !== turnNumber) return;
    state.view?.destroy?.();
    state.view = new PayloadView(state.panel, answer, toolbar);
  } catch (error) {
    if (mine === turnNumber) replace(state.panel, h("div", { class: "stack" }, h("div", { class: "toolbar" }, toolbar), h("div", { class: "scroll page" }, problem(error))));
  }
  if (chosen.focus) targets.querySelector('[aria-checked="true"]').focus();
  chosen.focus = false;
}

function recall() {
  const recalled = state.run?.journal.events.find((event) => event.kind === "recall");
  const agent = agentOf(agentName());
  recallView(state.panel, {
    recalled,
    canAsk: agent?.memory,
    query: state.data.input || state.run?.input || "",
    namesUsers: state.overview.names_users,
    user: state.run?.user || ownerOf(state.place.session),
    ask: (query, user) => post("recall", { agent: agent.name, query, user }),
    why: (pointer) => state.ask(pointer),
  });
}

function play() {
  state.view = new PlayView(state.panel, {
    base: base(),
    data: state.data.error ? null : state.data,
    agent: agentOf(agentName()),
    compose: (body, signal) => post("compose", { ...kwargsOf(), ...body }, signal),
    load: (path, body) => post(path, { ...kwargsOf(), ...body }),
    play: state.overview.play,
    whole: kwargsOf(),
  });
}

// --- a new run

function create(place) {
  state.view?.destroy?.();
  state.view = null;
  state.run = state.data = null;
  const { agents } = state.overview;
  document.title = "New run · agentkit inspector";
  if (!agents.length) {
    replace(main, h("div", { class: "scroll page" }, back(), empty("No agents", "Open the inspector with an agent, such as `agentkit inspect RUN --agent module:agent`.")));
    return;
  }
  const agent = agents.find((one) => one.name === place.create) || agents[0];
  const panel = h("section", { class: "panel" });
  replace(main, h("div", { class: "stack new grow" }, back(), panel));
  state.view = new PlayView(panel, {
    base: { agent: agent.name },
    data: null,
    agent,
    agents,
    choose: (name) => go({ create: name }),
    sessions: state.overview.sessions,
    namesUsers: state.overview.names_users,
    canRecall: agent.memory,
    compose: (body, signal) => post("compose", body, signal),
    load: post,
    play: state.overview.play,
    start: async (body) => {
      const made = await post("start", { agent: agent.name, ...body });
      go({ run: made.run, tab: "timeline" });
    },
  });
  state.view.input.focus();
}

// --- a token, if the server requires one

onToken((error) => {
  const input = h("input", { type: "password", autocomplete: "off", "aria-label": "Token", required: true });
  let text = "Paste a token of this server. On its machine, the command “agentkit token NAME” creates a token.";
  if (hasToken()) text = shown(error.message);
  const dialog = h(
    "dialog",
    { class: "card" },
    h("form", { onsubmit: (event) => { event.preventDefault(); keepToken(input.value); dialog.close(); dialog.remove(); state.overview = null; draw(); } }, h("h2", null, "A token is needed"), h("p", null, text), input, h("button", { type: "submit", class: "primary" }, "Continue")),
  );
  document.querySelector("dialog")?.remove();
  document.body.append(dialog);
  dialog.showModal();
});

document.addEventListener("pointerdown", (event) => {
  if (!event.target.closest?.(".why-form")) state.closeWhy?.();
});

document.addEventListener("keydown", async (event) => {
  if (event.key === "Escape") state.closeWhy?.();
  if (event.target.closest?.("input, textarea, select, dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
  const at = Number(event.key);
  const buttons = state.tabs ? [...state.tabs.querySelectorAll('[role="tab"]')] : [];
  if (at >= 1 && at <= buttons.length) buttons[at - 1].click();
  else if (event.key === "/") {
    event.preventDefault();
    side.search.focus();
  } else if ((event.key === "j" || event.key === "k") && state.session && state.place.turn !== undefined) {
    const mine = turnNumber;
    const turn = await state.session.turns.fetch(state.place.turn + (event.key === "j" ? 1 : -1));
    if (turn && mine === turnNumber) go({ session: state.place.session, turn: turn.turn, run: turn.run });
  }
});

addEventListener("popstate", draw);
draw();
