"""`contained`: code of agents in a task of a server or a worker, which must survive any exception of the code."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from agentkit_tools.errors import RunInterrupt, describe_error

__all__ = ["CodeCrashed", "contained"]

T = TypeVar("T")
_STATE = ("messages", "usage", "journal")
"""Attributes of the error of a run; see `AgentError`."""


class CodeCrashed(Exception):
    """Code of an agent raised an exception that does not derive from `Exception`, which is the cause of this error.

    The attributes `messages`, `usage` and `journal` of the cause are copied.
    """


async def contained(code: Awaitable[T]) -> T:
    """Await code in the current task, and return its value.

    A task that ends with `SystemExit` or `KeyboardInterrupt` would stop the event loop, which executes the runs of all
    callers. Other exceptions, such as a panic of Rust code, would pass all code that handles `Exception`.

    Raises:
        CodeCrashed: The code raised an exception that does not derive from `Exception`, or a `CancelledError` although
            the task is not cancelled.
        asyncio.CancelledError: The task was cancelled.
        Exception: The code raised this exception.
    """
    task = asyncio.current_task()
    try:
        return await code
    except (Exception, RunInterrupt):
        raise
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        if isinstance(error, GeneratorExit) and not _is_current(task):
            # The coroutine of an unfinished task is closed: its event loop has ended.
            raise
        crash = CodeCrashed(describe_error(error))
        for name in _STATE:
            if hasattr(error, name):
                setattr(crash, name, getattr(error, name))
        raise crash from error


def _is_current(task: asyncio.Task[Any] | None) -> bool:
    try:
        return asyncio.current_task() is task
    except RuntimeError:
        return False
