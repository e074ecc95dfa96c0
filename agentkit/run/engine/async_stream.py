"""`AsyncStream`: the async generator that the methods of an agent return."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar

from agentkit.run.engine.events import Event, TextDelta

T = TypeVar("T")


class AsyncStream(AsyncGenerator[T, None]):
    """Async generator. Its errors name the correct code for a caller that uses it as another kind of object."""

    __slots__ = ("_advice", "_values")

    def __init__(self, values: AsyncGenerator[T, None], advice: str) -> None:
        self._values = values
        self._advice = advice

    def __anext__(self) -> Coroutine[Any, Any, T]:
        return self._values.__anext__()

    def asend(self, value: None) -> Coroutine[Any, Any, T]:
        return self._values.asend(value)

    def athrow(self, *error: Any) -> Coroutine[Any, Any, T]:
        return self._values.athrow(*error)

    def aclose(self) -> Coroutine[Any, Any, None]:
        return self._values.aclose()

    # Type checkers report a sync loop themselves, unless they see this method.
    if not TYPE_CHECKING:

        def __iter__(self):
            raise TypeError(f"an async stream is not iterable; use async for, or {self._advice}")

        def __aenter__(self):
            raise TypeError("an async stream is not a context manager; use async for, or contextlib.aclosing(stream)")

        __aexit__ = __aenter__

        def __getattr__(self, name):
            problem = f"an async stream has no attribute {name!r}"
            if name in ("result", "usage", "output", "messages"):
                problem += "; use agent.stream(text): its last event, RunFinished, has the result"
            raise AttributeError(problem, name=name, obj=self)


async def texts(events: AsyncGenerator[Event[Any], None]) -> AsyncGenerator[str, None]:
    """Yield the text deltas in a stream of events; close the stream at the end."""
    async with aclosing(events):
        async for event in events:
            if isinstance(event, TextDelta):
                yield event.text
