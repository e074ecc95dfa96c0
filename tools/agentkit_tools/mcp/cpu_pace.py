"""How much of the processor an MCP server may cost between calls: what it sends then, nobody asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic, thread_time

__all__ = ["CPUPace"]

_SHARE = 0.05
"""Of the time of the session's thread, between calls."""
_MIN_SECONDS = 0.01


class CPUPace:
    """Reads what a server sends between calls so slowly that it costs a twentieth of a processor. Calls are not slowed.

    A call has its time limit. A server that is read slowly must wait, so nothing it sends is lost. It is made, and its
    methods are called, in the thread of the session.
    """

    def __init__(self) -> None:
        self._calls = 0
        self._called = asyncio.Event()
        self._seen = thread_time()
        self._end = 0.0

    @contextmanager
    def call(self) -> Iterator[None]:
        """Whatever the server sends meanwhile is read at once."""
        self._calls += 1
        self._end = 0.0
        self._called.set()
        try:
            yield
        finally:
            self._calls -= 1
            self._seen = thread_time()
            if not self._calls:
                self._called.clear()

    async def rest(self) -> None:
        """Wait until the server may cost more, or a call begins."""
        # The time of this thread only: other threads of the program are not the fault of the server.
        now = thread_time()
        used, self._seen = now - self._seen, now
        if self._calls:
            return
        self._end = max(self._end, monotonic()) + used * (1 / _SHARE - 1)
        seconds = self._end - monotonic()
        if seconds > _MIN_SECONDS:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._called.wait()
