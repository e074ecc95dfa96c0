// A form for a JSON Schema. Values without a field are entered as JSON.

import { h, replace, shown, number } from "./dom.js";

const MAX_FIELDS = 100;

function resolved(schema, root, depth = 0) {
  if (!schema || typeof schema !== "object" || depth > 20) return {};
  if (typeof schema.$ref === "string" && schema.$ref.startsWith("#/")) {
    let found = root;
    for (const step of schema.$ref.slice(2).split("/")) found = found?.[step.replaceAll("~1", "/").replaceAll("~0", "~")];
    return { ...resolved(found, root, depth + 1), ...Object.fromEntries(Object.entries(schema).filter(([key]) => key !== "$ref")) };
  }
  const choices = schema.anyOf || schema.oneOf;
  if (Array.isArray(choices)) {
    const others = choices.filter((one) => one?.type !== "null");
    if (others.length === 1) return { ...resolved(others[0], root, depth + 1), ...schema, anyOf: undefined, oneOf: undefined };
  }
  if (Array.isArray(schema.allOf) && schema.allOf.length === 1) return { ...resolved(schema.allOf[0], root, depth + 1), ...schema, allOf: undefined };
  return schema;
}

const kindOf = (schema) => {
  if (Array.isArray(schema.enum)) return "enum";
  if (schema.const !== undefined) return "enum";
  const type = Array.isArray(schema.type) ? schema.type.find((one) => one !== "null") : schema.type;
  if (type === "array" && ["string", undefined].includes(schema.items?.type) && schema.items) return "list";
  return { string: "string", integer: "number", number: "number", boolean: "boolean" }[type] || (type ? "json" : "any");
};

export class Form {
  constructor(schema, values = {}, { oninput } = {}) {
    this.fields = new Map();
    this.oninput = oninput;
    const properties = Object.entries(schema?.properties || {});
    const required = new Set(schema?.required || []);
    properties.sort(([one], [other]) => required.has(other) - required.has(one));
    this.extra = Object.fromEntries(Object.entries(values).filter(([name]) => !schema?.properties || !(name in schema.properties)));
    this.element = h("div", { class: "form" });
    this.many = properties.length > MAX_FIELDS;
    this.root = schema || {};
    if (!properties.length && !Object.keys(this.extra).length) {
      replace(this.element, h("p", { class: "quiet" }, "The prompts of this agent need no additional kwargs."));
      return;
    }
    const shownFields = this.many ? properties.filter(([name]) => required.has(name)).slice(0, MAX_FIELDS) : properties;
    replace(
      this.element,
      shownFields.map(([name, property]) => this.field(name, resolved(property, this.root), required.has(name), values[name])),
      this.many || Object.keys(this.extra).length ? this.rest(properties, shownFields, values) : null,
    );
  }

  field(name, schema, isRequired, value) {
    const kind = kindOf(schema);
    const id = `field-${Math.random().toString(36).slice(2)}`;
    const given = value !== undefined ? value : schema.default;
    let control;
    if (kind === "enum") {
      const options = schema.enum || [schema.const];
      control = h("select", { id }, isRequired && given !== undefined ? null : h("option", { value: "" }, "…"), options.map((one, index) => h("option", { value: String(index) }, String(one))));
      const at = options.findIndex((one) => one === given);
      control.value = at >= 0 ? String(at) : isRequired && given !== undefined ? "0" : "";
      control.read = () => (control.value === "" ? undefined : options[Number(control.value)]);
    } else if (kind === "boolean") {
      control = h("input", { id, type: "checkbox", role: "switch", checked: given === true });
      let touched = given !== undefined || isRequired;
      control.addEventListener("change", () => (touched = true));
      control.read = () => (touched ? control.checked : undefined);
    } else if (kind === "number") {
      control = h("input", { id, type: "number", min: schema.minimum, max: schema.maximum, step: schema.type === "integer" ? "1" : "any", value: given ?? "" });
      control.read = () => (control.value === "" ? undefined : Number(control.value));
    } else if (kind === "list") {
      control = h("input", { id, type: "text", value: (given || []).join(", "), placeholder: "one, two, three" });
      control.read = () => {
        const list = control.value.split(",").map((one) => one.trim()).filter(Boolean);
        return list.length || given !== undefined ? list : undefined;
      };
    } else if (kind === "json") {
      control = h("textarea", { id, rows: "3", spellcheck: "false", placeholder: "JSON" });
      control.value = given === undefined ? "" : JSON.stringify(given, null, 1);
      control.read = () => (control.value.trim() ? JSON.parse(control.value) : undefined);
    } else {
      const long = typeof given === "string" && given.length > 80;
      control = long ? h("textarea", { id, rows: "3" }) : h("input", { id, type: "text" });
      control.value = given === undefined || given === null ? "" : typeof given === "string" ? given : JSON.stringify(given);
      control.read = () => {
        if (control.value === "") return isRequired && given === "" ? "" : undefined;
        if (kind === "any" && typeof given !== "string" && /^[[{\d"-]|^(true|false|null)$/.test(control.value)) {
          try {
            return JSON.parse(control.value);
          } catch {
            return control.value;
          }
        }
        return control.value;
      };
    }
    const error = h("p", { class: "wrong", id: `${id}-wrong` });
    control.setAttribute("aria-describedby", `${id}-help ${id}-wrong`);
    if (isRequired) control.setAttribute("aria-required", "true");
    control.addEventListener("input", () => {
      replace(error);
      control.removeAttribute("aria-invalid");
      entry.touched = true;
      this.oninput?.();
    });
    const entry = { control, error };
    this.fields.set(name, entry);
    const by = schema["x-required-by"];
    return h(
      "div",
      { class: `field ${kind}` },
      h("label", { for: id, dir: "auto" }, shown(schema.title || name), isRequired ? h("span", { class: "required", title: "required" }, " required") : null),
      control,
      h("p", { class: "help", id: `${id}-help`, dir: "auto" }, schema.description ? shown(String(schema.description).slice(0, 400)) : null, by ? h("small", { title: "the prompts that need it" }, ` ${[by].flat().slice(0, 4).join(", ")}`) : null),
      error,
    );
  }

  rest(properties, shownFields, values) {
    const names = new Set(shownFields.map(([name]) => name));
    const others = properties.filter(([name]) => !names.has(name)).map(([name]) => name);
    const area = h("textarea", { rows: "4", spellcheck: "false", placeholder: '{"name": "value"}' });
    const left = { ...this.extra, ...Object.fromEntries(others.filter((name) => values[name] !== undefined).map((name) => [name, values[name]])) };
    area.value = Object.keys(left).length ? JSON.stringify(left, null, 1) : "";
    area.read = () => (area.value.trim() ? JSON.parse(area.value) : {});
    area.addEventListener("input", () => this.oninput?.());
    const error = h("p", { class: "wrong" });
    this.others = { control: area, error };
    return h(
      "div",
      { class: "field json" },
      h("label", null, others.length ? `${number(others.length)} more, as JSON` : "Others, as JSON", area),
      others.length ? h("p", { class: "help" }, shown(others.slice(0, 20).join(", ")), others.length > 20 ? ", …" : "") : null,
      error,
    );
  }

  // The values of the form; null if a field is invalid, which is then marked.
  values() {
    const found = {};
    let isGood = true;
    const read = (entry, take) => {
      try {
        take(entry.control.read());
      } catch (error) {
        isGood = false;
        mark(entry, `not JSON: ${error.message}`);
      }
    };
    for (const [name, entry] of this.fields)
      read(entry, (value) => {
        if (value !== undefined) found[name] = value;
      });
    if (this.others) read(this.others, (value) => Object.assign(found, value));
    return isGood ? found : null;
  }

  // Marks the fields that the server names, and returns the problems without a field. Before `all` values are requested,
  // only fields with an input are marked.
  mark(problems, { all = false } = {}) {
    const left = [];
    for (const one of problems || []) {
      const name = one.where.replace(/^kwargs\./, "").split(/[.[]/)[0];
      const entry = this.fields.get(name);
      if (one.where.startsWith("kwargs.") && entry) {
        if (all || entry.touched) mark(entry, one.what);
      } else left.push(one);
    }
    if (all) [...this.fields.values()].find((entry) => entry.control.hasAttribute("aria-invalid"))?.control.focus();
    return left;
  }
}

function mark(entry, text) {
  replace(entry.error, shown(text));
  entry.control.setAttribute("aria-invalid", "true");
}
