// A composition: the bar of its layers, and its messages with the origin of each piece.

import { h, replace, folded, shown, number, percent, plain, empty } from "./dom.js";
import { Parts } from "./parts.js";
import { replyView } from "./reply.js";
import { Rows } from "./rows.js";

const PLACES = {
  tools: "Tools",
  system: "System",
  conversation: "Conversation",
  before_input: "Before the input",
  input: "Input",
  after_input: "After the input",
  intermediate: "Tool traffic",
  after_intermediate: "After the tool traffic",
  output: "Answer schema",
  overhead: "Framing",
};

export const placeOf = (path) => /^\w+/.exec(path)?.[0] || "overhead";
export const layerOf = (path) => /^\w+(\[\d+\])?/.exec(path)?.[0] || path;

export function hue(path) {
  const place = placeOf(path);
  const index = Number(/\[(\d+)\]/.exec(layerOf(path))?.[1] || 0);
  return `hue place-${place in PLACES ? place : "overhead"} alt-${index % 3}`;
}

export function title(row) {
  const place = PLACES[row.place] || row.place;
  if (row.prompt === "UserInputPrompt") return "User input";
  return ["tools", "conversation", "intermediate", "output", "overhead"].includes(row.place) ? place : row.prompt;
}

const counted = (length) => `${number(length)} character${length === 1 ? "" : "s"}`;

// Text about the prefix that a provider can cache; `reported` is the number of tokens that the provider read from its
// cache, and `cache` its minimum, as far as they are known.
function cacheable(view, cache, reported) {
  if (reported) return `Cached prefix: ${number(reported)} tokens, reported by the provider`;
  if (!view.prefix.tokens) return "The first layer changes every turn: no prefix can be cached";
  const text = `Cacheable prefix: ${number(view.prefix.tokens)} tokens, ${percent(view.prefix.tokens / (view.tokens || 1))}`;
  if (!cache) return text;
  const least = `${cache.provider} caches ${number(cache.tokens)} tokens or more`;
  return view.prefix.tokens < cache.tokens ? `${text}; too short: ${least}` : `${text}; ${least}`;
}

// The bar: the width of a layer is its share of the tokens; the cacheable prefix is marked below.
export function bar(view, { onpick, cache, reported } = {}) {
  const rows = view.layers.filter((row) => row.tokens > 0);
  const covered = rows.reduce((sum, row) => sum + (row.cached ? row.share : 0), 0) / (rows.reduce((sum, row) => sum + row.share, 0) || 1);
  const limit = view.budget?.tokens;
  return h(
    "figure",
    { class: "bar", "aria-label": `Layers of ${number(view.tokens)} tokens` },
    h(
      "div",
      { class: "segments" },
      rows.map((row) =>
        h(
          "button",
          {
            type: "button",
            class: `segment ${hue(row.layer)}`,
            vars: { "flex-grow": String(Math.max(row.share, 0.004)) },
            "data-layer": row.layer,
            "aria-label": `${title(row)}: ${number(row.tokens)} tokens, ${percent(row.share)}`,
            title: `${title(row)} (${row.layer})\n${number(row.tokens)} tokens, ${percent(row.share)}`,
            onclick: () => onpick?.(row.layer),
          },
          row.share > 0.085 ? h("span", null, title(row)) : null,
        ),
      ),
    ),
    h(
      "figcaption",
      null,
      view.prefix.tokens
        ? h("span", { class: "prefix", vars: { "--share": String(Math.min(1, covered)), "--gaps": String(rows.length - 1), "--inner": String(Math.max(0, rows.filter((row) => row.cached).length - 1)) }, "aria-hidden": "true" })
        : null,
      h(
        "span",
        { class: "caption" },
        h("span", { title: view.prefix.tokens ? `prefix ${view.prefix.hash}` : undefined }, cacheable(view, cache, reported)),
        h(
          "span",
          null,
          limit ? `${number(view.tokens)} of ${number(limit)} tokens` : `${number(view.tokens)} tokens`,
          view.counter.estimated ? ", estimated" : `, ${plain(view.counter.name)}`,
        ),
      ),
    ),
  );
}

export function legend(view, { onpick, onpoint, changes } = {}) {
  const delta = new Map((changes?.layers || []).map((row) => [row.layer, row]));
  const rows = view.layers.map((row) => {
    const change = delta.get(row.layer);
    const difference = change ? change.tokens - change.tokens_before : 0;
    return h(
      "li",
      { class: `layer ${hue(row.layer)} ${row.status} ${row.tokens ? "" : "nothing"}` },
      h(
        "button",
        {
          type: "button",
          "data-layer": row.layer,
          onclick: () => onpick?.(row.layer),
          onmouseenter: () => onpoint?.(row.layer),
          onmouseleave: () => onpoint?.(null),
          onfocus: () => onpoint?.(row.layer),
          onblur: () => onpoint?.(null),
        },
        h("span", { class: "swatch", "aria-hidden": "true" }),
        h("span", { class: "name" }, shown(title(row)), h("small", { dir: "auto" }, shown(row.layer))),
        h(
          "span",
          { class: "amount" },
          number(row.tokens),
          h("small", null, difference ? h("em", { class: difference > 0 ? "up" : "down" }, `${difference > 0 ? "+" : "−"}${number(Math.abs(difference))}`) : percent(row.share)),
        ),
      ),
      row.status !== "kept" || row.why
        ? h("p", { class: "why" }, h("b", null, row.status === "kept" ? "kept" : row.status), row.why ? [": ", shown(row.why)] : null)
        : null,
      row.redacted?.length
        ? h(
            "details",
            { class: "why redacted" },
            h("summary", null, `${number(row.redacted.length)} replaced before sending`),
            row.redacted.map((one) => h("p", { dir: "auto" }, h("code", null, shown(one.placeholder)), " ", shown(one.text))),
          )
        : null,
    );
  });
  return h("ul", { class: "legend", "aria-label": "Layers in the order they are sent" }, rows);
}

function unsent(view) {
  if (!view.unsent.length) return null;
  return h(
    "details",
    { class: "unsent" },
    h("summary", null, `${number(view.unsent.length)} not sent`),
    h(
      "ul",
      null,
      view.unsent.slice(0, 200).map((one) =>
        h("li", null, h("code", null, shown(view.names[one.pointer] || one.pointer)), " ", h("span", { dir: "auto" }, shown(one.text)), one.why ? h("p", null, shown(one.why)) : null),
      ),
    ),
  );
}

// Declarations outside of the messages: tools, and the schema of the answer.
function declared(view) {
  if (!view.tools.length && !view.output) return null;
  const row = view.layers.find((one) => one.place === "tools");
  const named = view.tools.length ? `${number(view.tools.length)} tool${view.tools.length === 1 ? "" : "s"}, ${number(row?.tokens)} tokens` : "Answer schema";
  return h(
    "details",
    { class: `declared ${hue(view.tools.length ? "tools" : "output")}` },
    h("summary", null, h("span", { class: "swatch", "aria-hidden": "true" }), named, h("small", null, "declared before the messages")),
    view.tools.slice(0, 300).map((tool) =>
      h("article", null, h("h3", { dir: "auto" }, shown(tool.name)), h("p", { dir: "auto" }, folded(tool.description)), h("pre", { dir: "auto" }, folded(JSON.stringify(tool.parameters, null, 1), { fold: 1200 }))),
    ),
    view.output ? h("article", null, h("h3", null, "Answer schema"), h("pre", { dir: "auto" }, folded(JSON.stringify(view.output, null, 1), { fold: 1200 }))) : null,
  );
}

const ITEM = /\b(?:documents|knowledge|recalled|examples)\[\d+\]/g;

// The names of the items of a pointer, such as `policies/shipping.md#1` for `documents[4].text`.
const named = (pointer, names) => [...new Set(pointer.match(ITEM) || [])].map((item) => names[item]).filter(Boolean);

export function provenance(piece, view, prompts = []) {
  if (!piece)
    return h("div", { class: "card hint" }, h("h3", null, "Where is this from?"), h("p", null, "Point at a piece of text, or reach it with Tab and the arrow keys."));
  const row = view.layers.find((one) => one.layer === layerOf(piece.prompt));
  const prompt = prompts.find((one) => one.path === piece.prompt);
  const file = prompt?.file;
  const sources = piece.pointer ? named(piece.pointer, view.names) : [];
  const rows = [
    ["From", sources.length ? sources.map((name) => h("b", { class: "source" }, shown(name))) : null],
    ["Layer", row ? title(row) : "between prompts"],
    ["Prompt", [prompt ? [shown(prompt.kind === prompt.name ? prompt.kind : `${prompt.kind} ${prompt.name}`), " "] : null, h("code", null, shown(piece.prompt))]],
    ["Template line", piece.line ? String(piece.line) : null],
    ["File", file ? h("code", null, shown(file)) : null],
    ["Context", piece.pointer ? h("code", null, shown(piece.pointer)) : "text of the template"],
    ["Media", piece.media || null],
    ["Length", counted(piece.text.length + (piece.omitted || 0))],
  ];
  return h(
    "div",
    { class: `card ${hue(piece.prompt)}` },
    h("h3", null, h("span", { class: "swatch", "aria-hidden": "true" }), "Where this is from"),
    h("dl", null, rows.filter(([, value]) => value).map(([name, value]) => [h("dt", null, name), h("dd", { dir: "auto" }, value)])),
    h(
      "p",
      { class: `trust ${piece.trust}` },
      piece.trust === "trusted" ? "Trusted: written by the developer." : "Untrusted: from a user, a document, a tool or a model.",
    ),
  );
}

// The tab: messages in the middle, layers and origins at the side.
export class LayersView {
  constructor(panel, data, { load, changes, aside = true, before = null } = {}) {
    this.view = data.view;
    this.data = data;
    this.load = load;
    this.panel = panel;
    const loaded = (start) => load("messages", start).then(({ messages }) => messages);
    this.messages = new Parts(data.view.count, data.view.messages, "index", loaded, (at) => this.isGone || this.rows?.redraw(at));
    this.pinned = null;
    this.at = [0, 0];
    this.list = h("div", { class: "messages", role: "list", "aria-label": "Messages as they are sent", tabindex: "-1" });
    this.card = h("div", { class: "provenance", id: "provenance", "aria-live": "polite" });
    const onpick = (layer) => this.pick(layer);
    const onpoint = (layer) => this.point(layer);
    const side = h(
      "aside",
      { class: "beside", "aria-label": "Layers" },
      h("div", { class: "scroll" }, legend(this.view, { onpick, onpoint, changes }), unsent(this.view)),
      this.card,
    );
    this.declared = declared(this.view);
    const scroller = h("div", { class: "scroll messages-scroll" }, this.declared, this.list, aside ? replyView(data.reply) : null);
    replace(panel, h("div", { class: "split" }, scroller, aside ? side : null));
    this.tell(null);
    if (!this.messages.count) {
      replace(scroller, empty("Nothing would be sent", "All prompts are empty."));
      return;
    }
    this.rows = new Rows(scroller, this.list, {
      count: this.messages.count,
      estimate: 76,
      like: before?.rows,
      render: (at) => this.message(at),
    });
    if (before) {
      scroller.scrollTop = before.top;
      this.rows.measure();
    }
    this.list.addEventListener("keydown", (event) => this.move(event));
    this.list.addEventListener("mouseover", (event) => this.hover(event));
    this.list.addEventListener("mouseleave", () => this.tell(this.pinned));
    this.list.addEventListener("focusin", (event) => {
      const piece = event.target.closest?.(".piece");
      if (piece) this.focus(piece);
    });
  }

  get top() {
    return this.rows?.scroller.scrollTop || 0;
  }

  destroy() {
    this.isGone = true;
    this.rows?.destroy();
  }

  message(at) {
    const message = this.messages.at(at);
    if (!message) {
      const row = h("article", { class: "message pending", "aria-busy": "true", "aria-label": `message ${number(at + 1)}, loading` });
      setTimeout(() => row.isConnected && this.messages.fetch(at));
      return row;
    }
    const pieces = message.pieces.map((piece, index) => this.piece(piece, at, index));
    const extra = [];
    if (message.thinking)
      extra.push(h("details", { class: "thinking" }, h("summary", null, "Thinking"), h("p", { dir: "auto" }, folded(message.thinking))));
    for (const call of message.calls || [])
      extra.push(
        h("p", { class: "call" }, h("span", { class: "verb" }, "calls "), h("b", { dir: "auto" }, shown(call.name)), h("code", { dir: "auto" }, folded(call.arguments, { fold: 600 })), h("small", null, shown(call.id))),
      );
    return h(
      "article",
      { class: `message role-${message.role}`, "aria-label": `${message.role} message, ${number(message.tokens)} tokens` },
      h(
        "header",
        null,
        h("span", { class: "role" }, message.role),
        message.name ? h("span", { class: "of", dir: "auto" }, shown(message.name)) : null,
        h("span", { class: "size" }, number(message.tokens)),
      ),
      h("div", { class: "text" }, pieces, extra, !pieces.length && !extra.length ? h("p", { class: "nothing" }, "no text") : null),
    );
  }

  piece(piece, at, index) {
    if (piece.cache)
      return h(
        "span",
        { class: "cache-mark", title: `The prompt before this point is stable (${piece.cache})` },
        h("span", null, `cacheable up to here, ${number(piece.tokens)} tokens`, h("small", null, piece.cache)),
      );
    if (!piece.text.trim() && !piece.pointer && !/\[/.test(piece.prompt)) return h("span", { class: "gap" }, piece.text);
    const current = this.at[0] === at && this.at[1] === index;
    return h(
      "span",
      {
        class: `piece ${hue(piece.prompt)} ${piece.trust} ${piece.media ? "media" : ""}`,
        role: "note",
        tabindex: current ? "0" : "-1",
        "data-at": `${at}:${index}`,
        "data-layer": layerOf(piece.prompt),
        "aria-describedby": "provenance",
      },
      folded(piece.text, { more: piece.omitted || 0, load: () => this.whole(at, index) }),
    );
  }

  async whole(at, index) {
    const message = await this.load("message", at);
    return message.pieces[index].text;
  }

  of(element) {
    const [at, index] = element.dataset.at.split(":").map(Number);
    return this.messages.at(at).pieces[index];
  }

  hover(event) {
    const piece = event.target.closest?.(".piece");
    if (piece) this.tell(this.of(piece));
  }

  focus(element) {
    const old = this.list.querySelector('.piece[tabindex="0"]');
    if (old && old !== element) old.setAttribute("tabindex", "-1");
    element.setAttribute("tabindex", "0");
    this.at = element.dataset.at.split(":").map(Number);
    this.pinned = this.of(element);
    this.tell(this.pinned);
  }

  tell(piece) {
    if (this.shown === piece && this.card.firstChild) return;
    this.shown = piece;
    this.card.classList.toggle("open", Boolean(piece));
    replace(this.card, provenance(piece, this.view, this.data.prompts));
    if (piece) this.card.firstChild.append(h("button", { type: "button", class: "quiet close", "aria-label": "Close", onclick: () => this.unpin() }, "×"));
  }

  unpin() {
    this.pinned = null;
    this.tell(null);
  }

  async move(event) {
    if (!event.target.closest?.(".piece") || event.target.tagName === "BUTTON") return;
    if (event.key === "Escape") {
      this.unpin();
      event.target.blur();
      return;
    }
    const forward = ["ArrowRight", "ArrowDown"].includes(event.key);
    if (!forward && !["ArrowLeft", "ArrowUp", "Home", "End"].includes(event.key)) return;
    event.preventDefault();
    let [at, index] = this.at;
    const usable = (row) => [...(this.rows.nodes.get(row)?.querySelectorAll(".piece") || [])];
    const enter = async (row, last) => {
      for (let next = row; next >= 0 && next < this.rows.count; next += last ? -1 : 1) {
        if (!(await this.messages.fetch(next)) || this.isGone) return null;
        this.rows.show(next);
        const found = usable(next);
        if (found.length) return found[last ? found.length - 1 : 0];
      }
      return null;
    };
    let target = null;
    if (event.key === "Home") target = await enter(0, false);
    else if (event.key === "End") target = await enter(this.rows.count - 1, true);
    else if (event.key === "ArrowDown") target = await enter(at + 1, false);
    else if (event.key === "ArrowUp") target = await enter(at - 1, true);
    else {
      const here = usable(at);
      const place = here.findIndex((one) => one.dataset.at === `${at}:${index}`) + (forward ? 1 : -1);
      target = here[place] || await enter(at + (forward ? 1 : -1), !forward);
    }
    target?.focus();
  }

  async pick(layer) {
    if (["tools", "output"].includes(layer) && this.declared) {
      this.declared.open = true;
      this.declared.scrollIntoView({ block: "start" });
      this.declared.querySelector("summary").focus({ preventScroll: true });
      return;
    }
    const at = this.view.layers.find((row) => row.layer === layer)?.message ?? -1;
    if (at < 0 || !this.rows) return;
    if (!(await this.messages.fetch(at)) || this.isGone) return;
    const node = this.rows.show(at, { block: "start" });
    const found = [...(node?.querySelectorAll(".piece") || [])].filter((one) => one.dataset.layer === layer);
    (found.find((one) => this.of(one).pointer) || found[0])?.focus({ preventScroll: true });
    found[0]?.scrollIntoView({ block: "nearest" });
  }

  point(layer) {
    this.list.classList.toggle("pointing", Boolean(layer));
    for (const node of this.list.querySelectorAll(".piece")) node.classList.toggle("pointed", node.dataset.layer === layer);
  }
}
