// The editor: changes a layer, a message, the input, the budget or the model, and shows the prompt. Only Ask sends it.

import { h, replace, shown, number, problem, empty, say, tagList } from "./dom.js";
import { Asking } from "./ask.js";
import { LayersView, bar, hue, layerOf } from "./layers.js";
import { Form } from "./form.js";
import { ownerOf } from "./place.js";
import { Texts } from "./texts.js";

const WAIT = 220;

export class PlayView {
  // With `start`, a button starts a run with the input and the kwargs.
  constructor(panel, { base, data, agent, agents, choose, sessions, namesUsers, compose, load, canRecall, start, play, whole }) {
    Object.assign(this, { base, compose, load, original: data, agent });
    this.edits = new Map();
    this.input = h("textarea", { rows: "3", "aria-label": "Input" });
    this.input.value = data?.input || "";
    this.budget = h("input", { type: "number", min: "1", step: "50", "aria-label": "Budget in tokens", placeholder: "no budget" });
    this.budget.value = data?.view.budget?.tokens ?? "";
    this.budgetAtFirst = this.budget.value;
    this.form = new Form(agent?.schema, data?.kwargs || {}, { oninput: () => this.later() });
    this.kwargsAtFirst = JSON.stringify(this.form.values());
    this.recall = canRecall ? h("input", { type: "checkbox", role: "switch", onchange: () => this.later() }) : null;
    this.input.addEventListener("input", () => this.later());
    this.budget.addEventListener("input", () => this.later());
    this.slider = h("input", { type: "range", min: "1", max: "1000", step: "1", value: "1000", "aria-label": "Budget" });
    this.slider.addEventListener("input", () => {
      this.budget.value = this.slider.value === this.slider.max ? "" : this.slider.value;
      this.later();
    });
    this.editors = h("div", { class: "editors" });
    this.texts = data ? new Texts(data.view, () => this.later(), (path, message) => this.load(path, { base: this.base, message })) : null;
    this.asking = play.allowed
      ? new Asking({
          play,
          model: agent?.model || "",
          reply: data?.reply,
          asked: () => this.whole(whole),
          refused: (error) => this.form.mark(error.problems, { all: true }),
          changed: () => this.later(),
        })
      : null;
    this.reset = h("button", { type: "button", class: "quiet", onclick: () => this.undo() }, "Undo all");
    this.state = h("p", { class: "play-state", "aria-live": "polite" });
    this.problems = h("div");
    this.bar = h("div");
    this.preview = h("div", { class: "preview-panel" });
    replace(
      panel,
      h(
        "div",
        { class: "play" },
        h(
          "div",
          { class: "scroll editor", tabindex: "-1" },
          h("header", null, h("h2", null, start ? "New run" : "Try it"), h("span", { class: "grow" }), this.reset),
          h("p", { class: "quiet" }, start ? "Check the prompt, then run it." : this.asking ? "Changes are sent only by Ask. Tools are not run." : "Changes are not sent: that needs a token with the scope play."),
          agents?.length > 1 ? h("label", { class: "block" }, h("span", null, "Agent"), h("select", { onchange: (event) => choose(event.target.value) }, agents.map((one) => h("option", { value: one.name, selected: one === agent }, one.name)))) : null,
          h("label", { class: "block" }, h("span", null, "Input"), this.input),
          start ? this.runRow(start, sessions, namesUsers) : null,
          this.recall ? h("label", { class: "inline" }, this.recall, " Ask memory for this input") : null,
          h("div", { class: "budget" }, h("label", { class: "block" }, h("span", null, "Budget, tokens"), this.budget), this.slider),
          (this.kwargs = h("details", { class: "block", open: Boolean(start) }, h("summary", null, "Additional kwargs"), this.form.element)),
          this.asking?.controls,
          this.texts?.element,
          h("h3", null, "Layers"),
          this.editors,
        ),
        h("div", { class: "preview" }, this.state, this.problems, this.asking?.answers, this.bar, this.preview),
      ),
    );
    if (data) this.prompts(data.prompts);
    if (data) this.drawn(data);
    else {
      this.kwargs.open = true;
      this.now();
    }
  }

  runRow(start, sessions, namesUsers) {
    const user = namesUsers ? h("input", { type: "text", placeholder: "none: recalls messages of its session only", maxlength: "200", oninput: () => this.later() }) : null;
    const session = h("input", { type: "text", placeholder: "none: a run without a session", list: "sessions", maxlength: "200", oninput: () => this.later() });
    const known = new Set(sessions);
    Object.assign(this, { user });
    // The name of the stored session whose conversation the run continues.
    this.continued = () => [session.value, `${user?.value.trim()}/${session.value}`].find((name) => known.has(name));
    const tags = h("input", { type: "text", placeholder: "vip, release-7", maxlength: "2000" });
    const button = h("button", { type: "button", class: "primary" }, "Run");
    const notes = (this.notes = h("div", { class: "run-notes", "aria-live": "assertive" }));
    button.addEventListener("click", async () => {
      const kwargs = this.form.values();
      if (!kwargs) return;
      if (!this.input.value.trim()) {
        replace(notes, h("p", { class: "warning" }, "The input is empty: enter a question."));
        this.input.focus();
        return;
      }
      if (this.edits.size || this.budget.value !== this.budgetAtFirst) {
        replace(notes, h("p", { class: "warning" }, "A run uses the agent without changed layers and budget: undo the changes first."));
        return;
      }
      button.disabled = true;
      replace(notes);
      try {
        await start({ input: this.input.value, kwargs, ...(session.value ? { session: session.value } : {}), ...(user?.value.trim() ? { user: user.value.trim() } : {}), tags: tagList(tags.value) });
      } catch (error) {
        this.kwargs.open = true;
        const left = this.form.mark(error.problems, { all: true });
        error.problems = left;
        replace(notes, problem(error));
      }
      button.disabled = false;
    });
    return h("div", { class: "block" }, user ? h("label", { class: "block" }, h("span", null, "User"), user) : null, h("label", { class: "block" }, h("span", null, "Tags, separated by commas"), tags), h("div", { class: "run-row" }, h("label", { class: "block" }, h("span", null, "Session"), session), button), h("datalist", { id: "sessions" }, (sessions || []).slice(0, 100).map((name) => h("option", { value: name }))), notes);
  }

  destroy() {
    clearTimeout(this.timer);
    this.request?.abort();
    this.layers?.destroy();
  }

  prompts(list) {
    this.known = list;
    replace(
      this.editors,
      list.map((prompt) => {
        const id = `prompt-${prompt.path}`;
        const area = h("textarea", { id, rows: String(Math.min(12, Math.max(2, prompt.text.split("\n").length))), spellcheck: "false", "data-path": prompt.path, dir: "auto" });
        area.value = prompt.text;
        const isWhole = prompt.text.length < 200000;
        const back = h("button", { type: "button", class: "quiet", hidden: true }, "undo");
        const out = h("button", { type: "button", class: "quiet" }, "leave out");
        const changed = () => {
          if (area.value === prompt.text) this.edits.delete(prompt.path);
          else this.edits.set(prompt.path, area.value);
          back.hidden = area.value === prompt.text;
          out.hidden = area.value === "";
          this.later();
        };
        area.addEventListener("input", changed);
        back.addEventListener("click", () => {
          area.value = prompt.text;
          changed();
          area.focus();
        });
        out.addEventListener("click", () => {
          area.value = "";
          changed();
          area.focus();
        });
        area.disabled = !isWhole;
        const size = prompt.size;
        const limits = [size.min ? `min ${size.min}` : null, size.max !== null ? `max ${size.max}` : null, size.priority ? `priority ${size.priority}` : null, size.cut !== "none" ? `cut ${size.cut}` : null, prompt.fence ? "fenced" : null, prompt.changes];
        return h(
          "div",
          { class: `editor-card ${hue(layerOf(prompt.path))}` },
          h("label", { for: id }, h("span", { class: "swatch", "aria-hidden": "true" }), shown(prompt.name), h("small", null, shown(prompt.path))),
          area,
          h("footer", null, h("span", null, limits.filter(Boolean).join(" · "), prompt.engine === "literal" ? " · literal, without variables" : ""), h("span", { class: "grow" }), out, back),
        );
      }),
    );
  }

  undo() {
    this.edits.clear();
    if (this.original) this.input.value = this.original.input;
    this.budget.value = this.budgetAtFirst;
    this.texts?.undo();
    this.asking?.undo();
    if (this.known) this.prompts(this.known);
    this.now();
  }

  later() {
    this.hasInput = true;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.now(), WAIT);
    this.state.textContent = "…";
  }

  asked() {
    const kwargs = this.form.values();
    if (kwargs === null) return null;
    const session = this.continued?.();
    const body = { base: session ? { ...this.base, session } : this.base, layers: Object.fromEntries(this.edits) };
    if (!this.original || this.input.value !== this.original.input) body.input = this.input.value;
    if (!this.original || JSON.stringify(kwargs) !== this.kwargsAtFirst) body.kwargs = kwargs;
    if (this.budget.value !== this.budgetAtFirst) body.budget = this.budget.value === "" ? null : Number(this.budget.value);
    if (this.recall?.checked) Object.assign(body, { recall: true, user: (this.user && (this.user.value.trim() || ownerOf(session))) || null });
    if (this.texts?.edits.size) body.messages = Object.fromEntries(this.texts.edits);
    const model = this.asking ? this.asking.changes() : {};
    return model && { ...body, ...model };
  }

  // The request with the values that the page adds to requests of this turn.
  whole(more) {
    const body = this.asked();
    return body && { ...more, ...body };
  }

  async now() {
    const body = this.asked();
    if (!body) return;
    this.request?.abort();
    this.request = new AbortController();
    try {
      const data = await this.compose(body, this.request.signal);
      this.drawn(data, body);
    } catch (error) {
      if (error.name === "AbortError") return;
      const left = this.form.mark(error.problems);
      error.problems = left;
      if (error.kind === "KwargsError") this.kwargs.open = true;
      replace(this.problems, this.refusal(error, left));
      this.preview.classList.add("stale");
      this.state.textContent = "Not composed";
      say(error.message);
    }
  }

  // An error of a form without an input is not the mistake of a person: it is not shown in red.
  refusal(error, left) {
    if (error.kind === "KwargsError" && !left.length) return empty(error.title, "Fill in the required fields to see the prompt.");
    if (!this.original && !this.hasInput && error.status === 422) return empty(error.title, shown(error.message));
    return problem(error);
  }

  drawn(data, body = { base: this.base }) {
    if (!this.known) this.prompts(data.prompts);
    replace(this.problems);
    this.preview.classList.remove("stale");
    const before = data.diff ? data.diff.tokens_before : null;
    const difference = before === null ? 0 : data.view.tokens - before;
    this.slider.max = String(Math.max(Number(this.slider.max) || 0, data.view.tokens + 50, before || 0));
    this.slider.value = this.budget.value || this.slider.max;
    replace(
      this.state,
      `${number(data.view.tokens)} tokens`,
      difference ? h("em", { class: difference > 0 ? "up" : "down" }, `${difference > 0 ? "+" : "−"}${number(Math.abs(difference))}`) : null,
      data.diff && !data.diff.first ? h("small", null, "unchanged") : null,
      data.diff?.first ? h("small", null, `first ${number(data.diff.same_tokens)} tokens unchanged`) : null,
    );
    replace(this.bar, bar(data.view, { onpick: (layer) => this.layers?.pick(layer) }));
    const shownBefore = this.layers && { rows: this.layers.rows, top: this.layers.top };
    this.layers?.destroy();
    this.layers = new LayersView(this.preview, data, {
      changes: data.diff,
      before: shownBefore,
      load: (path, message) => this.load(path, { ...body, message }),
    });
  }
}
