"""Conversion of a schema with alternatives and references at its root to one object schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agentkit_prompts.schemas.intersection import intersection
from agentkit_prompts.schemas.references import target_in

_MAX_JOINED = 50
"""Maximum number of schemas that are joined into one schema, because the number of nested references can double."""


def flat_root(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a tool as one object schema without alternatives, which no provider accepts at the root.

    Properties that all alternatives require are required, other properties are optional. The full schema is checked
    when the tool is called.
    """
    root: dict[str, Any] = resolved({"type": "object", **schema}, schema)
    for keyword in ("anyOf", "oneOf"):
        options = [resolved(option, schema) for option in root.pop(keyword, ()) if isinstance(option, Mapping)]
        _add_options(root, options)
    # Keywords that one object schema cannot express are omitted; they are checked when the tool is called.
    for keyword in ("allOf", "$ref", "enum", "not", "const", "nullable", "if", "then", "else"):
        root.pop(keyword, None)
    return {**root, "type": "object", "properties": root.get("properties", {})}


def _add_options(root: dict[str, Any], options: list[dict[str, Any]]) -> None:
    """Add the properties of alternatives to an object."""
    properties: dict[str, Any] = dict(root.get("properties", {}))
    for option in options:
        for name, item in option.get("properties", {}).items():
            properties[name] = _either(properties.get(name, item), item)
    root["properties"] = properties
    required = [*root.get("required", ()), *_required_by_all(options, properties)]
    if required:
        root["required"] = list(dict.fromkeys(required))


def _required_by_all(options: list[dict[str, Any]], names: Iterable[str]) -> list[str]:
    if not options:
        return []
    required = set.intersection(*[set(option.get("required", ())) for option in options])
    return [name for name in names if name in required]


def _either(first: Mapping[str, Any], second: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema that accepts all values of both schemas."""
    if first == second or second in first.get("anyOf", ()):
        return first
    options = first["anyOf"] if first.keys() == {"anyOf"} else [first]
    return {"anyOf": [*options, second]}


def resolved(schema: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema joined with the targets of its `$ref` and with its `allOf`, as far as they can be joined."""
    return _Joining(document).resolved(schema)


class _Joining:
    """Joiner of a schema with the schemas of its `$ref` and `allOf`, up to `_MAX_JOINED` joins."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._joins_left = _MAX_JOINED

    def resolved(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return a schema joined with the schemas of its `$ref` and `allOf`."""
        result = dict(schema)
        while self._joins_left > 0:
            self._joins_left -= 1
            whole = self._joined_once(result)
            if whole is None:
                break
            result = whole
        return result

    def _joined_once(self, schema: dict[str, Any]) -> dict[str, Any] | None:
        """Return a schema joined with the target of its `$ref`, else with the first schema of its `allOf`; None if it
        has neither, or the schemas cannot be joined.
        """
        target = target_in(self._document, schema.get("$ref"))
        if isinstance(target, Mapping):
            return intersection(_without(schema, "$ref"), target)
        if not schema.get("allOf"):
            return None
        first, *more = schema["allOf"]
        rest = _without(schema, "allOf")
        if more:
            rest["allOf"] = more
        if not isinstance(first, Mapping):
            return rest
        return intersection(rest, self.resolved(first))


def _without(schema: dict[str, Any], keyword: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != keyword}
