// Editors of the texts of messages: of the conversation and of the tool traffic.

import { h, replace, number, problem, say } from "./dom.js";

const NAME = /^((?:conversation|intermediate)\[\d+\])\.content$/;

// The row of a message whose text is one piece; no row for a message that a prompt wrote, or with media.
function rowsOf(messages) {
  return messages.flatMap((message) => {
    const pieces = message.pieces.filter((one) => !one.cache);
    const name = NAME.exec(pieces[0]?.pointer || "")?.[1];
    return name && pieces.length === 1 && !pieces[0].media ? [{ name, at: message.index, role: message.role, text: pieces[0].text, isWhole: !pieces[0].omitted }] : [];
  });
}

export class Texts {
  // `load` requests messages of the prompt: a part of them by its start, or one message with its whole text.
  constructor(view, changed, load) {
    Object.assign(this, { changed, load, edits: new Map(), view });
    this.rows = rowsOf(view.messages);
    this.body = h("div", { class: "editors" });
    this.missing = view.count - view.messages.length;
    // Drawn when it is opened: a conversation can have many messages.
    this.element = this.rows.length
      ? h("details", { class: "block", ontoggle: () => this.body.firstChild || this.draw() }, (this.title = h("summary", null, this.named())), this.body)
      : null;
  }

  named() {
    return `Messages, ${number(this.rows.length)}${this.missing ? "+" : ""}`;
  }

  draw() {
    this.notes = h("div", { "aria-live": "polite" });
    const { messages } = this.view;
    // A long view has its first and its last messages: the other messages are between them.
    const gap = messages.findIndex((message, at) => at && message.index !== messages[at - 1].index + 1);
    const end = gap < 0 ? 0 : messages[gap].index;
    const start = gap < 0 ? 0 : messages[gap - 1].index + 1;
    const more = this.missing ? h("button", { type: "button" }, "") : null;
    let next = start;
    const show = () => (more.textContent = `Show more messages, ${number(end - next)} in the middle`);
    more?.addEventListener("click", async () => {
      more.disabled = true;
      replace(this.notes);
      try {
        const { messages: loaded } = await this.load("messages", next);
        const part = loaded.filter((message) => message.index >= next && message.index < end);
        const rows = rowsOf(part);
        more.before(...rows.map((row) => this.row(row)));
        this.rows.push(...rows);
        this.missing -= part.length;
        next += part.length;
        say(`${number(rows.length)} more messages`);
        this.title.textContent = this.named();
        if (next >= end || !part.length) more.remove();
        else show();
      } catch (error) {
        replace(this.notes, problem(error));
      }
      more.disabled = false;
    });
    if (more) show();
    const before = this.rows.filter((row) => gap < 0 || row.at < start);
    const after = this.rows.filter((row) => gap >= 0 && row.at >= end);
    replace(this.body, before.map((row) => this.row(row)), more, after.map((row) => this.row(row)), this.notes);
  }

  row(row) {
    const { name, role } = row;
    const area = h("textarea", { id: `text-${name}`, rows: "2", spellcheck: "false", dir: "auto", value: row.text, readonly: !row.isWhole });
    area.addEventListener("input", () => {
      if (area.value === row.text) this.edits.delete(name);
      else this.edits.set(name, area.value);
      this.changed();
    });
    const whole = row.isWhole ? null : h("button", { type: "button", class: "quiet" }, "Load the whole text to change it");
    whole?.addEventListener("click", async () => {
      whole.disabled = true;
      try {
        const message = await this.load("message", row.at);
        row.text = area.value = message.pieces.filter((one) => !one.cache).map((one) => one.text).join("");
        row.isWhole = true;
        area.readOnly = false;
        whole.remove();
        area.focus();
      } catch (error) {
        whole.disabled = false;
        replace(this.notes, problem(error));
      }
    });
    return h("div", { class: `editor-card hue place-${name.split("[")[0]}` }, h("label", { for: area.id }, role, h("small", null, name)), area, whole);
  }

  undo() {
    this.edits.clear();
    replace(this.body);
    this.rows = rowsOf(this.view.messages);
    this.missing = this.view.count - this.view.messages.length;
    if (!this.element) return;
    this.title.textContent = this.named();
    this.element.open = false;
  }
}
