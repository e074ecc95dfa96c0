"""`EmbedderCalls`: calls of async embedders from sync code."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from concurrent.futures import CancelledError, Future
from threading import Lock
from typing import Any, TypeVar

from agentkit_memory.errors import StoreClosed
from agentkit_memory.process.forks import keep, track
from agentkit_prompts.system.background_loop import background_loop

T = TypeVar("T")


class EmbedderCalls:
    """The calls of async embedders for one store, in the event loop of all embedders. Threads may share the object.

    All embedders share one loop, because the client of an embedder works in one loop only, and several stores may share
    the embedder. It is not the loop of sync runs, because an async tool that calls `memory.recall` blocks that loop.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: set[Future[Any]] = set()
        self._closed = False
        track(self)

    def result(self, awaitable: Awaitable[T]) -> T:
        """Wait for an awaitable in the loop; return its result or raise its exception.

        Raises:
            StoreClosed: `close` was called before the result.
        """
        with self._lock:
            if self._closed:
                if isinstance(awaitable, Coroutine):
                    # Without `close`, Python warns that the coroutine was never awaited.
                    awaitable.close()
                raise _closed()
            future = background_loop("agentkit-embedder").submit(_await(awaitable))
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
        """Cancel the calls. In threads that wait for a result, `result` raises `StoreClosed` at once."""
        with self._lock:
            self._closed = True
            for future in self._waiting:
                future.cancel()

    def disown(self, why: str) -> None:
        """Forget the calls after a fork: they run only in the parent process."""
        keep(self._waiting)
        self._lock, self._waiting, self._closed = Lock(), set(), True


async def _await(awaitable: Awaitable[T]) -> T:
    return await awaitable


def _closed() -> StoreClosed:
    return StoreClosed("the memory was closed before its embedder returned; open it again")
