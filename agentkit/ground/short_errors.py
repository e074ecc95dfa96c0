"""`short_errors`: short tracebacks of typed errors at the methods that users call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from agentkit_prompts.errors import Picklable
from agentkit_prompts.system.tracebacks import shorten_traceback

P = ParamSpec("P")
R = TypeVar("R")


def short_errors(function: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return an async function whose typed errors have short tracebacks: the frames of user code, and the last frame.

    The message of a typed error explains the problem. Other exceptions, such as bugs, keep their frames.
    """

    @wraps(function)
    async def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await function(*args, **kwargs)
        except Picklable as error:
            shorten_traceback(error)
            raise

    return call
