"""JSON form of Python values. A value of a type that JSON lacks has the form `{"$type": "path", "value": "/srv"}`."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn, TypeAlias
from uuid import UUID

from pydantic import TypeAdapter
from pydantic_core import CoreSchema, Url, core_schema

from agentkit_prompts.context.frozen import ReadOnlyDict, plain_text
from agentkit_prompts.context.json_problems import MAX_INT
from agentkit_prompts.context.nested import iter_placed_nodes
from agentkit_prompts.context.parts import Media, Part, Text
from agentkit_prompts.errors import ContextError, Problem, Problems, brief
from agentkit_prompts.limits import MAX_DEPTH, MAX_PROBLEMS

_TYPE = "$type"


def strict_json(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: The text is not JSON, or contains NaN, Infinity or 1e999, which the `json` module accepts.
        RecursionError: The data nests too deeply.
    """
    return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{brief(text)} is not a finite number")
    return number


@lru_cache(maxsize=1)
def part_adapter() -> TypeAdapter[Part]:
    """Return the adapter of the parts of messages, which writes the bytes of media as base64."""
    return TypeAdapter(Part)


class _Form(NamedTuple):
    """A JSON form: the types that have it, and its writer and reader."""

    types: type | tuple[type, ...]
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


_FORMS: dict[str, _Form] = {
    "bytes": _Form(bytes, lambda value: base64.b64encode(value).decode("ascii"), base64.b64decode),
    "path": _Form(Path, str, Path),
    "url": _Form(Url, str, Url),
    "datetime": _Form(datetime, datetime.isoformat, datetime.fromisoformat),
    "date": _Form(date, date.isoformat, date.fromisoformat),
    "time": _Form(time, time.isoformat, time.fromisoformat),
    "timedelta": _Form(
        timedelta, lambda value: [value.days, value.seconds, value.microseconds], lambda units: timedelta(*units)
    ),
    "decimal": _Form(Decimal, str, Decimal),
    "uuid": _Form(UUID, str, UUID),
    "int": _Form(int, hex, lambda text: int(text, 16)),
    "float": _Form(float, repr, float),
    "part": _Form(
        (Text, Media),
        lambda part: part_adapter().dump_python(part, mode="json"),
        lambda data: part_adapter().validate_python(data),
    ),
}
"""JSON forms by the value of `$type`. The first form that fits a value is used: a datetime is also a date."""


_COLLECTIONS: dict[str, type[tuple[Any, ...] | set[Any] | frozenset[Any]]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
}
"""Types of collections by the value of `$type`."""


def to_json(value: Any) -> Any:
    """Return `value` as JSON data that `from_json` turns into an equal value.

    Raises:
        ContextError: A value has no JSON form, or the data is cyclic or nests deeper than 100 levels; names the places.
    """
    try:
        return _written(value, 0)
    except ContextError as error:
        raise _with_places(value, error) from None


def _with_places(value: Any, error: ContextError) -> ContextError:
    """Return the error of `_written` with the places of the values that cannot be written."""
    problems: Problems = []
    for node in iter_placed_nodes(value):
        if node.depth > MAX_DEPTH or not isinstance(node.value, Mapping | list | tuple):
            try:
                _written(node.value, node.depth)
            except ContextError as problem:
                problems.append(Problem(node.place, problem.problems[0].text))
        if len(problems) == MAX_PROBLEMS:
            break
    return ContextError("JSON form", problems or error.problems)


def _written(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    # Subclasses of text and numbers are not stored: `from_json` returns the plain type.
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, int) and -MAX_INT < value < MAX_INT:
        return int(value)
    if isinstance(value, float) and isfinite(value):
        return float(value)
    if depth > MAX_DEPTH:
        raise ContextError("JSON form", [("", f"cyclic, or nests deeper than {MAX_DEPTH} levels")])
    return _written_container(value, depth + 1)


def _written_container(value: Any, depth: int) -> Any:
    if isinstance(value, Mapping):
        return _written_mapping(value, depth)
    if isinstance(value, list):
        return [_written(item, depth) for item in value]
    for name, kind in _COLLECTIONS.items():
        if isinstance(value, kind):
            return {_TYPE: name, "value": _written_items(value, depth)}
    return _written_form(value)


def _written_items(collection: Iterable[Any], depth: int) -> list[Any]:
    """Return the items of a tuple or set; equal sets have equal forms."""
    items = [_written(item, depth) for item in collection]
    if not isinstance(collection, tuple):
        items.sort(key=repr)
    return items


def _written_form(value: Any) -> dict[str, Any]:
    """Return a value in the first form of `_FORMS` whose types fit."""
    for name, form in _FORMS.items():
        if isinstance(value, form.types):
            return {_TYPE: name, "value": form.write(value)}
    raise ContextError(
        "JSON form", [("", f"a {type(value).__name__} has no JSON form; remove it from the stored data")]
    )


def _written_mapping(value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    """Return a JSON object; or the form `dict`, a list of pairs, if a key is not text or is `$type`."""
    if _TYPE not in value and all(isinstance(name, str) for name in value):
        return {name: _written(item, depth) for name, item in value.items()}
    pairs = [[_written(name, depth), _written(item, depth)] for name, item in value.items()]
    return {_TYPE: "dict", "value": pairs}


def from_json(data: Any, depth: int = 0) -> Any:
    """Return the value that `to_json` wrote; values that are not JSON are returned unchanged.

    Raises:
        ValueError: A form is unknown or corrupt, or the data nests deeper than data of `to_json`.
    """
    if type(data) not in (dict, list):
        return data
    # `to_json` adds two levels to each level of its value: the object with `$type`, and the list in it.
    if depth > 3 * MAX_DEPTH:
        raise ValueError("the data is cyclic or nests too deeply")
    if type(data) is list:
        return [from_json(item, depth + 1) for item in data]
    if _TYPE not in data:
        return {name: from_json(item, depth + 1) for name, item in data.items()}
    try:
        return _value_of_form(data[_TYPE], data.get("value"), depth + 1)
    # The readers of the forms raise errors of many types for corrupt text.
    except Exception as error:
        raise ValueError(f"{brief(data[_TYPE], 64)} is an unknown or corrupt JSON form") from error


def _value_of_form(name: Any, value: Any, depth: int) -> Any:
    if name == "dict":
        return {from_json(key, depth): from_json(item, depth) for key, item in value}
    if name in _COLLECTIONS:
        return _COLLECTIONS[name]([from_json(item, depth) for item in value])
    return _FORMS[name].read(value)


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
        raise _with_places(data, error) from None


class _AsJson:
    """Pydantic schema of `Data`: mappings are stored in their JSON form."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> CoreSchema:
        shape = core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema())
        written = core_schema.plain_serializer_function_ser_schema(_write, return_schema=shape)
        return core_schema.no_info_plain_validator_function(
            _read, serialization=written, json_schema_input_schema=shape
        )


Data: TypeAlias = Annotated[Mapping[str, Any], _AsJson]
"""Read-only mapping of names to values of any type."""
