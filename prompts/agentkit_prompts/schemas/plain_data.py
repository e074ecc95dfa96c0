"""Conversion of values to the types of JSON, because the validation library accepts no other types."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

from pydantic import BaseModel

from agentkit_prompts.limits import MAX_DEPTH, MAX_VALUES

Step = int | str
"""Name of a property, or index of an item."""
_MAX_LEVELS = 2 * MAX_DEPTH
"""Maximum levels of nested mappings and lists: a level of a schema has two such levels, `properties` and a name."""

_CHARS_PER_VALUE = 100
"""Number of characters of a text that count as one more value."""


class NotPlainError(ValueError):
    """JSON cannot contain the data: a number is not finite, or the data is too large.

    Attributes:
        path: Place of the number; empty if the data is too large.
        value: The number; None if the data is too large.
    """

    def __init__(self, message: str, value: Any = None) -> None:
        super().__init__(message)
        self.path: tuple[Step, ...] = ()
        self.value = value


def plain_data(value: Any, maximum: int = MAX_VALUES) -> Any:
    """Return a copy of a value in the types of JSON; `maximum` limits the number of values in it at all levels.

    Models and dataclasses become objects. Other objects become empty objects, which only an object schema accepts.

    Raises:
        NotPlainError: A number is not finite, or the data is too large, nested too deeply, or contains itself.
    """
    return _Copy(maximum).copy(value, 0)


def foreign_objects(value: Any, path: tuple[Step, ...]) -> Iterator[tuple[tuple[Step, ...], Any]]:
    """Yield the objects that `plain_data` replaces by empty objects, each after its path; `path` leads to `value`."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from foreign_objects(inner, (*path, str(name)))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from foreign_objects(inner, (*path, index))
    elif not isinstance(value, _KNOWN) and not _is_dataclass(value):
        yield path, value


_KNOWN = (str, int, float, BaseModel, type(None))


class _Copy:
    """Copier of one value, which counts the copied values."""

    def __init__(self, maximum: int) -> None:
        self._values_left = self._maximum = maximum

    def copy(self, value: Any, level: int) -> Any:
        self._spend(1)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, int | float):
            return _number(value)
        # The limit also ends the copy of data that contains itself.
        if level > _MAX_LEVELS:
            raise NotPlainError(f"is nested more than {_MAX_LEVELS} levels deep")
        return self._container(value, level)

    def _container(self, value: Any, level: int) -> Any:
        if isinstance(value, list | tuple):
            return [self._below(index, item, level) for index, item in enumerate(value)]
        fields = fields_of(value)
        return {self._text(str(name)): self._below(str(name), item, level) for name, item in fields.items()}

    def _spend(self, count: int) -> None:
        self._values_left -= count
        if self._values_left < 0:
            raise NotPlainError(f"has more than {self._maximum:,} values")

    def _text(self, value: str) -> str:
        self._spend(len(value) // _CHARS_PER_VALUE)
        # The library encodes text as UTF-8, which has no lone surrogates; a `?` replaces each of them.
        if value.isascii():
            return str.__str__(value)
        return value.encode("utf-8", "replace").decode()

    def _below(self, step: Step, value: Any, level: int) -> Any:
        try:
            return self.copy(value, level + 1)
        except NotPlainError as error:
            if error.value is not None:
                error.path = (step, *error.path)
            raise


def _number(value: float) -> float:
    """Return a number as `int` or `float`, because the library refuses subclasses, such as members of an IntEnum."""
    if isinstance(value, int):
        return int(value)
    if not isfinite(value):
        raise NotPlainError(f"expected a finite number, got {value}", value)
    return float(value)


def fields_of(value: Any) -> Mapping[Any, Any]:
    """Return the entries of a mapping, or the fields of a model or dataclass; {} for any other object."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, BaseModel):
        return {**vars(value), **(value.__pydantic_extra__ or {})}
    if _is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return {}


def _is_dataclass(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)
