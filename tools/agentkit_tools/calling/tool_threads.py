"""Sync functions run here: in daemon threads that can be left behind, of which there are never more than some."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, TypeVar, cast

from agentkit_prompts.system.daemon_threads import DaemonThreads
from agentkit_tools.calling.deadline import DeadlineError
from agentkit_tools.errors import ToolError

__all__ = ["abandoned_threads", "busy_threads", "run_in_thread"]

T = TypeVar("T")

_MAX_TOOLS, _MAX_RECALLS = 48, 16
"""Calls that run at once in a process, also those that nobody waits for any more; further ones wait."""
_IDLE_SECONDS = 10.0
_inside: ContextVar[bool] = ContextVar("agentkit_tools_inside_thread", default=False)


def _refusal(abandoned: int) -> ToolError:
    return ToolError(
        f"{abandoned} calls of sync tools or recalls ran out of time and hold their threads: no further one is "
        "called in this process until some of them end. Give these time limits inside, or make the tools async"
    )


def _threads(most: int) -> DaemonThreads:
    return DaemonThreads(most, "agentkit-tool", idle=_IDLE_SECONDS, refusal=_refusal)


_tools, _recalls = _threads(_MAX_TOOLS), _threads(_MAX_RECALLS)


def abandoned_threads() -> int:
    """Return how many threads still run a sync tool or a recall whose result nobody waits for any more; 64 at most."""
    return _tools.left + _recalls.left


def busy_threads() -> int:
    """Return how many threads run a call that somebody waits for."""
    return _tools.busy + _recalls.busy


async def run_in_thread(
    call: Callable[[], T], seconds: float | None = None, *, is_recall: bool = False
) -> tuple[T, BaseException | None]:
    """Return the value or the exception of `call()`, run in a daemon thread in a copy of the current context.

    After `seconds` the error is a `DeadlineError`. A call that has begun continues in its thread if it is late, or if
    the task that waits for it is cancelled. If all threads do that, no further call begins: the error is a `ToolError`.
    Recalls have separate threads, so that no tool delays them.
    """
    threads = _tools
    if is_recall:
        threads = _recalls
    context = copy_context()
    context.run(_inside.set, True)
    # What runs in a thread may wait for what it calls: that needs no place.
    future = context.run(partial(threads.submit, partial(_ended, call), at_once=_inside.get()))
    loop = asyncio.get_running_loop()
    waiting: asyncio.Future[None] = loop.create_future()
    # `asyncio.wrap_future` would keep the result alive until the next garbage collection.
    future.add_done_callback(partial(_wake, loop, waiting))
    timer: asyncio.TimerHandle | None = None
    if seconds is not None:
        timer = loop.call_later(seconds, _set_result, waiting)
    try:
        await waiting
    except BaseException:
        threads.leave(future)
        raise
    finally:
        if timer is not None:
            timer.cancel()
    if not future.done():
        threads.leave(future)
        return cast(T, None), DeadlineError()
    error = future.exception()
    # The future has an exception if the call did not begin or its thread was killed.
    return future.result() if error is None else (cast(T, None), error)


def _wake(loop: asyncio.AbstractEventLoop, waiting: asyncio.Future[None], _: Future[Any]) -> None:
    # The event loop can be closed already.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(_set_result, waiting)


def _set_result(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def _ended(call: Callable[[], T]) -> tuple[T, BaseException | None]:
    try:
        return call(), None
    except BaseException as error:
        # SystemExit as well: it must end the tool, not the thread.
        return cast(T, None), error
