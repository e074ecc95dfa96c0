"""Conversion of a JSON Schema to the subset that a provider supports, with a list of the unsupported parts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from agentkit_prompts.schemas.flat_root import flat_root, resolved
from agentkit_prompts.schemas.intersection import ANNOTATIONS, intersection
from agentkit_prompts.schemas.json_values import kind_of_json
from agentkit_prompts.schemas.keywords import as_object, listed_values
from agentkit_prompts.schemas.pattern_size import is_common_pattern
from agentkit_prompts.schemas.property_names import wire_property
from agentkit_prompts.schemas.provider_limits import over_limits
from agentkit_prompts.schemas.provider_rules import ProviderRules
from agentkit_prompts.schemas.references import target_in

_MAX_NODES = 20_000
"""Maximum number of schemas in a tool with its references expanded; after it, references accept any value."""
_MAX_JOINED = 50
"""Maximum number of nested `allOf` that are merged into one schema."""
_MAX_REFERENCES = 32
"""Maximum levels of nested references that are expanded."""
_INEXPRESSIBLE = ("patternProperties", "prefixItems")
"""Keywords that allow values and that no subset has."""
_STRUCTURE = frozenset(
    ("$defs", "$ref", "additionalProperties", "allOf", "anyOf", "const", "definitions", "enum", "items", "nullable")
)
_STRUCTURE |= {"oneOf", "properties", "required", "type", *_INEXPRESSIBLE}
"""Keywords that the conversion rewrites; other keywords are copied if the provider supports them."""
_TYPE_OF_KEYWORD = {
    **dict.fromkeys(("properties", "required", "additionalProperties", "patternProperties"), "object"),
    **dict.fromkeys(("minProperties", "maxProperties"), "object"),
    **dict.fromkeys(("items", "prefixItems", "minItems", "maxItems", "uniqueItems"), "array"),
    **dict.fromkeys(("minLength", "maxLength", "pattern", "format"), "string"),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), "number"),
}
"""Types of the values to which a keyword applies; keywords of numbers also apply to integers."""
_SCALARS = [{"type": kind} for kind in ("string", "number", "boolean")]
_NULL = {"type": "null"}
_TYPES_WITH_PARTS = frozenset({"object", "array"})
"""Types of values that have parts."""


class Fitted(NamedTuple):
    """A schema in the subset of a provider."""

    schema: dict[str, Any]
    problems: list[str]
    """Texts that name the parts of the original schema that the subset cannot express."""


def fitted(schema: Mapping[str, Any], rules: ProviderRules) -> Fitted:
    """Convert the parameters of a tool to the subset of `rules`.

    Keywords outside of the subset are omitted, because arguments are validated by the full schema when the tool is
    called. Definitions without a reference are omitted, too.
    """
    fitting = _Fitting(schema, rules)
    try:
        parameters = fitting.fit(flat_root(schema), "", 0)
    except RecursionError:
        return Fitted({"type": "object", "properties": {}}, ["parameters is nested too deeply"])
    if fitting.definitions:
        parameters["$defs"] = fitting.definitions
    return Fitted(parameters, [*dict.fromkeys(fitting.problems), *over_limits(parameters, rules)])


def nullable(schema: dict[str, Any], rules: ProviderRules) -> dict[str, Any]:
    """Return a fitted schema that accepts null, too."""
    if not rules.lists_types:
        return {**schema, "nullable": True}
    if "anyOf" in schema:
        return {**schema, "anyOf": _distinct([*schema["anyOf"], _NULL])}
    kinds = _types_of(schema)
    if "null" in kinds:
        return schema
    if kinds and _is_flat(schema, kinds):
        return {**schema, "type": [*kinds, "null"]}
    inside = dict(schema)
    description = inside.pop("description", None)
    if description is None:
        return {"anyOf": [inside, _NULL]}
    return {"anyOf": [inside, _NULL], "description": description}


def _is_flat(schema: Mapping[str, Any], kinds: list[str]) -> bool:
    """True if a schema has no inner schemas and no listed values."""
    return _TYPES_WITH_PARTS.isdisjoint(kinds) and "$ref" not in schema and listed_values(schema) is None


class _Fitting:
    """Conversion of one document to the subset of one set of rules."""

    def __init__(self, document: Mapping[str, Any], rules: ProviderRules) -> None:
        self.document = document
        self.rules = rules
        self.problems: list[str] = []
        self.definitions: dict[str, Any] = {}
        """Converted definitions by their new names."""
        self.definition_names: dict[str, str] = {}
        """New names of definitions, by the references to them."""
        self.open_references: list[str] = []
        """References whose targets are being converted, outermost first."""
        self.nodes = 0
        """Number of converted schemas."""

    def fit(self, schema: Any, path: str, level: int) -> dict[str, Any]:
        """Convert the schema of the value at `path`, inside `level` objects."""
        self.nodes += 1
        if not isinstance(schema, Mapping):
            return self.any_value(path)
        description: dict[str, Any] = {}
        if isinstance(schema.get("description"), str):
            description["description"] = schema["description"]
        node = self.with_merged_all_of(schema)
        if node is not None:
            return self.with_description(self.fit_bare(node, path, level), description)
        self.problem(path, "uses allOf of schemas that cannot be joined")
        if self.rules.is_closed:
            return {}
        return {**self.any_value(path), **description}

    def problem(self, path: str, text: str) -> None:
        """Add a problem: the schema of the value at `path` has a part that the subset cannot express."""
        self.problems.append(f"{path or 'parameters'} {text}")

    def fit_bare(self, node: dict[str, Any], path: str, level: int) -> dict[str, Any]:
        """Convert a schema without `allOf` and without annotations, such as a description."""
        if node.pop("nullable", False) is True:
            return nullable(self.fit(node, path, level), self.rules)
        if "$ref" in node:
            return self.reference(node, path, level)
        options = node.pop("anyOf", None) or node.pop("oneOf", None)
        node.pop("oneOf", None)
        if options:
            return self.union(node, options, path, level)
        return self.fit_typed(node, path, level)

    def with_description(self, schema: dict[str, Any], description: dict[str, Any]) -> dict[str, Any]:
        if "$ref" in schema and description:
            # In the subsets, a reference has no keywords next to it.
            return {"anyOf": [schema], **description}
        return {**schema, **description}

    def with_merged_all_of(self, schema: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return a schema without annotations and with its `allOf` merged into it; None if the merge is impossible."""
        node = _bare(schema)
        for _ in range(_MAX_JOINED):
            parts = node.pop("allOf", None)
            if not parts:
                return node
            for part in parts:
                whole = intersection(node, _bare(resolved(as_object(part), self.document)))
                if whole is None:
                    return None
                node = whole
        return None

    def reference(self, node: dict[str, Any], path: str, level: int) -> dict[str, Any]:
        """Convert a schema with a `$ref`."""
        reference = node.pop("$ref")
        target = target_in(self.document, reference)
        if not isinstance(target, Mapping) or self.nodes > _MAX_NODES:
            return self.any_value(path)
        if node:
            return self.narrowed_reference(reference, intersection(node, _bare(target)), path, level)
        if self.rules.references != "recursive" and reference in self.open_references:
            return self.recursive_reference(path)
        if self.rules.references == "none" and len(self.open_references) >= _MAX_REFERENCES:
            return {"type": "object"}
        if self.rules.references == "none":
            return self.fit_inside(reference, target, path, level)
        if reference not in self.definition_names:
            self.define(reference, target, level)
        return {"$ref": f"#/$defs/{self.definition_names[reference]}"}

    def narrowed_reference(self, reference: str, whole: Any, path: str, level: int) -> dict[str, Any]:
        """Convert `whole`, the intersection of a target and of the keywords next to its `$ref`; None if it is empty."""
        if whole is None or reference in self.open_references:
            self.problem(path, f"refers to {reference} next to other rules")
            return {}
        return self.fit_inside(reference, whole, path, level)

    def recursive_reference(self, path: str) -> dict[str, Any]:
        """Return a schema of any object instead of a recursive reference, whose expansion would not end."""
        if self.rules.references == "flat":
            self.problem(path, "contains itself")
        return {"type": "object"}

    def fit_inside(self, reference: str, schema: Any, path: str, level: int) -> dict[str, Any]:
        """Convert the target of a reference; inside it, references to the same target are recursive."""
        self.open_references.append(reference)
        fitted_schema = self.fit(schema, path, level)
        self.open_references.pop()
        return fitted_schema

    def define(self, reference: str, target: Mapping[str, Any], level: int) -> None:
        """Add the converted target of a reference to the definitions."""
        name = self.definition_names[reference] = self.free_name(reference)
        # The name is reserved before the conversion of the target, which can refer to itself.
        self.definitions[name] = {}
        if reference == "#":
            target = flat_root(target)
        self.definitions[name] = self.fit_inside(reference, target, name, level)

    def free_name(self, reference: str) -> str:
        """Return an unused name for the definition of a reference."""
        base = re.sub(r"[^a-zA-Z0-9_.-]+", "_", reference.rpartition("/")[2].strip("#"))[:60] or "parameters"
        name, number = base, 1
        while name in self.definitions:
            number += 1
            name = f"{base}_{number}"
        return name

    def union(self, node: dict[str, Any], options: Any, path: str, level: int) -> dict[str, Any]:
        """Convert alternatives; the keywords in `node`, which are next to them, become a part of each alternative."""
        alternatives = self.alternatives(node, options)
        if not alternatives:
            return self.fit_typed(node, path, level)
        without_null = [option for option in alternatives if _types_of(option) != ["null"]]
        if without_null and len(without_null) < len(alternatives) and not self.rules.lists_types:
            # The provider has no type for null.
            return nullable(self.fit(_any_of(without_null), path, level), self.rules)
        return self.fitted_union(alternatives, path, level)

    def fitted_union(self, alternatives: Iterable[Any], path: str, level: int) -> dict[str, Any]:
        """Convert alternatives; the alternatives of a nested `anyOf` become alternatives themselves."""
        fitted_options: list[dict[str, Any]] = []
        for alternative in alternatives:
            schema = self.fit(alternative, path, level)
            if schema.keys() == {"anyOf"}:
                fitted_options += schema["anyOf"]
            else:
                fitted_options.append(schema)
        return _any_of(_distinct(fitted_options))

    def alternatives(self, node: dict[str, Any], options: Any) -> list[dict[str, Any]]:
        """Return the alternatives joined with `node`, without alternatives that accept no value."""
        result: list[dict[str, Any]] = []
        for option in options:
            schema = self.alternative(node, option)
            if schema is not None and schema.get("enum") != []:
                result.append(schema)
        return result

    def alternative(self, node: dict[str, Any], option: Any) -> dict[str, Any] | None:
        """Return one alternative joined with `node`; None if no value is valid for both."""
        if option is False:
            return None
        schema = dict(as_object(option))
        if not node:
            return schema
        if not schema.keys() - {"required", *ANNOTATIONS}:
            # The alternative only requires some properties, which adds nothing to the properties in `node`.
            return None
        return intersection(resolved(schema, self.document), node)

    def fit_typed(self, node: dict[str, Any], path: str, level: int) -> dict[str, Any]:
        """Convert a schema without references and alternatives."""
        kinds = _types_of(node) or _implied_types(node)
        if not kinds:
            return self.any_value(path)
        if len(kinds) > 1 and self.needs_one_type(kinds):
            return self.union({}, [_reduced_to(node, kind) for kind in kinds], path, level)
        if kinds == ["null"] and not self.rules.lists_types:
            # The provider has no type for null alone.
            return {"type": "string", "nullable": True}
        return self.with_keywords(kinds, node, path, level)

    def with_keywords(self, kinds: list[str], node: dict[str, Any], path: str, level: int) -> dict[str, Any]:
        """Return the schema of these types with the keywords of `node` that the subset has."""
        result: dict[str, Any] = {"type": _one_or_many(kinds)}
        self.add_enum(result, node, path)
        self.add_keywords(result, node)
        if kinds == ["object"]:
            self.add_properties(result, node, path, level)
        elif kinds == ["array"]:
            self.add_items(result, node, path, level)
        return result

    def needs_one_type(self, kinds: list[str]) -> bool:
        """True if several types must become alternatives: `type` cannot be a list, or one of the types has keywords of
        objects or arrays.
        """
        return not self.rules.lists_types or not _TYPES_WITH_PARTS.isdisjoint(kinds)

    def add_keywords(self, result: dict[str, Any], node: Mapping[str, Any]) -> None:
        keywords = (self.rules.keywords or frozenset()) - _STRUCTURE
        for keyword, value in node.items():
            if keyword in keywords and self.is_supported(keyword, value):
                result[keyword] = value

    def add_enum(self, result: dict[str, Any], node: Mapping[str, Any], path: str) -> None:
        listed = listed_values(node) or []
        if not any(isinstance(value, Mapping | list | tuple) for value in listed):
            result.update(self.enum(node, listed))
        elif self.rules.is_closed:
            self.problem(path, "lists values that are objects or arrays")

    def enum(self, node: Mapping[str, Any], listed: list[Any]) -> dict[str, Any]:
        """Return `const` or `enum` with the listed values that the provider accepts; empty if it accepts none."""
        if self.rules.only_text_enums:
            listed = [value for value in listed if isinstance(value, str) and value]
        elif "const" in node:
            return {"const": node["const"]}
        if not listed:
            return {}
        return {"enum": listed}

    def is_supported(self, key: str, value: Any) -> bool:
        """True if the provider accepts a keyword with this value."""
        if key in ("format", "pattern"):
            return isinstance(value, str) and self.supports_text_rule(key, value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        limit = self.rules.largest_min_items
        return key != "minItems" or limit is None or value <= limit

    def supports_text_rule(self, key: str, value: str) -> bool:
        """True if the provider accepts a format or a pattern."""
        if key == "format":
            return value in self.rules.formats
        return is_common_pattern(value)

    def add_properties(self, result: dict[str, Any], node: Mapping[str, Any], path: str, level: int) -> None:
        rules = self.rules
        if rules.is_closed and _is_open(node, is_root=not path):
            self.problem(path, "accepts properties of any name")
        if rules.max_levels is not None and level >= rules.max_levels:
            self.problem(path, f"is nested deeper than {rules.max_levels} levels")
            return
        properties = self.fitted_properties(node, path, level)
        required = self.required(node, properties)
        if properties or rules.is_closed:
            result["properties"] = properties
        if required or rules.all_required:
            result["required"] = required
        if rules.is_closed:
            result["additionalProperties"] = False

    def required(self, node: Mapping[str, Any], properties: Mapping[str, Any]) -> list[str]:
        if self.rules.all_required:
            return list(properties)
        names = [wire_property(name, self.rules.property_name_pattern) for name in node.get("required", ())]
        return [name for name in dict.fromkeys(names) if name in properties]

    def fitted_properties(self, node: Mapping[str, Any], path: str, level: int) -> dict[str, Any]:
        optional = node.get("properties", {}).keys() - node.get("required", ())
        properties: dict[str, Any] = {}
        for name, item in node.get("properties", {}).items():
            if item is False:
                continue
            inner = self.fit(item, f"{path}.{name}".removeprefix("."), level + 1)
            if self.rules.all_required and name in optional:
                inner = nullable(inner, self.rules)
            properties[wire_property(name, self.rules.property_name_pattern)] = inner
        return properties

    def add_items(self, result: dict[str, Any], node: Mapping[str, Any], path: str, level: int) -> None:
        heads = node.get("prefixItems")
        if not heads:
            result["items"] = self.fit(node.get("items", True), f"{path}[]", level)
        elif self.rules.is_closed:
            self.problem(path, "uses prefixItems")
        else:
            more = [item for item in [node.get("items", False)] if item is not False]
            result["items"] = self.fit({"anyOf": [*heads, *more]}, f"{path}[]", level)

    def any_value(self, path: str) -> dict[str, Any]:
        """Return the schema that accepts the most values in the subset; {} with a problem if objects must be closed."""
        if self.rules.is_closed:
            self.problem(path, "accepts any value")
            return {}
        return {"anyOf": [*_SCALARS, {"type": "array", "items": {"type": "string"}}, {"type": "object"}]}


def _bare(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without annotations."""
    return {key: value for key, value in schema.items() if key not in ANNOTATIONS}


def _is_open(node: Mapping[str, Any], *, is_root: bool) -> bool:
    """True if an object schema accepts properties that it does not name."""
    extra = node.get("additionalProperties")
    if extra or "patternProperties" in node:
        return True
    return node.get("properties") is None and extra is None and not is_root


def _types_of(schema: Mapping[str, Any]) -> list[str]:
    kind = schema.get("type", ())
    if isinstance(kind, str):
        return [kind]
    return list(kind)


def _one_or_many(kinds: list[str]) -> str | list[str]:
    if len(kinds) == 1:
        return kinds[0]
    return kinds


def _distinct(schemas: list[dict[str, Any]]) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = []
    for schema in schemas:
        if schema not in result:
            result.append(schema)
    return result


def _any_of(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    if len(schemas) == 1:
        return schemas[0]
    return {"anyOf": schemas}


def _implied_types(node: Mapping[str, Any]) -> list[str]:
    """Return the types that listed values or keywords imply, for a schema without `type`; empty if unknown."""
    if (listed := listed_values(node)) is not None:
        return list(dict.fromkeys(map(kind_of_json, listed)))
    if "properties" in node:
        return ["object"]
    if "items" in node or "prefixItems" in node:
        return ["array"]
    return []


def _reduced_to(node: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return a schema with several types, reduced to one type and to the keywords that apply to it."""
    if kind == "null":
        return {"type": kind}
    alike = _number_if_integer(kind)
    result = {key: value for key, value in node.items() if _TYPE_OF_KEYWORD.get(key, alike) == alike and key != "const"}
    if (listed := listed_values(node)) is not None:
        result["enum"] = [value for value in listed if _number_if_integer(kind_of_json(value)) == alike]
    return {**result, "type": kind}


def _number_if_integer(kind: str) -> str:
    """Return `number` for the type `integer`, any other type unchanged."""
    return {"integer": "number"}.get(kind, kind)
