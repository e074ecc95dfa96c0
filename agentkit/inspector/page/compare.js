// Two runs side by side: the prompts of their last model calls and the replies, with the differences marked.

import { h, folded, shown, number, money } from "./dom.js";
import { WORDS } from "./filters.js";
import { address } from "./place.js";
import { duration, moment } from "./times.js";

const text = (pieces, side) =>
  pieces
    .filter((piece) => piece.change === "same" || piece.change === side)
    .map((piece) => h(piece.change === "same" ? "span" : side === "added" ? "ins" : "del", null, folded(piece.text, { fold: 1600 })));

const cell = (pieces, side) => {
  const parts = text(pieces, side);
  return h("td", { dir: "auto" }, parts.length ? parts : h("span", { class: "nothing" }, "nothing"));
};

const row = (name, pieces) => h("tr", null, h("th", { scope: "row" }, name), cell(pieces, "removed"), cell(pieces, "added"));

function head(run) {
  const used = run.journal.usage;
  const facts = [
    run.agent,
    run.started_at === null ? null : moment(run.started_at),
    run.seconds === null ? null : duration(run.seconds),
    `${number(used.input + used.output)} tokens`,
    used.money === null ? null : money(used.money),
  ];
  return h(
    "th",
    { scope: "col" },
    h("a", { href: address({ run: run.id }), dir: "auto" }, shown(run.input || run.id)),
    h("p", null, h("span", { class: `pill ${run.status}` }, shown(run.error_class || WORDS[run.status])), h("small", { dir: "auto" }, shown(facts.filter(Boolean).join(" · ")))),
  );
}

// `diff` are the differences of the second run from the first run.
export function compareView(first, second, diff) {
  return h(
    "table",
    { class: "pair" },
    h("caption", null, diff.first ? `The prompts differ after ${number(diff.same_tokens)} equal tokens.` : "The prompts are equal."),
    h("thead", null, h("tr", null, h("td", null), head(first), head(second))),
    h(
      "tbody",
      null,
      diff.messages.slice(0, 400).map((block) =>
        block.change === "same"
          ? h("tr", { class: "same" }, h("td", null), h("td", { colspan: "2" }, `${number(block.count)} equal ${block.count === 1 ? "message" : "messages"}`))
          : row(block.role, block.pieces),
      ),
      diff.messages.length > 400 ? h("tr", { class: "same" }, h("td", null), h("td", { colspan: "2" }, `${number(diff.messages.length - 400)} more differences`)) : null,
    ),
    h("tbody", { class: "answers" }, row("Reply", diff.reply)),
  );
}
