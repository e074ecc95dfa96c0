"""Threads for calls that may wait for a disk or a network: no run waits for another, and the process can end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar

from agentkit_prompts.system.daemon_threads import DaemonThreads

__all__ = ["begin_in_thread", "ended", "in_thread"]

P = ParamSpec("P")
T = TypeVar("T")

_MAX_THREADS = 32
_GRACE = 5.0
"""Seconds that what is not to be left behind has to end after a cancellation."""
_threads = DaemonThreads(_MAX_THREADS, "agentkit-store")


def begin_in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    """Call a function in a thread; return the future of its result, which the caller may ignore."""
    return _threads.submit(lambda: call(*args, **kwargs))


async def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in a thread; return its value or raise its exception.

    When the task that waits is cancelled, a call that has begun goes on, and one that has not never begins.
    """
    future = _threads.submit(lambda: call(*args, **kwargs))
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        _threads.leave(future)
        raise


async def ended(future: Future[Any], *, is_last: bool = False) -> None:
    """Wait until a call has ended; for a few seconds at most where it `is_last`, or once the task is cancelled."""
    waiting = asyncio.wrap_future(future)
    try:
        await asyncio.wait([waiting], timeout=_GRACE if is_last else None)
    except asyncio.CancelledError:
        await asyncio.wait([waiting], timeout=_GRACE)
        raise
    finally:
        if not future.done():
            _threads.leave(future)
            waiting.cancel()
        elif waiting.done() and not waiting.cancelled():
            waiting.exception()  # the caller reads the future
