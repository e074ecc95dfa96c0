// Editors of the texts of messages: of the conversation and of the tool traffic.

import { h, replace, number } from "./dom.js";

const NAME = /^((?:conversation|intermediate)\[\d+\])\.content$/;

export class Texts {
  constructor(view, changed) {
    this.edits = new Map();
    this.changed = changed;
    this.rows = view.messages.flatMap((message) => {
      const [piece] = message.pieces.filter((one) => !one.cache);
      const name = NAME.exec(piece?.pointer || "")?.[1];
      const isOne = name && message.pieces.filter((one) => !one.cache).length === 1 && !piece.media;
      return isOne ? [{ name, role: message.role, text: piece.text, isWhole: !piece.omitted }] : [];
    });
    this.body = h("div", { class: "editors" });
    const missing = view.count - view.messages.length;
    const more = missing ? h("p", { class: "help" }, `${number(missing)} messages in the middle cannot be changed here.`) : null;
    // Drawn when it is opened: a conversation can have many messages.
    this.element = this.rows.length
      ? h("details", { class: "block", ontoggle: () => this.body.firstChild || replace(this.body, this.rows.map((row) => this.row(row)), more) }, h("summary", null, `Messages, ${number(this.rows.length)}`), this.body)
      : null;
  }

  row({ name, role, text, isWhole }) {
    const area = h("textarea", { id: `text-${name}`, rows: "2", spellcheck: "false", dir: "auto", value: text, disabled: !isWhole });
    area.addEventListener("input", () => {
      if (area.value === text) this.edits.delete(name);
      else this.edits.set(name, area.value);
      this.changed();
    });
    return h(
      "div",
      { class: `editor-card hue place-${name.split("[")[0]}` },
      h("label", { for: area.id }, role, h("small", null, name)),
      area,
      isWhole ? null : h("p", { class: "help" }, "Too long to change here."),
    );
  }

  undo() {
    this.edits.clear();
    replace(this.body);
    if (this.element) this.element.open = false;
  }
}
