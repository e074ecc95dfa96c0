"""Threads for calls that wait for a disk or a network, shared by all stores."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any

from agentkit_prompts.system.threads import Threads

_MAX_THREADS = 32
_GRACE = 5.0
"""Seconds from a cancellation until a running call is abandoned."""
_threads = Threads(_MAX_THREADS, "agentkit-store")
begin_in_thread, finish_in_thread, in_thread = _threads.submit, _threads.finish, _threads.run


async def ended(future: Future[Any], *, is_last: bool = False) -> None:
    """Wait until a call has ended.

    With `is_last`, or after this task is cancelled, the wait ends after a few seconds, and the call is abandoned.
    """
    waiting = asyncio.wrap_future(future)
    timeout = None
    if is_last:
        timeout = _GRACE
    try:
        await asyncio.wait([waiting], timeout=timeout)
    except asyncio.CancelledError:
        await asyncio.wait([waiting], timeout=_GRACE)
        raise
    finally:
        if not future.done():
            _threads.abandon(future)
            waiting.cancel()
        elif waiting.done() and not waiting.cancelled():
            waiting.exception()  # read, so that asyncio logs nothing: the caller reads the exception of `future`
