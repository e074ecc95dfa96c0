"""What a tool returned or yielded as content a model can read: text, parts, or JSON, and not too much of it."""

from __future__ import annotations

import dataclasses
import json
import math
from asyncio import sleep
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from pydantic import BaseModel
from pydantic_core import to_json, to_jsonable_python

from agentkit_prompts.context.items import Document
from agentkit_prompts.context.parts import File, Media, Part, Text
from agentkit_prompts.context.wire.clean import clean

__all__ = ["Collected", "Content", "collect", "cut", "gather", "to_content", "with_note"]

Content: TypeAlias = str | tuple[Part, ...]

_DOCUMENT = ("label", "title", "text", "source", "metadata")
"""What a model reads of a document that a tool returned."""
_MAX_ITEMS = 100_000
"""Of an iterator inside of a result."""
_MAX_READ = 1_000_000
"""Characters that are read of what yields item by item, where a policy limits the size of results to less."""
_MAX_UNLIMITED = 10_000_000
"""The same where no policy does."""
_ITEMS_AT_ONCE = 100


def to_content(value: Any, *, nothing: str = "null") -> Content:
    """Return what a tool returned as text or parts.

    Text, media parts and lists that hold media stay what they are; `None` becomes `nothing`; models, dataclasses and
    other data become JSON (sets sorted, so that the same value gives the same bytes in any process).

    Raises:
        TypeError, ValueError: The value cannot be written as JSON.
        RecursionError: It is nested too deeply.
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
    """Return a value that `json` cannot write by itself, one level of it as plain data."""
    if isinstance(value, Iterator):
        # It can be read only once: not by an attempt that can fail later.
        raise TypeError
    if isinstance(value, set | frozenset):
        return sorted(value, key=lambda item: json.dumps(item, default=_plain, sort_keys=True))
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, Document) and value.image is None:
        return {name: getattr(value, name) for name in _DOCUMENT if getattr(value, name)}
    # Before the containers: a dataclass can be one, too.
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, deque):
        return list(value)
    return to_jsonable_python(value)


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_plain).encode


def cut(content: Content, limit: int, *, more: bool = False) -> tuple[Content, str] | None:
    """Return the first `limit` characters of content with a note, and its whole text; None when it is not longer.

    Media parts among the text that is kept stay. `more` is whether the content itself is only the beginning.
    """
    whole = _text_of(content)
    if len(whole) <= limit and not more:
        return None
    note = _note(len(whole), limit, more)
    if isinstance(content, str):
        return f"{content[:limit]}\n{note}", whole
    kept: list[Part] = []
    left = limit
    for part in content:
        if isinstance(part, Text):
            if len(part.text) > left:
                kept.append(Text(f"{part.text[:left]}\n{note}"))
                break
            left -= len(part.text)
        kept.append(part)
    else:
        kept.append(Text(note))
    return tuple(kept), whole


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
        return f"[The result was read up to here, {size:,} characters, and goes on; the first {limit:,} are shown.]"
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
    """Return plain data without keys that are not text, numbers that JSON does not have, and iterators."""
    if isinstance(value, float) and not math.isfinite(value):
        return json.loads(to_json(value, inf_nan_mode="strings"))
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, dict):
        return {_key(key): _written(item) for key, item in value.items()}
    if isinstance(value, Iterator):
        value = _items_of(value)
    if isinstance(value, list | tuple):
        return [_written(item) for item in value]
    return _written(_plain(value))


def _items_of(iterator: Iterator[Any]) -> list[Any]:
    items = list(islice(iterator, _MAX_ITEMS + 1))
    if len(items) > _MAX_ITEMS:
        raise TypeError(f"an iterator in it ({type(iterator).__name__}) has more than {_MAX_ITEMS:,} items")
    return items


def _key(key: Any) -> str:
    if type(key) is str:
        return key
    (text,) = json.loads(to_json({key: None}, inf_nan_mode="strings"))
    return str(text)


class Collected(NamedTuple):
    """What was yielded, one after the other."""

    value: Any
    """Text in one piece, or a list."""
    ended: bool
    """Whether that is all, or there was too much of it."""


class _Items:
    """Keeps items up to a size, of which an empty item takes something too: they may come without end."""

    __slots__ = ("_is_limited", "items", "left")

    def __init__(self, limit: int | None) -> None:
        self.items: list[Any] = []
        self.left = _MAX_UNLIMITED
        if limit is not None:
            self.left = max(limit, _MAX_READ)
        self._is_limited = limit is not None

    def add(self, item: Any) -> bool:
        """Keep an item; return whether there is room for more.

        Raises:
            ValueError: There is no room, and all of the items are wanted.
        """
        self.items.append(item)
        try:
            self.left -= 1 + _size(item)
        except (TypeError, ValueError, RecursionError):
            # It cannot be shown, so the size of later items does not matter.
            return not self._is_limited
        if self.left < 0 and not self._is_limited:
            raise ValueError(f"what it yields has more than {_MAX_UNLIMITED:,} characters and items: does it end?")
        return self.left >= 0

    def collected(self, *, ended: bool, join: bool = True) -> Collected:
        """Return what was kept."""
        if join and all(isinstance(item, str) for item in self.items):
            return Collected("".join(self.items), ended)
        return Collected(self.items, ended)


def _size(item: Any) -> int:
    if isinstance(item, Media):
        if isinstance(item.source, bytes):
            return len(item.source)
        # Media at an address cost nothing here.
        return 0
    return len(to_content(item))


def gather(run: Callable[[], Any], limit: int | None, *, join: bool = True) -> Collected:
    """Return what a generator yields, up to a million characters where there is a `limit` that is not above that.

    Text is joined unless `join` is false.
    """
    found = _Items(limit)
    for item in run():
        if not found.add(item):
            return found.collected(ended=False, join=join)
    return found.collected(ended=True, join=join)


async def collect(source: Any, limit: int | None) -> Collected:
    """Return what an async generator yields, like `gather`."""
    found = _Items(limit)
    async with aclosing(source):
        async for item in source:
            if not found.add(item):
                return found.collected(ended=False)
            # The generator may never wait, and other tasks must run.
            if len(found.items) % _ITEMS_AT_ONCE == 0:
                await sleep(0)
    return found.collected(ended=True)
