"""Daemon threads for sync functions. A thread can be abandoned after a time limit; their number is limited."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar, cast

from agentkit_prompts.system.threads import Threads
from agentkit_tools.calling.deadline import DeadlineError
from agentkit_tools.errors import ToolError, readable_error

T = TypeVar("T")

_MAX_TOOLS, _MAX_RECALLS = 48, 16
"""Maximum concurrent calls in a process, including abandoned calls; further calls wait."""
_IDLE_SECONDS = 10.0
_inside: ContextVar[bool] = ContextVar("agentkit_tools_inside_thread", default=False)


def _refusal(abandoned: int) -> ToolError:
    return ToolError(
        f"{abandoned} calls of sync tools or recalls ran out of time and hold their threads: no further one is "
        "called in this process until some of them end. Give these time limits inside, or make the tools async"
    )


def _threads(limit: int) -> Threads:
    return Threads(limit, "agentkit-tool", idle=_IDLE_SECONDS, refusal=_refusal)


_tools, _recalls = _threads(_MAX_TOOLS), _threads(_MAX_RECALLS)


def abandoned_threads() -> int:
    """Return the number of threads that run an abandoned sync tool or recall, at most 64."""
    return _tools.abandoned + _recalls.abandoned


def busy_threads() -> int:
    """Return the number of threads that run an awaited call."""
    return _tools.busy + _recalls.busy


async def run_in_thread(
    call: Callable[[], T], seconds: float | None = None, *, is_recall: bool = False
) -> tuple[T, BaseException | None]:
    """Return the value or the exception of `call()`, run in a daemon thread in a copy of the current context.

    After `seconds` the error is a `DeadlineError`. A started call continues in its thread if it is late, or if the task
    that awaits it is cancelled. If all threads run such calls, no further call starts: the error is a `ToolError`.
    Recalls have separate threads, so that no tool delays them.
    """
    threads = _tools
    if is_recall:
        threads = _recalls
    # A call from inside a tool thread must start at once: its caller could occupy the last free thread.
    at_once = _inside.get()

    def inside() -> T:
        _inside.set(True)
        return call()

    try:
        value, error = await threads.outcome(inside, seconds, at_once=at_once)
    except TimeoutError:
        return cast(T, None), DeadlineError()
    if error is not None:
        error = readable_error(error)
    return value, error
