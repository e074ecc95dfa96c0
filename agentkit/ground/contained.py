"""`contained`: code of agents in a task of a server or a worker, which must survive any exception of the code."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from threading import get_ident
from typing import Any, TypeVar

from agentkit_tools.errors import RunInterrupt, describe_error

T = TypeVar("T")
_STATE = ("messages", "usage", "journal")
"""Attributes of the error of a run; see `AgentError`."""
_is_code: ContextVar[bool] = ContextVar("agentkit_is_code", default=False)
"""True in the context of contained code, which the tasks and callbacks that it starts copy."""
_SCHEDULERS = {"call_soon": 0, "call_soon_threadsafe": 0, "call_at": 1, "add_reader": 1, "add_writer": 1}
"""Methods of an event loop that schedule callbacks, with the position of the callback; `call_later` uses `call_at`."""


class CodeCrashed(Exception):
    """Code of an agent raised an exception that does not derive from `Exception`, which is the cause of this error.

    The attributes `messages`, `usage` and `journal` of the cause are copied.
    """


async def contained(code: Awaitable[T]) -> T:
    """Await code in the current task, and return its value.

    A task that ends with `SystemExit` or `KeyboardInterrupt` would stop the event loop, which executes the runs of all
    callers; so would a task or a callback that the code starts. Other exceptions, such as a panic of Rust code, would
    pass all code that handles `Exception`.

    Raises:
        CodeCrashed: The code raised an exception that does not derive from `Exception`, or whose attributes cannot be
            read, or a `CancelledError` although the task is not cancelled.
        asyncio.CancelledError: The task was cancelled.
        Exception: The code raised this exception.
    """
    task = asyncio.current_task()
    _contain_loop(asyncio.get_running_loop())
    # Not reset: the current task executes only code of agents and the storing of its outcome.
    _is_code.set(True)
    try:
        return await code
    except RunInterrupt:
        raise
    except BaseException as error:
        state = _state(error)
        if isinstance(error, Exception) and state is not None:
            raise
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        if isinstance(error, GeneratorExit) and not _is_current(task):
            # The coroutine of an unfinished task is closed: its event loop has ended.
            raise
        crash = CodeCrashed(describe_error(error))
        for name, value in (state or {}).items():
            setattr(crash, name, value)
        raise crash from error


def _state(error: BaseException) -> dict[str, Any] | None:
    """Return the attributes of the error of a run; None if reading them raises an exception of the class."""
    try:
        return {name: getattr(error, name) for name in _STATE if hasattr(error, name)}
    except BaseException:
        return None


def _contain_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Contain the tasks and callbacks that contained code starts in an event loop, such as tasks of a task group."""
    factory = loop.get_task_factory()
    if isinstance(factory, _TaskFactory):
        return
    loop.set_task_factory(_TaskFactory(factory))
    # The methods of an event loop of C code, such as uvloop, cannot be replaced: there, only tasks are contained.
    with suppress(AttributeError):
        for name, position in _SCHEDULERS.items():
            setattr(loop, name, _Scheduler(getattr(loop, name), position))


class _Scheduler:
    """A method of an event loop that schedules a callback.

    Args:
        schedule: The method.
        position: Position of the callback in the arguments.
    """

    __slots__ = ("_position", "_schedule", "_thread")

    def __init__(self, schedule: Callable[..., Any], position: int) -> None:
        self._schedule, self._position = schedule, position
        self._thread = get_ident()

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        context = options.get("context")
        is_code = _is_code.get()
        if context is not None:
            is_code = context.get(_is_code, False)
        # A thread that code starts has an empty context. Only the thread of the event loop may stop the loop.
        is_code = is_code or get_ident() != self._thread
        if is_code and len(arguments) > self._position:
            before, callback = arguments[: self._position], arguments[self._position]
            arguments = (*before, partial(_contained_callback, callback), *arguments[self._position + 1 :])
        return self._schedule(*arguments, **options)


def _contained_callback(callback: Callable[..., object], *arguments: Any) -> None:
    try:
        callback(*arguments)
    except (KeyboardInterrupt, SystemExit) as error:
        # The event loop logs this exception, and continues.
        raise CodeCrashed(describe_error(error)) from error


class _TaskFactory:
    """A factory of tasks, with the factory that the event loop had before."""

    def __init__(self, inner: Callable[..., Any] | None) -> None:
        self._create = inner or _task

    def __call__(self, loop: asyncio.AbstractEventLoop, code: Any, **options: Any) -> Any:
        context = options.get("context")
        is_code = _is_code.get()
        if context is not None:
            is_code = context.get(_is_code, False)
        if is_code:
            code = _ContainedTask(code)
        return self._create(loop, code, **options)


def _task(loop: asyncio.AbstractEventLoop, code: Any, **options: Any) -> asyncio.Task[Any]:
    return asyncio.Task(code, loop=loop, **options)


class _ContainedTask(Coroutine[Any, Any, Any]):
    """The code of a task, which raises `CodeCrashed` instead of an exception that would stop the event loop."""

    def __init__(self, code: Coroutine[Any, Any, Any]) -> None:
        self._code = code

    def __getattr__(self, name: str) -> Any:
        # Libraries such as anyio read the state of a coroutine from its attributes.
        return getattr(self._code, name)

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._code.__await__()

    def send(self, value: Any) -> Any:
        try:
            return self._code.send(value)
        except (KeyboardInterrupt, SystemExit) as error:
            raise CodeCrashed(describe_error(error)) from error

    def throw(self, *error: Any) -> Any:
        try:
            return self._code.throw(*error)
        except (KeyboardInterrupt, SystemExit) as error_of_code:
            raise CodeCrashed(describe_error(error_of_code)) from error_of_code

    def close(self) -> None:
        self._code.close()


def _is_current(task: asyncio.Task[Any] | None) -> bool:
    try:
        return asyncio.current_task() is task
    except RuntimeError:
        return False
