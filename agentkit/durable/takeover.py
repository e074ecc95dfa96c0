"""`Takeover`: queues the runs of dead workers and the orphaned runs of this worker again."""

from __future__ import annotations

import logging
from collections.abc import Collection

from agentkit.durable.lease import seconds_now
from agentkit.durable.schedules import SCHEDULED
from agentkit.durable.stored.durable_store import WORKFLOW, DurableStore, leg_id, leg_of
from agentkit.runs.run_record import RunState

_MIN_SECONDS_ORPHANED = 5.0
"""Minimum seconds after which a run without an attempt is an orphan; a longer lease is used instead."""
_UNFINISHED: tuple[RunState, ...] = ("queued", "running")
_log = logging.getLogger("agentkit")


class Takeover:
    """Observes other workers with a monotonic clock, so that clock changes cause no takeover.

    Args:
        store: The store of the runs.
        worker: Id of this worker.
        seconds: Lease of this worker in seconds.
    """

    def __init__(self, store: DurableStore, worker: str, seconds: float) -> None:
        self._store, self._worker, self._seconds = store, worker, seconds
        self._watched: dict[str, tuple[int, float]] = {}
        """By worker id: the latest number of renewals, and the time at which this worker first read the number."""
        self._orphans: dict[str, float] = {}
        """By leg id: the time since which the leg has no attempt."""

    def from_dead_workers(self) -> None:
        """Queue the runs of workers whose lease has expired."""
        rows, now = self._store.workers, seconds_now()
        dead: list[str] = []
        for worker in rows.all():
            if worker.state == "alive":
                if self._watched.get(worker.id, (None,))[0] != worker.beat:
                    self._watched[worker.id] = worker.beat, now
                silent = now - self._watched[worker.id][1]
                # The update compares `beat`: a worker that renewed its lease after this read is not marked as dead.
                beat: int | None = worker.beat
                if worker.beat < 0:
                    beat = None
                if worker.id != self._worker and silent > worker.lease and rows.end(worker.id, "dead", beat):
                    _log.warning("worker %s: silent for %.0f s; other workers take over its runs", worker.id, silent)
                    dead.append(worker.id)
            elif worker.id != self._worker:  # this worker detects the loss of its lease itself
                dead.append(worker.id)
        if dead:
            self.hand_over(dead)

    def hand_over(self, workers: list[str]) -> None:
        """Queue the runs of dead or stopped workers again; only once, even if several workers call this."""
        for leg in self._store.queue.running(workers):
            self._store.queue.again(leg.run_id, _UNFINISHED, leg.number)
        self._queue_again(self._pending(workers, WORKFLOW))
        for workflow_id in self._pending(workers, SCHEDULED):
            self._store.client.resume_workflow(workflow_id)

    def own_orphans(self, attempts: Collection[str]) -> None:
        """Queue the runs of this worker again that no attempt executes, such as after a line could not be stored.

        Args:
            attempts: Ids of the legs that this worker executes; another thread can change them.
        """
        # Only after some time: a leg that was just taken from the queue has no attempt yet.
        now = seconds_now()
        running = [leg_id(leg) for leg in self._store.queue.running([self._worker])]
        own = {*running, *self._pending([self._worker], WORKFLOW)}.difference(tuple(attempts))
        self._orphans = {leg: self._orphans.get(leg, now) for leg in own}
        longest = max(self._seconds, _MIN_SECONDS_ORPHANED)
        self._queue_again(
            [leg for leg, since in self._orphans.items() if now - since > longest and leg not in attempts]
        )

    def _pending(self, workers: list[str], name: str) -> list[str]:
        """Return the ids of unfinished workflows that workers have taken from their queues."""
        workflows = self._store.client.list_workflows(
            executor_id=workers, status="PENDING", name=name, load_input=False, load_output=False
        )
        return [workflow.workflow_id for workflow in workflows]

    def _queue_again(self, legs: Collection[str]) -> None:
        """Queue the runs of legs again as new legs, and cancel the old legs, which can block a session."""
        # The new leg first: a crash before the cancellation leaves two legs, and only the new leg can start an attempt.
        for leg in legs:
            run_id, number = leg_of(leg)
            self._store.queue.again(run_id, _UNFINISHED, number)
        if legs:
            self._store.client.cancel_workflows([*legs])
