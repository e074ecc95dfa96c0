"""A time limit for code that is awaited. It holds against code that ignores its cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Generic, Literal, TypeAlias, TypeVar, cast

from agentkit_tools.errors import ends_run

__all__ = ["DeadlineError", "LimitedTask", "Within", "inline", "outcome", "results"]

T = TypeVar("T")
R = TypeVar("R")

_GRACE = 2.0
"""Seconds that a cancelled task has to clean up before it is left behind."""


class DeadlineError(Exception):
    """A tool took longer than its policy allows. Never leaves the tools layer."""


Outcome: TypeAlias = tuple[T | None, BaseException | None]
"""The value that code returned and None, or None and the exception that it raised."""
Within: TypeAlias = Callable[[Awaitable[Any], float | None], Awaitable[Outcome[Any]]]
"""Awaits code with a time limit: `outcome` in a new task, `LimitedTask.within` in a part of a task, `inline` without a
limit in the task of the caller."""


async def inline(work: Awaitable[T], _: float | None, /) -> Outcome[T]:
    """Await `work` in this task, for a call without a time limit; return its value or its exception.

    Raises:
        asyncio.CancelledError: This task was cancelled.
        BaseException: `work` raised an exception that ends the run; see `ends_run`.
    """
    try:
        return await work, None
    except BaseException as error:
        task = asyncio.current_task()
        is_cancelled = isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
        if is_cancelled or ends_run(error):
            raise
        return _failure(error)


async def outcome(work: Awaitable[T], seconds: float | None, grace: float | None = None) -> Outcome[T]:
    """Await `work` in a new task; return its value or its exception.

    After `seconds` the task is cancelled, and the error is a `DeadlineError`. A task that has not ended `grace` seconds
    after it was cancelled, by this limit or from outside, is left behind.

    Raises:
        asyncio.CancelledError: The surrounding task was cancelled, or `work` cancelled the task it runs in.
        BaseException: `work` raised an exception that ends the run.
    """
    task: LimitedTask[Outcome[T]] = LimitedTask(lambda task: task.within(work, seconds), _late, grace)
    return (await results([task]))[0]


async def _late(_: LimitedTask[Any]) -> Outcome[Any]:
    return None, DeadlineError()


def _failure(error: BaseException) -> Outcome[Any]:
    # The frame that caught the exception refers to it: without it, the exception is free as soon as nobody has it.
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next
    return None, error


class LimitedTask(Generic[T]):
    """A task with a time limit for parts of its code. It is left behind if it ignores its cancellation.

    Attributes:
        outcome: The outcome of the task, also if it was left behind; None while it runs.
    """

    __slots__ = ("_grace", "_instead", "_state", "_task", "_timer", "_waiter", "_work", "outcome")

    def __init__(
        self,
        work: Callable[[LimitedTask[T]], Coroutine[Any, Any, T]],
        instead: Callable[[LimitedTask[T]], Coroutine[Any, Any, T]],
        grace: float | None = None,
    ) -> None:
        """Start a task.

        Args:
            work: Code of the task.
            instead: Code that runs if the task was left behind because of a time limit. Its outcome is the outcome of
                the task.
            grace: Seconds until the task is left behind after it was cancelled; `_GRACE` if None.
        """
        self.outcome: Outcome[T] | None = None
        self._instead = instead
        self._grace = grace
        self._state: Literal["running", "late", "cancelled", "left"] = "running"
        self._timer: asyncio.TimerHandle | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._start(work)

    def _start(self, work: Callable[[LimitedTask[T]], Coroutine[Any, Any, T]]) -> None:
        self._work: Coroutine[Any, Any, T] | None = None
        self._task = asyncio.get_running_loop().create_task(self._run(work))

    async def _run(self, work: Callable[[LimitedTask[T]], Coroutine[Any, Any, T]]) -> None:
        self._work = frame = work(self)
        # The exception is kept: asyncio raises some at once from the loop, not from the task.
        try:
            result: Outcome[T] = await frame, None
        except BaseException as error:
            result = _failure(error)
        # A task that was left behind has an outcome already, or will get it from another task.
        if self._work is frame:
            self._end(result)

    def _end(self, result: Outcome[T]) -> None:
        self._disarm()
        self.outcome = result
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def within(self, work: Awaitable[R], seconds: float | None, /) -> Outcome[R]:
        """Await a part of the code of this task, in it; return its value or its exception, like `outcome`."""
        if seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._expire)
        result: Outcome[R]
        try:
            result = await work, None
        except BaseException as error:
            result = _failure(error)
        if self._state != "cancelled":
            self._disarm()
        if self._state == "running" and result[1] is None:
            return result
        return self._checked(result)

    def _checked(self, result: Outcome[R]) -> Outcome[R]:
        """Return the outcome of a part of the code that failed, or was cancelled."""
        error, state = result[1], self._state
        if error is not None and ends_run(error):
            raise error
        if state == "left":
            # The code raised another exception when it was closed.
            raise GeneratorExit
        if state == "cancelled":
            raise asyncio.CancelledError
        is_cancelled = isinstance(error, asyncio.CancelledError)
        if state == "late":
            self._state = "running"
            self._task.uncancel()
            if is_cancelled:
                return None, DeadlineError()
            return result
        # Code that cancels "the current task" means the run.
        if is_cancelled and self._task.cancelling():
            raise cast(BaseException, error)
        return result

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._state = "late"
        self._leave_later()

    def cancel(self) -> None:
        """Cancel the task from outside. A second cancellation has no effect: it would interrupt the cleanup."""
        if self.outcome is not None or self._state == "cancelled":
            return
        is_late = self._state == "late"
        self._state = "cancelled"
        if self._work is None:
            # It has not begun.
            self._task.cancel()
            self._end((None, asyncio.CancelledError()))
        elif not is_late:
            self._leave_later()

    def _leave_later(self) -> None:
        """Cancel the task now; leave it behind if it does not end soon."""
        self._disarm()
        grace = _GRACE if self._grace is None else self._grace
        # The loop may not run now, if the coroutine that awaits the task is closed.
        self._timer = self._task.get_loop().call_later(grace, self._leave)
        self._task.cancel()

    def _leave(self) -> None:
        """Close the code of a task that has ignored its cancellation."""
        was_cancelled = self._state == "cancelled"
        work, self._state = self._work, "left"
        self._work = None
        error: BaseException = DeadlineError()
        try:
            # The frame ends also if the code inside ignores that it is closed: `within` raises another exception then.
            cast("Coroutine[Any, Any, T]", work).close()
        except BaseException as reason:
            if ends_run(reason):
                error = reason
        self._task.cancel()
        if was_cancelled or ends_run(error):
            self._end((None, error))
        else:
            # This timer runs in the context of the task, so the new task does, too.
            self._state = "running"
            self._start(self._instead)

    async def _ended(self) -> None:
        while self.outcome is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    async def value(self) -> T:
        """Wait until the task has ended or was left behind; return its value.

        Raises:
            BaseException: The exception of the task.
        """
        if self.outcome is None:
            await self._ended()
        value, error = cast("Outcome[T]", self.outcome)
        if error is not None:
            raise error
        return value  # type: ignore[return-value]

    async def left(self, reason: BaseException) -> BaseException:
        """Wait until a cancelled task has ended or was left behind; return the exception to raise then.

        That is `reason`, unless the task raised an exception that ends the run.
        """
        while self.outcome is None:
            try:
                await self._ended()
            except asyncio.CancelledError as cancellation:
                # anyio repeats its cancellation until the task has ended.
                reason = cancellation
        _, error = self.outcome
        if error is not None and ends_run(error):
            return error
        return reason


async def results(tasks: Sequence[LimitedTask[T]]) -> list[T]:
    """Return the values of all tasks. If one raised an exception, or this task is cancelled, all tasks are cancelled.

    Raises:
        BaseException: The exception of the first task that raised one.
    """
    try:
        return [await task.value() for task in tasks]
    except BaseException as error:
        for task in tasks:
            task.cancel()
        # A coroutine that is closed cannot await.
        if isinstance(error, GeneratorExit):
            raise
        reason = error
        for task in tasks:
            reason = await task.left(reason)
        if reason is error:
            raise
        raise reason  # noqa: B904 (it has its own cause)
