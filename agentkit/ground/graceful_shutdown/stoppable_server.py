"""`StoppableServer`: a uvicorn server that ends within a time when it is stopped, whatever goes on."""

from __future__ import annotations

import asyncio
import math
import socket
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn

__all__ = ["StoppableServer"]

_STEP = 0.1
_ANSWER_SECONDS = 5
"""For the answers of requests that were ended; connections that have not taken theirs then are closed."""
_LAST_SECONDS = 1
"""For the answers of requests that had to be ended twice."""


class StoppableServer(uvicorn.Server):
    """A uvicorn server whose requests have so long to end when it is stopped, or until a second signal.

    Requests that go on then are cancelled: the application answers them. `EndedRequests` does, for one that stops.

    Args:
        config: How it serves; how long it waits at the end is set here.
        grace_seconds: How long requests have.
    """

    def __init__(self, config: uvicorn.Config, grace_seconds: float) -> None:
        config.timeout_graceful_shutdown = math.ceil(grace_seconds) + 3 * _ANSWER_SECONDS
        super().__init__(config)
        self._grace_seconds = grace_seconds
        self._waits = True
        """Whether requests that go on are waited for at the end."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        ending = asyncio.ensure_future(self._end_requests())
        await super().shutdown(sockets)
        ending.cancel()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """See uvicorn; a signal behind the first one says that requests are not waited for."""
        if self.should_exit:
            self._waits = False
        else:
            super().handle_exit(sig, frame)

    async def _end_requests(self) -> None:
        """End the requests that are not done in time; each gets an answer that says so."""
        last = time.monotonic() + self._grace_seconds
        while self._waits and time.monotonic() < last:
            await asyncio.sleep(_STEP)
        self._cancel()
        await asyncio.sleep(_ANSWER_SECONDS)
        self._close(lambda one: one.cycle is not None and one.cycle.response_started)
        await asyncio.sleep(_STEP)
        self._cancel()  # what waits for something that cannot be cancelled answers now
        await asyncio.sleep(_LAST_SECONDS)
        self._close(lambda _: True)

    def _cancel(self) -> None:
        for task in list(self.server_state.tasks):
            task.cancel()

    def _close(self, which: Callable[[Any], bool]) -> None:
        for connection in list(self.server_state.connections):
            if which(connection):
                connection.transport.abort()
