"""`EmbedderLoop`: runs async embedders for code that is not async."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from concurrent.futures import CancelledError, Future
from threading import Lock
from typing import Any, TypeVar

from agentkit_memory.errors import StoreClosed
from agentkit_memory.process.forks import keep, track
from agentkit_prompts.system.loop_thread import LoopThread

__all__ = ["EmbedderLoop"]

T = TypeVar("T")


class EmbedderLoop:
    """One event loop, as clients keep to one, that starts at its first use. Threads may share it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._loop: LoopThread | None = None
        self._waiting: set[Future[Any]] = set()
        self._closed = False
        track(self)

    def result(self, awaitable: Awaitable[T]) -> T:
        """Wait for something in the loop and return its result, or raise what it raises.

        Raises:
            StoreClosed: `close` was called before there was a result.
        """
        with self._lock:
            if self._closed:
                if isinstance(awaitable, Coroutine):
                    awaitable.close()  # so that Python does not warn that it was never awaited
                raise _closed()
            if self._loop is None:
                self._loop = LoopThread("agentkit-embedder")
            future = self._loop.submit(_await(awaitable))
            self._waiting.add(future)
        try:
            return future.result()
        except CancelledError as error:
            if self._closed:
                raise _closed() from error
            raise
        finally:
            with self._lock:
                self._waiting.discard(future)

    def close(self) -> None:
        """End the loop. Whoever waits for a result gets `StoreClosed` at once."""
        with self._lock:
            self._closed = True
            loop, self._loop = self._loop, None
            for future in self._waiting:
                future.cancel()
        if loop is not None:
            loop.stop(wait=False)

    def disown(self, why: str) -> None:
        """Forget the loop, which runs in the parent of this process only."""
        keep(self._loop, self._waiting)
        self._lock, self._loop, self._waiting, self._closed = Lock(), None, set(), True


async def _await(awaitable: Awaitable[T]) -> T:
    return await awaitable


def _closed() -> StoreClosed:
    return StoreClosed("the memory was closed while, or before, its embedder was asked; open it again")
