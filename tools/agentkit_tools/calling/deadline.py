"""A time limit for code that is awaited. It holds against code that ignores its cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from agentkit_tools.errors import ends_run

__all__ = ["DeadlineError", "LimitedTask", "Outcome", "Within", "grace_around", "outcome"]

T = TypeVar("T")
R = TypeVar("R")

_GRACE = 2.0
"""Seconds that a cancelled task has to clean up before it is left behind."""


class DeadlineError(Exception):
    """A tool took longer than its policy allows. Never leaves the tools layer."""


class Outcome(NamedTuple, Generic[T]):
    """The value that code returned, or the exception that it raised."""

    value: T | None
    error: BaseException | None


def grace_around() -> float:
    """Return the seconds that a cancelled task has whose code awaits `outcome`."""
    return 2 * _GRACE


class Within(Protocol):
    """Awaits code with a time limit: `outcome` in a new task, `LimitedTask.within` in the task that it runs in."""

    async def __call__(self, work: Awaitable[T], seconds: float | None, /) -> Outcome[T]: ...


async def outcome(work: Awaitable[T], seconds: float | None, grace: float | None = None) -> Outcome[T]:
    """Await `work` in a task; return its value or its exception.

    After `seconds` the task is cancelled, and the error is a `DeadlineError`. A task that has not ended `grace` seconds
    after it was cancelled, by this limit or from outside, is left behind.

    Raises:
        asyncio.CancelledError: The surrounding task was cancelled, or `work` cancelled the task it runs in.
        BaseException: `work` raised an exception that ends the run; see `ends_run`.
    """
    task: LimitedTask[T] = LimitedTask(grace)
    task.start(_awaited(work))
    if seconds is not None:
        task.limit(seconds)
    try:
        result = await task.ended
    except asyncio.CancelledError as cancellation:
        task.cancel()
        raise await task.left(cancellation)  # noqa: B904 (it has its own cause)
    except GeneratorExit:
        # This coroutine is closed: nothing can be awaited any more.
        task.cancel()
        raise
    return task.checked(result)


async def _awaited(work: Awaitable[T]) -> T:
    # A frame that only awaits can always be closed, also if `work` ignores that.
    return await work


def _failure(error: BaseException) -> Outcome[Any]:
    # The frame that caught the exception refers to it: without it, the exception is free as soon as nobody has it.
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next
    return Outcome(None, error)


class LimitedTask(Generic[T]):
    """A task with a time limit for all of its code or for parts of it. It is left behind if it ignores the limit.

    Attributes:
        ended: The outcome of the task, also if it was left behind.
    """

    __slots__ = (
        "_context",
        "_grace",
        "_instead",
        "_is_cancelled",
        "_is_late",
        "_is_left",
        "_loop",
        "_result",
        "_task",
        "_timer",
        "_work",
        "ended",
    )

    def __init__(self, grace: float | None = None, instead: Callable[[], Coroutine[Any, Any, T]] | None = None) -> None:
        """Prepare a task.

        Args:
            grace: Seconds until the task is left behind after it was cancelled; `_GRACE` if None.
            instead: Code that runs in the same context if the task was left behind because of a time limit, and whose
                outcome is the outcome of the task. If None, the outcome is a `DeadlineError`.
        """
        self._loop = asyncio.get_running_loop()
        self._grace = _GRACE if grace is None else grace
        self._instead = instead
        self._timer: asyncio.TimerHandle | None = None
        self._result: Outcome[T] | None = None
        self._is_late = self._is_cancelled = self._is_left = False
        self._context = copy_context()
        self.ended: asyncio.Future[Outcome[T]] = self._loop.create_future()

    def start(self, work: Coroutine[Any, Any, T]) -> None:
        """Start the task."""
        self._work: Coroutine[Any, Any, T] | None = work
        self._task = self._loop.create_task(self._run(work), context=self._context)

    async def _run(self, work: Coroutine[Any, Any, T]) -> None:
        # The exception is returned: asyncio raises some at once from the loop, not from the task.
        result: Outcome[T]
        try:
            result = Outcome(await work, None)
        except BaseException as error:
            result = _failure(error)
        if work is self._work:
            self._end(result)

    def _end(self, result: Outcome[T]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._result = result
        if not self.ended.done():
            self.ended.set_result(result)

    def limit(self, seconds: float) -> None:
        """Cancel the task after `seconds`."""
        self._timer = self._loop.call_later(seconds, self._expire)

    def _expire(self) -> None:
        self._is_late = True
        self._leave_later()

    async def within(self, work: Awaitable[R], seconds: float | None, /) -> Outcome[R]:
        """Await a part of the code of this task, like `outcome`."""
        if seconds is not None:
            self.limit(seconds)
        # Meanwhile only this part has to clean up.
        grace, self._grace = self._grace, _GRACE
        result: Outcome[R]
        try:
            result = Outcome(await work, None)
        except BaseException as error:
            result = _failure(error)
        self._grace = grace
        if result.error is not None and ends_run(result.error):
            raise result.error
        if self._is_left:
            # The code raised another exception when it was closed.
            raise GeneratorExit
        if self._is_cancelled:
            raise asyncio.CancelledError
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_late:
            self._task.uncancel()
        result = self.checked(result)
        self._is_late = False
        return result

    def checked(self, result: Outcome[R]) -> Outcome[R]:
        """Return the outcome of code that ran in the task; a cancellation by its time limit is a `DeadlineError`.

        Raises:
            asyncio.CancelledError: The code cancelled the task it ran in.
            BaseException: The code raised an exception that ends the run.
        """
        error = result.error
        if error is None:
            return result
        if ends_run(error):
            raise error
        if isinstance(error, asyncio.CancelledError):
            if self._is_late:
                return Outcome(None, DeadlineError())
            # Code that cancels "the current task" means the run.
            if self._task.cancelling():
                raise error
        return result

    def cancel(self) -> None:
        """Cancel the task from outside. A second cancellation has no effect: it would interrupt the cleanup."""
        if self._is_cancelled or self._result is not None:
            return
        self._is_cancelled = True
        if self._work is not None and getcoroutinestate(self._work) == CORO_CREATED:
            self._task.cancel()
            self._work.close()
            self._end(Outcome(None, asyncio.CancelledError()))
        elif not self._is_late:
            self._leave_later()

    def _leave_later(self) -> None:
        """Cancel the task now; leave it behind if it does not end soon."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self._grace, self._leave)
        self._task.cancel()

    def _leave(self) -> None:
        """Close the code of a task that has ignored its cancellation."""
        self._is_left = True
        work, self._work = self._work, None
        error: BaseException = DeadlineError()
        try:
            if work is not None:
                work.close()
        except BaseException as reason:
            if ends_run(reason):
                error = reason
        self._task.cancel()
        if self._instead is not None and not self._is_cancelled and isinstance(error, DeadlineError):
            self._is_late, self._timer = False, None
            self.start(self._instead())
        else:
            self._end(Outcome(None, error))

    async def left(self, reason: BaseException) -> BaseException:
        """Wait until a cancelled task has ended or is left behind; return the exception to raise then.

        That is `reason`, unless the task raised an exception that ends the run.
        """
        if self.ended.cancelled():
            # The task that awaited it was cancelled.
            self.ended = self._loop.create_future()
            if self._result is not None:
                self.ended.set_result(self._result)
        while not self.ended.done():
            try:
                await asyncio.wait((self.ended,))
            except asyncio.CancelledError as cancellation:
                # anyio repeats its cancellation until the task has ended.
                reason = cancellation
        error = self.ended.result().error
        if error is not None and ends_run(error):
            return error
        return reason
