"""A JSON Schema in the subset that a provider takes, by its rules; what does not fit is named, place by place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from agentkit_prompts.schemas.flat_root import flat_root, resolved
from agentkit_prompts.schemas.intersection import ANNOTATIONS, intersection
from agentkit_prompts.schemas.json_values import kind_of_json
from agentkit_prompts.schemas.property_names import wire_property
from agentkit_prompts.schemas.provider_rules import ProviderRules
from agentkit_prompts.schemas.references import target_in

__all__ = ["fitted", "is_common_pattern", "nullable"]

_MAX_NODES = 20_000
"""References that are written out multiply: what is larger than this is no tool anybody sends."""
_MAX_JOINED = 50
"""Times that a schema is joined with the rules next to it."""
_MAX_REFERENCES = 32
"""References inside of each other that are written out."""
_LOST = ("patternProperties", "prefixItems")
"""Keywords by which values are valid that the subset has no words for."""
_STRUCTURE = frozenset(
    ("$defs", "$ref", "additionalProperties", "allOf", "anyOf", "const", "definitions", "enum", "items", "nullable")
)
_STRUCTURE |= {"oneOf", "properties", "required", "type", *_LOST}
_UNCOMMON = re.compile(r"\(\?[=!<]|\\[1-9bBpP]|\{\d{4,}|\[\[:")
"""In a pattern: look-around, references back, borders of words, classes by name, and what takes long to compile."""
_MAX_PATTERN = 1_000
_ONLY_FOR = {
    **dict.fromkeys(("properties", "required", "additionalProperties", "patternProperties"), "object"),
    **dict.fromkeys(("minProperties", "maxProperties"), "object"),
    **dict.fromkeys(("items", "prefixItems", "minItems", "maxItems", "uniqueItems"), "array"),
    **dict.fromkeys(("minLength", "maxLength", "pattern", "format"), "string"),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), "number"),
}
"""Keywords that say something about values of one type; about whole numbers, too, where that is number."""
_SCALARS = [{"type": kind} for kind in ("string", "number", "boolean")]


def fitted(schema: Mapping[str, Any], rules: ProviderRules) -> tuple[dict[str, Any], list[str]]:
    """Return the parameters of a tool in the subset of `rules`, and what does not fit into it.

    Rules that the subset has no words for are left out: arguments are validated by the whole schema still. Definitions
    are those that are referred to, under `$defs`.
    """
    fitting = _Fitting(schema, rules)
    try:
        found = fitting.fit(flat_root(schema), "", 0)
    except RecursionError:
        return {"type": "object", "properties": {}}, ["parameters is nested too deeply"]
    if fitting.definitions:
        found["$defs"] = fitting.definitions
    return found, [*dict.fromkeys(fitting.problems), *_over_limits(found, rules)]


def nullable(schema: dict[str, Any], rules: ProviderRules) -> dict[str, Any]:
    """Return a fitted schema that accepts null, too."""
    if not rules.lists_types:
        return {**schema, "nullable": True}
    null = {"type": "null"}
    if "anyOf" in schema:
        if null in schema["anyOf"]:
            return schema
        return {**schema, "anyOf": [*schema["anyOf"], null]}
    kinds = _kinds(schema)
    if "null" in kinds:
        return schema
    has_parts = {"object", "array"}.intersection(kinds) or "$ref" in schema
    if kinds and not has_parts and not _listed(schema):
        return {**schema, "type": [*kinds, "null"]}
    outside = {key: value for key, value in schema.items() if key == "description"}
    inside = {key: value for key, value in schema.items() if key != "description"}
    return {"anyOf": [inside, null], **outside}


def is_common_pattern(pattern: str) -> bool:
    """Return whether every provider can be expected to read a regular expression."""
    if len(pattern) > _MAX_PATTERN or _UNCOMMON.search(pattern):
        return False
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


class _Fitting:
    """One document under one set of rules."""

    def __init__(self, document: Mapping[str, Any], rules: ProviderRules) -> None:
        self.document = document
        self.rules = rules
        self.problems: list[str] = []
        self.definitions: dict[str, Any] = {}
        self.names: dict[str, str] = {}
        self.inside: list[str] = []
        self.nodes = 0

    def fit(self, schema: Any, path: str, level: int) -> dict[str, Any]:
        """Return the schema of the value at `path` in the subset."""
        self.nodes += 1
        where = path or "parameters"
        if not isinstance(schema, Mapping):
            return self.anything(where, {})
        outside: dict[str, Any] = {}
        if isinstance(schema.get("description"), str):
            outside["description"] = schema["description"]
        node = self.joined(schema)
        if node is None:
            self.problems.append(f"{where} uses allOf of what cannot be joined")
            if self.rules.is_closed:
                return {}
            return {**self.anything(where, {}), **outside}
        return self.with_description(self.without_description(node, path, level), outside)

    def without_description(self, node: dict[str, Any], path: str, level: int) -> dict[str, Any]:
        """Return a schema that has no `allOf` in the subset."""
        if node.pop("nullable", False) is True:
            return nullable(self.fit(node, path, level), self.rules)
        if "$ref" in node:
            return self.reference(node, path, level)
        options = node.pop("anyOf", None) or node.pop("oneOf", None)
        node.pop("oneOf", None)
        if options:
            return self.union(node, options, path, level)
        return self.plain(node, path, level)

    def with_description(self, schema: dict[str, Any], outside: dict[str, Any]) -> dict[str, Any]:
        if "$ref" in schema and outside:
            # In the subsets, a reference has no keywords next to it.
            return {"anyOf": [schema], **outside}
        return {**schema, **outside}

    def joined(self, schema: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return a schema without annotations and with its `allOf` as part of it; None if they cannot be joined."""
        node = _bare(schema)
        for _ in range(_MAX_JOINED):
            parts = node.pop("allOf", None)
            if not parts:
                return node
            for part in parts:
                whole_part = resolved(part, self.document) if isinstance(part, Mapping) else {}
                whole = intersection(node, _bare(whole_part))
                if whole is None:
                    return None
                node = whole
        return None

    def reference(self, node: dict[str, Any], path: str, level: int) -> dict[str, Any]:
        """Return a schema with a reference in the subset."""
        reference, where = node.pop("$ref"), path or "parameters"
        target = target_in(self.document, reference)
        if not isinstance(target, Mapping) or self.nodes > _MAX_NODES:
            return self.anything(where, {})
        # Rules next to it hold as well.
        if node:
            whole = intersection(node, _bare(target))
            if whole is None or reference in self.inside:
                self.problems.append(f"{where} refers to {reference} beside rules of its own")
                return {}
            return self.fit_inside(reference, whole, path, level)
        # Written out, a schema that contains itself would never end.
        if reference in self.inside and self.rules.references != "recursive":
            if self.rules.references == "flat":
                self.problems.append(f"{where} contains itself")
            return {"type": "object"}
        if self.rules.references == "none":
            if len(self.inside) >= _MAX_REFERENCES:
                return {"type": "object"}
            return self.fit_inside(reference, target, path, level)
        if reference not in self.names:
            self.define(reference, target, level)
        return {"$ref": f"#/$defs/{self.names[reference]}"}

    def fit_inside(self, reference: str, schema: Any, path: str, level: int) -> dict[str, Any]:
        """Return the target of a reference in the subset; references to the same target in it are known as such."""
        self.inside.append(reference)
        fitted_schema = self.fit(schema, path, level)
        self.inside.pop()
        return fitted_schema

    def define(self, reference: str, target: Mapping[str, Any], level: int) -> None:
        """Add the target of a reference to the definitions."""
        name = self.names[reference] = self.named(reference)
        # The name is taken before the target is fitted: the target can refer to itself.
        self.definitions[name] = {}
        schema = flat_root(target) if reference == "#" else target
        self.definitions[name] = self.fit_inside(reference, schema, name, level)

    def named(self, reference: str) -> str:
        """Return a new name for a definition."""
        base = re.sub(r"[^a-zA-Z0-9_.-]+", "_", reference.rpartition("/")[2].strip("#"))[:60] or "parameters"
        name, number = base, 1
        while name in self.definitions:
            number += 1
            name = f"{base}_{number}"
        return name

    def union(self, node: dict[str, Any], options: Any, path: str, level: int) -> dict[str, Any]:
        """Return alternatives; the rules next to them are part of each."""
        alternatives = self.alternatives(node, options)
        if not alternatives:
            return self.plain(node, path, level)
        rest = [one for one in alternatives if _kinds(one) != ["null"]]
        if not self.rules.lists_types and rest and len(rest) < len(alternatives):
            schema = rest[0] if len(rest) == 1 else {"anyOf": rest}
            return nullable(self.fit(schema, path, level), self.rules)
        distinct: list[dict[str, Any]] = []
        for alternative in alternatives:
            fitted_schema = self.fit(alternative, path, level)
            inner = fitted_schema["anyOf"] if fitted_schema.keys() == {"anyOf"} else [fitted_schema]
            distinct += [one for one in inner if one not in distinct]
        if len(distinct) == 1:
            return distinct[0]
        return {"anyOf": distinct}

    def alternatives(self, node: dict[str, Any], options: Any) -> list[dict[str, Any]]:
        """Return the alternatives that some value fulfils, each with the rules next to them."""
        result: list[dict[str, Any]] = []
        for option in options:
            if option is False:
                continue
            schema = option if isinstance(option, Mapping) else {}
            if node and not schema.keys() - {"required", *ANNOTATIONS}:
                # It only decides which properties go together.
                continue
            whole = intersection(resolved(schema, self.document), node) if node else dict(schema)
            if whole is not None and whole.get("enum") != []:
                result.append(whole)
        return result

    def plain(self, node: dict[str, Any], path: str, level: int) -> dict[str, Any]:
        """Return a schema that has neither references nor alternatives."""
        where, listed = path or "parameters", _listed(node)
        kinds = _kinds(node) or _implied_kinds(node, listed)
        if not kinds:
            return self.anything(where, node)
        # Keywords of objects and arrays belong to one type each, so these become alternatives.
        if len(kinds) > 1 and (not self.rules.lists_types or {"object", "array"}.intersection(kinds)):
            return self.union({}, [_of_kind(node, kind, listed) for kind in kinds], path, level)
        if kinds == ["null"] and not self.rules.lists_types:
            # The provider has no type for null alone.
            return {"type": "string", "nullable": True}
        result: dict[str, Any] = {"type": kinds}
        if len(kinds) == 1:
            result["type"] = kinds[0]
        if listed is not None:
            self.add_enum(result, node, listed, where)
        self.add_keywords(result, node)
        if kinds == ["object"]:
            self.add_properties(result, node, path, level)
        elif kinds == ["array"]:
            self.add_items(result, node, path, level)
        return result

    def add_keywords(self, result: dict[str, Any], node: Mapping[str, Any]) -> None:
        known = self.rules.keywords or frozenset()
        for keyword, value in node.items():
            if keyword in known and keyword not in _STRUCTURE and self.is_right(keyword, value):
                result[keyword] = value

    def add_enum(self, result: dict[str, Any], node: Mapping[str, Any], listed: list[Any], where: str) -> None:
        if any(isinstance(value, Mapping | list | tuple) for value in listed):
            if self.rules.is_closed:
                self.problems.append(f"{where} lists values that are objects or arrays")
        elif self.rules.only_text_enums:
            if texts := [value for value in listed if isinstance(value, str) and value]:
                result["enum"] = texts
        elif "const" in node:
            result["const"] = listed[0]
        else:
            result["enum"] = listed

    def is_right(self, key: str, value: Any) -> bool:
        """Whether a keyword can be sent with this value."""
        if key == "format":
            return isinstance(value, str) and value in self.rules.formats
        if key == "pattern":
            return isinstance(value, str) and is_common_pattern(value)
        if key == "minItems" and self.rules.max_min_items is not None:
            return isinstance(value, int) and value <= self.rules.max_min_items
        return isinstance(value, int | float) and not isinstance(value, bool)

    def add_properties(self, result: dict[str, Any], node: Mapping[str, Any], path: str, level: int) -> None:
        rules, where = self.rules, path or "parameters"
        if rules.is_closed and _is_open(node, is_root=not path):
            self.problems.append(f"{where} takes properties of any name")
        if rules.max_levels is not None and level >= rules.max_levels:
            self.problems.append(f"{where} is nested deeper than {rules.max_levels} levels")
            return
        properties = self.fitted_properties(node, path, level)
        if properties or rules.is_closed:
            result["properties"] = properties
        if rules.all_required:
            result["required"] = list(properties)
        else:
            names = [wire_property(name, rules.names) for name in node.get("required", ())]
            required = [name for name in dict.fromkeys(names) if name in properties]
            if required:
                result["required"] = required
        if rules.is_closed:
            result["additionalProperties"] = False

    def fitted_properties(self, node: Mapping[str, Any], path: str, level: int) -> dict[str, Any]:
        required = set(node.get("required", ()))
        properties: dict[str, Any] = {}
        for name, item in (node.get("properties") or {}).items():
            if item is False:
                continue
            inner = self.fit(item, f"{path}.{name}" if path else name, level + 1)
            if self.rules.all_required and name not in required:
                inner = nullable(inner, self.rules)
            properties[wire_property(name, self.rules.names)] = inner
        return properties

    def add_items(self, result: dict[str, Any], node: Mapping[str, Any], path: str, level: int) -> None:
        heads, items = node.get("prefixItems"), node.get("items", True)
        if not heads:
            result["items"] = self.fit(items, f"{path}[]", level)
        elif self.rules.is_closed:
            self.problems.append(f"{path or 'parameters'} uses prefixItems")
        else:
            more = [] if items is False or "items" not in node else [items]
            result["items"] = self.fit({"anyOf": [*heads, *more]}, f"{path}[]", level)

    def anything(self, where: str, node: Mapping[str, Any]) -> dict[str, Any]:
        """Return what accepts any value, as far as there are words for that."""
        if self.rules.is_closed:
            self.problems.append(f"{where} accepts any value")
            return {}
        return {"anyOf": [*_SCALARS, {"type": "array", "items": {"type": "string"}}, {"type": "object"}]}


def _bare(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without annotations."""
    return {key: value for key, value in schema.items() if key not in ANNOTATIONS}


def _is_open(node: Mapping[str, Any], *, is_root: bool) -> bool:
    """True if an object accepts properties that it does not name."""
    extra = node.get("additionalProperties")
    if extra or "patternProperties" in node:
        return True
    return node.get("properties") is None and extra is None and not is_root


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    kind = schema.get("type")
    if kind is None:
        return []
    if isinstance(kind, list | tuple):
        return list(kind)
    return [kind]


def _implied_kinds(node: Mapping[str, Any], listed: list[Any] | None) -> list[str]:
    """Return the types of a schema without `type`: of the listed values, or of its keywords."""
    if listed is not None:
        return list(dict.fromkeys(kind_of_json(value) for value in listed))
    if "properties" in node:
        return ["object"]
    if "items" in node or "prefixItems" in node:
        return ["array"]
    return []


def _listed(schema: Mapping[str, Any]) -> list[Any] | None:
    """Return the listed values; None if the schema has no such list."""
    if "const" in schema:
        return [schema["const"]]
    if "enum" in schema:
        return list(schema["enum"])
    return None


def _of_kind(node: Mapping[str, Any], kind: str, listed: list[Any] | None) -> dict[str, Any]:
    """Return what a schema of several types says about one of them."""
    alike = {"integer": "number"}.get(kind, kind)
    found = {key: value for key, value in node.items() if _ONLY_FOR.get(key, alike) == alike and key != "const"}
    if listed is not None:
        found["enum"] = [one for one in listed if (one_kind := kind_of_json(one)) == kind or {one_kind, kind} == _WHOLE]
    if kind == "null":
        found = {}
    return {**found, "type": kind}


_WHOLE = {"integer", "number"}


def _over_limits(schema: Mapping[str, Any], rules: ProviderRules) -> Iterator[str]:
    """Yield what is larger than the provider takes."""
    properties = values = chars = unions = 0
    waiting: list[Any] = [schema]
    while waiting:
        node = waiting.pop()
        unions += "anyOf" in node or isinstance(node.get("type"), list)
        for key in ("properties", "$defs"):
            if key in node:
                properties += len(node[key]) if key == "properties" else 0
                chars += sum(map(len, node[key]))
                waiting += node[key].values()
        listed = _listed(node) or ()
        values += len(listed)
        chars += sum(len(value) for value in listed if isinstance(value, str))
        waiting += [*node.get("anyOf", ()), *([node["items"]] if "items" in node else ())]
    for count, most, noun in (
        (properties, rules.max_properties, "properties"),
        (values, rules.max_enum_values, "values in enums"),
        (chars, rules.max_name_chars, "characters in names and enums"),
        (unions, rules.max_unions, "parameters of several types"),
    ):
        if most is not None and count > most:
            yield f"parameters has {count:,} {noun}, {most:,} are allowed"
