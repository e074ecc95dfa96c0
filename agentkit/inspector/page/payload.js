// The raw payload per target, line by line. Control tokens of a chat template are marked.

import { h, replace, folded, plain, number, icon, say } from "./dom.js";
import { Rows } from "./rows.js";

const JSON_PART = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(?:true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const MAX_COLOURED = 4000;

function lines(pieces) {
  const found = [[]];
  for (const piece of pieces) {
    piece.text.split("\n").forEach((text, index) => {
      if (index) found.push([]);
      if (text) found.at(-1).push({ text, kind: piece.kind });
    });
  }
  return found;
}

function coloured(text) {
  if (text.length > MAX_COLOURED) return folded(text);
  const nodes = [];
  let at = 0;
  for (const found of text.matchAll(JSON_PART)) {
    if (found.index > at) nodes.push(...folded(text.slice(at, found.index)));
    const kind = found[1] ? (found[2] ? "key" : "string") : /^[-\d]/.test(found[0]) ? "number" : "word";
    const quoted = found[1] || found[0];
    nodes.push(h("span", { class: `json-${kind}` }, folded(quoted)));
    if (found[2]) nodes.push(document.createTextNode(found[2]));
    at = found.index + found[0].length;
  }
  if (at < text.length) nodes.push(...folded(text.slice(at)));
  return nodes;
}

export class PayloadView {
  constructor(panel, answer, toolbar) {
    const isText = answer.target === "text";
    const all = lines(answer.pieces);
    const counts = { control: 0, broken: 0 };
    for (const piece of answer.pieces) if (piece.kind in counts) counts[piece.kind] += 1;
    const list = h("div", { class: "code", role: "list", "aria-label": "Lines of the payload", tabindex: "0" });
    const scroller = h("div", { class: "scroll" }, list);
    const copy = h("button", { type: "button", class: "quiet" }, icon("copy"), "Copy");
    copy.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(answer.pieces.map((piece) => piece.text).join(""));
        say("Copied");
        copy.lastChild.textContent = "Copied";
      } catch {
        copy.lastChild.textContent = "Not allowed";
      }
      setTimeout(() => (copy.lastChild.textContent = "Copy"), 1500);
    });
    const notes = [];
    if (isText && answer.chat_template) notes.push(h("span", { class: "note" }, h("i", { class: "control" }, "token"), ` ${number(counts.control)} control tokens`));
    if (counts.broken) notes.push(h("span", { class: "note" }, h("i", { class: "broken" }, "token"), ` ${number(counts.broken)} broken: untrusted text contains their characters`));
    replace(panel, h("div", { class: "stack" }, h("div", { class: "toolbar" }, toolbar, h("span", { class: "grow" }), notes, copy), scroller));
    this.rows = new Rows(scroller, list, {
      count: all.length,
      estimate: 21,
      render: (at) =>
        h(
          "div",
          { class: "line" },
          h("span", { class: "no", "aria-hidden": "true" }, String(at + 1)),
          h(
            "code",
            null,
            all[at].map((piece) =>
              piece.kind === "text"
                ? isText
                  ? folded(piece.text)
                  : coloured(piece.text)
                : h("i", { class: piece.kind, title: piece.kind === "control" ? "control token of the template" : "not a control token: a zero-width space breaks it" }, plain(piece.text).replaceAll("\ufffd", "·")),
            ),
          ),
        ),
    });
  }

  destroy() {
    this.rows.destroy();
  }
}
