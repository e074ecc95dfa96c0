"""`ReplyText`: the text of a reply that calls are read from, in time that grows with its length only."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar
from uuid import uuid4

from agentkit_prompts.context.messages import ToolCall

__all__ = [
    "Found",
    "NoCallError",
    "Reader",
    "ReplyText",
    "Schemas",
    "end_of",
    "items_until",
    "made_call",
    "skip",
]

T = TypeVar("T")
_SPACE = re.compile(r"\s*+")

Schemas: TypeAlias = Mapping[str, Mapping[str, Any]]
"""The JSON Schemas of the parameters of tools, by the names of the tools."""

Found: TypeAlias = "tuple[list[ToolCall], int] | None"
"""The calls that were read and where they end; None without calls, or where one is not well formed."""


class NoCallError(ValueError):
    """The text is no call, or no value of one, of the form that is read."""


class ReplyText:
    """A reply, and what was found out about it: text that opens a call at every place is looked through once.

    Args:
        text: The text.
        schemas: The parameters of the tools there are.
    """

    __slots__ = ("_dead", "_places", "opening", "passed", "schemas", "text")

    def __init__(self, text: str, schemas: Schemas) -> None:
        self.text = text
        self.schemas = schemas
        self.opening = ""
        """What opens the calls that are being read."""
        self.passed: list[tuple[str, int]] = []
        """The kinds and places behind what was well formed in them."""
        self._places: dict[str, list[int]] = {}
        self._dead: set[tuple[str, str, int]] = set()

    def find(self, what: str, start: int) -> int:
        """Return the first place of `what` from `start` on; -1 without one."""
        places = self._places.get(what)
        if places is None:
            places = self._places[what] = [found.start() for found in re.finditer(re.escape(what), self.text)]
        at = bisect_left(places, start)
        return places[at] if at < len(places) else -1

    def is_dead(self, kind: str, place: int) -> bool:
        """Return whether reading something of a kind from this place on has failed before, behind this opening."""
        return (self.opening, kind, place) in self._dead

    def bury(self, kind: str, places: list[int]) -> None:
        """Note that reading something of a kind from these places on fails."""
        self._dead.update((self.opening, kind, place) for place in places)

    def bury_passed(self) -> None:
        """Note that calls which were well formed up to these places are not closed behind them."""
        self._dead.update((self.opening, kind, place) for kind, place in self.passed)


Reader: TypeAlias = Callable[[ReplyText, int], Found]
"""Reads the calls that begin at a place, without what opens and closes them."""


def made_call(name: object, arguments: object, id_: str = "") -> ToolCall | None:
    """Return a call; None where its name is not text or its arguments are not a JSON object.

    Arguments that are JSON text stay as they are written.
    """
    try:
        read = json.loads(arguments) if isinstance(arguments, str) else arguments
        if not isinstance(name, str) or not name or not isinstance(read, Mapping):
            return None
        text = arguments if isinstance(arguments, str) else json.dumps(read, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None
    # Nine letters and digits: the form that Mistral's templates insist on.
    return ToolCall(id_ or uuid4().hex[:9], name, text)


def end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return where what a pattern matches at `at` ends: `at` where it does not match."""
    found = pattern.match(text, at)
    return at if found is None else found.end()


def skip(text: str, at: int) -> int:
    """Return where the white space at `at` ends."""
    return end_of(_SPACE, text, at)


def items_until(text: str, at: int, closing: str, read: Callable[[int], tuple[T, int]]) -> tuple[list[T], int]:
    """Return the items of a list that stand between `at` and `closing`, and the end of that.

    `read` returns the item that begins at a place, and its end.

    Raises:
        NoCallError: Neither a comma nor `closing` stands behind an item.
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
    return items, at + len(closing)
