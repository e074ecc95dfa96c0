"""A time limit for a coroutine, without a task of its own; it holds against code that swallows cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextlib import suppress
from types import coroutine
from typing import Any, TypeVar

from agentkit_tools.calling.threads import DeadlineError

__all__ = ["with_deadline"]

T = TypeVar("T")

_GRACE = 2.0
"""Seconds a cancelled tool has to clean up before it is closed."""


class _Timer:
    """Cancels the task when the time is up, and again after the grace period."""

    __slots__ = ("fired", "handle", "loop", "task")

    def __init__(self, seconds: float) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self.loop = task.get_loop()
        self.fired = 0
        self.handle = self.loop.call_later(seconds, self.fire)

    def fire(self) -> None:
        self.fired += 1
        self.task.cancel()
        self.handle = self.loop.call_later(_GRACE, self.fire)


@coroutine
def with_deadline(work: Coroutine[Any, Any, T], seconds: float) -> Generator[Any, Any, T]:
    """Await `work` for at most `seconds`, then cancel it; if it will not end, close it and leave it behind.

    Raises:
        DeadlineError: The time is up.
        BaseException: Whatever `work` raised, and the cancellation of the surrounding task.
    """
    try:
        waiting = work.send(None)
    except StopIteration as end:  # it never had to wait: the usual end of a quick tool
        return end.value  # type: ignore[no-any-return]
    timer = _Timer(seconds)
    try:
        while True:
            try:
                received = yield waiting
            except GeneratorExit:
                work.close()
                raise
            except BaseException as error:
                if timer.fired > 1:
                    _close(work)
                    raise DeadlineError from None
                waiting = work.throw(error)
            else:
                waiting = work.send(received)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    except asyncio.CancelledError:
        if timer.fired and timer.task.cancelling() <= timer.fired:
            raise DeadlineError from None
        raise
    finally:
        timer.handle.cancel()
        for _ in range(timer.fired):
            timer.task.uncancel()


def _close(work: Coroutine[Any, Any, Any]) -> None:
    with suppress(BaseException):  # it awaits even while it is closed: nothing more can be done, the agent goes on
        work.close()
