"""Sync functions run here: in daemon threads that can be left behind, of which there are never more than some."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar, cast

from agentkit_prompts.system.threads import Threads
from agentkit_tools.calling.deadline import DeadlineError
from agentkit_tools.errors import ToolError

__all__ = ["abandoned_threads", "busy_threads", "run_in_thread"]

T = TypeVar("T")

_MAX_TOOLS, _MAX_RECALLS = 48, 16
"""Calls that run at once in a process, also those that nobody waits for any more; further ones wait."""
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
    """Return how many threads still run a sync tool or a recall whose result nobody waits for any more; 64 at most."""
    return _tools.left + _recalls.left


def busy_threads() -> int:
    """Return how many threads run a call that somebody waits for."""
    return _tools.busy + _recalls.busy


async def run_in_thread(
    call: Callable[[], T], seconds: float | None = None, *, is_recall: bool = False
) -> tuple[T, BaseException | None]:
    """Return the value or the exception of `call()`, run in a daemon thread in a copy of the current context.

    After `seconds` the error is a `DeadlineError`. A call that has begun continues in its thread if it is late, or if
    the task that waits for it is cancelled. If all threads do that, no further call begins: the error is a `ToolError`.
    Recalls have separate threads, so that no tool delays them.
    """
    threads = _tools
    if is_recall:
        threads = _recalls
    # What runs in a thread may wait for what it calls: that needs no place.
    at_once = _inside.get()

    def inside() -> T:
        _inside.set(True)
        return call()

    try:
        return await threads.outcome(inside, seconds, at_once=at_once)
    except TimeoutError:
        return cast(T, None), DeadlineError()
