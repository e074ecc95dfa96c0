"""`StoppableServer`: a uvicorn server with a maximum shutdown time."""

from __future__ import annotations

import asyncio
import math
import socket
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn

_STEP = 0.1
"""Seconds between two checks of the time."""
_ANSWER_SECONDS = 5
"""Seconds for the responses of cancelled requests, before their connections are closed."""
_LAST_SECONDS = 1
"""Seconds for the responses of requests that were cancelled twice."""


class StoppableServer(uvicorn.Server):
    """A uvicorn server that waits for running requests when it is stopped, until a time limit or a second signal.

    After that the requests are cancelled, and the application responds to these requests; see `EndedRequests`.

    Args:
        config: Configuration of uvicorn; its shutdown timeout is replaced.
        grace_seconds: Seconds for running requests.
    """

    def __init__(self, config: uvicorn.Config, grace_seconds: float) -> None:
        # Longer than `_end_requests` takes, so that uvicorn does not end the requests first.
        config.timeout_graceful_shutdown = math.ceil(grace_seconds) + 3 * _ANSWER_SECONDS
        super().__init__(config)
        self._grace_seconds = grace_seconds
        self._waits = True
        """True if the shutdown waits for running requests."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        ending = asyncio.ensure_future(self._end_requests())
        await super().shutdown(sockets)
        ending.cancel()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal as uvicorn does; a second signal stops the wait for requests."""
        if self.should_exit:
            self._waits = False
        else:
            super().handle_exit(sig, frame)

    async def _end_requests(self) -> None:
        """Cancel requests after the grace period, and close their connections."""
        deadline = time.monotonic() + self._grace_seconds
        while self._waits and time.monotonic() < deadline:
            await asyncio.sleep(_STEP)
        self._cancel()
        await asyncio.sleep(_ANSWER_SECONDS)
        # Connections whose response has started and is still incomplete.
        self._close(lambda connection: connection.cycle is not None and connection.cycle.response_started)
        await asyncio.sleep(_STEP)
        self._cancel()  # requests that ignored the first cancellation
        await asyncio.sleep(_LAST_SECONDS)
        self._close(lambda _: True)

    def _cancel(self) -> None:
        for task in list(self.server_state.tasks):
            task.cancel()

    def _close(self, which: Callable[[Any], bool]) -> None:
        for connection in list(self.server_state.connections):
            if which(connection):
                connection.transport.abort()
