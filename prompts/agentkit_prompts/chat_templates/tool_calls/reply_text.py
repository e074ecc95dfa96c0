"""`ReplyText`: text of a reply whose tool calls are read in linear time."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar
from uuid import uuid4

from agentkit_prompts.context.messages import ToolCall

T = TypeVar("T")
_SPACE = re.compile(r"\s*+")
_MAX_COPIES = 32
"""Maximum number of characters that readers copy, per character of the reply."""

Schemas: TypeAlias = Mapping[str, Mapping[str, Any]]
"""JSON Schemas of tool parameters, by tool name."""


class Calls(NamedTuple):
    """Tool calls, and their end in the text."""

    calls: list[ToolCall]
    end: int


class Value(NamedTuple, Generic[T]):
    """A value, and its end in the text."""

    value: T
    end: int


class NoCallError(ValueError):
    """The text is not a call, or a value of a call, in the expected form."""


class ReplyText:
    """A reply, with the places at which reading failed.

    A reply can open a call at every place. Failed places are recorded, so that no part of the text is read twice.

    Args:
        text: The text.
        schemas: The parameters of the available tools.
    """

    __slots__ = ("_chars_left", "_dead", "_places", "has_open_value", "memory", "opening", "passed", "schemas", "text")

    def __init__(self, text: str, schemas: Schemas) -> None:
        self.text = text
        self.schemas = schemas
        self.opening = ""
        """Opening text of the current calls."""
        self.has_open_value = False
        """True if the current calls contain a value without an end, which may quote the rest of the reply."""
        self.passed: list[tuple[str, int]] = []
        """Kinds and end places of the well-formed parts of the current calls."""
        self.memory: dict[object, Any] = {}
        """Results of one pass over the reply, by the reader that needs them."""
        self._chars_left = _MAX_COPIES * len(text)
        self._places: dict[str, list[int]] = {}
        self._dead: set[tuple[str, str, int]] = set()

    def find(self, text: str, start: int) -> int:
        """Return the first place of a text from `start` on, or -1. All places of a text are searched once."""
        places = self._places.get(text)
        if places is None:
            # One pass over the reply for each text, for any number of calls.
            places = self._places[text] = [match.start() for match in re.finditer(re.escape(text), self.text)]
        index = bisect_left(places, start)
        return places[index] if index < len(places) else -1

    def charge(self, chars: int) -> None:
        """Count characters that a reader copies. Values that contain other calls could be copied for each call.

        Raises:
            NoCallError: The reply has been copied too often.
        """
        self._chars_left -= chars
        if self._chars_left < 0:
            raise NoCallError

    def is_dead(self, kind: str, place: int) -> bool:
        """True if reading this kind at this place has already failed, after the same opening."""
        return (self.opening, kind, place) in self._dead

    def bury(self, kind: str, places: list[int]) -> None:
        """Record that reading this kind fails at these places."""
        self._dead.update((self.opening, kind, place) for place in places)

    def bury_passed(self) -> None:
        """Record that calls which are well formed up to these places are not closed."""
        self._dead.update((self.opening, kind, place) for kind, place in self.passed)


Reader: TypeAlias = Callable[[ReplyText, int], Calls]
"""Function that reads the calls at a place, without their opening and closing text; raises `NoCallError`."""


def try_read(read: Reader, reply: ReplyText, start: int) -> Calls | None:
    """Return the calls that start at a place, or None."""
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
    """Return a call. Arguments that are JSON text are unchanged.

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
    return ToolCall(call_id or new_id(), name, text)


def new_id() -> str:
    """Return an id of a call: nine letters and digits, the only form that the templates of Mistral accept."""
    return uuid4().hex[:9]


def some_calls(calls: list[ToolCall], end: int) -> Calls:
    """Return consecutive calls.

    Raises:
        NoCallError: The list is empty.
    """
    if not calls:
        raise NoCallError
    return Calls(calls, end)


def calls_between(opening: str, closing: str, read: Reader) -> Reader:
    """Return a reader of calls that follow each other, each between two texts.

    The calls end before a call that is not well formed. The closing text can be missing at the end of the reply.
    """

    def read_all(reply: ReplyText, start: int) -> Calls:
        calls: list[ToolCall] = []
        end = start
        while True:
            try:
                call, stop = read(reply, expect(opening, reply.text, end))
                stop = skip(reply.text, stop)
                if stop < len(reply.text):
                    stop = expect(closing, reply.text, stop)
            except NoCallError:
                return some_calls(calls, end)
            calls += call
            end = stop

    return read_all


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

    `read` returns the item that starts at a place.

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
