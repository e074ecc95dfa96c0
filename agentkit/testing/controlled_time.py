"""`controlled_time`: event loops whose clock jumps to the next timer when they are idle."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from agentkit.ground.sync_driver import stop_run_loops
from agentkit_tools.calling.tool_threads import busy_threads

_PATIENCE = 0.5
"""Real seconds that the clock waits for a thread or a connection before it jumps."""
_POOLS = ("agentkit-tool", "agentkit-run-", "asyncio_")
"""Prefixes of the names of pool threads. An idle pool thread is no work; `Clock.working` counts their calls instead."""


class Clock:
    """The clock of the event loops in a block of `controlled_time`."""

    __slots__ = ("_start", "_threads", "seconds", "working")

    def __init__(self) -> None:
        self.seconds = 0.0
        """Seconds since the start of the block, as timers count them."""
        self.working = 0
        """Number of running calls in the threads of executors."""
        self._start = monotonic()
        self._threads = {*threading.enumerate()}

    def advance(self, seconds: float) -> None:
        """Advance the time; timers that are due fire in the next iteration of their loop."""
        if not seconds >= 0:
            raise ValueError(f"advance: time moves forward only, got {seconds!r} seconds")
        self.seconds += seconds

    def time(self) -> float:
        """Return the value of `loop.time()`."""
        return self._start + self.seconds

    def reach(self, time: float) -> None:
        """Advance the clock to `time`, unless the clock is later already."""
        self.seconds = max(self.seconds, time - self._start)

    def expects(self, selector: Any) -> bool:
        """True if a thread or a connection may still deliver a result to a loop."""
        if self.working or busy_threads():
            return True
        # Each loop registers one file descriptor, by which threads wake the loop; other descriptors are connections.
        if len(selector.get_map()) > 1:
            return True
        idle = {*self._threads, threading.current_thread(), threading.main_thread()}
        threads = {thread for thread in threading.enumerate() if not thread.name.startswith(_POOLS)}
        return not threads <= idle


class _Selector:
    """Selector of a loop: instead of sleeping until the next timer, it moves the clock to the time of this timer."""

    def __init__(self, selector: Any, clock: Clock) -> None:
        self.real = selector
        self._clock = clock

    def select(self, timeout: float | None = None) -> Any:
        clock = self._clock
        if timeout is None or timeout <= 0:
            return self.real.select(timeout)
        due = clock.time() + timeout
        events = self.real.select(0)
        if not events and clock.expects(self.real):
            events = self.real.select(_PATIENCE)
        if not events:
            clock.reach(due)
        return events

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


@contextmanager
def controlled_time() -> Iterator[Clock]:
    """Skip the waits of event loops: time limits, pauses between retries and deadlines pass at once.

    The running loop, and loops that the block creates, such as by `run_sync` or `asyncio.run`, use the clock. When a
    loop waits only for a timer, the clock jumps to the time of the timer. `time.sleep` and other calls that block a
    thread take real time.

    Yields:
        The clock: `clock.seconds` is the time since the start of the block, and `clock.advance(seconds)` advances it.

    Raises:
        RuntimeError: The time is controlled already, or the running loop has no selector, such as a loop of uvloop.
    """
    if not _LOCK.acquire(blocking=False):
        raise RuntimeError(
            "controlled_time: the time is controlled already, by another block of this process: end that block first"
        )
    clock, loops, new_loop = Clock(), list[Any](), asyncio.events.new_event_loop

    def control(loop: Any) -> Any:
        if not hasattr(loop, "_selector"):
            raise RuntimeError(f"controlled_time: {type(loop).__name__} has no selector: use an event loop of asyncio")
        run, loop._selector = loop.run_in_executor, _Selector(loop._selector, clock)

        def run_in_executor(*arguments: Any) -> Any:
            clock.working += 1
            future = run(*arguments)
            future.add_done_callback(ended)
            return future

        def ended(_: object) -> None:
            clock.working -= 1

        loop.time, loop.run_in_executor = clock.time, run_in_executor
        loops.append(loop)
        return loop

    try:
        # Loops of earlier runs have the real clock.
        stop_run_loops()
        asyncio.new_event_loop = asyncio.events.new_event_loop = lambda: control(new_loop())
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is not None:
            control(running)
        yield clock
    finally:
        asyncio.new_event_loop = asyncio.events.new_event_loop = new_loop
        stop_run_loops()
        for loop in loops:
            loop._selector = getattr(loop._selector, "real", loop._selector)
            del loop.time, loop.run_in_executor
        _LOCK.release()


_LOCK = threading.Lock()
