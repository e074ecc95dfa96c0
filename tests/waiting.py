"""Waits of tests for what happens elsewhere: as long as a busy machine needs, and no longer than it takes."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

LONG = 60.0
"""Seconds that nothing takes which happens at all: the limit of a wait that must not run out."""


def until(condition: Callable[[], Any]) -> Any:
    """Return what a condition does, once it is true."""
    end = time.monotonic() + LONG
    while not (found := condition()):
        assert time.monotonic() < end, "it did not become true"
        time.sleep(0.01)
    return found


async def eventually(condition: Callable[[], Any]) -> Any:
    """Do the same where others need the event loop meanwhile."""
    end = time.monotonic() + LONG
    while not (found := condition()):
        assert time.monotonic() < end, "it did not become true"
        await asyncio.sleep(0.01)
    return found


def longer(seconds: float) -> Iterator[float]:
    """Yield time limits for what must run out of time, but not before something has happened: each twice the last one.

    Leave the loop once it has happened.
    """
    while seconds < LONG:
        yield seconds
        seconds *= 2
    raise AssertionError("it did not happen in time")


@contextmanager
def reserved_port() -> Iterator[int]:
    """Yield a port of loopback that nobody else is given: it is bound here, and a server may listen on it.

    Other systems than Linux have no such thing: there it is one that was free.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        if sys.platform != "linux":
            held.close()
        yield port
