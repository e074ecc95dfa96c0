"""Limit of the processor time for messages that an MCP server sends between calls."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic, thread_time

_SHARE = 0.05
"""Maximum share of the time between calls that the thread of a session may compute."""
_MIN_SECONDS = 0.01


class CPUPace:
    """Pauses that limit the reading of messages between calls to 5 % of a processor. Calls are not slowed down.

    Calls have their own time limits. No message is lost, because a server waits until its messages are read. Create the
    object and call its methods in the thread of the session.
    """

    def __init__(self) -> None:
        self._calls = 0
        self._called = asyncio.Event()
        self._seen = thread_time()
        self._end = 0.0

    @contextmanager
    def call(self) -> Iterator[None]:
        """Read messages without pauses during a call."""
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
        """Wait until the share is below the limit, or a call starts."""
        # Measure this thread only: the server does not cause the work of other threads.
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
