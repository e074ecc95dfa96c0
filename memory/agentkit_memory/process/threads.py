"""`Threads`: runs functions of a store for async code, so that the event loop never waits for a disk."""

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

_MAX_THREADS = 8


class Threads:
    """A few threads of a store, so that a locked database does not use up those of the event loop."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._pool: ThreadPoolExecutor | None = None
        track(self)

    async def run(self, act: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in a thread and return what it returns, or raise what it raises.

        A call that has begun is never abandoned: a caller that is cancelled gets the cancellation after it has ended,
        so that no write goes on during what comes next. A call that has not begun is dropped.
        """
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="agentkit-memory")
            begun = self._pool.submit(contextvars.copy_context().run, partial(act, *args, **kwargs))
        future = asyncio.wrap_future(begun)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if not begun.cancel() and not future.cancelled():
                await asyncio.wait([future])
                future.exception()  # so that asyncio does not log it as never retrieved
            raise

    def close(self) -> None:
        """Let the threads end after their calls. A later `run` starts new ones."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False)

    def disown(self, why: str) -> None:
        """Forget the threads, which exist in the parent of this process only."""
        self._lock = Lock()
        self._pool = None
