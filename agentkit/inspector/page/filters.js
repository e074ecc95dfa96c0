// The filters and the order of the list of runs.

import { h } from "./dom.js";

export const WORDS = { queued: "queued", running: "running", waiting: "waits for approval", finished: "finished", failed: "failed", cancelled: "cancelled" };
const ORDERS = { newest: "newest", longest: "longest", tokens: "most tokens", cost: "highest cost" };

const options = (names, chosen) => names.map(([value, text]) => h("option", { value, selected: value === chosen }, text));

// `list` is a `RunList`; `change` receives changed fields of its query.
export function filtersView(list, agents, change, isOpen) {
  const { query } = list;
  const select = (label, name, names) => h("select", { "aria-label": label, onchange: (event) => change({ [name]: event.target.value }) }, options(names, query[name]));
  const known = (name) => [...new Set(list.runs.flatMap((run) => run[name]).filter(Boolean))].sort();
  const text = (label, name, values) => [
    h("input", { type: "search", placeholder: label, "aria-label": label, value: query[name], list: `known-${name}`, maxlength: "200", onchange: (event) => change({ [name]: event.target.value.trim() }) }),
    h("datalist", { id: `known-${name}` }, values.map((value) => h("option", { value }))),
  ];
  const chosen = ["state", "agent", "user", "tag", "error"].filter((name) => query[name]).length;
  return h(
    "details",
    { class: "filters", open: isOpen },
    h("summary", null, "Filters and order", chosen ? h("span", { class: "badge" }, ` ${chosen}`) : null),
    h(
      "div",
      null,
      select("Order", "order", Object.entries(ORDERS)),
      select("State", "state", [["", "any state"], ...Object.entries(WORDS)]),
      agents.length > 1 ? select("Agent", "agent", [["", "any agent"], ...agents.map((agent) => [agent.name, agent.name])]) : null,
      text("User", "user", known("user")),
      text("Tag", "tag", known("tags")),
      text("Error class", "error", known("error_class")),
    ),
  );
}
