"""How many requests a model sends at once, whichever threads and event loops they come from."""

from __future__ import annotations

import asyncio
from collections import deque
from threading import Lock
from types import TracebackType

from agentkit.errors import AgentDefinitionError

__all__ = ["RequestLimit"]


class RequestLimit:
    """Lets so many requests go on at once; others wait for their turn, first come, first served.

    Raises:
        AgentDefinitionError: It is not a number, 1 or more.
    """

    def __init__(self, most: int | None) -> None:
        if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
            raise AgentDefinitionError(
                f"max_concurrency: expected a number of requests, 1 or more, got {most!r:.40}", name="max_concurrency"
            )
        self._most = self._free = most
        self._lock = Lock()
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    def __reduce__(self) -> tuple[type[RequestLimit], tuple[int | None]]:
        return RequestLimit, (self._most,)

    async def __aenter__(self) -> None:
        if self._free is None:
            return
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return
            loop = asyncio.get_running_loop()
            turn = loop.create_future()
            self._waiting.append((loop, turn))
        try:
            await turn
        except asyncio.CancelledError:
            with self._lock:
                is_waiting = (loop, turn) in self._waiting
                if is_waiting:
                    self._waiting.remove((loop, turn))
            if not is_waiting:  # its turn had come
                self._pass_on()
            raise

    async def __aexit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._free is not None:
            self._pass_on()

    def _pass_on(self) -> None:
        """Give a place to whoever waits longest, in whatever loop."""
        while True:
            with self._lock:
                if not self._waiting:
                    assert self._free is not None
                    self._free += 1
                    return
                loop, turn = self._waiting.popleft()
            try:
                loop.call_soon_threadsafe(_begin, turn)
            except RuntimeError:  # its loop was closed: nobody waits there any more
                continue
            return


def _begin(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
