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

__all__ = ["DeltaListener", "Listener", "ListenerErrors", "Listening", "PassOn", "both", "streaming"]

T = TypeVar("T")

Listener: TypeAlias = Callable[[Event[Any]], "Awaitable[object] | None"]
"""Is called with every event; what it returns is awaited."""
PassOn: TypeAlias = Callable[[T], Awaitable[None]]
"""Passes an event, or a part of an answer, on to who iterates."""
ListenerErrors: TypeAlias = Literal["raise", "report"]
_MAX_ERRORS = 16
"""How many errors of a listener are reported."""
_MAX_WAITING = 64
"""Events that wait for who iterates."""
_log = logging.getLogger("agentkit")


class _Text:
    """Deltas of one step that wait together: they take no more memory than the text."""

    __slots__ = ("pieces", "step")

    def __init__(self, first: TextDelta) -> None:
        self.step = first.step
        self.pieces = [first.text]

    @property
    def event(self) -> TextDelta:
        return TextDelta(self.step, "".join(self.pieces))


class Listening:
    """The listener of one run. It is called with one event at a time, in order.

    Args:
        listener: Is called with each event.
        errors: `raise` if an exception of the listener ends the run, `report` if it is only listed.

    Raises:
        TypeError: The listener cannot be called, or `errors` is another value.
    """

    __slots__ = ("_failure", "_is_plain", "_listener", "_lock", "_raises", "_waiting", "errors")

    def __init__(self, listener: Listener, errors: ListenerErrors) -> None:
        if not callable(listener):
            raise TypeError(f"on_event: expected a function that takes an event, got {type(listener).__name__}")
        if errors not in ("raise", "report"):
            raise TypeError(f"on_event_error: expected 'raise' or 'report', got {errors!r:.80}")
        self.errors: list[Exception] = []
        """The exceptions of the listener, if they are reported."""
        self._listener = listener
        self._raises = errors == "raise"
        self._failure: BaseException | None = None
        # A listener that returns nothing is called at once. From its first awaitable on, events wait in a queue.
        self._is_plain = True
        self._waiting: deque[Event[Any] | _Text | Awaitable[object]] = deque()
        self._lock: asyncio.Lock | None = None

    async def emit(self, event: Event[Any]) -> None:
        """Pass an event on, and wait until the listener has taken it."""
        self.queue(event)
        if not self._is_plain:
            await self._taken()

    def queue(self, event: Event[Any]) -> None:
        """Pass an event on without waiting. If the listener is async, it is called when the run waits for it."""
        if self._is_plain:
            self._call(event)
            return
        if self._failure is not None:  # it was raised where it did not end the run, as in a tool
            raise self._failure
        if not self._joins(event):
            self._waiting.append(event)

    @property
    def has_waiting(self) -> bool:
        """True if events wait for the listener."""
        return bool(self._waiting)

    def __await__(self) -> Generator[Any, Any, None]:
        """Wait until the listener has taken every event so far."""
        return self._taken().__await__()

    def _call(self, event: Event[Any]) -> None:
        try:
            answer = self._listener(event)
        except BaseException as error:
            self._failed(error)
            return
        if answer is not None and isawaitable(answer):
            self._is_plain = False
            self._lock = asyncio.Lock()
            self._waiting.append(answer)

    def _joins(self, event: Event[Any]) -> bool:
        """Join an event with one that waits, so that a model or a tool that does not wait fills no memory."""
        waiting = self._waiting
        last = waiting[-1] if waiting else None
        if isinstance(event, ToolProgress):
            if isinstance(last, ToolProgress) and last.call.id == event.call.id:
                waiting[-1] = event
                return True
        elif isinstance(event, PartialOutput):
            if isinstance(last, PartialOutput) and last.step == event.step:
                waiting[-1] = event
                return True
        elif type(event) is TextDelta:
            # The text of an answer that grows waits before the partial output that was made of it.
            at = -2 if isinstance(last, PartialOutput) and len(waiting) > 1 else -1
            text = waiting[at] if waiting else None
            if isinstance(text, TextDelta):
                text = waiting[at] = _Text(text)
            if isinstance(text, _Text) and text.step == event.step:
                text.pieces.append(event.text)
                return True
        return False

    async def _taken(self) -> None:
        """Call the listener with the events that wait, until none is left."""
        if self._lock is None:
            return
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
    """Takes the pieces of a reply from a model: makes events of them, and of an answer that grows.

    Args:
        listening: The listener of the run.
        step: The step of the run.
        request: The request for an answer of a type; None for text.
    """

    __slots__ = ("_growing", "_listening", "_step")

    def __init__(self, listening: Listening, step: int, request: OutputRequest | None) -> None:
        self._listening = listening
        self._step = step
        self._growing = None if request is None else GrowingOutput(request)

    def __call__(self, delta: Delta) -> Awaitable[None]:
        """Take a piece. A model that awaits the result is no faster than the listener."""
        self._listening.queue(delta_event(self._step, delta))
        if self._growing is not None:
            self._queue_partial(self._growing.add(delta))
        return self._listening

    async def end(self) -> None:
        """Pass on the rest of an answer that grew."""
        if self._growing is not None:
            self._queue_partial(self._growing.now())
        await self._listening

    def _queue_partial(self, grown: Any) -> None:
        if grown is not None:
            self._listening.queue(PartialOutput(self._step, grown))
