"""From threads to embedders that are async: one event loop in a thread of its own, since clients keep to one loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from threading import Lock, Thread
from typing import TypeVar

__all__ = ["LoopThread"]

T = TypeVar("T")


class LoopThread:
    """An event loop that begins when it is first needed. Threads may share it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def result(self, awaitable: Awaitable[T]) -> T:
        """Wait for something in the loop and return its result, or raise what it raises."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                Thread(target=_run, args=[self._loop], name="agentkit-embedder", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(_await(awaitable), self._loop).result()

    def close(self) -> None:
        """End the loop."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _await(awaitable: Awaitable[T]) -> T:
    return await awaitable
