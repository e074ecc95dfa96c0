"""`Lease`: the time in which a worker may act on its runs; the worker renews it by a counter in its row.

Other workers observe the counter with their own clocks, so that clock changes do not matter. A worker stops acting
before other workers regard its lease as expired.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from agentkit.durable.stored.durable_store import DurableStore

_SAFE_SHARE = 0.6
"""Share of the lease in which a worker acts without a renewal."""
_MAX_PAUSE = 1.0
"""Maximum seconds between two renewals, and between two checks of the lease."""
_log = logging.getLogger("agentkit.worker")


class Lease:
    """The lease of a worker. One thread renews the lease, which can wait for the database; another thread watches it.

    On a SQLite file the lease does not expire: the worker has locked the file, so that no other worker can take its
    runs, even if other writers delay the renewal.

    Args:
        store: The store with the row of the worker.
        worker: Id of the worker.
        seconds: Seconds without renewal after which other workers take over its runs.
        on_end: Called repeatedly from a thread while the worker must not act.
    """

    def __init__(self, store: DurableStore, worker: str, seconds: float, on_end: Callable[[], None]) -> None:
        self._rows, self._worker = store.workers, worker
        self._is_sqlite = store.is_sqlite
        self._seconds, self._on_end = seconds, on_end
        self.is_lost = False
        """True if other workers took over the runs, so that this worker must not act again."""
        self._renewed = seconds_now()
        self._is_over = threading.Event()
        names = {self._renew: "agentkit-lease", self._watch: "agentkit-lease-watch"}
        self._threads = [threading.Thread(target=work, name=name, daemon=True) for work, name in names.items()]

    @property
    def is_held(self) -> bool:
        """True if no other worker can have taken over the runs."""
        if self.is_lost:
            return False
        return self._is_sqlite or seconds_now() - self._renewed <= self._seconds * _SAFE_SHARE

    def begin(self) -> None:
        """Start to renew the lease of an existing row."""
        self._renewed = seconds_now()
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Stop renewing the lease."""
        self._is_over.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _renew(self) -> None:
        while not (self.is_lost or self._is_over.wait(self._pause)):
            # The time before the request, so that the lease ends here before it ends for other workers.
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
                _log.error("worker %s: lease lost: its runs were taken over; the worker has stopped", self._worker)

    def _watch(self) -> None:
        # A separate thread: the renewal can wait for the database longer than the lease.
        while not self._is_over.wait(self._pause):
            if not self.is_held:
                self._on_end()

    @property
    def _pause(self) -> float:
        return min(_MAX_PAUSE, self._seconds / 6)


def seconds_now() -> float:
    """Return seconds of a monotonic clock, including the time that the machine sleeps if the system supports this."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return time.monotonic()
    return time.clock_gettime(time.CLOCK_BOOTTIME)
