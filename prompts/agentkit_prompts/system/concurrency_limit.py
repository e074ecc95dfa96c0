"""`ConcurrencyLimit`: a limit of concurrent threads and tasks, first come, first served."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from types import TracebackType
from typing import Protocol, TypeVar
from weakref import WeakSet

_PATIENCE = 1.0
"""Seconds without a released permit after which a thread continues without a permit. Threads with permits can be
waiting for this thread, which would be a deadlock."""


class _Waiter(Protocol):
    """A thread or task that waits for a permit."""

    def wake(self) -> bool:
        """Pass the permit to the waiter; return False if the waiter can no longer take it."""
        ...


W = TypeVar("W", bound=_Waiter)


class ConcurrencyLimit:
    """A limited number of permits for threads and tasks.

    A thread takes a permit by `with limit.hold()`, a task of any event loop by `async with limit`. Both wait until a
    permit is free.

    Args:
        limit: Number of permits; None for no limit.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._renew()
        _ALL.add(self)

    def _renew(self) -> None:
        self._free = self._limit
        self._lock = Lock()
        self._returned = 0
        self._waiting: deque[_Waiter] = deque()

    def __reduce__(self) -> tuple[type[ConcurrencyLimit], tuple[int | None]]:
        return ConcurrencyLimit, (self._limit,)

    @property
    def waiting(self) -> int:
        """Number of threads and tasks that wait for a permit."""
        return len(self._waiting)

    @contextmanager
    def hold(self) -> Iterator[Permit]:
        """Wait for a permit in this thread, and release it at the end of the block."""
        permit = Permit(self)
        permit.take()
        try:
            yield permit
        finally:
            permit.give()

    async def __aenter__(self) -> None:
        waiter = self._enter(_Task)
        if waiter is None:
            return
        try:
            await waiter.turn
        except asyncio.CancelledError:
            if not self._withdraw(waiter):
                # The waiter already got a permit.
                self._give()
            raise

    async def __aexit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._give()

    def _enter(self, waiter_type: Callable[[], W]) -> W | None:
        """Take a permit and return None; if no permit is free, return a waiter at the end of the queue."""
        if self._limit is None:
            return None
        with self._lock:
            if self._free:
                self._free -= 1
                return None
            waiter = waiter_type()
            self._waiting.append(waiter)
            return waiter

    def _withdraw(self, waiter: _Waiter) -> bool:
        """Leave the queue; return False if the waiter already got the permit."""
        with self._lock:
            is_waiting = waiter in self._waiting
            if is_waiting:
                self._waiting.remove(waiter)
            return is_waiting

    def _take(self) -> bool:
        """Wait for a permit in this thread; return True if the thread got a permit."""
        returned = self._returned
        waiter = self._enter(_Thread)
        if waiter is None:
            return True
        try:
            while not waiter.lock.acquire(timeout=_PATIENCE):
                # No permit was released: the threads with permits are stuck.
                if self._returned == returned and self._withdraw(waiter):
                    return False
                returned = self._returned
        except BaseException:
            # If a signal handler raises, a permit that has arrived is released, because no code would release it.
            if not self._withdraw(waiter):
                self._give()
            raise
        return True

    def _give(self) -> None:
        """Pass a permit to the first waiter, or return it to the limit."""
        if self._free is None or self._limit is None:
            return
        while True:
            with self._lock:
                self._returned += 1
                if not self._waiting:
                    # After a fork, the child has all permits free, so a permit held at the fork is not added.
                    self._free = min(self._free + 1, self._limit)
                    return
                waiter = self._waiting.popleft()
            if waiter.wake():
                return


class Permit:
    """The permit of one thread."""

    def __init__(self, limit: ConcurrencyLimit) -> None:
        self._limit = limit
        self.is_held = False
        """True while the thread has the permit."""

    def take(self) -> None:
        """Wait for the permit."""
        self.is_held = self._limit._take()

    def give(self) -> None:
        """Release the permit."""
        if self.is_held:
            self.is_held = False
            self._limit._give()

    @contextmanager
    def released(self) -> Iterator[None]:
        """Release the permit during the block, in which the thread waits for another event."""
        was_held = self.is_held
        self.give()
        try:
            yield
        finally:
            if was_held:
                self.take()


class _Thread:
    """A thread that waits for a permit."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.lock.acquire()

    def wake(self) -> bool:
        self.lock.release()
        return True


class _Task:
    """A task that waits for a permit."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.turn: asyncio.Future[None] = self._loop.create_future()

    def wake(self) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._begin)
        except RuntimeError:
            # The loop was closed.
            return False
        return True

    def _begin(self) -> None:
        if not self.turn.done():
            self.turn.set_result(None)


_ALL: WeakSet[ConcurrencyLimit] = WeakSet()


def _in_child() -> None:
    for each in list(_ALL):
        # The child has none of the threads and loops that hold permits.
        each._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
