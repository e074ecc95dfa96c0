// The page of an agent: statistics, newest runs, inputs, tools and layers.

import { h, folded, shown, number, money, percent } from "./dom.js";
import { WORDS } from "./filters.js";
import { hue } from "./layers.js";
import { address } from "./place.js";
import { brief, duration, moment } from "./times.js";

const table = (caption, columns, rows) =>
  h(
    "div",
    { class: "wide-table" },
    h("table", { class: "listing" }, h("caption", null, caption), h("thead", null, h("tr", null, columns.map((name) => h("th", { scope: "col" }, name)))), h("tbody", null, rows.map((cells) => h("tr", null, cells.map((value) => h("td", { dir: "auto" }, value)))))),
  );

const time = (seconds) => (seconds === null ? "" : h("span", { title: moment(seconds) }, brief(seconds)));

function facts({ runs, ended, error_rate: rate, percentiles }) {
  const rows = [["Runs", number(runs)], ["Error rate", rate === null ? "unknown" : percent(rate)], ...percentiles.map(([share, seconds]) => [`${share} % took at most`, duration(seconds)])];
  return h("dl", { class: "facts", "aria-label": `Statistics of ${number(ended)} ended runs` }, rows.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
}

const schema = (value) => h("pre", { dir: "auto" }, folded(JSON.stringify(value, null, 1), { fold: 2000 }));

export function agentView(agent) {
  const { statistics } = agent;
  const days = statistics.days.map((day) => [day.day, number(day.runs), number(day.failed), number(day.tokens), money(day.cost)]);
  const runs = agent.runs.map((run) => [
    h("a", { href: address({ run: run.id }) }, shown(run.input || run.id)),
    h("span", { class: `word ${run.status}` }, shown(run.error_class || WORDS[run.status])),
    time(run.started_at),
    run.seconds === null ? "" : duration(run.seconds),
    number(run.usage.input + run.usage.output),
    money(run.usage.money),
  ]);
  const required = new Set(agent.schema?.required || []);
  const inputs = Object.entries(agent.schema?.properties || {}).map(([name, field]) => [
    h("code", null, shown(name)),
    shown([field.enum ? field.enum.join(", ") : (field.type ?? "any"), required.has(name) ? "required" : null].filter(Boolean).join(", ")),
    field.default === undefined ? "" : h("code", null, shown(JSON.stringify(field.default))),
    shown(field.description || field.title || ""),
  ]);
  return [
    h("header", { class: "agent-top" }, h("h1", { dir: "auto" }, shown(agent.name)), h("p", { class: "quiet", dir: "auto" }, shown(agent.model), agent.memory ? " · memory" : ""), h("a", { class: "button primary", href: address({ create: agent.name }) }, "New run")),
    facts(statistics),
    days.length ? table("Days (UTC)", ["Day", "Runs", "Failed", "Tokens", "Cost"], days) : null,
    runs.length ? table("Newest runs", ["Input", "State", "Start", "Duration", "Tokens", "Cost"], runs) : h("p", { class: "quiet" }, "No runs yet."),
    h("section", null, h("h2", null, "Inputs"), inputs.length ? [table("Additional kwargs", ["Name", "Values", "Default", "Meaning"], inputs), h("details", null, h("summary", null, "JSON schema"), schema(agent.schema))] : h("p", { class: "quiet" }, "The text of the input, without additional kwargs.")),
    h("section", null, h("h2", null, "Tools"), agent.tools.length ? agent.tools.map((tool) => h("details", null, h("summary", null, h("b", { dir: "auto" }, shown(tool.name)), " ", h("small", { dir: "auto" }, shown(tool.description.split("\n")[0]))), schema(tool.parameters))) : h("p", { class: "quiet" }, "No tools, or tools that each run creates.")),
    h(
      "section",
      null,
      h("h2", null, "Layers"),
      agent.prompts.map((prompt) => h("details", { class: `layer-source ${hue(prompt.path)}` }, h("summary", null, h("span", { class: "swatch", "aria-hidden": "true" }), h("b", { dir: "auto" }, shown(prompt.name || prompt.kind)), h("small", null, shown(`${prompt.path} · ${prompt.kind}`))), h("pre", { dir: "auto" }, folded(prompt.template)))),
    ),
  ];
}
