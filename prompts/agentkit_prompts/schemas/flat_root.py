"""Schemas with alternatives and references, written as one object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentkit_prompts.schemas.intersection import intersection
from agentkit_prompts.schemas.references import target_in

__all__ = ["flat_root", "resolved"]

_MAX_JOINED = 50
"""Schemas that are read for one join: references multiply."""


def flat_root(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a tool as one object without alternatives: no provider takes any at the top.

    Properties that all alternatives require are required, and the others may be given. The combination is checked when
    the tool is called.
    """
    root: dict[str, Any] = resolved({"type": "object", **schema}, schema)
    for keyword in ("anyOf", "oneOf"):
        options = [resolved(option, schema) for option in root.pop(keyword, ()) if isinstance(option, Mapping)]
        _add_options(root, options)
    for keyword in ("allOf", "$ref", "enum", "not", "const", "nullable", "if", "then", "else"):
        root.pop(keyword, None)
    return {**root, "type": "object", "properties": root.get("properties", {})}


def _add_options(root: dict[str, Any], options: list[dict[str, Any]]) -> None:
    """Add the properties of alternatives to an object."""
    properties: dict[str, Any] = dict(root.get("properties", {}))
    for option in options:
        for name, item in option.get("properties", {}).items():
            properties[name] = _either(properties[name], item) if name in properties else item
    shared = [set(option.get("required", ())) for option in options]
    common = [name for name in properties if shared and all(name in names for names in shared)]
    if common or root.get("required"):
        root["required"] = list(dict.fromkeys([*root.get("required", ()), *common]))
    root["properties"] = properties


def _either(first: Mapping[str, Any], second: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema that accepts what one of both accepts."""
    if first == second or second in first.get("anyOf", ()):
        return first
    options = first["anyOf"] if first.keys() == {"anyOf"} else [first]
    return {"anyOf": [*options, second]}


def resolved(schema: Mapping[str, Any], document: Mapping[str, Any], left: list[int] | None = None) -> dict[str, Any]:
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
            inner = resolved(first, document, left) if isinstance(first, Mapping) else {}
            bare = {key: value for key, value in result.items() if key != "allOf"}
            whole = intersection({**bare, **({"allOf": rest} if rest else {})}, inner)
        else:
            break
        if whole is None:
            break
        result = whole
    return result
