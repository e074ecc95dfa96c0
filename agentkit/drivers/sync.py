"""The sync driver: runs the asyncio driver to its end from code that is not async, inside a running loop too.

All sync runs of a process share one event loop in a daemon thread, so that connections to a model are reused.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["run_blocking"]

R = TypeVar("R")

_lock = threading.Lock()
_shared: tuple[int, asyncio.AbstractEventLoop] | None = None
"""Process id and loop: a forked child must not wait for its parent's thread."""


def run_blocking(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine and wait for its result; interrupting the wait cancels it."""
    loop = _loop()
    try:
        running: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is loop:  # called from a tool that itself runs here: waiting for this thread would wait for ever
        loop = _start()
        try:
            return _wait(coroutine, loop)
        finally:
            loop.call_soon_threadsafe(loop.stop)
    return _wait(coroutine, loop)


def _wait(coroutine: Coroutine[Any, Any, R], loop: asyncio.AbstractEventLoop) -> R:
    future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def _loop() -> asyncio.AbstractEventLoop:
    global _shared
    with _lock:
        if _shared is None or _shared[0] != os.getpid() or _shared[1].is_closed():
            _shared = (os.getpid(), _start())
        return _shared[1]


def _start() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()

    def run() -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.close()

    threading.Thread(target=run, name="agentkit-sync", daemon=True).start()
    return loop
