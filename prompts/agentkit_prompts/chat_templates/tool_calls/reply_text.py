"""`ReplyText`: the text of a reply that tool calls are read from, in time linear in its length."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar
from uuid import uuid4

from agentkit_prompts.context.messages import ToolCall

__all__ = [
    "Calls",
    "NoCallError",
    "Reader",
    "ReplyText",
    "Schemas",
    "Value",
    "end_of",
    "expect",
    "items_until",
    "made_call",
    "match_at",
    "new_call",
    "skip",
    "some_calls",
    "try_read",
]

T = TypeVar("T")
_SPACE = re.compile(r"\s*+")

Schemas: TypeAlias = Mapping[str, Mapping[str, Any]]
"""The JSON Schemas of the parameters of tools, by the names of the tools."""


class Calls(NamedTuple):
    """Tool calls that were read, and their end in the text."""

    calls: list[ToolCall]
    end: int


class Value(NamedTuple, Generic[T]):
    """A value that was read, and its end in the text."""

    value: T
    end: int


class NoCallError(ValueError):
    """The text is no call, or no value of a call, of the form that is read."""


class ReplyText:
    """A reply, and the places in it where reading failed.

    A reply may open a call at every place. Failed places are noted, so that no part of the text is read twice.

    Args:
        text: The text.
        schemas: The parameters of the available tools.
    """

    __slots__ = ("_dead", "_places", "opening", "passed", "schemas", "text")

    def __init__(self, text: str, schemas: Schemas) -> None:
        self.text = text
        self.schemas = schemas
        self.opening = ""
        """Text that opens the calls that are being read."""
        self.passed: list[tuple[str, int]] = []
        """Kinds and places after the parts of these calls that were well formed."""
        self._places: dict[str, list[int]] = {}
        self._dead: set[tuple[str, str, int]] = set()

    def find(self, text: str, start: int) -> int:
        """Return the first place of a text from `start` on, or -1. All places of a text are searched once."""
        places = self._places.get(text)
        if places is None:
            # One pass over the reply for each text, however many calls it opens.
            places = self._places[text] = [match.start() for match in re.finditer(re.escape(text), self.text)]
        index = bisect_left(places, start)
        return places[index] if index < len(places) else -1

    def is_dead(self, kind: str, place: int) -> bool:
        """Return True if reading something of a kind from this place has failed before, after the same opening."""
        return (self.opening, kind, place) in self._dead

    def bury(self, kind: str, places: list[int]) -> None:
        """Note that reading something of a kind from these places fails."""
        self._dead.update((self.opening, kind, place) for place in places)

    def bury_passed(self) -> None:
        """Note that calls which were well formed up to these places are not closed after them."""
        self._dead.update((self.opening, kind, place) for kind, place in self.passed)


Reader: TypeAlias = Callable[[ReplyText, int], Calls]
"""Reads the calls that begin at a place, without the text that opens and closes them; raises `NoCallError`."""


def try_read(read: Reader, reply: ReplyText, start: int) -> Calls | None:
    """Return the calls that begin at a place, or None."""
    try:
        return read(reply, start)
    except NoCallError:
        return None


def made_call(name: object, arguments: object) -> ToolCall | None:
    """Return a call, or None if its name is not text or its arguments are not a JSON object."""
    try:
        return new_call(name, arguments)
    except NoCallError:
        return None


def new_call(name: object, arguments: object, call_id: str = "") -> ToolCall:
    """Return a call. Arguments that are JSON text stay as they are written.

    Raises:
        NoCallError: The name is not text, or the arguments are not a JSON object.
    """
    if not isinstance(name, str) or not name:
        raise NoCallError
    try:
        if isinstance(arguments, str):
            value, text = json.loads(arguments), arguments
        else:
            value, text = arguments, json.dumps(arguments, ensure_ascii=False)
    except (ValueError, TypeError, RecursionError):
        raise NoCallError from None
    if not isinstance(value, Mapping):
        raise NoCallError
    # Nine letters and digits: the only form of id that the templates of Mistral accept.
    return ToolCall(call_id or uuid4().hex[:9], name, text)


def some_calls(calls: list[ToolCall], end: int) -> Calls:
    """Return calls that were read one after another.

    Raises:
        NoCallError: The list is empty.
    """
    if not calls:
        raise NoCallError
    return Calls(calls, end)


def match_at(pattern: re.Pattern[str], text: str, at: int) -> re.Match[str]:
    """Return the match of a pattern at a place.

    Raises:
        NoCallError: The pattern does not match there.
    """
    match = pattern.match(text, at)
    if match is None:
        raise NoCallError
    return match


def expect(expected: str, text: str, at: int) -> int:
    """Return the end of a text that must follow at a place, after white space.

    Raises:
        NoCallError: Other text follows.
    """
    at = skip(text, at)
    if not text.startswith(expected, at):
        raise NoCallError
    return at + len(expected)


def end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return the end of the match of a pattern at `at`, or `at` if it does not match."""
    match = pattern.match(text, at)
    return at if match is None else match.end()


def skip(text: str, at: int) -> int:
    """Return the end of the white space at `at`."""
    return end_of(_SPACE, text, at)


def items_until(text: str, at: int, closing: str, read: Callable[[int], Value[T]]) -> Value[list[T]]:
    """Return the items of a list between `at` and `closing`, and the end of `closing`.

    `read` returns the item that begins at a place.

    Raises:
        NoCallError: An item is followed by neither a comma nor `closing`.
    """
    items: list[T] = []
    at = skip(text, at)
    while not text.startswith(closing, at):
        item, at = read(at)
        items.append(item)
        at = skip(text, at)
        if text.startswith(",", at):
            at = skip(text, at + 1)
        elif not text.startswith(closing, at):
            raise NoCallError
    return Value(items, at + len(closing))
