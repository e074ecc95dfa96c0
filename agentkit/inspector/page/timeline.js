// A journal as a timeline: model calls, tool calls, recalls and approvals, with their costs.

import { h, replace, folded, shown, number, money, icon, problem, say } from "./dom.js";
import { Parts } from "./parts.js";
import { hits } from "./recall.js";
import { Rows } from "./rows.js";
import { duration, span } from "./times.js";

function usage(used) {
  if (!used || !(used.input || used.output)) return null;
  return h(
    "span",
    { class: "usage" },
    h("span", { title: "tokens in" }, `${number(used.input)} in`),
    used.cached ? h("span", { class: "cached", title: "tokens in from the cache of the provider" }, `${number(used.cached)} cached`) : null,
    h("span", { title: "tokens out" }, `${number(used.output)} out`),
    used.money !== null ? h("b", null, money(used.money)) : null,
  );
}

const arguments_ = (text) => {
  try {
    return JSON.stringify(JSON.parse(text), null, 1).replace(/\n\s*/g, " ");
  } catch {
    return text;
  }
};

function call(one) {
  return h("p", { class: "call" }, h("b", { dir: "auto" }, shown(one.name)), h("code", { dir: "auto" }, folded(arguments_(one.arguments), { fold: 600 })));
}

const DRAW = {
  begin: (event) => ["begin", "Start", h("p", { class: "quiet" }, event.done ? `resumed after ${number(event.done)} messages of the run` : event.before ? `after ${number(event.before)} messages of the session` : "with an empty conversation")],
  compact: (event) => ["compact", "Compaction of the conversation", h("p", null, `${number(event.messages)} messages are not shown.`), event.summary ? h("p", { class: "quote", dir: "auto" }, folded(event.summary)) : null],
  tools: (event) => ["tool", "Tools of this run", h("p", { class: "quiet" }, event.names.map((name) => h("code", null, shown(name), " ")))],
  examples: (event) => ["recall", "Selected examples", h("p", { class: "quiet" }, `for ${number(event.prompts)} prompts`)],
  recall: (event) => ["recall", "Recall", h("details", null, h("summary", null, `${number(event.hits.length)} hits`), hits(event))],
  receive: (event) => [
    "begin",
    event.messages.length === 1 ? "Message" : `${number(event.messages.length)} messages`,
    event.messages.map((one) =>
      h(
        "p",
        { class: "sent" },
        h("b", { dir: "auto" }, shown(one.by || "user")),
        h("small", null, ` ${new Date(one.sent_at * 1000).toLocaleString()} `),
        h("span", { dir: "auto" }, folded(one.text)),
      ),
    ),
  ],
  check: (event) => [event.problem ? "cross" : "check", event.problem ? "Answer refused" : "Answer checked", event.problem ? h("p", { dir: "auto" }, folded(event.problem)) : null],
  guard: (event) => [
    event.action === "stop" ? "cross" : event.action === "ask" ? "approval" : "check",
    [
      h("span", { dir: "auto" }, `Guard ${event.name}`),
      h("small", null, event.stage.replace("_", " ")),
      event.action !== "pass" ? h("span", { class: `tag ${event.action === "stop" ? "failed" : ""}` }, event.action) : null,
    ],
    usage(event.usage),
    event.text ? h("p", { class: event.action === "replace" ? "quote" : null, dir: "auto" }, folded(event.text)) : null,
  ],
  approval: (event) => [
    "approval",
    "Approval",
    event.decisions.length
      ? event.decisions.map((one) =>
          h(
            "p",
            { class: `decision ${one.approved ? "yes" : "no"}` },
            h("span", { class: "tag" }, icon(one.approved ? "check" : "cross"), one.approved ? "approved" : "denied"),
            h("b", { dir: "auto" }, shown(one.name || one.id)),
            one.reason ? h("span", { dir: "auto" }, shown(one.reason)) : null,
            one.changed ? h("code", null, folded(JSON.stringify(one.changed))) : null,
          ),
        )
      : h("p", { class: "quiet" }, "no decision was needed"),
  ],
};

function draw(event, { onstep, load, calls }) {
  if (event.kind === "model")
    return [
      "model",
      [`Model call ${event.step}`, event.model ? h("small", null, shown(event.model)) : null],
      usage(event.usage),
      event.thinking ? h("details", { class: "thinking" }, h("summary", null, "Thinking"), h("p", { dir: "auto" }, folded(event.thinking))) : null,
      event.text ? h("p", { class: "quote", dir: "auto" }, folded(event.text)) : null,
      event.calls.map(call),
      !["stop", "tool_calls"].includes(event.finish) ? h("p", null, h("span", { class: "tag failed" }, shown(event.finish))) : null,
      onstep ? h("button", { type: "button", class: "link", onclick: () => onstep(event.step) }, "Sent prompt") : null,
    ];
  if (event.kind === "tool")
    return [
      "tool",
      [h("span", { dir: "auto" }, shown(event.name)), h("span", { class: `tag ${event.status === "success" ? "used" : event.status === "running" ? "" : "failed"}` }, shown(event.status))],
      usage(event.usage),
      event.arguments ? h("p", { class: "call" }, h("code", { dir: "auto" }, folded(arguments_(event.arguments), { fold: 600 }))) : null,
      event.text ? h("p", { class: "result", dir: "auto" }, folded(event.text, { fold: 800 })) : null,
      event.traceback ? h("details", { class: "traceback" }, h("summary", null, "Traceback"), h("pre", { dir: "ltr" }, shown(event.traceback))) : null,
      event.inner ? inner(event.inner, { load, calls: [...calls, event.id] }) : null,
    ];
  return (DRAW[event.kind] || (() => ["begin", event.kind]))(event);
}

// `options.count` is the number of events of the run, and `options.start` its time.
function item(event, options) {
  const [symbol, name, ...content] = draw(event, options);
  const last = event.index === options.count - 1 ? " last" : "";
  return h("li", { class: `event ${event.kind}${event.failed ? " broken" : ""}${last}` }, h("span", { class: "dot" }, icon(symbol)), h("div", null, h("h3", null, name, span(event, options.start)), content));
}

// The run of an inner agent. Its events are requested when it is opened, and further events by a button.
function inner({ agent, count, began }, { load, calls }) {
  const list = h("ol", { class: "timeline" });
  const button = h("button", { type: "button", class: "link", onclick: () => more() }, "Show more events");
  const more = async () => {
    button.disabled = true;
    try {
      const events = await load(list.children.length, calls);
      list.append(...events.map((event) => item(event, { load, calls, count, start: began })));
      if (list.children.length >= count) button.remove();
    } catch (error) {
      say(error.message);
    }
    button.disabled = false;
  };
  const ontoggle = () => list.firstChild || more();
  return h("details", { class: "inner", ontoggle }, h("summary", null, `Run of the agent ${agent}`), list, button);
}

// Calls that wait for a decision.
export function approvals(run, decide) {
  if (!run.waiting.length) return null;
  return h(
    "section",
    { class: "approvals", "aria-label": "Calls that wait for a decision" },
    run.waiting.map((call) => {
      const reason = h("input", { type: "text", placeholder: "Reason for the model, if denied", "aria-label": "Reason" });
      const changed = h("textarea", { rows: "2", spellcheck: "false", "aria-label": "Arguments" });
      // The text itself: parsed numbers would be rounded.
      changed.value = call.arguments;
      const lines = h("pre", { class: "arguments", dir: "ltr" }, shown(call.lines.join("\n")));
      const whole = call.whole.length
        ? h("button", { type: "button", class: "link", onclick: () => { replace(lines, shown(call.whole.join("\n"))); whole.remove(); } }, "Show long values whole")
        : null;
      const notes = h("div", { "aria-live": "assertive" });
      const buttons = [];
      const made = (approve) => async () => {
        const decision = { approve };
        if (!approve && reason.value) decision.reason = reason.value;
        if (approve && changed.value !== call.arguments) {
          try {
            JSON.parse(changed.value);
            decision.arguments = changed.value;
          } catch (error) {
            replace(notes, h("p", { class: "warning" }, `The arguments are not JSON: ${error.message}`));
            return;
          }
        }
        for (const button of buttons) button.disabled = true;
        try {
          await decide({ [call.id]: decision });
        } catch (error) {
          for (const button of buttons) button.disabled = false;
          replace(notes, problem(error));
        }
      };
      buttons.push(
        h("button", { type: "button", class: "approve", onclick: made(true) }, icon("check"), "Approve"),
        h("button", { type: "button", class: "deny", onclick: made(false) }, icon("cross"), "Deny"),
      );
      return h(
        "article",
        { class: "approval-card" },
        h("h3", null, icon("approval"), "Run ", h("b", { dir: "auto" }, shown(call.name)), "?", h("small", null, shown(call.id))),
        lines,
        whole,
        h("label", null, "Arguments", changed),
        h("div", { class: "decide" }, buttons, reason),
        notes,
      );
    }),
  );
}

function factsOf(run) {
  const { journal } = run;
  const used = journal.usage;
  const later = (figure) => (journal.is_whole ? figure : "…"); // the first lines of a journal have no totals
  return [
    ["Duration", journal.ended === null ? later("unknown") : duration(journal.ended - journal.began)],
    ["Model calls", later(number(journal.models))],
    ["Tool calls", later(number(journal.tools))],
    ["Tool errors", number(run.tool_errors)],
    ["Tokens in", number(used.input)],
    ["From a cache", used.input ? `${Math.round((used.cached / used.input) * 100)} %` : "0"],
    ["Tokens out", number(used.output)],
    ["Cost", used.money === null ? "unknown" : money(used.money)],
  ];
}

// The tab. Only visible events are in the document, and missing events are requested when they are scrolled into view.
export class TimelineView {
  constructor(panel, run, { load, onstep, decide, before = null }) {
    const { journal } = run;
    this.options = { onstep, load, calls: [], count: journal.count, start: journal.began };
    this.events = new Parts(journal.count, journal.events, "index", (start) => load(start, []), (at) => this.rows?.redraw(at));
    const list = h("ol", { class: "timeline", tabindex: "-1" });
    const scroller = h(
      "div",
      { class: "scroll page" },
      run.error ? h("section", { class: "failure", role: "alert" }, h("h2", null, "The run failed"), h("p", { dir: "auto" }, folded(run.error))) : null,
      approvals(run, decide),
      h("dl", { class: "facts" }, factsOf(run).map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value)))),
      list,
      run.status === "running" || run.status === "queued" ? h("p", { class: "loading" }, run.status === "running" ? "Running…" : "Queued…") : null,
    );
    replace(panel, scroller);
    this.rows = new Rows(scroller, list, { count: journal.count, estimate: 96, like: before?.rows, render: (at) => this.row(at) });
    if (before) {
      scroller.scrollTop = before.top;
      this.rows.measure();
    }
  }

  get top() {
    return this.rows.scroller.scrollTop;
  }

  destroy() {
    this.rows.destroy();
  }

  row(at) {
    const event = this.events.at(at);
    if (event) return item(event, this.options);
    const row = h("li", { class: "event pending", "aria-busy": "true", "aria-label": `event ${number(at + 1)}, loading` });
    setTimeout(() => row.isConnected && this.events.fetch(at));
    return row;
  }
}
