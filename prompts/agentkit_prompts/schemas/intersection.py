"""Several JSON Schemas that hold at once, written as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["ANNOTATIONS", "intersection"]

ANNOTATIONS = frozenset(
    ("$comment", "$id", "$schema", "default", "deprecated", "description", "discriminator", "example", "examples")
)
ANNOTATIONS |= {"externalDocs", "readOnly", "title", "writeOnly", "xml"}
"""Keywords that say nothing about which values are valid."""
_TIGHTER: Mapping[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), max),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), min),
}


def intersection(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a schema that holds where both do; None where nothing can fulfil both, or it cannot be written as one.

    Of two texts, and of two rules that cannot be joined, such as patterns, the first is kept.
    """
    result = dict(first)
    for key, value in second.items():
        if key not in result:
            result[key] = value
        elif key == "type":
            kinds = _common_types(result["type"], value)
            if not kinds:
                return None
            result["type"] = kinds[0] if len(kinds) == 1 else kinds
        elif key == "properties":
            result["properties"] = dict(result["properties"])
            for name, item in value.items():
                own = result["properties"].get(name)
                result["properties"][name] = item if own is None or own == item else {"allOf": [own, item]}
        elif key == "required":
            result["required"] = list(dict.fromkeys([*result["required"], *value]))
        elif key == "enum":
            result["enum"] = [one for one in result["enum"] if one in value]
            if not result["enum"]:
                return None
        elif key == "items" and result["items"] != value:
            result["items"] = {"allOf": [result["items"], value]}
        elif key == "additionalProperties":
            result[key] = False if value is False else result[key]
        elif key in _TIGHTER and isinstance(value, int | float) and isinstance(result[key], int | float):
            result[key] = _TIGHTER[key](result[key], value)
        elif key in ("const", "anyOf", "oneOf", "allOf", "$ref") and result[key] != value:
            return None
    return result


def _common_types(first: Any, second: Any) -> list[str]:
    one, other = (kind if isinstance(kind, list | tuple) else [kind] for kind in (first, second))
    found = [kind for kind in one if kind in other or (kind == "integer" and "number" in other)]
    return found + [kind for kind in other if kind == "integer" and "number" in one and kind not in found]
