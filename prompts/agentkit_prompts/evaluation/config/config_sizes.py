"""How large the values of a configuration may be, and copies of values that are not larger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from agentkit_prompts.limits import MAX_DEPTH, MAX_DIGITS, MAX_INPUT_BYTES, MAX_SOURCE_CHARS, MAX_VALUES

__all__ = ["Unreadable", "bounded", "check_size", "is_scalar", "key", "own_variables"]

_MAX_REASON = 500
_MAX_BITS = MAX_DIGITS * 10 // 3
_MAX_KEY_BITS = 60
"""Larger integers can be chosen so that all of them have the same hash, which makes a dict slow."""


class Unreadable(Exception):
    """A part of a configuration cannot be read; the message has no place.

    `name` is the construct, method, function or variable at fault, if it is one.
    """

    def __init__(self, reason: str, name: str | None = None) -> None:
        if len(reason) > _MAX_REASON:
            reason = f"{reason[:_MAX_REASON]}..."
        super().__init__(reason)
        self.name = name


def check_size(size: int, kind: type) -> None:
    """Refuse to make a text or a container with more than the maximum of characters or items."""
    if kind is str and size > MAX_SOURCE_CHARS:
        raise Unreadable(f"a text of more than {MAX_SOURCE_CHARS:,} characters")
    if kind is not str and size > MAX_VALUES:
        raise Unreadable(f"a {kind.__name__} of more than {MAX_VALUES:,} items")


def bounded(value: Any) -> Any:
    """Return a value that is not too large."""
    if isinstance(value, str):
        check_size(len(value), str)
    elif isinstance(value, list | tuple | dict | set | range):
        check_size(len(value), type(value))
    elif isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise Unreadable(f"a number of more than {MAX_DIGITS:,} digits")
    return value


def is_scalar(value: object) -> bool:
    """True if a value is a text, a number, a bool or None: it is compared and written at little cost."""
    return value is None or isinstance(value, str | int | float)


def key(value: Any) -> Any:
    """Return a value that may be the key of a dict or a member of a set."""
    if not is_scalar(value):
        raise Unreadable(f"a key of type {type(value).__name__}")
    if isinstance(value, int) and value.bit_length() > _MAX_KEY_BITS:
        raise Unreadable(f"a key of more than {_MAX_KEY_BITS} bits")
    return value


class _Copy(NamedTuple):
    value: Any
    values: int
    """Number of values inside, counted at each place where they are used."""
    chars: int
    """Characters of all texts inside."""


class _Copier:
    """Copies values: containers are new, imported names are texts. A container that is shared is copied once."""

    def __init__(self) -> None:
        self._copies: dict[int, _Copy] = {}

    def copy(self, value: Any, depth: int = 0) -> _Copy:
        """Return a copy of a value, with its size."""
        if isinstance(value, str):
            return _Copy(str(value), 1, len(value))
        if not isinstance(value, dict | list | tuple | set):
            return _Copy(value, 1, 0)
        copy = self._copies.get(id(value))
        if copy is None:
            # This also ends the copy of a list that contains itself.
            if depth >= MAX_DEPTH:
                raise Unreadable(f"values that nest more than {MAX_DEPTH} levels deep")
            copy = self._copies[id(value)] = self._container(value, depth)
        return copy

    def is_known(self, value: object) -> bool:
        """True if this container was copied before."""
        return id(value) in self._copies

    def _container(self, value: Any, depth: int) -> _Copy:
        if isinstance(value, dict):
            inner = [self.copy(one, depth + 1) for item in value.items() for one in item]
            # Names and values alternate.
            result: Any = {name.value: item.value for name, item in zip(inner[::2], inner[1::2], strict=True)}
        else:
            inner = [self.copy(item, depth + 1) for item in value]
            result = type(value)(copy.value for copy in inner)
        return _Copy(result, 1 + sum(copy.values for copy in inner), sum(copy.chars for copy in inner))


def own_variables(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return copies of the variables of a file.

    A dataset that is listed several times counts once. Inside of a dataset a shared value counts at each place: text
    that is made of the dataset repeats it there.

    Raises:
        Unreadable: They nest too deeply, or have too many values or characters together.
    """
    copier = _Copier()
    copies: dict[str, Any] = {}
    values = chars = 0
    for name, value in variables.items():
        parts = [value]
        if isinstance(value, list) and not copier.is_known(value):
            parts = value
        for part in parts:
            # Suites list the same dataset in a file, in its collection and in the collection of collections.
            if copier.is_known(part):
                continue
            copy = copier.copy(part)
            values += copy.values
            chars += copy.chars
            if values > MAX_VALUES or chars > MAX_INPUT_BYTES:
                limits = f"{MAX_VALUES:,} values or {MAX_INPUT_BYTES:,} characters"
                raise Unreadable(f"its variables up to {name!r} have more than {limits}", name)
        copies[name] = copier.copy(value).value
    return copies
