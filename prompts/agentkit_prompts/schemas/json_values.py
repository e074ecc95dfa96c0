"""The types of values in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (Mapping,),
    "null": (type(None),),
}


def is_json(value: Any, name: str) -> bool:
    """True if a value has the JSON type `name`, or if no JSON type has this name."""
    if isinstance(value, bool):
        return name == "boolean"
    # JSON has one kind of number: 5.0 is an integer.
    if isinstance(value, float) and name == "integer":
        return value.is_integer()
    return isinstance(value, _JSON_TYPES.get(name, (object,)))


def kind_of_json(value: Any) -> str:
    """Return the JSON type of a value; `integer` for whole numbers."""
    for name in ("null", "boolean", "integer", "number", "string", "object"):
        if is_json(value, name):
            return name
    return "array"
