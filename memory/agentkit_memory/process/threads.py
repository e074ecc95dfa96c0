"""From async code to the store: its functions are run in threads, so that the event loop never waits for a disk."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import ParamSpec, TypeVar

from agentkit_memory.process.forks import track

__all__ = ["Threads"]

P = ParamSpec("P")
T = TypeVar("T")

_MOST = 8
"""Calls at a time; SQLite has one writer, and a server need not be flooded."""


class Threads:
    """A few threads of the store's own, so that a locked database does not use up those of the event loop."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._pool: ThreadPoolExecutor | None = None
        track(self)

    async def run(self, act: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in a thread and return what it returns, or raise what it raises.

        What has begun is never abandoned: who is cancelled meanwhile is told after it has ended, so that no write
        goes on behind the back of what comes next. What has not begun yet never begins.
        """
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_MOST, thread_name_prefix="agentkit-memory")
            begun = self._pool.submit(contextvars.copy_context().run, partial(act, *args, **kwargs))
        future = asyncio.wrap_future(begun)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if not begun.cancel() and not future.cancelled():
                await asyncio.wait([future])
                future.exception()  # seen: nobody is left to be told
            raise

    def close(self) -> None:
        """Let the threads end once they have done what they were given. A later `run` starts new ones."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False)

    def disown(self, why: str) -> None:
        """Leave the threads to the parent of this process: here are none."""
        self._lock = Lock()
        self._pool = None
