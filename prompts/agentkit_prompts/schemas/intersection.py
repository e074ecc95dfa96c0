"""Intersection of JSON Schemas, written as one schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

ANNOTATIONS = frozenset(
    ("$comment", "$id", "$schema", "default", "deprecated", "description", "discriminator", "example", "examples")
)
ANNOTATIONS |= {"externalDocs", "readOnly", "title", "writeOnly", "xml"}
"""Keywords that do not change which values are valid."""


class _EmptyError(Exception):
    """No value is valid for both schemas, or this module cannot express their intersection."""


def intersection(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the intersection of two schemas; None if it is empty or cannot be expressed.

    If both schemas have a keyword whose values cannot be joined, such as `title` or `pattern`, the value of `first`
    remains.
    """
    result = dict(first)
    try:
        for keyword, value in second.items():
            if keyword not in result:
                result[keyword] = value
            elif result[keyword] != value and keyword in _JOINERS:
                result[keyword] = _JOINERS[keyword](result[keyword], value)
    except _EmptyError:
        return None
    return result


def _join_types(first: Any, second: Any) -> Any:
    first_kinds, second_kinds = _types_of(first), _types_of(second)
    kinds = [kind for kind in first_kinds if _includes(second_kinds, kind)]
    kinds += [kind for kind in second_kinds if kind not in first_kinds and _includes(first_kinds, kind)]
    if not kinds:
        raise _EmptyError
    if len(kinds) == 1:
        return kinds[0]
    return kinds


def _includes(kinds: list[str], kind: str) -> bool:
    return kind in kinds or (kind == "integer" and "number" in kinds)


def _types_of(kind: Any) -> list[str]:
    if isinstance(kind, list | tuple):
        return list(kind)
    return [kind]


def _join_properties(first: Any, second: Any) -> Any:
    properties = dict(first)
    for name, schema in second.items():
        if name in properties:
            schema = _join_schemas(properties[name], schema)
        properties[name] = schema
    return properties


def _join_schemas(first: Any, second: Any) -> Any:
    if first == second:
        return first
    return {"allOf": [first, second]}


def _join_required(first: Any, second: Any) -> Any:
    return list(dict.fromkeys([*first, *second]))


def _join_enums(first: Any, second: Any) -> Any:
    values = [value for value in first if value in second]
    if not values:
        raise _EmptyError
    return values


def _join_additional(first: Any, second: Any) -> Any:
    if second is False:
        return False
    return first


def _refuse(first: Any, second: Any) -> Any:
    raise _EmptyError


_JOINERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "type": _join_types,
    "properties": _join_properties,
    "required": _join_required,
    "enum": _join_enums,
    "items": _join_schemas,
    "additionalProperties": _join_additional,
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), max),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), min),
    **dict.fromkeys(("const", "anyOf", "oneOf", "allOf", "$ref"), _refuse),
}
"""Functions that join two different values of a keyword, by the keyword."""
