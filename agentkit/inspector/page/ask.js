// Asks a model with the changed prompt, and keeps the answers side by side; saves test cases, and copies curl commands.

import { post } from "./api.js";
import { h, replace, folded, shown, plain, number, money, problem, say, icon, tagList } from "./dom.js";

const KEPT = 8; // answers

function facts(answer) {
  const used = answer.usage;
  const parts = [answer.model ? plain(answer.model).slice(0, 80) : null];
  if (used) {
    parts.push(`${number(used.input)} in`, `${number(used.output)} out`);
    if (used.cached) parts.push(`${number(used.cached)} from the cache`);
    parts.push(used.money === null ? "cost unknown" : money(used.money));
  }
  if (answer.seconds !== undefined) parts.push(`${answer.seconds.toFixed(1)} s`);
  if (answer.finish && !["stop", "tool_calls"].includes(answer.finish)) parts.push(plain(answer.finish));
  return parts.filter(Boolean).join(" · ");
}

function download(line) {
  const address = URL.createObjectURL(new Blob([line, "\n"], { type: "application/jsonl" }));
  h("a", { href: address, download: "cases.jsonl" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

export class Asking {
  // `play` has the permission, the models and the file of test cases; `reply` is the answer before the changes; `asked`
  // returns the request, or null if a value is invalid; `refused` marks the fields of an error.
  constructor({ play, model, reply, asked, refused, changed }) {
    Object.assign(this, { play, asked, refused, changed });
    const models = [...new Set([model, ...play.models])];
    this.model = h("select", { onchange: changed }, models.map((name) => h("option", { value: name }, plain(name))));
    this.firstModel = model;
    this.settings = h("textarea", { rows: "1", spellcheck: "false", placeholder: '{"temperature": 0, "max_tokens": 200}', oninput: changed });
    this.wrong = h("p", { class: "wrong", "aria-live": "polite" });
    this.notes = h("div", { class: "ask-notes", "aria-live": "polite" });
    this.button = h("button", { type: "button", class: "primary", onclick: () => this.ask() }, icon("model"), "Ask");
    const curl = h("button", { type: "button", onclick: () => this.curl() }, icon("copy"), "Copy as curl");
    this.controls = h(
      "div",
      { class: "asking" },
      h("label", { class: "block" }, h("span", null, "Model"), this.model),
      h("label", { class: "block" }, h("span", null, "Settings of the model, as JSON"), this.settings, this.wrong),
      h("div", { class: "decide" }, this.button, curl),
      this.notes,
    );
    this.list = h("div", { class: "answer-columns" });
    this.answers = h("section", { class: "answers", "aria-label": "Answers", "aria-live": "polite", hidden: !reply }, this.list);
    this.asks = 0;
    if (reply) this.list.append(this.card("Before", reply, null));
  }

  undo() {
    this.model.value = this.firstModel;
    this.settings.value = "";
  }

  // The changed model and settings of a request; null if the settings are not a JSON object.
  changes() {
    replace(this.wrong);
    this.settings.removeAttribute("aria-invalid");
    const body = this.model.value === this.firstModel ? {} : { model: this.model.value };
    if (!this.settings.value.trim()) return body;
    try {
      const settings = JSON.parse(this.settings.value);
      if (!settings || typeof settings !== "object" || Array.isArray(settings)) throw new Error("expected an object");
      return { ...body, settings };
    } catch (error) {
      replace(this.wrong, `not JSON: ${error.message}`);
      this.settings.setAttribute("aria-invalid", "true");
      return null;
    }
  }

  async send(path, show) {
    const body = this.asked();
    if (!body) return;
    replace(this.notes);
    try {
      await show(await post(path, body), body);
    } catch (error) {
      error.problems = this.refused(error);
      replace(this.notes, problem(error));
    }
  }

  async ask() {
    this.button.disabled = true;
    this.button.lastChild.textContent = "Asking…";
    await this.send("ask", (answer, body) => {
      this.asks += 1;
      const first = this.list.firstChild;
      this.answers.hidden = false;
      // The answer before the changes stays first, and the newest answer is next to it.
      const card = this.card(`Answer ${this.asks}`, answer, body);
      if (first?.dataset.before) first.after(card);
      else this.list.prepend(card);
      while (this.list.children.length > KEPT) this.list.lastChild.remove();
      card.scrollIntoView({ block: "nearest", inline: "nearest" });
      say(`Answer ${this.asks}: ${answer.text}`);
    });
    this.button.disabled = false;
    this.button.lastChild.textContent = "Ask";
  }

  curl() {
    return this.send("curl", async ({ command }) => {
      try {
        await navigator.clipboard.writeText(command);
        replace(this.notes, h("p", { class: "quiet" }, "Copied. The key is read from the environment."));
      } catch {
        replace(this.notes, h("p", { class: "quiet" }, "The browser does not allow copying: select the text."), h("textarea", { rows: "6", readonly: true, "aria-label": "curl command", value: command }));
      }
    });
  }

  card(name, answer, body) {
    const save = h("button", { type: "button", class: "quiet" }, "Save as test case");
    const card = h(
      "article",
      { class: "answer", "aria-label": name, "data-before": body ? null : "yes" },
      h("header", null, h("h3", null, name), h("small", null, facts(answer))),
      answer.thinking ? h("details", { class: "thinking" }, h("summary", null, "Thinking"), h("p", { dir: "auto" }, folded(answer.thinking))) : null,
      answer.text ? h("p", { class: "quote", dir: "auto" }, folded(answer.text)) : null,
      (answer.calls || []).map((call) => h("p", { class: "call" }, h("span", { class: "verb" }, "calls "), h("b", { dir: "auto" }, shown(call.name)), h("code", { dir: "auto" }, folded(call.arguments, { fold: 600 })))),
      h("footer", null, save),
    );
    save.addEventListener("click", () => {
      const form = this.saving(answer, () => {
        form.remove();
        save.hidden = false;
        save.focus();
      });
      save.hidden = true;
      card.append(form);
      form.querySelector("textarea").focus();
    });
    return card;
  }

  // A form for the expected answer and the tags of a test case.
  saving(answer, close) {
    const expected = h("textarea", { rows: "3", value: answer.text || "" });
    const tags = h("input", { type: "text", placeholder: "refund, german", maxlength: "2000" });
    const save = async (event) => {
      event.preventDefault();
      const body = this.asked();
      if (!body) return;
      try {
        const { line, file } = await post("case", { ...body, expected: expected.value, tags: tagList(tags.value) });
        if (!file) download(line);
        replace(this.notes, h("p", { class: "quiet" }, "Saved in ", h("code", null, shown(file || "cases.jsonl, downloaded"))));
        say("Saved");
        close();
      } catch (error) {
        replace(this.notes, problem(error));
      }
    };
    return h(
      "form",
      { class: "saving", onsubmit: save, onkeydown: (event) => event.key === "Escape" && close() },
      h("label", { class: "block" }, h("span", null, "Expected answer"), expected),
      h("label", { class: "block" }, h("span", null, "Tags, separated by commas"), tags),
      h("div", { class: "decide" }, h("button", { type: "submit", class: "primary" }, this.play.cases ? "Save" : "Download"), h("button", { type: "button", class: "quiet", onclick: close }, "Cancel")),
    );
  }
}
