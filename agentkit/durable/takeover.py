"""`Takeover`: finds the runs that nobody does any more, of workers that died and of one's own, and puts them back."""

from __future__ import annotations

import logging
from collections.abc import Collection

from agentkit.durable.lease import seconds_now
from agentkit.durable.schedules import SCHEDULED
from agentkit.durable.stored.durable_store import WORKFLOW, DurableStore

__all__ = ["Takeover"]

_MIN_SECONDS_ORPHANED = 5.0
"""How long a run of this worker may be on its way from the queue to its attempt: its lease, and not less than this."""
_INTERNAL_QUEUE = "_dbos_internal_queue"
_log = logging.getLogger("agentkit")


class Takeover:
    """What a worker knows of the others, watched on its own clock: a clock that jumps takes no run from anybody.

    Args:
        store: Where the runs are.
        worker: The id of the worker that looks.
        seconds: The length of its own lease.
    """

    def __init__(self, store: DurableStore, worker: str, seconds: float) -> None:
        self._store, self._worker, self._seconds = store, worker, seconds
        self._watched: dict[str, tuple[int, float]] = {}
        self._orphans: dict[str, float] = {}

    def from_dead_workers(self) -> None:
        """Go on with the runs of workers whose lease has ended."""
        tables, now = self._store.tables, seconds_now()
        ended: list[str] = []
        for worker in tables.workers():
            if worker.state == "alive":
                if self._watched.get(worker.id, (None,))[0] != worker.beat:
                    self._watched[worker.id] = worker.beat, now
                silent = now - self._watched[worker.id][1]
                beat = None if worker.beat < 0 else worker.beat
                if worker.id != self._worker and silent > worker.lease and tables.end_worker(worker.id, "dead", beat):
                    _log.warning("worker %s: silent for %.0f s, others go on with its runs", worker.id, silent)
                    ended.append(worker.id)
            elif worker.id != self._worker:  # this one will hear of its own end, and begins nothing anew
                ended.append(worker.id)
        if ended:
            self.hand_over(ended)

    def hand_over(self, workers: list[str]) -> None:
        """Put the runs of workers that ended back into their queues; each only once, whoever does it."""
        for status in self._store.workflows.listed([WORKFLOW, SCHEDULED], statuses=["PENDING"], executors=workers):
            self._put_back(status.workflow_id, workers)

    def own_orphans(self, attempts: Collection[str]) -> None:
        """Begin again with runs of this worker that nobody does, as where a step could not be stored.

        Args:
            attempts: The ids of the runs that it does, as they are at any moment.
        """
        now = seconds_now()
        found = self._store.workflows.listed([WORKFLOW], statuses=["PENDING"], executors=[self._worker])
        own = {status.workflow_id for status in found}.difference(attempts)
        self._orphans = {run_id: self._orphans.get(run_id, now) for run_id in own}
        for run_id, since in self._orphans.items():
            if now - since > max(self._seconds, _MIN_SECONDS_ORPHANED) and run_id not in attempts:
                self._put_back(run_id, [self._worker])

    def _put_back(self, run_id: str, workers: list[str]) -> None:
        self._store.client._sys_db.reenqueue_for_recovery(run_id, workers, _INTERNAL_QUEUE)
