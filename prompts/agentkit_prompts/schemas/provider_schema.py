"""A JSON Schema in the subset that a provider takes, by its rules; what does not fit is named, place by place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from agentkit_prompts.schemas.intersection import ANNOTATIONS, intersection
from agentkit_prompts.schemas.json_values import kind_of_json
from agentkit_prompts.schemas.property_names import wire_property
from agentkit_prompts.schemas.provider_rules import ProviderRules
from agentkit_prompts.schemas.references import target_in

__all__ = ["fitted", "flat_root", "is_common_pattern", "nullable"]

_MAX_NODES = 20_000
"""References that are written out multiply: what is larger than this is no tool anybody sends."""
_MAX_JOINED = 50
"""Times that a schema is joined with what holds beside it, and schemas that are looked at for one join."""
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


def flat_root(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a tool as one object without alternatives: no provider takes any at the top.

    What all alternatives require is required, what some of them have may be given; which go together is checked when
    the tool is called.
    """
    root: dict[str, Any] = _resolved({"type": "object", **schema}, schema)
    for key in ("anyOf", "oneOf"):
        options = [_resolved(one, schema) for one in root.pop(key, ()) if isinstance(one, Mapping)]
        properties: dict[str, Any] = dict(root.get("properties", {}))
        for option in options:
            for name, item in option.get("properties", {}).items():
                own = properties.setdefault(name, item)
                if own != item and item not in own.get("anyOf", ()):
                    properties[name] = {"anyOf": [*(own["anyOf"] if own.keys() == {"anyOf"} else [own]), item]}
        shared = [set(option.get("required", ())) for option in options]
        common = [name for name in properties if shared and all(name in names for names in shared)]
        if common or root.get("required"):
            root["required"] = list(dict.fromkeys([*root.get("required", ()), *common]))
        root["properties"] = properties
    for key in ("allOf", "$ref", "enum", "not", "const", "nullable", "if", "then", "else"):
        root.pop(key, None)
    return {**root, "type": "object", "properties": root.get("properties", {})}


def nullable(schema: dict[str, Any], rules: ProviderRules) -> dict[str, Any]:
    """Return a fitted schema that accepts null, too."""
    if not rules.lists_types:
        return {**schema, "nullable": True}
    if any(one == {"type": "null"} for one in schema.get("anyOf", ())):
        return schema
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    kinds = _kinds(schema)
    if "null" in kinds:
        return schema
    if kinds and not {"object", "array"}.intersection(kinds) and "$ref" not in schema and not _listed(schema):
        return {**schema, "type": [*kinds, "null"]}
    outside = {key: value for key, value in schema.items() if key == "description"}
    inside = {key: value for key, value in schema.items() if key != "description"}
    return {"anyOf": [inside, {"type": "null"}], **outside}


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
        self.nodes += 1
        where = path or "parameters"
        if not isinstance(schema, Mapping):
            return self.anything(where, {})
        outside = {"description": schema["description"]} if isinstance(schema.get("description"), str) else {}
        node: dict[str, Any] | None = {key: value for key, value in schema.items() if key not in ANNOTATIONS}
        for _ in range(_MAX_JOINED):
            if node is None or not node.get("allOf"):
                break
            node = self.joined(node)
        if node is None or node.get("allOf"):
            self.problems.append(f"{where} uses allOf of what cannot be joined")
            return {} if self.rules.is_closed else {**self.anything(where, {}), **outside}
        if node.pop("nullable", False) is True:
            return {**nullable(self.fit(node, path, level), self.rules), **outside}
        if "$ref" in node:
            found = self.reference(node, path, level)
            return {"anyOf": [found], **outside} if "$ref" in found and outside else {**found, **outside}
        options = node.pop("anyOf", None) or node.pop("oneOf", None)
        node.pop("oneOf", None)
        if options:
            return {**self.union(node, options, path, level), **outside}
        return {**self.plain(node, path, level), **outside}

    def joined(self, node: dict[str, Any]) -> dict[str, Any] | None:
        """Return a schema with its `allOf` as part of it."""
        parts = node.pop("allOf")
        result: dict[str, Any] | None = node
        for part in parts:
            found = _resolved(part, self.document) if isinstance(part, Mapping) else {}
            bare = {key: value for key, value in found.items() if key not in ANNOTATIONS}
            result = None if result is None else intersection(result, bare)
        return result

    def reference(self, node: dict[str, Any], path: str, level: int) -> dict[str, Any]:
        reference, where = node.pop("$ref"), path or "parameters"
        target = target_in(self.document, reference)
        if not isinstance(target, Mapping) or self.nodes > _MAX_NODES:
            return self.anything(where, {})
        if node:  # rules beside it hold as well
            joined = intersection(node, {key: value for key, value in target.items() if key not in ANNOTATIONS})
            if joined is None or reference in self.inside:
                self.problems.append(f"{where} refers to {reference} beside rules of its own")
                return {}
            self.inside.append(reference)
            found = self.fit(joined, path, level)
            self.inside.pop()
            return found
        if reference in self.inside and self.rules.references != "recursive":
            if self.rules.references == "flat":
                self.problems.append(f"{where} contains itself")
            return {"type": "object"}
        if self.rules.references == "none":
            if len(self.inside) >= _MAX_REFERENCES:
                return {"type": "object"}
            self.inside.append(reference)
            found = self.fit(target, path, level)
            self.inside.pop()
            return found
        if reference not in self.names:
            name = self.names[reference] = self.named(reference)
            self.definitions[name] = {}
            self.inside.append(reference)
            self.definitions[name] = self.fit(flat_root(target) if reference == "#" else target, name, level)
            self.inside.pop()
        return {"$ref": f"#/$defs/{self.names[reference]}"}  # it stands alone in the subsets

    def named(self, reference: str) -> str:
        """Return a name for a definition that no other one has."""
        name = re.sub(r"[^a-zA-Z0-9_.-]+", "_", reference.rpartition("/")[2].strip("#"))[:60] or "parameters"
        number = 1
        while (found := name if number == 1 else f"{name}_{number}") in self.definitions:
            number += 1
        return found

    def union(self, node: dict[str, Any], options: Any, path: str, level: int) -> dict[str, Any]:
        """Return alternatives; what stands beside them is part of each."""
        found: list[dict[str, Any]] = []
        for option in options:
            if not isinstance(option, Mapping):
                option = {} if option is True else {"enum": []}
            if node and not option.keys() - {"required", *ANNOTATIONS}:
                continue  # it only says which properties go together
            whole = intersection(_resolved(option, self.document), node) if node else dict(option)
            if whole is not None and whole.get("enum") != []:
                found.append(whole)
        if not found:
            return self.plain(node, path, level)
        nulls = [one for one in found if _kinds(one) == ["null"]]
        rest = [one for one in found if one not in nulls]
        if not self.rules.lists_types and nulls and rest:
            whole = self.fit(rest[0] if len(rest) == 1 else {"anyOf": rest}, path, level)
            return nullable(whole, self.rules)
        fits = [self.fit(one, path, level) for one in found]
        flat = [inner for one in fits for inner in (one["anyOf"] if one.keys() == {"anyOf"} else [one])]
        distinct = [one for number, one in enumerate(flat) if one not in flat[:number]]
        return distinct[0] if len(distinct) == 1 else {"anyOf": distinct}

    def plain(self, node: dict[str, Any], path: str, level: int) -> dict[str, Any]:
        """Return a schema that has neither references nor alternatives."""
        where, listed = path or "parameters", _listed(node)
        kinds = _kinds(node)
        if listed is not None and not kinds:
            kinds = list(dict.fromkeys(kind_of_json(value) for value in listed))
        if not kinds:
            kinds = (
                ["object"] if "properties" in node else ["array"] if "items" in node or "prefixItems" in node else []
            )
        if not kinds:
            return self.anything(where, node)
        if len(kinds) > 1 and (not self.rules.lists_types or {"object", "array"}.intersection(kinds)):
            return self.union({}, [_of_kind(node, kind, listed) for kind in kinds], path, level)
        if kinds == ["null"] and not self.rules.lists_types:
            return {"type": "string", "nullable": True}  # there is no type of its own for it
        result: dict[str, Any] = {"type": kinds[0] if len(kinds) == 1 else kinds}
        if listed is not None:
            self.add_enum(result, node, listed, where)
        known = self.rules.keywords or frozenset()
        for key, value in node.items():
            if key in known and key not in _STRUCTURE and self.is_right(key, value):
                result[key] = value
        if kinds == ["object"]:
            self.add_properties(result, node, path, level)
        elif kinds == ["array"]:
            self.add_items(result, node, path, level)
        return result

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
        properties, extra = node.get("properties"), node.get("additionalProperties")
        if rules.is_closed and (
            extra or (properties is None and extra is None and path) or "patternProperties" in node
        ):
            self.problems.append(f"{where} takes properties of any name")
        if rules.max_levels is not None and level >= rules.max_levels:
            self.problems.append(f"{where} is nested deeper than {rules.max_levels} levels")
            return
        required = set(node.get("required", ()))
        found: dict[str, Any] = {}
        for name, item in (properties or {}).items():
            if item is False:
                continue
            inner = self.fit(item, f"{path}.{name}" if path else name, level + 1)
            wire = wire_property(name, rules.names)
            found[wire] = nullable(inner, rules) if rules.all_required and name not in required else inner
        if found or rules.is_closed:
            result["properties"] = found
        needed = [wire_property(name, rules.names) for name in node.get("required", ())]
        needed = list(found) if rules.all_required else [name for name in dict.fromkeys(needed) if name in found]
        if needed or rules.all_required:
            result["required"] = needed
        if rules.is_closed:
            result["additionalProperties"] = False

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


def _resolved(schema: Mapping[str, Any], document: Mapping[str, Any], left: list[int] | None = None) -> dict[str, Any]:
    """Return a schema with what it refers to, and what it joins with `allOf`, as part of it, as far as that goes.

    `left` is how many schemas may still be looked at: they multiply.
    """
    result, left = dict(schema), [_MAX_JOINED] if left is None else left
    while left[0] > 0:
        left[0] -= 1
        if isinstance(target := target_in(document, result.get("$ref")), Mapping):
            whole = intersection({key: value for key, value in result.items() if key != "$ref"}, target)
        elif result.get("allOf"):
            first, *rest = result["allOf"]
            inner = _resolved(first, document, left) if isinstance(first, Mapping) else {}
            bare = {key: value for key, value in result.items() if key != "allOf"}
            whole = intersection({**bare, **({"allOf": rest} if rest else {})}, inner)
        else:
            break
        if whole is None:
            break
        result = whole
    return result


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    kind = schema.get("type")
    return [] if kind is None else list(kind) if isinstance(kind, list | tuple) else [kind]


def _listed(schema: Mapping[str, Any]) -> list[Any] | None:
    """Return the values that are listed, where there is such a list."""
    return [schema["const"]] if "const" in schema else list(schema["enum"]) if "enum" in schema else None


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
