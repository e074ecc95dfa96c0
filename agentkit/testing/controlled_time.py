"""Controlled time: event loops whose clock jumps to the next timer as soon as nothing else is left to do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from agentkit.ground.sync_driver import stop_run_loops
from agentkit_tools.calling.tool_threads import busy_threads

__all__ = ["Clock", "controlled_time"]

_PATIENCE = 0.5
"""Real seconds that a thread or a connection has to answer before the clock jumps."""
_POOLS = ("agentkit-tool", "agentkit-run-", "asyncio_")
"""Prefixes of the names of threads that usually wait for work; their work is counted in other ways."""


class Clock:
    """The time of the loops in a block of `controlled_time`."""

    __slots__ = ("_start", "_threads", "seconds", "working")

    def __init__(self) -> None:
        self.seconds = 0.0
        """Seconds since the block began, as timers count them."""
        self.working = 0
        """Calls under way in the threads of executors."""
        self._start = monotonic()
        self._threads = {*threading.enumerate()}

    def advance(self, seconds: float) -> None:
        """Move the time on; timers that are due then fire when their loop is next awaited."""
        if not seconds >= 0:
            raise ValueError(f"advance: time moves forward only, got {seconds!r} seconds")
        self.seconds += seconds

    def time(self) -> float:
        """Return the value of `loop.time()`."""
        return self._start + self.seconds

    def reach(self, time: float) -> None:
        """Move the time on to `time`, if it is not there yet."""
        self.seconds = max(self.seconds, time - self._start)

    def expects(self, selector: Any) -> bool:
        """Return True if a thread or a connection can still have a result for a loop."""
        threads = [one for one in threading.enumerate() if not one.name.startswith(_POOLS)]
        known = {*self._threads, threading.current_thread(), threading.main_thread()}
        return bool(self.working or busy_threads() or len(selector.get_map()) > 1 or not known.issuperset(threads))


class _Selector:
    """The selector of a loop: where it would sleep until a timer is due, the clock jumps there instead."""

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

    It holds for the loop that is running, and for those that are made in the block, as `run_sync` and `asyncio.run` do.
    When a loop has nothing to do but wait for a timer, its clock jumps there. `time.sleep` and whatever else blocks a
    thread is real.

    Yields:
        The clock: `clock.seconds` have passed in the block, `clock.advance(seconds)` lets more pass.

    Raises:
        RuntimeError: The time is controlled already, or the running loop has no selector, as that of uvloop.
    """
    if not _LOCK.acquire(blocking=False):
        raise RuntimeError("controlled_time: the time is controlled already, by another block in this process")
    clock, made, new_loop = Clock(), list[Any](), asyncio.events.new_event_loop

    def control(loop: Any) -> Any:
        if not hasattr(loop, "_selector"):
            raise RuntimeError(f"controlled_time: {type(loop).__name__} has no selector; use the loops of asyncio")
        run, loop._selector = loop.run_in_executor, _Selector(loop._selector, clock)

        def run_in_executor(*arguments: Any) -> Any:
            clock.working += 1
            future = run(*arguments)
            future.add_done_callback(ended)
            return future

        def ended(_: object) -> None:
            clock.working -= 1

        loop.time, loop.run_in_executor = clock.time, run_in_executor
        made.append(loop)
        return loop

    try:
        # Loops of earlier runs have another clock.
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
        for loop in made:
            loop._selector = getattr(loop._selector, "real", loop._selector)
            del loop.time, loop.run_in_executor
        _LOCK.release()


_LOCK = threading.Lock()
