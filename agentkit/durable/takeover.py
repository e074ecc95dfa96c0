"""`Takeover`: finds the runs that nobody does any more, of workers that died and of one's own, and puts them back."""

from __future__ import annotations

import logging
from collections.abc import Collection

from agentkit.durable.lease import seconds_now
from agentkit.durable.schedules import SCHEDULED
from agentkit.durable.stored.durable_store import WORKFLOW, DurableStore, leg_id, leg_of
from agentkit.runs.run_record import RunState

__all__ = ["Takeover"]

_MIN_SECONDS_ORPHANED = 5.0
"""How long a run of this worker may be on its way from the queue to its attempt: its lease, and not less than this."""
_OPEN: tuple[RunState, ...] = ("queued", "running")
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
        rows, now = self._store.workers, seconds_now()
        ended: list[str] = []
        for worker in rows.all():
            if worker.state == "alive":
                if self._watched.get(worker.id, (None,))[0] != worker.beat:
                    self._watched[worker.id] = worker.beat, now
                silent = now - self._watched[worker.id][1]
                beat = None if worker.beat < 0 else worker.beat
                if worker.id != self._worker and silent > worker.lease and rows.end(worker.id, "dead", beat):
                    _log.warning("worker %s: silent for %.0f s, others go on with its runs", worker.id, silent)
                    ended.append(worker.id)
            elif worker.id != self._worker:  # this one will hear of its own end, and begins nothing anew
                ended.append(worker.id)
        if ended:
            self.hand_over(ended)

    def hand_over(self, workers: list[str]) -> None:
        """Queue the runs of ended workers again; each only once, even if several workers do this."""
        for leg in self._store.queue.running(workers):
            self._store.queue.again(leg.run_id, _OPEN, leg.number)
        self._put_back(self._pending(workers, WORKFLOW))
        for workflow_id in self._pending(workers, SCHEDULED):
            self._store.client.resume_workflow(workflow_id)

    def own_orphans(self, attempts: Collection[str]) -> None:
        """Restart runs of this worker that no attempt executes, such as after a line could not be stored.

        Args:
            attempts: The ids of the legs that it executes, as they are at any moment.
        """
        now = seconds_now()
        running = [leg_id(leg) for leg in self._store.queue.running([self._worker])]
        own = {*running, *self._pending([self._worker], WORKFLOW)}.difference(tuple(attempts))
        self._orphans = {leg: self._orphans.get(leg, now) for leg in own}
        longest = max(self._seconds, _MIN_SECONDS_ORPHANED)
        self._put_back([leg for leg, since in self._orphans.items() if now - since > longest and leg not in attempts])

    def _pending(self, workers: list[str], name: str) -> list[str]:
        """Return the ids of the workflows that workers have taken from their queues and not ended."""
        found = self._store.client.list_workflows(
            executor_id=workers, status="PENDING", name=name, load_input=False, load_output=False
        )
        return [one.workflow_id for one in found]

    def _put_back(self, legs: Collection[str]) -> None:
        """Queue the runs of legs again, each as its next leg, and end these legs: one may hold a session."""
        for leg in legs:
            run_id, number = leg_of(leg)
            self._store.queue.again(run_id, _OPEN, number)
        if legs:
            self._store.client.cancel_workflows([*legs])
