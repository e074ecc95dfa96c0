"""Time limit for awaited code, also for code that ignores its cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar
from typing import Any, Generic, TypeAlias, TypeVar, cast

from agentkit_tools.errors import ends_run, readable_error

T = TypeVar("T")

_GRACE = 2.0
"""Seconds that cancelled code has to clean up before it is abandoned."""
_MAX_CLOSES = 5
"""Maximum attempts to close code. A closed task group waits for its tasks until it is closed again."""


class DeadlineError(Exception):
    """A tool took longer than its policy allows. Never leaves the tools layer."""


Outcome: TypeAlias = tuple[T | None, BaseException | None]
"""The value that code returned and None, or None and the exception that it raised."""


class _Mark:
    """Marks the context of code. The timers and tasks that the code starts have copies of that context."""

    has_ended = False


_marks: ContextVar[tuple[_Mark, ...]] = ContextVar("agentkit_tools_marks", default=())


async def outcome(code: Coroutine[Any, Any, T], seconds: float | None, grace: float = _GRACE) -> Outcome[T]:
    """Await `code` in the current task; return its value or its exception.

    After `seconds` the code is cancelled, and the error is a `DeadlineError`. Code that has not ended `grace` seconds
    after a cancellation, by this limit or from outside, is closed and abandoned. A cancellation by the code itself,
    such as an `asyncio.timeout` or a task group inside of it, has no such limit.

    Raises:
        asyncio.CancelledError: The task was cancelled from outside, or by `code`.
        BaseException: `code` raised an exception that ends the run; see `ends_run`.
    """
    task: Any = asyncio.current_task()
    ends_at = None
    if seconds is not None:
        ends_at = task.get_loop().time() + seconds
    cancellations = task.cancelling()
    mark = _Mark()
    # The mark is not removed at the end: the next code in this context removes the marks of ended code.
    _marks.set((*[outer for outer in _marks.get() if not outer.has_ended], mark))
    try:
        future = code.send(None)
    except StopIteration as end:
        # Most code ends without waiting: it needs no timer.
        return end.value, None
    except BaseException as raised:
        error = readable_error(raised)
        is_cancellation = isinstance(error, asyncio.CancelledError)
        return _failure(error, is_cancelled=is_cancellation and task.cancelling() > cancellations)
    else:
        waiting = _WaitingCode(code, future, task, cancellations, mark, grace)
        if ends_at is not None:
            waiting.end_at(ends_at)
        return await waiting.outcome()
    finally:
        mark.has_ended = True


def _failure(error: BaseException, *, is_cancelled: bool) -> Outcome[Any]:
    """Return the outcome of code that raised `error`, unless it is the end of the run or a cancellation of the task."""
    if is_cancelled or ends_run(error):
        raise error
    # The frames of this file refer to the exception. Without them, it is freed with its last reference.
    # Read and set as Python does: the class of a tool's exception, such as a frozen dataclass, can refuse attributes.
    traceback = BaseException.__dict__["__traceback__"].__get__(error)
    while traceback is not None and traceback.tb_frame.f_globals is globals():
        traceback = traceback.tb_next
    return None, BaseException.with_traceback(error, traceback)


class _WaitingCode(asyncio.Future[Any], Generic[T]):
    """Code that waits for a future: the awaitable of a task, and the future that the task waits for.

    A task steps the object that it awaits, with `__next__` or `throw`. This object forwards the steps to the code, so a
    step can leave the code out. The task waits for this object, which wakes it when the future of the code has ended.
    So each cancellation of the task calls `cancel`, in the context of the canceller.

    Attributes:
        is_late: True if the time limit was exceeded.
    """

    __slots__ = (
        "_before",
        "_code",
        "_context",
        "_future",
        "_grace",
        "_has_begun",
        "_inner",
        "_is_closed",
        "_is_left",
        "_mark",
        "_message",
        "_outer",
        "_task",
        "_timer",
        "_wake",
        "is_late",
    )

    def __init__(
        self,
        code: Coroutine[Any, Any, T],
        future: asyncio.Future[Any] | None,
        task: asyncio.Task[Any],
        cancellations: int,
        mark: _Mark,
        grace: float,
    ) -> None:
        """Create an awaitable.

        Args:
            code: Code that has started.
            future: Future that the code waits for; None if it waits for the next step of the loop.
            task: Current task.
            cancellations: Number of cancellations of the task before the code started.
            mark: Mark of the context of the code.
            grace: Seconds from a cancellation until the code is abandoned.
        """
        super().__init__(loop=task.get_loop())
        self._code = code
        self._future = future
        self._has_begun = False
        self._task = task
        self._mark = mark
        # Cancellations of the task: before the code started, from outside, and by code inside or by the time limit.
        self._before, self._outer, self._inner = cancellations, 0, 0
        self._message: Any = None
        self._grace = grace
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = self._is_left = False
        self.is_late = False

    async def outcome(self) -> Outcome[T]:
        """Await the code; return its value or its exception, like `outcome`."""
        try:
            value = await self
            if self.is_late and self.is_cancelled():
                raise self._cancellation()
            return value, None
        except BaseException as raised:
            if self._is_closed and not self._is_left:
                # The coroutine of the caller is closed: it cannot await, and needs no outcome.
                raise
            error = readable_error(raised)
            is_cancellation = isinstance(error, asyncio.CancelledError)
            failure = _failure(error, is_cancelled=is_cancellation and self.is_cancelled())
            if self.is_late and is_cancellation:
                return None, DeadlineError()
            return failure
        finally:
            self.end()

    # Methods of the awaitable.

    def __await__(self) -> Generator[Any, None, T]:
        return cast("Generator[Any, None, T]", self)

    def __next__(self) -> Any:
        """Continue the code. Finished code raises a `StopIteration` with its value, or its exception."""
        if self._has_begun:
            return self._step(self._code.send, None)
        self._has_begun = True
        return self._wait_for(self._future)

    def send(self, _: None) -> Any:
        """Continue the code."""
        return self.__next__()

    def throw(self, error: BaseException, *_: object) -> Any:
        """Raise `error` in the code."""
        return self._step(self._code.throw, error)

    def close(self) -> None:
        """Close the code. Only exceptions that end the run are raised."""
        self._is_closed = True
        for _ in range(_MAX_CLOSES):
            try:
                self._code.close()
            except RuntimeError:
                # The code still waits.
                continue
            except BaseException as error:
                if ends_run(error):
                    raise
            break

    def _step(self, step: Callable[[Any], Any], value: Any) -> Any:
        if self._is_left:
            self.close()
            if self._future is not None:
                self._future.add_done_callback(_retrieve)
            raise self._cancellation()
        return self._wait_for(step(value))

    def _wait_for(self, future: Any) -> Any:
        """Return the future that the task waits for: this object, or an object that asyncio refuses."""
        self._future = future
        if future is not None:
            is_awaited = getattr(future, "_asyncio_future_blocking", False)
            if not is_awaited or future is self._task or future.get_loop() is not self.get_loop():
                return future
            future._asyncio_future_blocking = False
        self._asyncio_future_blocking = True
        return self

    # Methods of the future.

    def add_done_callback(self, wake: Callable[[Any], object], /, *, context: Context | None = None) -> None:
        """Wake the task with `wake` when the future of the code has ended."""
        self._wake, self._context = wake, context
        if self._future is None:
            self._wake_soon()
        else:
            self._future.add_done_callback(wake, context=context)

    def remove_done_callback(self, wake: Callable[[Any], object], /) -> int:
        """Return 1 if the callback was removed from the future of the code, otherwise 0."""
        if self._future is None:
            return 0
        return self._future.remove_done_callback(wake)

    def done(self) -> bool:
        """True if the future of the code is done."""
        return self._future is not None and self._future.done()

    def cancel(self, msg: Any = None) -> bool:
        """Cancel the future of the code, because the task was cancelled."""
        # A task that was cancelled in its own step cancels the next future that it waits for.
        if self._mark in _marks.get() and asyncio.current_task() is not self._task:
            self._inner += 1
        else:
            self._outer += 1
            self._message = msg
            if self.is_late:
                # The code was cancelled. A second cancellation would interrupt its cleanup.
                return True
            if self._outer == 1:
                self._start(self.get_loop().time() + self._grace, self._leave)
        return self._future is not None and self._future.cancel(msg)

    def _wake_soon(self) -> None:
        """Wake the task in the next step of the loop."""
        ended = self.get_loop().create_future()
        ended.set_result(None)
        ended.add_done_callback(self._wake, context=self._context)

    # The limits of time, and cancellations.

    def end_at(self, time: float) -> None:
        """Cancel the code at a time of the loop."""
        self._start(time, self._expire)

    def _start(self, time: float, action: Callable[[], None]) -> None:
        """Start a timer instead of the current timer."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.get_loop().call_at(time, action)

    def _expire(self) -> None:
        """Cancel code that has exceeded its time limit. This timer has the context of the code."""
        self.is_late = True
        self._start(self.get_loop().time() + self._grace, self._leave)
        self._task.cancel()

    def _leave(self) -> None:
        """Wake the task to abandon the code, which has ignored its cancellation.

        The code is closed in the task: a context manager may have to exit in the task and context in which it entered.
        """
        self._is_left = True
        if self.remove_done_callback(self._wake):
            self._wake_soon()

    def _cancellation(self) -> asyncio.CancelledError:
        """Return the exception of a task that was cancelled. anyio recognises its cancellations by their message."""
        if self._message is None:
            return asyncio.CancelledError()
        return asyncio.CancelledError(self._message)

    def is_cancelled(self) -> bool:
        """True if a `CancelledError` of the code is a cancellation of the task: from outside, or by the code."""
        if self._outer == 0 and not self.is_late:
            # Code that cancels the current task intends to cancel the run: its cancellations are not undone.
            self._outer = self._task.cancelling() - self._before
        return self._outer > 0

    def end(self) -> None:
        """Stop the timer, and undo the cancellations by the time limit and by code inside that did not undo them.

        A task group of Python 3.11 and 3.12 does not undo its cancellation of the task if a task of the group fails at
        the end of the block.
        """
        if self._timer is not None:
            self._timer.cancel()
        while self._inner and self._task.cancelling() > self._before + self._outer:
            self._inner -= 1
            self._task.uncancel()


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Retrieve the exception of a task that no code awaits: otherwise asyncio logs it."""
    if not future.cancelled():
        future.exception()
