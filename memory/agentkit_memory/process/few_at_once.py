"""`FewAtOnce`: lets a few threads compute at once; more hand the interpreter to and fro, and all take longer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Semaphore

__all__ = ["FewAtOnce"]

_MAX_WAIT = 1.0
"""Seconds that a thread waits for its turn; then it computes beside the others, so that nobody is stuck."""


class FewAtOnce:
    """Turns to compute, for so many threads at once. One that waits for others gives up its turn meanwhile."""

    def __init__(self, most: int) -> None:
        self._free = Semaphore(most)

    @contextmanager
    def turn(self) -> Iterator[Turn]:
        """Wait for a turn, shortly, and keep it until the end of the block."""
        turn = Turn(self._free)
        turn.take()
        try:
            yield turn
        finally:
            turn.give()


class Turn:
    """The turn of one thread, if it has one now."""

    def __init__(self, free: Semaphore) -> None:
        self._free = free
        self._held = False

    def take(self) -> None:
        """Wait for the turn, shortly."""
        self._held = self._free.acquire(timeout=_MAX_WAIT)

    def give(self) -> None:
        """Let another thread have it."""
        if self._held:
            self._held = False
            self._free.release()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Give it up for the block, in which the thread waits for something."""
        held = self._held
        self.give()
        try:
            yield
        finally:
            if held:
                self.take()
