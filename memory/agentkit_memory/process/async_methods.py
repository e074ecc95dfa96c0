"""`async_method`: the async form of a sync method."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from agentkit_prompts.system.threads import Threads

P = ParamSpec("P")
T = TypeVar("T")


class _HasThreads(Protocol):
    @property
    def _threads(self) -> Threads:
        """Threads that run its calls."""
        ...


S = TypeVar("S", bound=_HasThreads)


def async_method(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Return an async method that runs `method` in a thread of the store, so that the event loop is not blocked.

    If the caller is cancelled, a started call is finished first.
    """

    @wraps(method)
    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._threads.finish(method, self, *args, **kwargs)

    call.__name__ = f"a{method.__name__}"
    call.__qualname__ = f"{method.__qualname__.rpartition('.')[0]}.{call.__name__}"
    return call
