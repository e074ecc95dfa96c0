// The lists of runs, sessions, and turns of a session.

import { h, replace, shown, number, money, icon, choice, empty, tagsOf, toolErrors } from "./dom.js";
import { WORDS, filtersView } from "./filters.js";
import { Rows } from "./rows.js";
import { RunList } from "./runlist.js";
import { brief, duration, moment } from "./times.js";

const TYPING = 250; // milliseconds after the last key until the server searches

export class Side {
  constructor(element, { go, more, theme }) {
    Object.assign(this, { element, go, more, tab: "runs", filter: "", runs: new RunList() });
    this.search = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter the list" });
    this.search.addEventListener("input", () => {
      this.filter = this.search.value.toLowerCase();
      clearTimeout(this.typing);
      if (this.isOfRuns) this.typing = setTimeout(() => this.change({ text: this.search.value.trim() }), TYPING);
      else this.list();
    });
    this.tabs = h("div");
    this.scroller = h("div", { class: "scroll", id: "side-list" });
    this.head = h("div", { class: "side-head" });
    replace(
      element,
      h("header", { class: "brand" }, h("a", { href: "#/", class: "mark", "aria-label": "agentkit inspector" }, h("i"), h("i"), h("i"), h("i")), h("b", null, "agentkit"), h("span", null, "inspector"), h("span", { class: "grow" }), theme),
      this.head,
      this.scroller,
      (this.foot = h("footer", { hidden: true }, h("a", { class: "button primary", href: "#/new" }, icon("plus"), "New run"))),
    );
  }

  // True if the list is the list of runs, which the server filters.
  get isOfRuns() {
    return !this.session && this.tab === "runs";
  }

  // Requests the runs with changed filters.
  async change(changes) {
    const loading = this.runs.filter(changes);
    this.scroller.scrollTop = 0;
    this.list();
    await loading;
    if (this.isOfRuns) this.list();
  }

  async moreRuns() {
    await this.runs.more();
    if (this.isOfRuns) this.list();
  }

  // Draws the list again: `overview` has runs and sessions, `session` has its turns.
  show(overview, session, current) {
    const isOther = this.session?.session !== session?.session;
    const isKnown = this.overview === overview && this.session === session && this.rows;
    const isMoved = isOther || this.current?.turn !== current.turn || this.current?.run !== current.run;
    if (this.overview !== overview) this.runs.take(overview);
    Object.assign(this, { overview, session, current });
    this.foot.hidden = !overview.agents.length;
    if (isOther) {
      this.filter = this.search.value = session ? "" : this.runs.query.text;
      if (this.rows) this.scroller.scrollTop = 0;
    }
    if (isKnown) this.select(isMoved);
    else this.list(isMoved);
  }

  // Selects another item of the same list.
  select(isMoved) {
    const at = this.shownItems.findIndex((item) => this.isCurrent(item));
    this.at = at;
    if (at >= 0 && isMoved) this.rows.show(at);
    this.mark();
  }

  // Items of the list: runs, names of sessions, or numbers of turns.
  items() {
    const fits = (...texts) => !this.filter || texts.some((text) => String(text ?? "").toLowerCase().includes(this.filter));
    if (this.session && !this.filter) return Array.from({ length: this.session.count }, (_, turn) => turn);
    if (this.session) return this.session.turns.items.filter((turn) => fits(turn.input, turn.answer, turn.turn, turn.tools.join(" "))).map((turn) => turn.turn);
    if (this.tab === "runs") return this.runs.runs;
    return this.overview.sessions.filter((name) => fits(name));
  }

  counted(name) {
    if (name === "runs") return `${number(this.runs.runs.length)}${this.runs.older || this.runs.isLoading ? "+" : ""}`;
    return `${number(this.overview.sessions.length)}${this.overview.has_more_sessions ? "+" : ""}`;
  }

  list(jump = false) {
    const select = (tab) => {
      this.tab = tab;
      this.search.value = tab === "runs" ? this.runs.query.text : "";
      this.filter = this.search.value.toLowerCase();
      this.scroller.scrollTop = 0;
      this.list();
      this.tabs.querySelector('[aria-checked="true"]')?.focus();
    };
    const focused = this.head.contains(document.activeElement) ? document.activeElement : null;
    // Filters with the focus stay: the user can be typing in them.
    if (!this.filters?.contains(focused)) this.filters = filtersView(this.runs, this.overview.agents, (changes) => this.change(changes), this.filters?.open);
    if (this.session)
      replace(
        this.head,
        h("div", { class: "back" }, h("button", { type: "button", class: "quiet", onclick: () => this.go({}) }, icon("back"), "All"), h("b", { dir: "auto" }, shown(this.session.session))),
        h("p", { class: "quiet" }, `${number(this.session.count)} turns, ${number(this.session.tokens)} tokens`),
        this.search,
      );
    else
      replace(
        this.head,
        replace(this.tabs, choice("List", [["runs", "Runs", this.counted("runs")], ["sessions", "Sessions", this.counted("sessions")]], this.tab, select)),
        this.search,
        this.tab === "runs" ? this.filters : null,
      );
    if (focused?.isConnected) focused.focus({ preventScroll: true });
    this.rows?.destroy();
    const top = jump ? 0 : this.scroller.scrollTop;
    const hadFocus = this.box?.contains(document.activeElement);
    const { session, filter } = this;
    let isSearching = filter && (session ? session.turns.missing > 0 : this.overview.has_more_sessions);
    if (this.isOfRuns) isSearching = this.runs.isLoading;
    else if (isSearching && !session) this.more();
    else if (isSearching) {
      const { missing } = session.turns;
      session.turns.all().then(() => {
        const hasMore = session.turns.missing < missing; // unavailable turns are requested once
        if (hasMore && this.session === session && this.filter === filter) this.list();
      });
    }
    const items = this.items();
    this.shownItems = items;
    if (!items.length) {
      this.rows = null;
      replace(this.scroller, isSearching ? empty("Searching", "Older entries are loading.") : this.filter || (this.isOfRuns && this.runs.isFiltered) ? empty("No matches", "Try other words or other filters.") : this.tab === "runs" && !this.session ? empty("No runs yet", this.overview.agents.length ? "Start a run below." : "Runs appear here when they start.") : empty("No sessions", "A run with a new session name creates a session."));
      return;
    }
    this.box = h("div", { role: "listbox", tabindex: "0", class: "items", vars: this.session ? { "--digits": String(String(this.session.count).length) } : {}, "aria-label": this.session ? "Turns" : this.tab === "runs" ? "Runs" : "Sessions" });
    this.box.addEventListener("keydown", (event) => this.key(event));
    replace(this.scroller, this.box);
    this.rows = new Rows(this.scroller, this.box, {
      count: items.length,
      estimate: this.session ? 78 : this.tab === "runs" ? 86 : 46,
      role: "option",
      render: (at) => this.row(items[at], at),
      at: jump ? items.findIndex((item) => this.isCurrent(item)) : 0,
    });
    if (!jump) {
      this.scroller.scrollTop = top;
      if (top) this.rows.measure();
    }
    if (hadFocus) this.box.focus({ preventScroll: true });
    this.select(jump);
  }

  isCurrent(item) {
    if (this.session) return item === this.current.turn;
    return this.tab === "runs" ? item.id === this.current.run : item === this.current.session;
  }

  row(item, at) {
    const open = () => this.open(item);
    const props = { class: "item", id: `item-${at}`, onclick: open, "aria-selected": String(this.isCurrent(item)) };
    return this.session ? this.turn(item, at, props) : this.other(item, props);
  }

  turn(item, at, props) {
    const turn = this.session.turns.at(item);
    const no = h("span", { class: "no" }, String(item + 1));
    if (!turn) {
      const { session, box } = this;
      const row = h("div", { ...props, class: "item pending", "aria-busy": "true" }, h("p", { class: "first" }, no, h("span", { class: "line" }, "…")));
      setTimeout(async () => {
        if (row.isConnected && (await session.turns.fetch(item)) && box === this.box) this.rows.redraw(at);
      });
      return row;
    }
    return h(
      "div",
      props,
      h("p", { class: "first" }, no, h("span", { class: "line", dir: "auto" }, shown(turn.input || "(no input)"))),
      h("p", { class: "second line", dir: "auto" }, shown(turn.answer || (turn.tools.length ? "…" : "no answer"))),
      h(
        "p",
        { class: "third" },
        h("span", { class: "meter", "aria-hidden": "true" }, h("span", { vars: { width: `${Math.max(3, (turn.tokens / this.session.most) * 100)}%` } })),
        h("span", null, `${number(turn.tokens)} tokens`),
        turn.tools.length ? h("span", null, icon("tool"), shown([...new Set(turn.tools)].slice(0, 2).join(", "))) : null,
        turn.run ? h("span", { class: "tag" }, "run") : null,
      ),
    );
  }

  other(item, props) {
    const isLast = item === this.shownItems.at(-1);
    if (this.tab === "runs") {
      if (isLast && this.runs.older && !this.runs.isLoading) setTimeout(() => this.moreRuns());
      return this.run(item, props);
    }
    if (isLast && this.overview.has_more_sessions) this.more();
    return h("div", props, h("p", { class: "first" }, h("span", { class: "line", dir: "auto" }, shown(item))));
  }

  run(run, props) {
    const tokens = run.usage.input + run.usage.output;
    return h(
      "div",
      props,
      h("p", { class: "first" }, h("span", { class: `status ${run.status}`, title: WORDS[run.status] }), h("span", { class: "line", dir: "auto" }, shown(run.input || "(no input)"))),
      h(
        "p",
        { class: "third" },
        h("span", { class: "name", dir: "auto" }, shown(run.agent)),
        run.session ? h("span", { class: "name", dir: "auto" }, shown(run.session)) : null,
        run.user && !run.session ? h("span", { class: "name", dir: "auto" }, shown(run.user)) : null,
        h("span", { class: "grow" }),
        h("span", { class: `word ${run.status}`, dir: "auto", title: WORDS[run.status] }, shown(run.error_class || WORDS[run.status] || run.status)),
      ),
      h(
        "p",
        { class: "third figures" },
        run.started_at === null ? null : h("span", { title: `started ${moment(run.started_at)}` }, brief(run.started_at)),
        run.seconds === null ? null : h("span", { title: "duration" }, duration(run.seconds)),
        h("span", { class: "grow" }),
        tokens ? h("span", null, `${number(tokens)} tokens`) : null,
        run.usage.money ? h("span", { title: "cost" }, money(run.usage.money)) : null,
      ),
      run.tool_errors || run.tags.length ? h("p", { class: "third tags" }, toolErrors(run.tool_errors), tagsOf(run)) : null,
    );
  }

  async open(item) {
    if (this.session) {
      const { session, at } = this;
      const turn = await session.turns.fetch(item);
      if (turn && this.session === session && this.at === at) this.go({ session: session.session, turn: item, run: turn.run });
    } else if (this.tab === "runs") this.go({ run: item.id });
    else this.go({ session: item });
  }

  mark() {
    for (const [at, node] of this.rows.nodes) node.setAttribute("aria-selected", String(this.isCurrent(this.shownItems[at])));
    if (this.at >= 0) this.box.setAttribute("aria-activedescendant", `item-${this.at}`);
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / 80));
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
    if (!step) {
      if (event.key === "Enter" && this.at >= 0) this.open(this.shownItems[this.at]);
      return;
    }
    event.preventDefault();
    const from = this.at < 0 && Number.isFinite(step) ? -Math.sign(step) : this.at;
    this.at = Math.max(0, Math.min(this.shownItems.length - 1, from + step));
    this.rows.show(this.at);
    this.box.setAttribute("aria-activedescendant", `item-${this.at}`);
    this.open(this.shownItems[this.at]);
  }
}
