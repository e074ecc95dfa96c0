// Creates elements from text only: text never becomes markup.

const EVENT = /^on[a-z]+$/;

export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") element.className = value;
    else if (EVENT.test(name)) element.addEventListener(name.slice(2), value);
    else if (name === "vars") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else if (name === "value") element.value = value;
    else if (name === "checked" || name === "disabled" || name === "hidden" || name === "open") element[name] = Boolean(value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  add(element, children);
  return element;
}

export function add(element, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

export function replace(element, ...children) {
  element.replaceChildren();
  return add(element, children);
}

// Invisible characters and characters that change the direction of text are shown as their code.
const UNSEEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]|\p{Cs}/gu;

export function shown(text) {
  const nodes = [];
  let at = 0;
  text = String(text).replaceAll("\r\n", "\n");
  for (const found of text.matchAll(UNSEEN)) {
    if (found.index > at) nodes.push(document.createTextNode(text.slice(at, found.index)));
    const code = found[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    nodes.push(h("span", { class: "unseen", title: `U+${code}, an invisible character` }, `U+${code}`));
    at = found.index + found[0].length;
  }
  if (at < text.length) nodes.push(document.createTextNode(text.slice(at)));
  return nodes;
}

export function plain(text) {
  return String(text).replace(UNSEEN, "\ufffd");
}

const FOLD = 1600;
const STEP = 20000;

// Long text is shown in parts, so that a megabyte of text does not block the page.
export function folded(text, { more = 0, load = null, fold = FOLD } = {}) {
  if (text.length <= fold * 1.25 && !more) return shown(text);
  const nodes = [...shown(text.slice(0, fold))];
  let at = Math.min(fold, text.length);
  const button = h("button", { class: "more", type: "button" });
  const label = () => `Show ${number(text.length - at + more)} more characters`;
  button.textContent = label();
  button.addEventListener("click", async (event) => {
    event.stopPropagation();
    if (more && load) {
      button.disabled = true;
      try {
        text = await load();
        more = 0;
      } catch (error) {
        button.textContent = error.message;
        return;
      }
      button.disabled = false;
    }
    const end = Math.min(text.length, at + STEP);
    button.before(...shown(text.slice(at, end)));
    at = end;
    if (at >= text.length) button.remove();
    else button.textContent = label();
  });
  nodes.push(button);
  return nodes;
}

// Whole numbers need no tables of languages, which take a browser longer to load than all else that is shown first.
export function number(value) {
  const given = Number(value || 0);
  return Number.isSafeInteger(given) ? String(given).replace(/\B(?=(\d{3})+$)/g, ",") : given.toLocaleString("en");
}
export const percent = (share) => (share > 0 && share < 0.001 ? "<0.1 %" : `${(share * 100).toFixed(share < 0.0995 || (share > 0.985 && share < 0.9995) ? 1 : 0)} %`);

export function money(value) {
  if (value === null || value === undefined) return "";
  if (value === 0) return "$0";
  return value < 0.01 ? `$${value.toPrecision(2)}` : `$${value.toFixed(value < 1 ? 3 : 2)}`;
}

export function say(text) {
  document.getElementById("live").textContent = plain(text).slice(0, 300);
}

const ICONS = {
  back: "M15 5l-7 7 7 7",
  sun: "M12 4V2m0 20v-2m8-8h2M2 12h2m13.7-5.7l1.4-1.4M4.9 19.1l1.4-1.4m0-11.4L4.9 4.9m14.2 14.2l-1.4-1.4M12 8a4 4 0 100 8 4 4 0 000-8z",
  plus: "M12 5v14M5 12h14",
  copy: "M9 9h10v10H9zM5 15V5h10",
  model: "M5 5h14v10H9l-4 4z",
  tool: "M14.5 6.5a4 4 0 00-5.4 4.9L4 16.5 7.5 20l5.1-5.1a4 4 0 004.9-5.4L15 12l-3-3z",
  approval: "M12 3l8 3v6c0 4.5-3.4 7.6-8 9-4.6-1.4-8-4.5-8-9V6z",
  recall: "M11 4a7 7 0 105 12l4 4-4-4a7 7 0 00-5-12z",
  begin: "M8 5l10 7-10 7z",
  check: "M5 13l4 4L19 7",
  cross: "M6 6l12 12M18 6L6 18",
  compact: "M5 7h14M8 12h8M10 17h4",
};

export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", ICONS[name] || ICONS.begin);
  svg.append(path);
  return svg;
}

export function problem(error, again) {
  const problems = error.problems || [];
  return h(
    "section",
    { class: "state error", role: "alert" },
    h("h2", null, error.title || "An error occurred"),
    h("p", { class: "message", dir: "auto" }, folded(error.message || String(error))),
    problems.length
      ? h("ul", null, problems.map((one) => h("li", null, h("code", null, shown(one.where)), " ", shown(one.what))))
      : null,
    again ? h("button", { type: "button", onclick: again }, "Try again") : null,
  );
}

export function empty(title, text, ...actions) {
  return h("section", { class: "state" }, h("h2", null, title), h("p", null, text), actions);
}

// Tabs and radio choices: arrow keys move, and the selected item is in the tab order.
export function choice(label, options, chosen, choose, { kind = "radio" } = {}) {
  const isTabs = kind === "tab";
  const group = h("div", { class: isTabs ? "tabs" : "choice", role: isTabs ? "tablist" : "radiogroup", "aria-label": label });
  const buttons = options.map(([value, text, note]) =>
    h(
      "button",
      {
        type: "button",
        role: kind,
        id: isTabs ? `tab-${value}` : undefined,
        "aria-controls": isTabs ? "panel" : undefined,
        [isTabs ? "aria-selected" : "aria-checked"]: String(value === chosen),
        tabindex: value === chosen ? "0" : "-1",
        onclick: () => choose(value),
      },
      text,
      note ? h("span", { class: "badge" }, note) : null,
    ),
  );
  group.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const at = buttons.indexOf(document.activeElement);
    if (!step || at < 0) return;
    event.preventDefault();
    const next = buttons[(at + step + buttons.length) % buttons.length];
    next.focus();
    next.click();
  });
  return add(group, buttons);
}

// The number of failed tool calls of a run, as a mark; null without failures.
export const toolErrors = (count, tag = "span", attributes = {}) =>
  count ? h(tag, { ...attributes, class: "tag failed", title: "Tools failed in this run" }, icon("cross"), count === 1 ? "1 tool error" : `${number(count)} tool errors`) : null;

// The tags of a run, as marks.
export const tagsOf = (run) => run.tags.map((name) => h("span", { class: "tag label", title: "tag", dir: "auto" }, shown(name)));

// The tags in a text with commas.
export const tagList = (text) => text.split(",").map((tag) => tag.trim()).filter(Boolean);
