// The pages of evaluations: their list, and the rows of an evaluation, alone or next to another evaluation.

import { h, replace, shown, plain, number, money } from "./dom.js";
import { address } from "./place.js";

const PART = 200; // rows that are drawn at once

const ASCENDING = { name: "ascending", mark: " ↑" };
const DESCENDING = { name: "descending", mark: " ↓" };

const mean = (value) => (Number.isFinite(value) ? value.toFixed(3) : "none");
const signed = (value) => (Number.isFinite(value) ? `${value > 0 ? "+" : ""}${value.toFixed(3)}` : "none");

const table = (caption, columns, rows) =>
  h(
    "div",
    { class: "wide-table" },
    h("table", { class: "listing" }, h("caption", null, caption), h("thead", null, h("tr", null, columns.map((name) => h("th", { scope: "col" }, name)))), h("tbody", null, rows.map((cells) => h("tr", null, cells.map((value) => h("td", { dir: "auto" }, value)))))),
  );

export function evaluationList(evaluations) {
  const names = [...new Set(evaluations.flatMap((each) => each.scores.map((score) => score.name)))];
  const rows = evaluations.map((each) => [
    h("a", { href: address({ evaluation: [each.name] }) }, shown(each.name)),
    ...names.map((name) => {
      const score = each.scores.find((one) => one.name === name);
      return score ? h("span", { title: `${mean(score.low)} to ${mean(score.high)}` }, mean(score.mean)) : "";
    }),
    number(each.runs),
    number(each.failed),
    money(each.money),
    shown(each.agent),
  ]);
  return [
    h("h1", null, "Evaluations"),
    evaluations.length ? table("Files", ["File", ...names.map(shown), "Runs", "Failed", "Cost", "Agent"], rows) : h("p", { class: "quiet" }, "No evaluations: name a file of agentkit eval --out."),
  ];
}

const value = (answer, name) => answer?.scores[name]?.[0];
const isChanged = (row, names) => Boolean(row.before) && names.some((name) => value(row, name) !== value(row.before, name));

function scoreCell(row, name) {
  const [after, before] = [row.scores[name], row.before?.scores[name]];
  if (!after) return h("td", null, "");
  const title = plain(after[1]) || null;
  const text = String(+after[0].toFixed(3));
  if (!before || before[0] === after[0]) return h("td", { title }, text);
  return h("td", { class: after[0] > before[0] ? "score-up" : "score-down", title }, `${+before[0].toFixed(3)} → ${text}`);
}

function answerCell(answer) {
  if (!answer) return h("td", { class: "quiet" }, "not in the file");
  const text = answer.error ? h("span", { class: "tag failed label" }, shown(answer.error)) : shown(answer.output);
  return h("td", { dir: "auto", class: "words" }, answer.run ? h("a", { href: address({ run: answer.run }) }, answer.error || answer.output ? text : "no text") : text);
}

export function evaluationView(data, evaluations) {
  const names = data.scores.map((score) => score.name);
  const wanted = { sort: null, isDown: false, tag: "", isFailed: false, isChanged: false, count: PART };
  const columns = ["Row", "Input", "Expected", ...(data.before ? ["Before"] : []), "Answer", ...names, "Tags"];
  const head = h("tr");
  const body = h("tbody");
  const foot = h("div", { "aria-live": "polite" });

  const chosen = () => {
    const rows = data.rows.filter((row) => (!wanted.tag || row.tags.includes(wanted.tag)) && (!wanted.isFailed || row.error) && (!wanted.isChanged || isChanged(row, names)));
    if (wanted.sort === null) return rows;
    const key = (row) => value(row, wanted.sort) ?? -Infinity;
    return [...rows].sort((one, other) => (key(one) - key(other)) * (wanted.isDown ? -1 : 1));
  };

  function sortBy(name) {
    // The first click shows the lowest scores, which need a person.
    if (wanted.sort === name) wanted.isDown = !wanted.isDown;
    else Object.assign(wanted, { sort: name, isDown: false });
    draw();
    head.querySelector("th[aria-sort] button")?.focus();
  }

  function draw() {
    replace(head, columns.map((name, at) => {
      const isScore = at >= columns.length - 1 - names.length && at < columns.length - 1;
      if (!isScore) return h("th", { scope: "col" }, name);
      let order = { name: null, mark: "" };
      if (wanted.sort === name) order = wanted.isDown ? DESCENDING : ASCENDING;
      return h("th", { scope: "col", "aria-sort": order.name }, h("button", { type: "button", class: "quiet", onclick: () => sortBy(name) }, shown(name), order.mark));
    }));
    const rows = chosen();
    replace(body, rows.slice(0, wanted.count).map((row) => h(
      "tr",
      null,
      h("td", { dir: "auto" }, shown(row.repeat ? `${row.id}, run ${row.repeat + 1}` : row.id)),
      h("td", { dir: "auto", class: "words" }, shown(row.input)),
      h("td", { dir: "auto", class: "words" }, shown(row.expected)),
      data.before ? answerCell(row.before) : null,
      answerCell(row),
      names.map((name) => scoreCell(row, name)),
      h("td", null, row.tags.map((tag) => h("span", { class: "tag label" }, shown(tag)))),
    )));
    const left = rows.length - wanted.count;
    replace(foot, h("p", { class: "quiet" }, `${number(Math.min(rows.length, wanted.count))} of ${number(data.rows.length + data.omitted)} runs`), left > 0 ? h("button", { type: "button", onclick: () => { wanted.count += PART; draw(); } }, `Show ${number(Math.min(left, PART))} more`) : null);
  }

  const check = (label, name) => h("label", { class: "check" }, h("input", { type: "checkbox", onchange: (event) => { wanted[name] = event.target.checked; draw(); } }), label);
  const tags = h("select", { "aria-label": "Tag", onchange: (event) => { wanted.tag = event.target.value; draw(); } }, h("option", { value: "" }, "any tag"), data.tags.map((tag) => h("option", { value: tag }, plain(tag))));
  const others = evaluations.filter((each) => each.name !== data.name);
  const before = h("select", { "aria-label": "Compare with", onchange: (event) => { location.hash = address({ evaluation: event.target.value ? [data.name, event.target.value] : [data.name] }); } }, h("option", { value: "" }, "no comparison"), others.map((each) => h("option", { value: each.name, selected: each.name === data.before }, plain(each.name))));
  const scores = data.scores.map((score) => [shown(score.name), mean(score.mean), `${mean(score.low)} to ${mean(score.high)}`]);
  const differences = data.differences.map((each) => [shown(each.name), number(each.rows), mean(each.before), mean(each.after), signed(each.interval[0]), `${signed(each.interval[1])} to ${signed(each.interval[2])}`, number(each.better), number(each.worse)]);
  draw();
  return [
    h("header", { class: "agent-top" }, h("h1", { dir: "auto" }, shown(data.name)), h("p", { class: "quiet", dir: "auto" }, "agent ", shown(data.agent), ` · ${number(data.runs)} runs · ${number(data.failed)} failed`, data.money ? ` · ${money(data.money)}` : ""), h("a", { class: "button", href: address({ evaluation: [] }) }, "All evaluations")),
    data.before
      ? table("Differences, row by row", ["Score", "Rows", "Before", "After", "Difference", "95 %", "Better", "Worse"], differences)
      : table("Scores", ["Score", "Mean", "95 %"], scores),
    h("div", { class: "row-filters" }, data.tags.length ? tags : null, check("Failed", "isFailed"), data.before ? check("Changed", "isChanged") : null, others.length ? before : null),
    h("div", { class: "wide-table" }, h("table", { class: "listing rows-of-evaluation" }, h("caption", null, "Rows"), h("thead", null, head), body)),
    foot,
  ];
}
