"""`HeldRuns`: queues the held runs of tenants when the tenants have free places."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection

from agentkit.durable.stored.durable_store import DurableStore

_SECONDS_AGAIN = 1.0
"""Seconds between two tries while the database does not respond."""
_log = logging.getLogger("agentkit.worker")


class HeldRuns:
    """A thread of a worker, which queues held runs.

    Args:
        store: The store of the runs.
        agents: Names and versions of the agents of the worker.
        places: Maximum number of concurrent runs of a tenant; None: no limit.
        poll: Seconds between two reads of the held runs.
    """

    def __init__(
        self, store: DurableStore, agents: Collection[tuple[str, str]], places: int | None, poll: float
    ) -> None:
        self._store, self._agents, self._places, self._poll = store, agents, places, poll
        self._has_stopped, self._has_place = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._admit, name="agentkit-held-runs", daemon=True)
        self._thread.start()

    def notify(self) -> None:
        """Read the held runs now, because a run has ended."""
        self._has_place.set()

    def stop(self) -> None:
        """Stop the thread, and wait for its end."""
        self._has_stopped.set()
        self._has_place.set()
        self._thread.join()

    def _admit(self) -> None:
        while not self._has_stopped.is_set():
            try:
                self._store.queue.admit(self._agents, self._places)
            except Exception as error:
                _log.warning("held runs are not queued: the database does not respond: %s", error)
                self._has_stopped.wait(_SECONDS_AGAIN)
            self._has_place.wait(self._poll)
            self._has_place.clear()
