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
"""Seconds that what is cancelled has to clean up before it is closed."""


class DeadlineError(Exception):
    """A tool took longer than its policy allows. Never leaves the tools layer."""


class _Timer:
    """Cancels the task when the time is up, and again after each grace period."""

    __slots__ = ("before", "closing", "fired", "grace", "groups", "handle", "is_last", "loop", "task")

    def __init__(self, task: asyncio.Task[Any], seconds: float | None, grace: float) -> None:
        self.task = task
        self.loop = task.get_loop()
        # A cancellation asked for since the task last waited, maybe by the tool itself, has not reached anybody yet.
        self.before = task.cancelling() - bool(getattr(task, "_must_cancel", False))
        self.grace = grace
        self.fired = 0
        self.is_last = False
        self.closing: asyncio.TimerHandle | None = None
        self.groups: list[object] | None = []
        self.handle = None if seconds is None else self.loop.call_later(seconds, self.fire)

    def fire(self) -> None:
        self.is_last = self.fired > 0
        self.fired += 1
        self.task.cancel()
        self.handle = self.loop.call_later(self.grace, self.fire)

    def watch(self) -> None:
        """Look again after the grace period: the task was cancelled, from outside or by a time limit in the work."""
        if self.closing is None and not self.fired:
            self.closing = self.loop.call_later(self.grace, self.close)

    def close(self) -> None:
        """Let the work end if the task still is cancelled; a time limit in the work has taken that back."""
        self.closing = None
        if self.task.cancelling() - self.fired > self.before:
            if self.handle is not None:
                self.handle.cancel()
            self.fire()
            self.is_last = True

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
        if self.closing is not None:
            self.closing.cancel()
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
    work: Coroutine[Any, Any, T], waiting: Any, seconds: float | None, grace: float = _GRACE
) -> Generator[Any, Any, tuple[T | None, BaseException | None]]:
    """Go on with `work`, which was begun and waits for `waiting`; return what it returned, and what it raised.

    After `seconds` it is cancelled, and the error is `DeadlineError`. What does not end within `grace` seconds of being
    cancelled, by this limit or from outside, is closed and left behind.

    Raises:
        asyncio.CancelledError: The task around it was cancelled, whatever `work` made of that.
        BaseException: What `work` raised, where that ends the run; see `ends_run`.
    """
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a tool is awaited in a task of asyncio")
    timer = _Timer(task, seconds, grace)
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
                if timer.is_last:
                    # It awaits even while it is closed: the agent goes on without it.
                    with suppress(Exception, asyncio.CancelledError):
                        work.close()
                    return None, DeadlineError()
                if isinstance(error, asyncio.CancelledError):
                    if not timer.fired and sys.version_info < (3, 13):
                        timer.take_back(work)
                    timer.watch()
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


async def outcome(
    work: Coroutine[Any, Any, T], seconds: float | None, grace: float = _GRACE
) -> tuple[T | None, BaseException | None]:
    """Await `work`; return and raise like `finish`."""
    try:
        waiting = work.send(None)
    except StopIteration as end:
        return end.value, None
    except BaseException as error:
        if ends_run(error):
            raise
        return None, error
    return await finish(work, waiting, seconds, grace)


def as_coroutine(work: Any) -> Coroutine[Any, Any, Any]:
    """Return any awaitable as a coroutine."""
    return work if isinstance(work, CoroutineType) else _await(work)


async def _await(work: Any) -> Any:
    return await work
