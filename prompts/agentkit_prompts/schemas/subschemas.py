"""Parts of a JSON Schema: what it says about the value at a place, through references and alternatives."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentkit_prompts.schemas.references import target_in

__all__ = ["schema_at", "type_of"]

_MAX_OPTIONS = 200
_MAX_VALUES = 10


def schema_at(document: Mapping[str, Any], steps: Sequence[int | str]) -> Mapping[str, Any] | None:
    """Return what a schema says about the value behind `steps`, names and indices; None where it says nothing."""
    here: list[Any] = [document]
    for step in steps:
        found: list[Any] = []
        for schema in _options(document, here):
            if isinstance(step, str):
                properties = schema.get("properties")
                named = properties.get(step) if isinstance(properties, Mapping) else None
                found.append(schema.get("additionalProperties") if named is None else named)
            else:
                heads = schema.get("prefixItems")
                if isinstance(heads, list) and step < len(heads):
                    found.append(heads[step])
                else:
                    found.append(schema.get("items"))
        here = [one for one in found if isinstance(one, Mapping)]
    return here[0] if here else None


def type_of(document: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Return what a value must be, in a few words for a model."""
    return " or ".join(dict.fromkeys(_words(option) for option in _options(document, [schema]))) or "any value"


def _words(schema: Mapping[str, Any]) -> str:
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list):
        shown = [json.dumps(value, ensure_ascii=False, default=str) for value in values[:_MAX_VALUES]]
        return "one of " + ", ".join(shown) if len(values) > 1 else ", ".join(shown)
    kind = schema.get("type", "object" if "properties" in schema else "any value")
    return " or ".join(map(str, kind)) if isinstance(kind, list) else str(kind)


def _options(document: Mapping[str, Any], schemas: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Return the schemas that those lead to by references and alternatives: those that say something themselves."""
    found: list[Mapping[str, Any]] = []
    waiting, seen = list(reversed(schemas)), 0
    while waiting and seen < _MAX_OPTIONS:
        seen += 1
        schema = waiting.pop()
        if not isinstance(schema, Mapping):
            continue
        inner: list[Any] = []
        for key in ("anyOf", "oneOf", "allOf"):
            if isinstance(options := schema.get(key), list):
                inner += options
        if isinstance(reference := schema.get("$ref"), str):
            inner.append(target_in(document, reference))
        if not inner or "type" in schema or "properties" in schema:
            found.append(schema)
        waiting += reversed(inner)
    return found
