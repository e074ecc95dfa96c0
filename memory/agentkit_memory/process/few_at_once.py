"""`FewAtOnce`: lets a few threads compute at once; more hand the interpreter to and fro, and all take longer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

__all__ = ["FewAtOnce"]

_MAX_WAIT = 1.0
"""Seconds without any turn being given up after which a thread computes beside the others, so that nobody is stuck."""


class FewAtOnce:
    """Turns to compute, for so many threads at once, first come first served.

    One that waits for something else gives up its turn meanwhile. However many wait, none of them runs until it is its
    turn.
    """

    def __init__(self, most: int) -> None:
        self._lock = Lock()
        self._free = most
        self._given_up = 0
        self._waiting: deque[Lock] = deque()
        """One for each thread, released when its turn comes."""

    @property
    def waiting(self) -> int:
        """Number of threads that wait for a turn."""
        return len(self._waiting)

    @contextmanager
    def turn(self) -> Iterator[Turn]:
        """Wait for a turn and keep it until the end of the block."""
        turn = Turn(self)
        turn.take()
        try:
            yield turn
        finally:
            turn.give()

    def _take(self) -> bool:
        """Wait for a turn; return whether there was one before too long."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            mine = Lock()
            mine.acquire()
            self._waiting.append(mine)
            seen = self._given_up
        try:
            while not mine.acquire(timeout=_MAX_WAIT):
                with self._lock:
                    if mine in self._waiting and self._given_up == seen:  # whoever has one is stuck
                        self._waiting.remove(mine)
                        return False
                    seen = self._given_up
        except BaseException:  # of a signal: a turn that comes now would be lost
            with self._lock:
                came = mine not in self._waiting
                if not came:
                    self._waiting.remove(mine)
            if came:
                self._give()
            raise
        return True

    def _give(self) -> None:
        with self._lock:
            self._given_up += 1
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1


class Turn:
    """The turn of one thread, if it has one now."""

    def __init__(self, few: FewAtOnce) -> None:
        self._few = few
        self.held = False
        """True while the thread has the turn."""

    def take(self) -> None:
        """Wait for the turn."""
        self.held = self._few._take()

    def give(self) -> None:
        """Let another thread have it."""
        if self.held:
            self.held = False
            self._few._give()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Give it up for the block, in which the thread waits for something."""
        held = self.held
        self.give()
        try:
            yield
        finally:
            if held:
                self.take()
