"""A time limit for code that is awaited. It holds against code that ignores its cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeAlias, TypeVar, cast

from agentkit_tools.errors import ends_run

__all__ = ["DeadlineError", "Outcome", "outcome"]

T = TypeVar("T")

_GRACE = 2.0
"""Seconds that cancelled code has to clean up before it is left behind."""


class DeadlineError(Exception):
    """A tool took longer than its policy allows. Never leaves the tools layer."""


Outcome: TypeAlias = tuple[T | None, BaseException | None]
"""The value that code returned and None, or None and the exception that it raised."""


async def outcome(code: Coroutine[Any, Any, T], seconds: float | None, grace: float = _GRACE) -> Outcome[T]:
    """Await `code` in the current task; return its value or its exception.

    After `seconds` the code is cancelled, and the error is a `DeadlineError`. Code that has not ended `grace` seconds
    after a cancellation, by this limit or from outside, is closed and left behind.

    Raises:
        asyncio.CancelledError: The task was cancelled from outside, or by `code`.
        BaseException: `code` raised an exception that ends the run; see `ends_run`.
    """
    task = cast("asyncio.Task[Any]", asyncio.current_task())
    cancellations = task.cancelling()
    try:
        future = code.send(None)
    except StopIteration as end:
        # Most code ends without waiting: it needs no timer.
        return end.value, None
    except BaseException as error:
        return _failure(error, is_cancelled=task.cancelling() > cancellations)
    waiting = _WaitingCode(code, future, task, cancellations, seconds, grace)
    try:
        value = await waiting
    except BaseException as error:
        waiting.end()
        result = _failure(error, is_cancelled=waiting.is_cancelled())
        if waiting.is_late and isinstance(error, asyncio.CancelledError):
            result = None, DeadlineError()
        waiting.forget()
        return result
    waiting.end()
    waiting.forget()
    return value, None


def _failure(error: BaseException, *, is_cancelled: bool) -> Outcome[Any]:
    """Return the outcome of code that raised `error`, unless it is the end of the run or a cancellation of the task."""
    if ends_run(error) or (is_cancelled and isinstance(error, asyncio.CancelledError)):
        raise error
    # The frames of this file refer to the exception. Without them, it is free as soon as nobody has it.
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_globals is globals():
        traceback = traceback.tb_next
    error.__traceback__ = traceback
    return None, error


class _WaitingCode(Generic[T]):
    """Code that waits for a future, as an object that a task awaits.

    A task steps the object that it awaits: with `__next__` when the future that it waits for has ended, with `throw`
    when the task was cancelled. This object forwards the steps to the code. So a cancellation that the code ignores is
    noticed, and the next step can leave the code out.

    Attributes:
        is_late: True if the time limit was exceeded.
    """

    __slots__ = (
        "_before",
        "_code",
        "_ends_at",
        "_future",
        "_grace",
        "_has_begun",
        "_is_leaving",
        "_left",
        "_own",
        "_reason",
        "_stands_in",
        "_task",
        "_thrown",
        "_timer",
        "is_late",
    )

    def __init__(
        self,
        code: Coroutine[Any, Any, T],
        future: Any,
        task: asyncio.Task[Any],
        cancellations: int,
        seconds: float | None,
        grace: float,
    ) -> None:
        """Start the time limit.

        Args:
            code: Code that was begun.
            future: Future that the code waits for.
            task: Current task.
            cancellations: Number of cancellations of the task before the code was begun.
            seconds: Time limit.
            grace: Seconds from a cancellation until the code is left behind.
        """
        self._code = code
        self._future = future
        self._has_begun = False
        self._stands_in = False
        self._task = task
        # Cancellations of the task: before the code was begun, by this limit, and all that the code received.
        self._before, self._own, self._thrown = cancellations, 0, 0
        self._grace = grace
        self._is_leaving = False
        self._reason: asyncio.CancelledError | None = None
        self._left: BaseException | None = None
        self.is_late = False
        self._timer: asyncio.TimerHandle | None = None
        self._ends_at: float | None = None
        if seconds is not None:
            self._start(seconds, self._expire)
            self._ends_at = cast(asyncio.TimerHandle, self._timer).when()

    def __await__(self) -> Generator[Any, None, T]:
        return cast("Generator[Any, None, T]", self)

    def __next__(self) -> Any:
        """Continue the code. Its end is a `StopIteration` with its value, or its exception."""
        if self._left is not None:
            raise self._left
        if not self._has_begun:
            self._has_begun = True
            return self._wait_for(self._future)
        return self._wait_for(self._code.send(None))

    def send(self, _: None) -> Any:
        """Continue the code."""
        return self.__next__()

    def throw(self, error: BaseException, *_: object) -> Any:
        """Raise `error` in the code."""
        if self._left is not None:
            raise self._left
        if not isinstance(error, asyncio.CancelledError):
            return self._wait_for(self._code.throw(error))
        self._thrown += 1
        if self._stands_in and not self._future.done():
            # The cancellation has reached only the future that stands in for this one.
            self._future.cancel()
        else:
            self._future = self._code.throw(error)
        if not self._is_leaving and self.is_cancelled():
            # anyio recognises its cancellations.
            self._reason = error
            self._start_grace()
        return self._wait_for(self._future)

    def close(self) -> None:
        """Close the code, because the coroutine that awaits it is closed."""
        self._code.close()

    def _wait_for(self, future: Any) -> Any:
        """Return the future that the task waits for: `future`, or a future that stands in for it."""
        self._future = future
        # A plain future ends when it is cancelled; None is one step of the loop. A task or a group can ignore it.
        self._stands_in = type(future) is not asyncio.Future and asyncio.isfuture(future)
        if not self._stands_in:
            return future
        stand_in = asyncio.get_running_loop().create_future()

        def end(_: object) -> None:
            if not stand_in.done():
                stand_in.set_result(None)

        future.add_done_callback(end)
        return next(stand_in.__await__())

    def _start(self, seconds: float, action: Callable[[], None]) -> None:
        """Start the timer in place of the one that runs."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, action)

    def _start_grace(self) -> None:
        self._is_leaving = True
        self._start(self._grace, self._leave)

    def _expire(self) -> None:
        """Cancel code that has exceeded its time limit."""
        self.is_late = True
        self._start_grace()
        self._cancel()

    def _leave(self) -> None:
        """Close code that has ignored its cancellation, and wake the task."""
        if not self.is_late and not self.is_cancelled():
            # The cancellation belonged to a time limit inside the code, which is over.
            self._is_leaving = False
            if self._ends_at is not None:
                self._start(self._ends_at - asyncio.get_running_loop().time(), self._expire)
            return
        self._left = self._reason or asyncio.CancelledError()
        try:
            self._code.close()
        except BaseException as error:
            if ends_run(error):
                self._left = error
        self._cancel()

    def _cancel(self) -> None:
        self._own += 1
        self._task.cancel()

    def is_cancelled(self) -> bool:
        """Return True if the task was cancelled after the code was begun, and not by this limit."""
        return self._task.cancelling() > self._before + self._own

    def end(self) -> None:
        """Stop the timer, and take back the cancellations by this limit."""
        if self._timer is not None:
            self._timer.cancel()
        while self._own:
            self._own -= 1
            self._task.uncancel()

    def forget(self) -> None:
        """Take back the cancellations that the code received, and has answered in spite of.

        A task group of Python 3.11 does not take back its cancellation of the task if a task of the group fails at the
        end of the block.
        """
        while self._thrown and self.is_cancelled():
            self._thrown -= 1
            self._task.uncancel()
