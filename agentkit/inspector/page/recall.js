// Hits of a recall, each with its score and the parts of the score.

import { h, replace, folded, shown, number, problem, empty, icon } from "./dom.js";

const HUES = 6;

function parts(hit, most) {
  const named = Object.entries(hit.parts || {}).filter(([, value]) => Number.isFinite(value) && value !== 0);
  if (!named.length) return null;
  return h(
    "div",
    { class: "parts" },
    h(
      "div",
      { class: "stacked", role: "img", "aria-label": named.map(([name, value]) => `${name} ${value.toFixed(2)}`).join(", ") },
      named.filter(([, value]) => value > 0).map(([name, value], index) => h("i", { class: `part-${index % HUES}`, title: `${name} ${value.toFixed(3)}`, vars: { width: `${(value / most) * 100}%` } })),
    ),
    h(
      "p",
      null,
      named.map(([name, value]) => {
        const at = named.filter(([, one]) => one > 0).findIndex(([other]) => other === name);
        return h("span", { class: value < 0 ? "minus" : "" }, value > 0 ? h("i", { class: `part-${at % HUES}`, "aria-hidden": "true" }) : null, shown(name), " ", h("b", null, `${value > 0 ? "+" : "−"}${Math.abs(value).toFixed(2)}`));
      }),
    ),
  );
}

export function hits(answer, { why } = {}) {
  if (!answer.hits.length) return empty("No hits", "The memory has no item for this query.");
  const sums = answer.hits.map((hit) => Object.values(hit.parts || {}).reduce((sum, value) => sum + Math.max(0, value || 0), 0));
  const most = Math.max(...sums, 1e-9);
  return h(
    "ol",
    { class: "hits" },
    answer.hits.map((hit, index) =>
      h(
        "li",
        { class: hit.used ? "hit" : "hit unused" },
        h(
          "header",
          null,
          h("span", { class: "rank" }, String(index + 1)),
          h("span", { class: "title", dir: "auto" }, shown(hit.title || hit.id || hit.kind)),
          h("span", { class: "kind" }, shown(hit.kind === "RecalledMessage" ? "message" : hit.kind.toLowerCase())),
          hit.source ? h("span", { class: "source", dir: "auto" }, shown(hit.source)) : null,
          h("span", { class: "grow" }),
          h("span", { class: "score" }, hit.score === null ? "no score" : Number(hit.score).toFixed(2)),
        ),
        parts(hit, most),
        h("p", { class: "excerpt", dir: "auto" }, folded(hit.text, { fold: 400 })),
        h(
          "footer",
          null,
          h("span", { class: `tag ${hit.used ? "used" : "unused"}` }, hit.used ? "used" : "not used"),
          hit.why ? h("span", { class: "why", dir: "auto" }, shown(hit.why)) : null,
          hit.pointer && why ? h("button", { type: "button", class: "link", onclick: () => why(hit.pointer) }, hit.pointer) : null,
        ),
      ),
    ),
    answer.omitted ? h("li", { class: "omitted" }, `${number(answer.omitted)} more`) : null,
  );
}

// With `namesUsers`, a field names the user whose memory is searched; `user` is its first value.
export function recallView(panel, { recalled, ask, query, canAsk, namesUsers, user, why }) {
  const result = h("div", { class: "result", "aria-live": "polite" });
  const input = h("input", { type: "search", value: query || "", "aria-label": "Query for the memory", placeholder: "Search the memory…", maxlength: "4000" });
  const owner = namesUsers ? h("input", { type: "text", value: user || "", "aria-label": "User", placeholder: "no user: documents and facts only", maxlength: "200" }) : null;
  const form = h(
    "form",
    {
      class: "ask",
      onsubmit: async (event) => {
        event.preventDefault();
        if (!input.value.trim()) return;
        replace(result, h("p", { class: "loading" }, "Searching…"));
        try {
          const answer = await ask(input.value, owner?.value.trim() || null);
          replace(result, h("h2", null, "Search results"), degraded(answer), hits(answer));
        } catch (error) {
          replace(result, problem(error));
        }
      },
    },
    icon("recall"),
    input,
    owner ? h("label", null, "User", owner) : null,
    h("button", { type: "submit" }, "Search"),
  );
  if (recalled) replace(result, h("h2", null, "Recalled by this run"), degraded(recalled), hits(recalled, { why }));
  else replace(result, empty("No recall", canAsk ? "This turn has no recorded recall. Search the memory to see hits and their scores." : "This agent has no memory."));
  replace(panel, h("div", { class: "scroll page" }, canAsk ? form : null, result));
}

function degraded(answer) {
  return answer.degraded.length
    ? h("p", { class: "warning" }, "Some searches failed: ", answer.degraded.map((one) => h("span", null, shown(one), " ")))
    : null;
}
