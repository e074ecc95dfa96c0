"""`PerLoop`: one value for each event loop, such as a client whose connections cannot move between loops."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar
from weakref import ref

from agentkit_prompts.system.background_loop import never_collect

T = TypeVar("T")

_CLOSE_SECONDS = 1.0
"""Seconds to wait until the value of a deleted owner is closed."""
_Keeper: TypeAlias = AsyncGenerator[None]
"""Async generator that closes a value when it is closed. The end of an event loop closes its async generators."""


class _Entry(NamedTuple):
    value: Any
    keeper: _Keeper


_OPEN: dict[asyncio.AbstractEventLoop, dict[ref[PerLoop[Any]], _Entry]] = {}
"""Values of each loop, by their owner.

The values are not attributes of the owner, because the garbage collector cannot close their connections. If an owner is
deleted, its values are closed at the next use of any value in the loop, or at the end of the loop.
"""


class PerLoop(Generic[T]):
    """Values that are created in an event loop and closed with it. A forked process has no values.

    Args:
        close: Function that closes a value.
    """

    def __init__(self, close: Callable[[T], Awaitable[object]]) -> None:
        self._close = close
        self._owner: ref[PerLoop[Any]] = ref(self)
        # A weak reference stays hashable after the end of its object only if it was hashed before.
        hash(self._owner)

    def __reduce__(self) -> tuple[type[PerLoop[T]], tuple[Callable[[T], Awaitable[object]]]]:
        return PerLoop, (self._close,)

    async def value(self, make: Callable[[], T]) -> T:
        """Return the value of the running event loop; `make` creates the value at its first use."""
        loop = asyncio.get_running_loop()
        await _close_abandoned(loop)
        entry = _OPEN.get(loop, {}).get(self._owner)
        if entry is None:
            value = make()
            entry = _Entry(value, _close_with_loop(value, self._close, loop, self._owner))
            _OPEN.setdefault(loop, {})[self._owner] = entry
            await anext(entry.keeper)
        result: T = entry.value
        return result

    async def aclose(self) -> None:
        """Close the value of the running event loop, if any."""
        entry = _OPEN.get(asyncio.get_running_loop(), {}).get(self._owner)
        if entry is not None:
            await entry.keeper.aclose()


async def _close_abandoned(loop: asyncio.AbstractEventLoop) -> None:
    """Close the values of this loop whose owners are deleted; forget loops that ended without closing their values."""
    for closed in [each for each in list(_OPEN) if each.is_closed()]:
        _OPEN.pop(closed, None)
    for keeper in [entry.keeper for owner, entry in _OPEN.get(loop, {}).items() if owner() is None]:
        with suppress(Exception):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await keeper.aclose()


async def _close_with_loop(
    value: T, close: Callable[[T], Awaitable[object]], loop: asyncio.AbstractEventLoop, owner: ref[PerLoop[Any]]
) -> _Keeper:
    try:
        yield
    finally:
        values = _OPEN.get(loop, {})
        entry = values.get(owner)
        # A forked child has no entry for the value, because its parent uses and closes the connections.
        if entry is not None and entry.value is value:
            del values[owner]
            if not values:
                _OPEN.pop(loop, None)
            await close(value)


def _in_child() -> None:
    for values in _OPEN.values():
        never_collect(values)
    _OPEN.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
