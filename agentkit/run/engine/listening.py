"""Passes the events of a run to who listens: one at a time, in order, and no faster than they are taken."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from inspect import isawaitable
from typing import Any, Literal, TypeAlias, TypeVar

from agentkit.models.model import Delta
from agentkit.output.partial_output import GrowingOutput
from agentkit.run.engine.events import Event, PartialOutput, TextDelta, ToolProgress, delta_event
from agentkit_prompts.composition.declarations import OutputRequest

__all__ = ["DeltaListener", "Emit", "Listener", "ListenerErrors", "Listening", "PassOn", "both", "streaming"]

T = TypeVar("T")

Listener: TypeAlias = Callable[[Event[Any]], "Awaitable[object] | None"]
"""Is called with every event; what it returns is awaited."""
PassOn: TypeAlias = Callable[[T], Awaitable[None]]
"""Passes an event, or a part of an answer, on to who iterates."""
ListenerErrors: TypeAlias = Literal["raise", "report"]
Emit: TypeAlias = Callable[[Event[Any]], "Awaitable[None] | None"]
"""Passes an event on; what it returns has to be awaited before there is another one."""

_MAX_ERRORS = 16
"""How many errors of a listener are reported."""
_MAX_WAITING = 64
"""Events that wait for who iterates."""
_log = logging.getLogger("agentkit")


class _Text:
    """Deltas of one step that nobody waited to be taken: together they take no more room than the text."""

    __slots__ = ("pieces", "step")

    def __init__(self, first: TextDelta) -> None:
        self.step = first.step
        self.pieces = [first.text]

    @property
    def event(self) -> TextDelta:
        return TextDelta(self.step, "".join(self.pieces))


class Listening:
    """Who listens to one run.

    Args:
        listener: What is called.
        errors: Whether an exception it raises ends the run, or is reported.

    Raises:
        TypeError: The listener cannot be called, or `errors` is neither.
    """

    __slots__ = ("_failure", "_is_plain", "_listener", "_lock", "_raises", "_waiting", "errors")

    _is_plain: bool
    """Whether every event is passed on at once: the listener is not async, and nothing it raised ends the run."""

    def __init__(self, listener: Listener, errors: ListenerErrors) -> None:
        if not callable(listener):
            raise TypeError(f"on_event: expected a function that takes an event, got {type(listener).__name__}")
        if errors not in ("raise", "report"):
            raise TypeError(f"on_event_error: expected 'raise' or 'report', got {errors!r:.80}")
        self.errors: list[Exception] = []
        """What it raised, where that is reported."""
        self._listener = listener
        self._raises = errors == "raise"
        self._waiting: deque[Event[Any] | _Text | Awaitable[object]]  # where the listener is async
        self._lock: asyncio.Lock | None = None  # where the listener is async
        self._failure: BaseException | None = None
        self._is_plain = True

    def emit(self, event: Event[Any]) -> Awaitable[None] | None:
        """Pass an event on. What is returned has to be awaited before there is another one."""
        if self._is_plain:
            try:
                answer = self._listener(event)
            except BaseException as error:
                self._failed(error)
                return None
            if answer is None or not isawaitable(answer):
                return None
            self._is_plain, self._lock, self._waiting = False, asyncio.Lock(), deque()
            self._waiting.append(answer)
            return self
        if self._failure is not None:  # it was raised where it did not end the run, as in a tool
            raise self._failure
        waiting = self._waiting
        if type(event) is ToolProgress and waiting and _is_of(waiting[-1], event):
            waiting[-1] = event
        elif not (type(event) is TextDelta and waiting and self._joins(event)):
            waiting.append(event)
        return self

    def _joins(self, event: TextDelta) -> bool:
        """Add a delta to the one before it, where nobody waited for that one to be taken."""
        last = self._waiting[-1]
        if isinstance(last, TextDelta) and last.step == event.step:
            last = self._waiting[-1] = _Text(last)
        if isinstance(last, _Text) and last.step == event.step:
            last.pieces.append(event.text)
            return True
        return False

    def __await__(self) -> Generator[Any, Any, None]:
        """Wait until every event so far was taken; may be left alone."""
        return self._taken().__await__()

    async def _taken(self) -> None:
        assert self._lock is not None
        async with self._lock:
            while self._waiting:
                first: Any = self._waiting.popleft()
                try:
                    if isinstance(first, _Text):
                        first = first.event
                    answer = first if isawaitable(first) else self._listener(first)
                    if answer is not None and isawaitable(answer):
                        await answer
                except (asyncio.CancelledError, GeneratorExit):  # of the task that waits
                    raise
                except BaseException as error:
                    self._failed(error)

    def _failed(self, error: BaseException) -> None:
        if self._raises or not isinstance(error, Exception):
            self._failure, self._is_plain = error, False
            raise error
        if len(self.errors) < _MAX_ERRORS:
            self.errors.append(error)
            _log.warning("a listener failed", exc_info=error)


def _is_of(waiting: object, event: ToolProgress) -> bool:
    """Whether what waits is the progress of the same call."""
    return isinstance(waiting, ToolProgress) and waiting.call.id == event.call.id


def both(listener: Listener | None, pass_on: PassOn[Event[Any]]) -> Listener:
    """Return a listener that calls `listener` and passes each event on, also where `listener` fails."""

    async def listen(event: Event[Any]) -> None:
        try:
            if listener is not None and isawaitable(taken := listener(event)):
                await taken
        finally:
            await pass_on(event)

    return listen


async def streaming(run: Callable[[PassOn[T]], Coroutine[Any, Any, object]]) -> AsyncGenerator[T, None]:
    """Yield what `run` passes on, at most `_MAX_WAITING` ahead, and raise what it raises. Leaving early cancels it."""
    passed: asyncio.Queue[Any] = asyncio.Queue()
    room = asyncio.Semaphore(_MAX_WAITING)

    async def pass_on(event: T) -> None:
        await room.acquire()
        passed.put_nowait(event)

    def end(ended: asyncio.Task[Any]) -> None:
        _ = ended.cancelled() or ended.exception()  # asyncio complains of what nobody asks for, as who left early
        passed.put_nowait(ended)

    running = asyncio.create_task(run(pass_on))
    running.add_done_callback(end)
    try:
        while (event := await passed.get()) is not running:
            room.release()
            yield event
        await running
    finally:
        if not running.done():
            running.cancel()
            await asyncio.wait([running])


class DeltaListener:
    """What a model is given to pass its reply on to: it makes events of the pieces, and of an answer that grows.

    Args:
        emit: Passes an event on.
        step: The step of the run.
        request: How an answer of a type was asked for; None for text.
    """

    __slots__ = ("_emit", "_growing", "_step")

    def __init__(self, emit: Emit, step: int, request: OutputRequest | None) -> None:
        self._emit = emit
        self._step = step
        self._growing = None if request is None else GrowingOutput(request)

    def __call__(self, delta: Delta) -> Awaitable[None] | None:
        taken = self._emit(delta_event(self._step, delta))
        if self._growing is None or (grown := self._growing.add(delta)) is None:
            return taken
        event = PartialOutput(self._step, grown)
        return self._emit(event) if taken is None else _Then(taken, self._emit, event)

    def end(self) -> Awaitable[None] | None:
        """Pass on what of an answer was not seen yet."""
        if self._growing is None or (grown := self._growing.now()) is None:
            return None
        return self._emit(PartialOutput(self._step, grown))


class _Then:
    """Passes an event on when the one before it was taken; nothing happens where nobody waits for that."""

    __slots__ = ("_before", "_emit", "_event")

    def __init__(self, before: Awaitable[None], emit: Emit, event: Event[Any]) -> None:
        self._before = before
        self._emit = emit
        self._event = event

    def __await__(self) -> Generator[Any, Any, None]:
        yield from self._before.__await__()
        taken = self._emit(self._event)
        if taken is not None:
            yield from taken.__await__()
