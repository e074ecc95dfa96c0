"""A time limit for code that is awaited. It holds against code that ignores its cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from inspect import CORO_CLOSED, getcoroutinestate
from types import CoroutineType
from typing import Any, Generic, NamedTuple, TypeVar

from agentkit_tools.errors import ends_run

__all__ = ["DeadlineError", "Outcome", "outcome"]

T = TypeVar("T")

_GRACE = 2.0
"""Seconds that a cancelled task has to clean up before it is left behind."""


class DeadlineError(Exception):
    """A tool took longer than its policy allows. Never leaves the tools layer."""


class Outcome(NamedTuple, Generic[T]):
    """The value that code returned, or the exception that it raised."""

    value: T | None
    error: BaseException | None


async def outcome(work: Awaitable[T], seconds: float | None, grace: float | None = None) -> Outcome[T]:
    """Await `work` in a task; return its value or its exception.

    After `seconds` the task is cancelled, and the error is a `DeadlineError`. A task that has not ended `grace` seconds
    after it was cancelled, by this limit or from outside, is left behind.

    Raises:
        asyncio.CancelledError: The surrounding task was cancelled, or `work` cancelled the task it runs in.
        BaseException: `work` raised an exception that ends the run; see `ends_run`.
    """
    grace = _GRACE if grace is None else grace
    loop = asyncio.get_running_loop()
    # Set to False at the end, or to True when the time is over: `asyncio.wait` costs twice as much.
    late: asyncio.Future[bool] = loop.create_future()
    task = loop.create_task(_caught(work, late))
    timer: asyncio.TimerHandle | None = None
    if seconds is not None:
        timer = loop.call_later(seconds, _end, task, late)
    try:
        is_late = await late
    except asyncio.CancelledError:
        task.cancel()
        await _wait(task, work, grace)
        raise
    except GeneratorExit:
        # This coroutine is closed: nothing can be awaited any more.
        task.cancel()
        raise
    finally:
        if timer is not None:
            timer.cancel()
    if is_late:
        await _wait(task, work, grace)
    if not task.done() or task.cancelled():
        return Outcome(None, DeadlineError())
    result = task.result()
    _raise_if_ends_run(result.error)
    if isinstance(result.error, asyncio.CancelledError):
        if is_late:
            return Outcome(None, DeadlineError())
        # Code that cancels "the current task" means the run.
        if task.cancelling():
            raise result.error
    return result


async def _caught(work: Awaitable[T], late: asyncio.Future[bool]) -> Outcome[T]:
    """Return an exception instead of raising it: asyncio raises some at once from the loop, not from the task."""
    try:
        return Outcome(await work, None)
    except BaseException as error:
        return Outcome(None, error)
    finally:
        if not late.done():
            late.set_result(False)


def _end(task: asyncio.Task[Any], late: asyncio.Future[bool]) -> None:
    if not late.done():
        task.cancel()
        late.set_result(True)


def _raise_if_ends_run(error: BaseException | None) -> None:
    if error is not None and ends_run(error):
        raise error


async def _wait(task: asyncio.Task[Outcome[Any]], work: Awaitable[Any], grace: float) -> None:
    """Wait until a cancelled task has ended; leave it behind if that takes longer than `grace` seconds.

    Raises:
        asyncio.CancelledError: The surrounding task was cancelled meanwhile. It is raised at the end.
        BaseException: The task raised an exception that ends the run.
    """
    now = asyncio.get_running_loop().time
    end = now() + grace
    cancellation: asyncio.CancelledError | None = None
    while not task.done() and (left := end - now()) > 0:
        try:
            await asyncio.wait((task,), timeout=left)
        except asyncio.CancelledError as error:
            # anyio repeats its cancellation until the task has ended.
            cancellation = error
    if isinstance(work, CoroutineType):
        _close(work, task)
    if task.done() and not task.cancelled():
        _raise_if_ends_run(task.result().error)
    if cancellation is not None:
        raise cancellation


def _close(work: CoroutineType[Any, Any, Any], task: asyncio.Task[Any]) -> None:
    """Close the coroutine of a cancelled task. This has no effect on a coroutine that has ended."""
    with suppress(Exception, asyncio.CancelledError):
        work.close()
    if getcoroutinestate(work) == CORO_CLOSED:
        task.cancel()
    else:
        # It awaits even while it is closed. `asyncio.run` would cancel it again at its end, and wait forever.
        asyncio._unregister_task(task)
