"""Conversion of the value of a tool to content for a model: text, parts or JSON, up to a limit of characters."""

from __future__ import annotations

import dataclasses
import json
import math
from asyncio import sleep
from collections import UserList, deque
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from contextlib import aclosing
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from pydantic import BaseModel
from pydantic_core import to_json, to_jsonable_python

from agentkit_prompts.context.items import Document
from agentkit_prompts.context.parts import File, Media, Part, Text
from agentkit_prompts.context.wire.clean import clean

Content: TypeAlias = str | tuple[Part, ...]

_DOCUMENT = ("label", "title", "text", "source", "metadata")
"""Fields of a returned document that the model receives."""
_MAX_ITEMS = 100_000
"""Maximum items of an iterator inside of a result."""
_MAX_READ = 1_000_000
"""Minimum of the characters that are read from an iterator or generator if a policy limits the size of results."""
_MAX_UNLIMITED = 10_000_000
"""Maximum characters that are read from an iterator or generator if the policy has no limit."""
_ITEMS_AT_ONCE = 100


def to_content(value: Any, *, nothing: str = "null") -> Content:
    """Convert the value of a tool to text or parts.

    Text and media parts, and lists that contain media, are not changed; `None` becomes `nothing`; models, dataclasses
    and other data become JSON. Sets are sorted: the text of a value is the same in all processes.

    Raises:
        TypeError, ValueError: The value cannot be written as JSON.
        RecursionError: The value is nested too deeply.
    """
    kind = type(value)
    if kind is str:
        return clean(value)
    if kind is int:
        # The same text as JSON, at a tenth of the cost.
        return str(value)
    if value is None:
        return nothing
    if isinstance(value, Media | Text):
        return (value,)  # type: ignore[return-value]
    if isinstance(value, str):
        return clean(str.__str__(value))
    if isinstance(value, list | tuple) and any(isinstance(item, Media | Text) for item in value):
        return tuple(_part(item) for item in value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _content_of_bytes(bytes(value))
    return clean(_json(value))


def _content_of_bytes(data: bytes) -> Content:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return (File(data),)


def _plain(value: Any) -> Any:
    """Convert one level of a value that `json` does not support to plain data."""
    if isinstance(value, Iterator | range):
        # An iterator can be read only once, and this attempt can fail later; see `_written`.
        raise TypeError
    if isinstance(value, set | frozenset):
        return sorted(value, key=lambda item: json.dumps(item, default=_plain, sort_keys=True))
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, Document) and value.image is None:
        return {name: getattr(value, name) for name in _DOCUMENT if getattr(value, name)}
    # Before the containers, because a dataclass can be a container.
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, deque | UserList | KeysView | ValuesView | ItemsView):
        return list(value)
    return to_jsonable_python(value)


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_plain).encode


def cut(content: Content, limit: int, *, more: bool = False) -> tuple[Content, str] | None:
    """Return the first `limit` characters of content with a note, and its whole text; None if it is not longer.

    Media parts before the cut are included. `more` is true if the content was not read completely.
    """
    whole = _text_of(content)
    if len(whole) <= limit and not more:
        return None
    note = _note(len(whole), limit, more)
    if isinstance(content, str):
        return f"{content[:limit]}\n{note}", whole
    parts: list[Part] = []
    rest = limit
    for part in content:
        if isinstance(part, Text):
            if len(part.text) > rest:
                parts.append(Text(f"{part.text[:rest]}\n{note}"))
                break
            rest -= len(part.text)
        parts.append(part)
    else:
        parts.append(Text(note))
    return tuple(parts), whole


def _text_of(content: Content) -> str:
    if isinstance(content, str):
        return content
    return "".join([part.text for part in content if isinstance(part, Text)])


def with_note(content: Content, note: str) -> Content:
    """Return content with a line of text after it."""
    if isinstance(content, str):
        return f"{content}\n{note}"
    return (*content, Text(f"\n{note}"))


def _note(size: int, limit: int, more: bool) -> str:
    if more:
        return f"[The result was read up to {size:,} characters and is longer; only the first {limit:,} are shown.]"
    return f"[The result has {size:,} characters; only the first {limit:,} are shown.]"


def _part(item: Any) -> Any:
    if isinstance(item, Media | Text):
        return item
    content = to_content(item)
    if isinstance(content, str):
        return Text(content)
    return content[0]


def _json(value: Any) -> str:
    try:
        return _encode(value)
    except (TypeError, ValueError) as error:
        if isinstance(error, ValueError) and "ircular" in str(error):
            raise
    return _encode(_written(value))


def _written(value: Any) -> Any:
    """Return plain data: keys as text, infinity and NaN as text, iterators as lists."""
    if isinstance(value, float) and not math.isfinite(value):
        return json.loads(to_json(value, inf_nan_mode="strings"))
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, dict):
        return {_key(key): _written(item) for key, item in value.items()}
    if isinstance(value, Iterator | range):
        items = list(islice(value, _MAX_ITEMS + 1))
        if len(items) > _MAX_ITEMS:
            raise TypeError(f"an iterator in it ({type(value).__name__}) has more than {_MAX_ITEMS:,} items")
        value = items
    if isinstance(value, list | tuple):
        return [_written(item) for item in value]
    return _written(_plain(value))


def _key(key: Any) -> str:
    if type(key) is str:
        return key
    (text,) = json.loads(to_json({key: None}, inf_nan_mode="strings"))
    return str(text)


class Collected(NamedTuple):
    """Items of a generator or an iterator."""

    value: Any
    """The joined text, or the list of items."""
    ended: bool
    """True if the generator finished, False if its items exceed the limit."""


class _Items:
    """Items up to a total size. Each item counts at least 1, because a generator can yield empty items forever."""

    __slots__ = ("_is_limited", "items", "left")

    def __init__(self, limit: int | None) -> None:
        self.items: list[Any] = []
        self.left = _MAX_UNLIMITED
        if limit is not None:
            self.left = max(limit, _MAX_READ)
        self._is_limited = limit is not None

    def add(self, item: Any) -> bool:
        """Add an item; return True if the limit is not reached.

        Raises:
            ValueError: The items exceed the limit, and no policy allows cutting them.
        """
        self.items.append(item)
        try:
            self.left -= 1 + _size(item)
        except (TypeError, ValueError, RecursionError):
            # The conversion of the result will fail on this item, so the size of later items does not matter.
            return not self._is_limited
        if self.left < 0 and not self._is_limited:
            raise ValueError(f"what it yields has more than {_MAX_UNLIMITED:,} characters and items: does it end?")
        return self.left >= 0

    def collected(self, *, ended: bool, join: bool = True) -> Collected:
        """Return the items, joined if all are text and `join` is true."""
        if join and all(isinstance(item, str) for item in self.items):
            return Collected("".join(self.items), ended)
        return Collected(self.items, ended)


def _size(item: Any) -> int:
    if isinstance(item, Media):
        if isinstance(item.source, bytes):
            return len(item.source)
        # Media at an address have no size here.
        return 0
    return len(to_content(item))


def gather(run: Callable[[], Any], limit: int | None, *, join: bool = True) -> Collected:
    """Return the items of a generator, up to `limit` characters, and at least a million.

    Text is joined unless `join` is false.
    """
    items = _Items(limit)
    for item in run():
        if not items.add(item):
            return items.collected(ended=False, join=join)
    return items.collected(ended=True, join=join)


async def collect(source: Any, limit: int | None) -> Collected:
    """Return the items of an async generator, like `gather`."""
    items = _Items(limit)
    async with aclosing(source):
        async for item in source:
            if not items.add(item):
                return items.collected(ended=False)
            # A generator that never waits must not block other tasks.
            if len(items.items) % _ITEMS_AT_ONCE == 0:
                await sleep(0)
    return items.collected(ended=True)
