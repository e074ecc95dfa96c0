"""The schema of the value at a path, and the expected value of a schema, through references and alternatives."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentkit_prompts.limits import MAX_LISTED
from agentkit_prompts.schemas.references import target_in

ANY_VALUE = "any value"
"""Expected value of a schema that names no type."""

_MAX_OPTIONS = 200


def schema_at(document: Mapping[str, Any], steps: Sequence[int | str]) -> Mapping[str, Any] | None:
    """Return the schema of the value at a path of names and indices; None if the document has no schema for it."""
    schemas: list[Any] = [document]
    for step in steps:
        parts = [_part(schema, step) for schema in _options(document, schemas)]
        schemas = [part for part in parts if isinstance(part, Mapping)]
    return next(iter(schemas), None)


def _part(schema: Mapping[str, Any], step: int | str) -> Any:
    if isinstance(step, str):
        properties = schema.get("properties")
        if isinstance(properties, Mapping) and step in properties:
            return properties[step]
        return schema.get("additionalProperties")
    heads = schema.get("prefixItems")
    if isinstance(heads, list) and step < len(heads):
        return heads[step]
    return schema.get("items")


def type_of(document: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Return a description, in a few words, of the values that a schema accepts, such as `string or null`."""
    return " or ".join(dict.fromkeys(_words(option) for option in _options(document, [schema]))) or ANY_VALUE


def _words(schema: Mapping[str, Any]) -> str:
    if "const" in schema:
        return _shown(schema["const"])
    if isinstance(values := schema.get("enum"), list):
        if len(values) == 1:
            return _shown(values[0])
        return f"one of {', '.join(map(_shown, values[:MAX_LISTED]))}"
    if isinstance(kind := schema.get("type"), list):
        return " or ".join(map(str, kind))
    if kind is not None:
        return str(kind)
    if "properties" in schema:
        return "object"
    return ANY_VALUE


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _options(document: Mapping[str, Any], schemas: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Return the schemas to which references and alternatives lead, in order, without schemas that only refer."""
    options: list[Mapping[str, Any]] = []
    waiting = list(reversed(schemas))
    # A limit, because alternatives can contain each other.
    for _ in range(_MAX_OPTIONS):
        if not waiting:
            break
        schema = waiting.pop()
        if not isinstance(schema, Mapping):
            continue
        inner = _inner_options(document, schema)
        if not inner or "type" in schema or "properties" in schema:
            options.append(schema)
        waiting += reversed(inner)
    return options


def _inner_options(document: Mapping[str, Any], schema: Mapping[str, Any]) -> list[Any]:
    inner: list[Any] = []
    for keyword in ("anyOf", "oneOf", "allOf"):
        if isinstance(options := schema.get(keyword), list):
            inner += options
    if isinstance(reference := schema.get("$ref"), str):
        inner.append(target_in(document, reference))
    return inner


def takes_null(schema: Any) -> bool:
    """True if a schema accepts null; False for a reference, whose target is unknown here."""
    if not isinstance(schema, Mapping):
        return True
    if "allOf" in schema:
        return all(takes_null(part) for part in schema["allOf"])
    if "enum" in schema or "const" in schema:
        return None in schema.get("enum", (schema.get("const", ""),))
    options = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    if options:
        return any(takes_null(option) for option in options)
    kind = schema.get("type")
    if kind is None:
        return "$ref" not in schema
    return kind == "null" or (isinstance(kind, list) and "null" in kind)


def is_null_default(schema: Any) -> bool:
    """True if the default of a schema is null."""
    return isinstance(schema, Mapping) and "default" in schema and schema["default"] is None
