"""The JSON form of values that have no field to say their type: `{"$type": "path", "value": "/srv"}`."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeAlias
from uuid import UUID

from pydantic import TypeAdapter
from pydantic_core import CoreSchema, Url, core_schema

from agentkit_prompts.context.frozen import ReadOnlyDict
from agentkit_prompts.context.json_problems import MAX_INT
from agentkit_prompts.context.parts import Media, Part, Text
from agentkit_prompts.errors import ContextError, brief

__all__ = ["Data", "from_json", "strict_json", "to_json"]

_MAX_DEPTH = 100
_TYPE = "$type"


def strict_json(text: str) -> Any:
    """Return the value of a JSON text; NaN and Infinity, which Python writes there, are not JSON.

    Raises:
        ValueError: It is not JSON.
        RecursionError: It is nested too deeply.
    """
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


@lru_cache(maxsize=1)
def _parts() -> TypeAdapter[Part]:
    return TypeAdapter(Part)


_FORMS: dict[str, tuple[type | tuple[type, ...], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "bytes": (bytes, lambda value: base64.b64encode(value).decode("ascii"), lambda text: base64.b64decode(text)),
    "path": (Path, str, Path),
    "url": (Url, str, Url),
    "datetime": (datetime, datetime.isoformat, datetime.fromisoformat),
    "date": (date, date.isoformat, date.fromisoformat),
    "time": (time, time.isoformat, time.fromisoformat),
    "timedelta": (timedelta, lambda value: [value.days, value.seconds, value.microseconds], lambda of: timedelta(*of)),
    "decimal": (Decimal, str, Decimal),
    "uuid": (UUID, str, UUID),
    "int": (int, hex, lambda text: int(text, 16)),
    "float": (float, repr, float),
    "part": (
        (Text, Media),
        lambda part: _parts().dump_python(part, mode="json"),
        lambda data: _parts().validate_python(data),
    ),
}
"""Per name: the types it stands for, how one is written, and how it is read."""


def to_json(value: Any) -> Any:
    """Return `value` as JSON data that `from_json` turns into an equal value.

    Raises:
        ContextError: Something in it has no such form, or it is cyclic or nests deeper than 100 levels. Names every
            place.
    """
    try:
        return _written(value, 0)
    except ContextError as error:
        raise ContextError("JSON form", [*_problems(value, "", set())] or error.problems) from None


def _problems(value: Any, place: str, seen: set[int], depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield every place that keeps a value from being written; what stands at several is looked at once."""
    if depth <= _MAX_DEPTH and isinstance(value, Mapping | list | tuple):
        if id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, Mapping):
            inside = [(f"{place}.{name}" if place else str(name), item) for name, item in value.items()]
        else:
            inside = [(f"{place}[{at}]", item) for at, item in enumerate(value)]
        for where, item in inside:
            yield from _problems(item, where, seen, depth + 1)
        return
    try:
        _written(value, depth)
    except ContextError as error:
        yield from ((place, what) for _, what in error.problems)


def _written(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int) and -MAX_INT < value < MAX_INT:
        return int(value)
    if isinstance(value, float) and isfinite(value):
        return float(value)
    if depth > _MAX_DEPTH:
        raise ContextError("JSON form", [("", f"cyclic, or nests deeper than {_MAX_DEPTH} levels")])
    if isinstance(value, Mapping):
        if _TYPE not in value and all(isinstance(name, str) for name in value):
            return {name: _written(item, depth + 1) for name, item in value.items()}
        pairs = [[_written(name, depth + 1), _written(item, depth + 1)] for name, item in value.items()]
        return {_TYPE: "dict", "value": pairs}
    if isinstance(value, list | tuple):
        items = [_written(item, depth + 1) for item in value]
        return items if isinstance(value, list) else {_TYPE: "tuple", "value": items}
    if isinstance(value, set | frozenset):
        items = sorted([_written(item, depth + 1) for item in value], key=repr)
        return {_TYPE: "set" if isinstance(value, set) else "frozenset", "value": items}
    for name, (types, write, _) in _FORMS.items():
        if isinstance(value, types):
            return {_TYPE: name, "value": write(value)}
    raise ContextError("JSON form", [("", f"a {type(value).__name__} has none; keep it out of what is stored")])


def from_json(data: Any, depth: int = 0) -> Any:
    """Return the value that `to_json` wrote; values that are not JSON pass through untouched.

    Raises:
        ValueError: A form is unknown or damaged, or the data nests deeper than anything `to_json` writes.
    """
    if type(data) not in (dict, list):
        return data
    if depth > 3 * _MAX_DEPTH:
        raise ValueError("the data is cyclic or nests too deeply")
    deeper = depth + 1
    if type(data) is list:
        return [from_json(item, deeper) for item in data]
    if _TYPE not in data:
        return {name: from_json(item, deeper) for name, item in data.items()}
    name, value = data[_TYPE], data.get("value")
    try:
        if name == "dict":
            return {from_json(key, deeper): from_json(item, deeper) for key, item in value}
        if name == "tuple":
            return tuple([from_json(item, deeper) for item in value])
        if name in ("set", "frozenset"):
            return (set if name == "set" else frozenset)([from_json(item, deeper) for item in value])
        return _FORMS[name][2](value)
    except Exception as error:  # what a class raises that is given something else than its text
        raise ValueError(f"{brief(name, 64)} is an unknown or damaged JSON form") from error


def _read(data: Any) -> ReadOnlyDict:
    if isinstance(data, ReadOnlyDict):
        return data
    if not isinstance(data, Mapping) or not all(isinstance(name, str) for name in data):
        raise ValueError("expected an object of names and values")
    return ReadOnlyDict({name: from_json(value) for name, value in data.items()})


def _write(data: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {name: _written(value, 0) for name, value in data.items()}
    except ContextError as error:
        raise ContextError("JSON form", [*_problems(data, "", set())] or error.problems) from None


class _AsJson:
    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> CoreSchema:
        shape = core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema())
        written = core_schema.plain_serializer_function_ser_schema(_write, return_schema=shape)
        return core_schema.no_info_plain_validator_function(
            _read, serialization=written, json_schema_input_schema=shape
        )


Data: TypeAlias = Annotated[Mapping[str, Any], _AsJson]
"""A read-only mapping of names to any values."""
