"""`Lease`: how long a worker may act on the runs it took, renewed by counting up in its row.

The others watch the count on clocks of their own, so that no clock that jumps matters, and a worker stops acting before
its lease has ended. Neither waits for anything else that the worker does.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from agentkit.durable.stored.durable_store import DurableStore

__all__ = ["Lease", "seconds_now"]

_SAFE = 0.6
"""Which part of its lease a worker acts in without having renewed it."""
_MAX_PAUSE = 1.0
_log = logging.getLogger("agentkit")


class Lease:
    """The lease of a worker. One thread renews it, which may have to wait for the database, and another one watches it.

    On a SQLite file it does not end by time: the worker has the lock of the file, so that nobody else goes on with its
    runs while it lives, however long many writers keep it from renewing.

    Args:
        store: Where the row of the worker is.
        worker: Its id.
        seconds: After which the others go on with its runs, where it has not been renewed.
        on_end: Called from a thread, again and again, while the worker must not act.
    """

    def __init__(self, store: DurableStore, worker: str, seconds: float, on_end: Callable[[], None]) -> None:
        self._rows, self._worker = store.workers, worker
        self._is_sqlite = store.is_sqlite
        self._seconds, self._on_end = seconds, on_end
        self.is_lost = False
        """Whether the others took the worker for dead: it does nothing any more."""
        self._renewed = seconds_now()
        self._is_over = threading.Event()
        names = {self._renew: "agentkit-lease", self._watch: "agentkit-lease-watch"}
        self._threads = [threading.Thread(target=work, name=name, daemon=True) for work, name in names.items()]

    @property
    def is_held(self) -> bool:
        """Whether the runs of the worker are its own: no other one goes on with them."""
        if self.is_lost:
            return False
        return self._is_sqlite or seconds_now() - self._renewed <= self._seconds * _SAFE

    def begin(self) -> None:
        """Begin to renew it; the worker has its row."""
        self._renewed = seconds_now()
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Renew it no more."""
        self._is_over.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _renew(self) -> None:
        while not (self.is_lost or self._is_over.wait(self._pause)):
            at = seconds_now()
            try:
                is_alive = self._rows.beat(self._worker)
            except Exception as error:
                _log.warning("worker %s: its lease could not be renewed: %s", self._worker, error)
                continue
            if is_alive:
                self._renewed = at
            else:
                self.is_lost = True
                _log.error("worker %s: the others took it for dead; it does nothing any more", self._worker)

    def _watch(self) -> None:
        while not self._is_over.wait(self._pause):
            if not self.is_held:
                self._on_end()

    @property
    def _pause(self) -> float:
        return min(_MAX_PAUSE, self._seconds / 6)


def seconds_now() -> float:
    """Return seconds that go on while the machine sleeps, where it can be known."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
