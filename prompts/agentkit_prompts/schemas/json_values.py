"""Values of JSON: of which type they are, which are equal, which are multiples of a number."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from fractions import Fraction
from math import inf, isfinite
from typing import Any

from pydantic import BaseModel

__all__ = ["is_equal", "is_json", "is_multiple", "key_of", "kind_of_json"]

_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (Mapping, BaseModel),
    "null": (type(None),),
}


def is_json(value: Any, name: str) -> bool:
    """Return whether a value is of the JSON type of that name."""
    if isinstance(value, bool):
        return name == "boolean"
    if isinstance(value, float) and name == "integer":
        return value.is_integer()  # JSON has one kind of number
    return isinstance(value, _JSON_TYPES.get(name, (object,)))


def kind_of_json(value: Any) -> str:
    """Return the JSON type of a value; `integer` for whole numbers."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if value == value // 1 else "number"
    return "string" if isinstance(value, str) else "object" if isinstance(value, Mapping) else "array"


def key_of(value: Any) -> Hashable:
    """Return what equal scalars of JSON have in common, and no others; None for anything else.

    Numbers are written as text: whoever chooses them could make all of their hashes equal.
    """
    if isinstance(value, str):
        return str.__str__(value)
    if value is None or isinstance(value, bool):
        return ("name", str(value))
    if isinstance(value, float) and not value.is_integer():
        return ("number", float.__repr__(value))
    return ("number", hex(int(value))) if isinstance(value, int | float) else None


def is_equal(one: Any, other: Any) -> bool:
    """Return whether two values are the same to JSON: true is not 1, wherever it stands."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(is_equal, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(is_equal(one[name], other[name]) for name in one)
    key = key_of(one)
    return bool(one == other) if key is None else key == key_of(other)


def is_multiple(value: float, step: float) -> bool:
    """Return whether a number is a multiple of another; as 0.3 is of 0.1, though no float is exactly one of them."""
    if not step or (isinstance(value, int) and isinstance(step, int)):
        return not step or value % step == 0
    try:
        quotient = value / step
    except OverflowError:  # an int beyond every float
        quotient = inf
    if isfinite(quotient):
        return abs(quotient - round(quotient)) < 1e-9
    return (isinstance(value, int) or isfinite(value)) and Fraction(value) % Fraction(step) == 0
