// The reply of a model call, below its prompt.

import { h, folded, shown } from "./dom.js";

export function replyView(reply) {
  if (!reply) return null;
  const { thinking, text, calls } = reply;
  return h(
    "section",
    { class: "reply", "aria-label": "Reply of the model" },
    h("h2", null, "Reply"),
    thinking ? h("details", { class: "thinking" }, h("summary", null, "Thinking"), h("p", { dir: "auto" }, folded(thinking))) : null,
    text ? h("p", { class: "text", dir: "auto" }, folded(text)) : null,
    calls.map((call) => h("p", { class: "call" }, h("span", { class: "verb" }, "calls "), h("b", { dir: "auto" }, shown(call.name)), h("code", { dir: "auto" }, folded(call.arguments, { fold: 600 })), h("small", null, shown(call.id)))),
    !text && !calls.length ? h("p", { class: "nothing" }, "no text") : null,
  );
}
