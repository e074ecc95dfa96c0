"""The sync driver: runs async code from sync code, also inside of a running event loop.

Runs share an event loop in a background thread, so that connections to a model are reused. A run inside of a run uses
the next loop, because the outer run can block its loop until the inner run has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import ContextVar
from queue import Empty, SimpleQueue
from threading import Event, Lock, get_ident
from typing import Any, Generic, TypeVar, cast

from agentkit_prompts.caller_warnings import waiting_thread
from agentkit_prompts.system.background_loop import background_loop, stop_loops

R = TypeVar("R")

_LOOPS = "agentkit-run-"
"""Prefix of the names of the loops."""
_PATIENCE = 0.1
"""Seconds until a run that has not started moves to the next loop: the code that blocks its loop may wait for it."""
_MAX_LOOPS = 64
"""Number of the last loop; a run stays in this loop, even if other code blocks it."""
_MAX_WAITING = 64
"""Maximum number of events that wait for the reader."""
_depth: ContextVar[int] = ContextVar("agentkit_run_depth", default=0)
"""Number of the loop that runs the current code; 0 outside of these loops."""


def run_blocking(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine and return its result.

    An interrupt of the wait, such as Ctrl-C, cancels the coroutine and waits for its end; a second interrupt returns at
    once.
    """
    call = _Call(coroutine)
    try:
        call.begin()
        return call.result()
    finally:
        call.end()


def streamed(run: Callable[[Callable[[Any], Awaitable[None]]], Coroutine[Any, Any, object]]) -> Generator[Any]:
    """Yield the events that `run` passes to its argument, and raise the error of `run`.

    Closing the generator cancels `run`. At most `_MAX_WAITING` events wait for the reader.
    """
    events: SimpleQueue[Any] = SimpleQueue()
    end, is_full = object(), Event()
    has_room: asyncio.Event | None = None

    async def main() -> object:
        nonlocal has_room
        room = has_room = asyncio.Event()

        async def pass_on(event: Any) -> None:
            events.put(event)
            # Set before the size is read: a reader that removes an event after that then sets `has_room`.
            is_full.set()
            while events.qsize() >= _MAX_WAITING:
                room.clear()
                await room.wait()
            is_full.clear()

        try:
            return await run(pass_on)
        finally:
            events.put(end)

    call = _Call(main())
    try:
        call.begin()
        while True:
            try:
                event = events.get(timeout=_PATIENCE)
            except Empty:
                call.move_on()
                continue
            if event is end:
                break
            if is_full.is_set() and has_room is not None:
                call.loop.call(has_room.set)
            yield event
        call.result()
    finally:
        call.end()


class _Call(Generic[R]):
    """A coroutine in a background loop, and the thread that waits for it."""

    def __init__(self, coroutine: Coroutine[Any, Any, R]) -> None:
        self._coroutine = coroutine
        self._depth = _depth.get()
        self._thread = get_ident()
        self._claim = Lock()
        self._task: asyncio.Task[Any] | None = None
        self._ended = Event()
        self._value: R | None = None
        self._error: BaseException | None = None

    def begin(self) -> None:
        """Start the coroutine in the next loop."""
        self._depth += 1
        # Taken once: by the loop, to start the coroutine, or by the waiting thread, to move or close the coroutine.
        claim = self._claim = Lock()
        self.loop = background_loop(f"{_LOOPS}{self._depth}")

        def start() -> None:
            if claim.acquire(blocking=False):
                asyncio.get_running_loop().create_task(self._main())

        self.loop.call(start)

    async def _main(self) -> None:
        self._task = asyncio.current_task()
        _depth.set(self._depth)
        waiting_thread.set(self._thread)
        try:
            self._value = await self._coroutine
        except BaseException as error:
            # Also KeyboardInterrupt and SystemExit, which the waiting thread raises. Without the frame of this method.
            trace = error.__traceback__
            self._error = error.with_traceback(trace and trace.tb_next)
        finally:
            self._ended.set()

    def move_on(self) -> None:
        """Move to the next loop if the coroutine has not started, because other code blocks its loop."""
        if self._depth < _MAX_LOOPS and self._claim.acquire(blocking=False):
            self.begin()

    def result(self) -> R:
        """Wait for the result of the coroutine, or its error."""
        # With a timeout: if another thread received a signal, Python handles the signal when the wait returns.
        while not self._ended.wait(_PATIENCE):
            self.move_on()
        error, self._error = self._error, None
        if error is None:
            return cast(R, self._value)
        try:
            raise error
        finally:
            # The traceback of the error refers to this frame: without `del`, both would stay in memory.
            del error

    def end(self) -> None:
        """Cancel the coroutine if it has not ended, and wait for its end."""
        if self._claim.acquire(blocking=False):
            self._coroutine.close()
            return
        if self._ended.is_set():
            return
        self.loop.call(self._cancel)
        # If the garbage collector closes a stream in the thread of the loop, waiting would block the loop forever.
        while not self.loop.is_current and not self._ended.wait(_PATIENCE):
            pass

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        else:
            # Later: a task that is cancelled before its first step does not run its `finally`, which sets `_ended`.
            self.loop.call(self._cancel)


def stop_run_loops() -> None:
    """Stop the event loops of sync runs."""
    stop_loops(_LOOPS)
