"""What kind of thing a tool is made from, and how to get all of what it produces."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import aclosing
from functools import partial
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction, signature, unwrap
from types import CoroutineType
from typing import Any, Literal, NamedTuple

from agentkit_prompts.context.parts import Media
from agentkit_tools.calling.tool_result import to_content
from agentkit_tools.errors import ToolDefinitionError

__all__ = [
    "Collected",
    "Mode",
    "as_coroutine",
    "collect",
    "gather",
    "inner_function",
    "is_unbound_method",
    "mode_of",
    "name_of",
    "raw",
]

Mode = Literal["async", "async_items", "sync", "sync_items"]
"""How a function is run: awaited or in a thread; the items of a generator are collected."""


def raw(function: Any) -> Any:
    """Return the function inside a `classmethod` or `staticmethod` object."""
    return function.__func__ if isinstance(function, classmethod | staticmethod) else function


def inner_function(function: Any) -> Any:
    """Return the code that does the work: inside of partials, wrappers and objects with `__call__`."""
    inner = unwrap(raw(function))
    while isinstance(inner, partial):
        inner = unwrap(inner.func)
    if not callable(inner):
        raise ToolDefinitionError(f"a tool is made from something that can be called, not from {inner!r}")
    if not hasattr(inner, "__name__") and not isinstance(inner, type):
        inner = type(inner).__call__
    return inner


def mode_of(inner: Any) -> Mode:
    """Return how an inner function is run."""
    if iscoroutinefunction(inner):
        return "async"
    if isasyncgenfunction(inner):
        return "async_items"
    return "sync_items" if isgeneratorfunction(inner) else "sync"


def name_of(function: Any) -> str:
    """Return the name a function goes by; an object is called after its class.

    Raises:
        ToolDefinitionError: It is a lambda.
    """
    function = raw(function)
    while isinstance(function, partial):
        function = function.func
    name: str = getattr(function, "__name__", "") or type(function).__name__
    if name == "<lambda>":
        raise ToolDefinitionError("a lambda has no name a model could call it by: give the tool a name")
    return name


def is_unbound_method(function: Any) -> bool:
    """Return whether this is a function in a class body, whose first parameter is not the model's business."""
    if isinstance(function, classmethod):
        return True
    if isinstance(function, staticmethod) or hasattr(function, "__self__"):
        return False
    owner = getattr(function, "__qualname__", "").rpartition(".")[0]
    if not owner or owner.endswith("<locals>"):
        return False
    first = next(iter(signature(function).parameters.values()), None)
    return first is not None and first.name in ("self", "cls") and first.annotation is first.empty


async def _await(work: Any) -> Any:
    return await work


def as_coroutine(work: Any) -> Coroutine[Any, Any, Any]:
    """Return any awaitable as a coroutine."""
    return work if isinstance(work, CoroutineType) else _await(work)


_MOST_READ = 1_000_000
"""Characters that are read of what yields item by item, where a policy limits the size of results to less."""


class Collected(NamedTuple):
    """What was yielded, one after the other."""

    value: Any
    """Text in one piece, or a list."""
    ended: bool
    """Whether that is all, or there was too much of it."""


class _Items:
    """Keeps items up to a size, of which an empty item takes something too: they may come without end."""

    __slots__ = ("items", "left")

    def __init__(self, limit: int | None) -> None:
        self.items: list[Any] = []
        self.left = None if limit is None else max(limit, _MOST_READ)

    def add(self, item: Any) -> bool:
        """Keep an item; return whether there is room for more."""
        self.items.append(item)
        if self.left is None:
            return True
        try:
            self.left -= 1 + _size(item)
        except (TypeError, ValueError, RecursionError):
            return False  # it cannot be shown, whatever follows
        return self.left >= 0

    def collected(self, *, ended: bool, join: bool = True) -> Collected:
        """Return what was kept."""
        is_text = join and all(isinstance(item, str) for item in self.items)
        return Collected("".join(self.items) if is_text else self.items, ended)


def _size(item: Any) -> int:
    if isinstance(item, Media):
        return len(item.source) if isinstance(item.source, bytes) else 0
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
    return found.collected(ended=True)
