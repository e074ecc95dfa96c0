"""What a tool yields item by item, collected: text in one piece, or a list, as long as it is not too much."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import Any, NamedTuple

from agentkit_prompts.context.parts import Media
from agentkit_tools.calling.result_content import to_content

__all__ = ["Collected", "collect", "gather"]

_MAX_READ = 1_000_000
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
        self.left = None if limit is None else max(limit, _MAX_READ)

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
