"""`EventSink`: delivers the events of a run to its listener, one at a time, in order and with backpressure."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping
from inspect import isawaitable
from typing import Any, Literal, TypeAlias, TypeVar

from agentkit.models.model import Delta
from agentkit.output.partial_output import GrowingOutput
from agentkit.run.engine.events import Event, PartialOutput, TextDelta, ToolProgress, delta_event
from agentkit_prompts.composition.tools_and_output import OutputRequest
from agentkit_tools.errors import ends_run

T = TypeVar("T")

Listener: TypeAlias = Callable[[Event[Any]], "Awaitable[object] | None"]
"""Called with every event; an awaitable result is awaited."""
PassOn: TypeAlias = Callable[[T], Awaitable[None]]
"""Sends an event, or a part of an answer, to the consumer of a stream."""
ListenerErrors: TypeAlias = Literal["raise", "report"]
_MAX_ERRORS = 16
"""Maximum number of listed errors of a listener."""
_MAX_QUEUED = 64
"""Maximum number of events that wait for the consumer of a stream."""
_log = logging.getLogger("agentkit")


class _QueuedText:
    """Queued text deltas of one step as one event: an event object per delta would need more memory than the text."""

    __slots__ = ("pieces", "step")

    def __init__(self, first: TextDelta) -> None:
        self.step = first.step
        self.pieces = [first.text]

    @property
    def event(self) -> TextDelta:
        return TextDelta(self.step, "".join(self.pieces))


class EventSink:
    """Delivers the events of one run to its listener, one at a time, in order.

    Args:
        listener: Called with each event.
        error_mode: `raise`: an exception of the listener ends the run; `report`: it is logged, and the first 16
            exceptions are listed in `errors`.

    Raises:
        TypeError: The listener cannot be called, or `error_mode` is another value.
    """

    __slots__ = ("_failure", "_is_synchronous", "_listener", "_lock", "_raises", "_waiting", "errors")

    def __init__(self, listener: Listener, error_mode: ListenerErrors) -> None:
        if not callable(listener):
            raise TypeError(f"on_event: expected a function that takes an event, got {type(listener).__name__}")
        if error_mode not in ("raise", "report"):
            raise TypeError(f"on_event_error: expected 'raise' or 'report', got {error_mode!r:.80}")
        self.errors: list[BaseException] = []
        """The first exceptions of the listener, if `error_mode` is `report`."""
        self._listener = listener
        self._raises = error_mode == "raise"
        self._failure: BaseException | None = None
        # A synchronous listener is called at once. A listener that returns an awaitable is async: events are queued.
        self._is_synchronous = True
        self._waiting: deque[Event[Any] | _QueuedText | Awaitable[object]] = deque()
        self._lock: asyncio.Lock | None = None

    async def emit(self, event: Event[Any]) -> None:
        """Deliver an event, and wait until the listener has processed it."""
        self.queue(event)
        if not self._is_synchronous:
            await self._drain()

    def queue(self, event: Event[Any]) -> None:
        """Deliver an event without waiting. An async listener is called later, when the run awaits this sink."""
        if self._is_synchronous:
            self._call(event)
            return
        # A tool can catch the error of the listener: the error is raised again until it ends the run.
        if self._failure is not None:
            raise self._failure
        if not self._try_merge(event):
            self._waiting.append(event)

    @property
    def has_waiting(self) -> bool:
        """True if events are queued."""
        return bool(self._waiting)

    @property
    def delivery(self) -> EventSink | None:
        """Awaitable of the delivery of all queued events; None if a synchronous listener has processed them."""
        if self._is_synchronous:
            return None
        return self

    def __await__(self) -> Generator[Any, Any, None]:
        """Wait until the listener has processed all queued events."""
        return self._drain().__await__()

    def _call(self, event: Event[Any]) -> None:
        try:
            result = self._listener(event)
        except BaseException as error:
            self._fail(error)
            return
        if result is not None and isawaitable(result):
            self._is_synchronous = False
            self._lock = asyncio.Lock()
            self._waiting.append(result)

    def _try_merge(self, event: Event[Any]) -> bool:
        """Merge an event into the last queued event; return False if the event must be queued.

        Merging limits the memory of the queue if a model or a tool is faster than the listener.
        """
        waiting = self._waiting
        if not waiting:
            return False
        last = waiting[-1]
        if type(event) is TextDelta:
            return self._try_merge_text(event)
        if isinstance(event, ToolProgress):
            is_replaced = isinstance(last, ToolProgress) and last.call.id == event.call.id
        elif isinstance(event, PartialOutput):
            is_replaced = isinstance(last, PartialOutput) and last.step == event.step
        else:
            return False
        if is_replaced:
            waiting[-1] = event
        return is_replaced

    def _try_merge_text(self, event: TextDelta) -> bool:
        """Add a text delta to the queued text of its step; return False if no text is queued."""
        waiting = self._waiting
        index = -1
        # The text of an answer is queued before the partial output that contains it.
        if isinstance(waiting[-1], PartialOutput) and len(waiting) > 1:
            index = -2
        text = waiting[index]
        if isinstance(text, TextDelta):
            text = waiting[index] = _QueuedText(text)
        if not isinstance(text, _QueuedText) or text.step != event.step:
            return False
        text.pieces.append(event.text)
        return True

    async def _drain(self) -> None:
        """Call the listener with all queued events."""
        if self._lock is None:
            return
        # Tool calls of a step emit concurrently; the listener must receive one event at a time.
        async with self._lock:
            while self._waiting:
                queued: Any = self._waiting.popleft()
                try:
                    if isinstance(queued, _QueuedText):
                        queued = queued.event
                    result = queued
                    if not isawaitable(queued):
                        result = self._listener(queued)
                    if result is not None and isawaitable(result):
                        await result
                except (asyncio.CancelledError, GeneratorExit):  # this task is cancelled, the listener did not fail
                    raise
                except BaseException as error:
                    self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Raise an error of the listener, or report it."""
        if self._raises or ends_run(error):
            self._failure, self._is_synchronous = error, False
            raise error
        # A listener can fail at every delta: the list would fill the memory, and tracebacks would hide other messages.
        if len(self.errors) < _MAX_ERRORS:
            self.errors.append(error)
            _log.warning("a listener failed", exc_info=error)
        else:
            _log.warning("a listener failed again: %s: %s", type(error).__name__, error)


class HoldingSink(EventSink):
    """Holds events of some classes until a guard has accepted their content. The arguments are the same."""

    __slots__ = ("_held", "_kinds")

    def __init__(self, listener: Listener, error_mode: ListenerErrors) -> None:
        super().__init__(listener, error_mode)
        self._held: list[Event[Any]] = []
        self._kinds: tuple[type, ...] = ()

    def hold(self, *kinds: type) -> None:
        """Hold the next events of these classes."""
        self._kinds = kinds

    def take(self) -> list[Event[Any]]:
        """Return the held events, and hold no further events."""
        events, self._held, self._kinds = self._held, [], ()
        return events

    def queue(self, event: Event[Any]) -> None:
        if isinstance(event, self._kinds):
            self._held.append(event)
        else:
            super().queue(event)


def calling_both(listener: Listener | None, pass_on: PassOn[Event[Any]]) -> Listener:
    """Return a listener that calls `listener`, and then `pass_on` even if `listener` failed."""

    async def listen(event: Event[Any]) -> None:
        try:
            if listener is not None:
                result = listener(event)
                if isawaitable(result):
                    await result
        finally:
            await pass_on(event)

    return listen


def passing_on(
    run: Callable[..., Coroutine[Any, Any, object]], user_input: object, options: Mapping[str, Any]
) -> Callable[[PassOn[Event[Any]]], Coroutine[Any, Any, object]]:
    """Return a function that performs a run and passes each event to its argument.

    Args:
        run: `Agent.run`.
        user_input: The input of the run.
        options: The options of the run; its listener is called before the argument.
    """

    def run_passing_on(pass_on: PassOn[Event[Any]]) -> Coroutine[Any, Any, object]:
        return run(user_input, **{**options, "on_event": calling_both(options.get("on_event"), pass_on)})

    return run_passing_on


async def streaming(run: Callable[[PassOn[T]], Coroutine[Any, Any, object]]) -> AsyncGenerator[T, None]:
    """Yield the values that `run` passes on, and raise its exception.

    At most `_MAX_QUEUED` values are queued. Closing the generator early cancels `run`.
    """
    # A semaphore instead of `maxsize`: the callback at the end of the task must add to the queue without waiting.
    queue: asyncio.Queue[Any] = asyncio.Queue()
    free = asyncio.Semaphore(_MAX_QUEUED)

    async def pass_on(event: T) -> None:
        await free.acquire()
        queue.put_nowait(event)

    def on_done(done: asyncio.Task[Any]) -> None:
        # Reads the exception: if the consumer stopped early, asyncio would log that no code read it.
        _ = done.cancelled() or done.exception()
        queue.put_nowait(done)

    task = asyncio.create_task(run(pass_on))
    task.add_done_callback(on_done)
    try:
        while (event := await queue.get()) is not task:
            free.release()
            yield event
        await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])


class DeltaSink:
    """Converts the deltas of a reply to events, and to partial outputs if the run has an output type.

    Args:
        sink: Receives the events.
        step: The step of the run.
        request: The requested output type; None for text.
    """

    __slots__ = ("_growing", "_sink", "_step")

    def __init__(self, sink: EventSink, step: int, request: OutputRequest | None) -> None:
        self._sink = sink
        self._step = step
        self._growing: GrowingOutput | None = None
        if request is not None:
            self._growing = GrowingOutput(request)

    def __call__(self, delta: Delta) -> Awaitable[None] | None:
        """Convert a delta. A model that awaits the result waits for an async listener."""
        self._sink.queue(delta_event(self._step, delta))
        if self._growing is not None:
            self._queue_partial(self._growing.add(delta))
        return self._sink.delivery

    async def end(self) -> None:
        """Emit the rest of the partial output, and wait for the listener."""
        if self._growing is not None:
            self._queue_partial(self._growing.current())
        await self._sink

    def _queue_partial(self, output: Any) -> None:
        if output is not None:
            self._sink.queue(PartialOutput(self._step, output))
