// Differences to another turn: a table of layers, then the text word by word.

import { h, replace, folded, shown, number, percent, empty } from "./dom.js";
import { hue, placeOf, title } from "./layers.js";

export function changesView(panel, diff, picker) {
  const top = h("div", { class: "toolbar" }, picker);
  if (!diff) {
    replace(panel, h("div", { class: "scroll page" }, top, empty("Nothing to compare with", "Choose another turn or step above.")));
    return;
  }
  const first = diff.first;
  const share = diff.same_tokens / (diff.tokens || 1);
  const head = h(
    "section",
    { class: "summary" },
    h("p", { class: "big" }, first ? `${percent(share)} the same` : "The same, word by word"),
    first
      ? h(
          "p",
          null,
          `The first ${number(diff.same_tokens)} tokens are equal and can come from a cache. The first difference is in `,
          h("code", null, shown(first.layer)),
          ".",
        )
      : h("p", null, `All ${number(diff.tokens)} tokens are equal.`),
    h("p", { class: "meter", role: "img", "aria-label": `${percent(share)} equal` }, h("span", { vars: { width: `${share * 100}%` } })),
  );
  const most = Math.max(1, ...diff.layers.map((row) => Math.max(row.tokens, row.tokens_before)));
  const table = h(
    "table",
    { class: "deltas" },
    h("caption", null, "Layers"),
    h("thead", null, h("tr", null, ["Layer", "Before", "Now", "", "Change"].map((name) => h("th", { scope: "col", class: name ? undefined : "bars" }, name)))),
    h(
      "tbody",
      null,
      diff.layers.map((row) => {
        const difference = row.tokens - row.tokens_before;
        return h(
          "tr",
          { class: `${hue(row.layer)} ${row.change}` },
          h("th", { scope: "row" }, h("span", { class: "swatch", "aria-hidden": "true" }), shown(title({ ...row, place: placeOf(row.layer) })), h("small", null, shown(row.layer))),
          h("td", null, number(row.tokens_before)),
          h("td", null, number(row.tokens)),
          h(
            "td",
            { class: "bars", "aria-hidden": "true" },
            h("i", { class: "old", vars: { width: `${(row.tokens_before / most) * 100}%` } }),
            h("i", { vars: { width: `${(row.tokens / most) * 100}%` } }),
          ),
          h("td", null, h("span", { class: `tag ${row.change}` }, row.change === "same" ? "same" : difference ? `${difference > 0 ? "+" : "−"}${number(Math.abs(difference))}` : row.change)),
        );
      }),
    ),
  );
  const shownMessages = diff.messages.slice(0, 400);
  const messages = h(
    "div",
    { class: "differences", "aria-label": "Messages" },
    shownMessages.map((block) =>
      block.change === "same"
        ? h("p", { class: "same" }, `${number(block.count)} ${block.count === 1 ? "message" : "messages"} unchanged`)
        : h(
            "article",
            { class: `message ${block.change}` },
            h("header", null, h("span", { class: "role" }, block.role), h("span", { class: `tag ${block.change}` }, block.change)),
            h(
              "div",
              { class: "text", dir: "auto" },
              block.pieces.map((piece) =>
                piece.change === "same"
                  ? h("span", null, folded(piece.text, { fold: 700 }))
                  : h(piece.change === "added" ? "ins" : "del", null, folded(piece.text, { fold: 1600 })),
              ),
            ),
          ),
    ),
    diff.messages.length > shownMessages.length ? h("p", { class: "same" }, `${number(diff.messages.length - shownMessages.length)} more differences`) : null,
  );
  replace(panel, h("div", { class: "scroll page" }, top, head, table, messages));
}
