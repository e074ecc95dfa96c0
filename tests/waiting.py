"""Waits of tests for other processes and threads: as long as a busy machine needs, and not longer than necessary."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

LONG = 60.0
"""Limit in seconds of a wait that must not expire."""


def until(condition: Callable[[], Any]) -> Any:
    """Return the result of a condition, once it is true."""
    end = time.monotonic() + LONG
    while not (found := condition()):
        assert time.monotonic() < end, "it did not become true"
        time.sleep(0.01)
    return found


async def eventually(condition: Callable[[], Any]) -> Any:
    """Return the result of a condition, once it is true, without blocking the event loop."""
    end = time.monotonic() + LONG
    while not (found := condition()):
        assert time.monotonic() < end, "it did not become true"
        await asyncio.sleep(0.01)
    return found


def longer(seconds: float) -> Iterator[float]:
    """Yield time limits that must expire, but not before an event: each is twice the last limit.

    Leave the loop after the event.
    """
    while seconds < LONG:
        yield seconds
        seconds *= 2
    raise AssertionError("it did not happen in time")


@contextmanager
def reserved_port() -> Iterator[int]:
    """Yield a port of loopback that no other process receives: it is bound here, and a server may listen on it.

    Systems other than Linux do not support this: there the port was free before.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        if sys.platform != "linux":
            held.close()
        yield port
