"""JSON Schemas as they are found in the wild, turned into valid ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["MAX_LEVELS", "SchemaError", "normalise"]

MAX_LEVELS = 64
"""How deep a schema may be nested."""

_TYPES: dict[str, str] = {
    name: kind
    for kind, names in {
        "object": "object dict dictionary hashmap map record struct json hash mapping",
        "array": "array list arraylist tuple set vector sequence slice frozenset queue",
        "string": "string str char character text varchar datetime date time uuid url uri path bytes",
        "number": "number float double decimal real float32 float64 numeric bigdecimal",
        "integer": "integer int long short byte int8 int16 int32 int64 uint uint8 uint32 uint64 biginteger bigint",
        "boolean": "boolean bool",
        "null": "null none nil void nonetype undefined",
    }.items()
    for name in names.split()
}
_GENERIC = re.compile(r"\s*([\w.]+)\s*[\[<(](.*)[\]>)]\s*", re.S)
_UNION = re.compile(r"\s*\|\s*|\s+or\s+")
_ONE = ("items", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else", "additionalItems")
_MANY = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_READ_ABOVE = frozenset(("type", "required", "optional", *_ONE, *_MANY, *_NAMED))


class SchemaError(ValueError):
    """An invalid schema."""


def normalise(schema: Any, level: int = 0) -> Any:
    """Return a copy of `schema` with foreign type names replaced, and no default that its own schema refuses.

    A type nobody knows becomes no type at all, which accepts anything. A default that does not fit moves into the
    description, where the model can still read it.

    Raises:
        SchemaError: It is nested too deeply, or is neither an object nor a boolean.
    """
    if level > MAX_LEVELS:
        raise SchemaError(f"the schema is nested deeper than {MAX_LEVELS} levels")
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, Mapping):
        raise SchemaError(f"expected an object at level {level} of the schema, got {type(schema).__name__}")
    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "enum":
            if isinstance(value, list | tuple) and value:
                result[key] = list(value)
        elif key in _ONE and isinstance(value, Mapping | bool):
            result[key] = normalise(value, level + 1)
        elif key in _MANY and isinstance(value, list | tuple):
            result[key] = [normalise(item, level + 1) for item in value]
        elif key in _NAMED and isinstance(value, Mapping):
            result[key] = {str(name): normalise(item, level + 1) for name, item in value.items()}
        elif key == "items" and isinstance(value, list | tuple):  # how tuples were written before 2020
            result["prefixItems"] = [normalise(item, level + 1) for item in value]
        elif key == "default" or (key not in _READ_ABOVE and value is not None):
            result[key] = value
    _set_type(result, schema.get("type"), level)
    _set_required(result, schema)
    _fit_default(result)
    return {"type": result.pop("type"), **result} if "type" in result else result


def _set_type(result: dict[str, Any], kind: Any, level: int) -> None:
    if isinstance(kind, list | tuple):
        known = [_named(one) for one in kind if isinstance(one, str)]
        if known and all(known):
            result["type"] = list(dict.fromkeys(known))
    elif isinstance(kind, Mapping):  # a schema where its type belongs
        result.update({key: value for key, value in normalise(kind, level + 1).items() if key not in result})
    elif isinstance(kind, str):
        for key, value in _parse_type(kind, level).items():
            result.setdefault(key, value)
    if result.get("type") == "array":
        result.setdefault("items", {})  # some providers refuse an array without


def _named(kind: str) -> str | None:
    return _TYPES.get(kind.strip().rpartition(".")[2].lower())


def _parse_type(kind: str, level: int) -> dict[str, Any]:
    """Read `String`, `List[int]`, `string[]`, `Dict<String, Integer>`, `Optional[int]`, `int | None`."""
    if level > MAX_LEVELS:
        return {}
    if known := _named(kind):
        return {"type": known}
    if kind.endswith("[]"):
        return {"type": "array", "items": _parse_type(kind[:-2], level + 1)}
    generic = _GENERIC.fullmatch(kind)
    options = _UNION.split(kind) if generic is None else []
    if len(options) > 1:
        return {"anyOf": [_parse_type(option, level + 1) for option in options]}
    if generic is None:
        return {}
    outer, inner = generic[1].rpartition(".")[2].lower(), generic[2]
    if outer == "optional":
        return {"anyOf": [_parse_type(inner, level + 1), {"type": "null"}]}
    known = _TYPES.get(outer)
    if known == "array" and "," not in inner:
        return {"type": "array", "items": _parse_type(inner, level + 1)}
    return {"type": known} if known else {}


def _set_required(result: dict[str, Any], schema: Mapping[str, Any]) -> None:
    """Collect the names of required properties, also from the flags older schemas put into the properties."""
    required = schema.get("required")
    names = [name for name in required if isinstance(name, str)] if isinstance(required, list | tuple) else []
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        names += [
            str(name)
            for name, item in properties.items()
            if isinstance(item, Mapping) and (item.get("required") is True or item.get("optional") is False)
        ]
    if names:
        result["required"] = list(dict.fromkeys(names))


def _fit_default(result: dict[str, Any]) -> None:
    if "default" not in result:
        return
    default, kind = result["default"], result.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    if kind is None or any(_FITS[str(one)](default) for one in kinds):
        return
    del result["default"]
    if default is not None:
        text = str(result.get("description", "")).strip()
        result["description"] = f"{text} (default: {default})".strip()


_FITS: dict[str, Any] = {
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, list | tuple),
    "string": lambda value: isinstance(value, str),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}
