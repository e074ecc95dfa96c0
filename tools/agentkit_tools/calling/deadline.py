"""A time limit for a coroutine, without a task of its own; it holds against code that swallows cancellation."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Generator
from contextlib import suppress
from types import CoroutineType, coroutine
from typing import Any, TypeVar

from agentkit_tools.errors import ends_run

__all__ = ["DeadlineError", "as_coroutine", "finish", "outcome"]

T = TypeVar("T")

_GRACE = 2.0
"""Seconds a cancelled tool has to clean up before it is closed."""


class DeadlineError(Exception):
    """A tool took longer than its policy allows. Never leaves the tools layer."""


class _Timer:
    """Cancels the task when the time is up, and again after each grace period."""

    __slots__ = ("before", "fired", "groups", "handle", "loop", "task")

    def __init__(self, task: asyncio.Task[Any], seconds: float | None) -> None:
        self.task = task
        self.loop = task.get_loop()
        # A cancellation asked for since the task last waited, maybe by the tool itself, has not reached anybody yet.
        self.before = task.cancelling() - bool(getattr(task, "_must_cancel", False))
        self.fired = 0
        self.groups: list[object] | None = []
        self.handle = None if seconds is None else self.loop.call_later(seconds, self.fire)

    def fire(self) -> None:
        self.fired += 1
        self.task.cancel()
        self.handle = self.loop.call_later(_GRACE, self.fire)

    def take_back(self, work: Coroutine[Any, Any, Any]) -> None:
        """Take back a cancellation of this task by a task group in `work`, one of whose tasks failed.

        Before Python 3.13 a group that waits for its tasks does not do so itself: it would look as if somebody else had
        cancelled this task. One that is not waiting yet does, and then nothing tells its cancellation from others.
        """
        group = _waiting_group(work)
        if group is None:
            self.groups = None
        elif self.groups is not None and group not in self.groups and getattr(group, "_parent_cancel_requested", False):
            self.groups.append(group)
            self.task.uncancel()

    def stop(self) -> bool:
        """Take back the cancellations of this timer; return whether somebody else cancelled the task."""
        if self.handle is not None:
            self.handle.cancel()
        for _ in range(self.fired):
            self.task.uncancel()
        return self.task.cancelling() > self.before


def _waiting_group(work: Any) -> object | None:
    """Return the task group that a coroutine waits for at its end, if it does."""
    while isinstance(work, CoroutineType):
        if work.cr_code is asyncio.TaskGroup.__aexit__.__code__ and work.cr_frame is not None:
            group: object = work.cr_frame.f_locals.get("self")
            return group
        work = work.cr_await
    return None


@coroutine
def finish(
    work: Coroutine[Any, Any, T], waiting: Any, seconds: float | None
) -> Generator[Any, Any, tuple[T | None, BaseException | None]]:
    """Go on with `work`, which was begun and waits for `waiting`; return what it returned, and what it raised.

    After `seconds` it is cancelled, and the error is `DeadlineError`; if it will not end, it is closed and left behind.

    Raises:
        asyncio.CancelledError: The task around it was cancelled, whatever `work` made of that.
        BaseException: What `work` raised, where that ends the run; see `ends_run`.
    """
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a tool is awaited in a task of asyncio")
    timer = _Timer(task, seconds)
    passes = False
    try:  # no variable keeps an error: its traceback refers to this frame, and the circle would outlive the call
        while True:
            try:
                received = yield waiting
            except GeneratorExit:
                passes = True
                work.close()
                raise
            except BaseException as error:
                if timer.fired > 1:
                    # It awaits even while it is closed: the agent goes on without it.
                    with suppress(Exception, asyncio.CancelledError):
                        work.close()
                    return None, DeadlineError()
                if not timer.fired and sys.version_info < (3, 13) and isinstance(error, asyncio.CancelledError):
                    timer.take_back(work)
                waiting = work.throw(error)
            else:
                waiting = work.send(received)
    except StopIteration as end:
        return end.value, None
    except BaseException as error:
        passes = passes or ends_run(error)
        if passes:
            raise
        return None, DeadlineError() if timer.fired and isinstance(error, asyncio.CancelledError) else error
    finally:
        if timer.stop() and not passes:
            raise asyncio.CancelledError


async def outcome(work: Coroutine[Any, Any, T], seconds: float | None) -> tuple[T | None, BaseException | None]:
    """Await `work`; return and raise like `finish`."""
    try:
        waiting = work.send(None)
    except StopIteration as end:
        return end.value, None
    except BaseException as error:
        if ends_run(error):
            raise
        return None, error
    return await finish(work, waiting, seconds)


def as_coroutine(work: Any) -> Coroutine[Any, Any, Any]:
    """Return any awaitable as a coroutine."""
    return work if isinstance(work, CoroutineType) else _await(work)


async def _await(work: Any) -> Any:
    return await work
