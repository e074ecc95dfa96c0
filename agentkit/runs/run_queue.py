"""`RunQueue`: the queue of the workers. Each entry of a run in the queue is a leg of the run.

A leg is queued in the transaction that stores the state of the run, so that both happen or neither.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, TypeAlias

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from agentkit.run.parts.decisions import Denied, decision_data
from agentkit.runs.run_database import RunDatabase, decisions_table, lines_table, runs_table
from agentkit.runs.run_record import RunRecord, RunState
from agentkit.runs.run_rows import lock_run, run_row

__all__ = ["Leg", "NewRun", "QueueLeg", "RunQueue", "queue_again"]

_runs, _decisions = runs_table, decisions_table
_EXPIRED_DECISION = json.dumps(decision_data(Denied("it was not decided in time")))


class NewRun(NamedTuple):
    """A run to be stored and queued."""

    record: RunRecord
    head: str
    """The first line of its journal."""
    request: str
    """Request for the executor that queues the run, as JSON."""


class Leg(NamedTuple):
    """One entry of a run in the queue: a run is queued at its start, and again after each interruption or pause."""

    order: int
    """Number of the run in the order of starts."""
    run_id: str
    number: int
    """Number of the leg, from 0."""
    request: str
    """Request for the executor that queues the run, as JSON."""


QueueLeg: TypeAlias = Callable[[sa.Connection, Leg], None]
"""Queues a leg, in a transaction."""


def queue_again(
    connection: sa.Connection, now: object, condition: sa.ColumnElement[bool], queue: QueueLeg | None
) -> list[str]:
    """Queue the runs that meet a condition, each as its next leg, and return their ids."""
    values = {"state": "queued", "fence": None, "leg": _runs.c.leg + 1, "updated_at": now}
    queued = sa.update(_runs).where(condition, _runs.c.top.is_(None)).values(**values)
    column = _runs.c
    rows = connection.execute(queued.returning(column.number, column.run_id, column.leg, column.request))
    legs = [Leg(*row) for row in rows]
    for leg in legs:
        if queue is not None and leg.request is not None:
            queue(connection, leg)
    return [leg.run_id for leg in legs]


class RunQueue:
    """Queues runs.

    Args:
        database: The database of the runs.
        queue: Queues a leg, in a transaction of the database.
    """

    def __init__(self, database: RunDatabase, queue: QueueLeg) -> None:
        self._database, self._queue = database, queue
        self._now = database.now

    def add(self, runs: Sequence[NewRun]) -> list[NewRun]:
        """Store and queue new runs in one transaction; return the runs whose ids are stored already."""

        def add(connection: sa.Connection) -> list[NewRun]:
            ids = [run.record.run_id for run in runs]
            stored = set(connection.scalars(sa.select(_runs.c.run_id).where(_runs.c.run_id.in_(ids))))
            new_runs = [run for run in runs if run.record.run_id not in stored]
            numbers: dict[str, int] = {}
            if new_runs:
                added = sa.insert(_runs).returning(_runs.c.run_id, _runs.c.number, sort_by_parameter_order=True)
                # The clock of this process can differ from the clocks of the workers.
                now = self._database.time_in(connection)
                times = {"created_at": now, "updated_at": now}
                rows = [{**run_row(run.record), "request": run.request, **times} for run in new_runs]
                numbers = {row.run_id: row.number for row in connection.execute(added, rows)}
                heads = [{"run": run.record.run_id, "number": 0, "line": run.head} for run in new_runs]
                connection.execute(sa.insert(lines_table), heads)
            for run in new_runs:
                self._queue(connection, Leg(numbers[run.record.run_id], run.record.run_id, 0, run.request))
            return [run for run in runs if run.record.run_id in stored]

        try:
            return self._database.work(add)
        except IntegrityError:
            # Another process added one of the runs after the query of this transaction.
            return self._database.work(add)

    def adopt(self, run: NewRun) -> None:
        """Assign a run of a server to workers, and queue the run for them if it is queued, in one transaction."""
        run_id = run.record.run_id
        values = {"executor": "dbos", "request": run.request, "version": run.record.version}
        adopted = sa.update(_runs).where(_runs.c.run_id == run_id, _runs.c.executor == "process").values(**values)
        line = lines_table.c
        first = sa.select(line.number).where(line.run == run_id).limit(1)

        def adopt(connection: sa.Connection) -> None:
            if not connection.execute(adopted).rowcount:
                return  # another server was first
            # The server that had the run wrote the first line of its journal if it started the run.
            if connection.scalar(first) is None:
                connection.execute(sa.insert(lines_table), {"run": run_id, "number": 0, "line": run.head})
            queue_again(
                connection, self._now, sa.and_(_runs.c.run_id == run_id, _runs.c.state == "queued"), self._queue
            )

        self._database.work(adopt)

    def request(self, run_id: str) -> str | None:
        """Return the request of a run for its executor, as JSON; None if the run is unknown."""
        query = sa.select(_runs.c.request).where(_runs.c.run_id == run_id)
        return self._database.work(lambda connection: connection.scalar(query))

    def again(self, run_id: str, states: Collection[RunState], leg: int | None = None) -> bool:
        """Queue a run again if it is in one of these states, and in this leg if set; otherwise return False."""
        condition = sa.and_(_runs.c.run_id == run_id, _runs.c.state.in_(states))
        if leg is not None:
            condition = sa.and_(condition, _runs.c.leg == leg)
        return bool(self._database.work(lambda c: queue_again(c, self._now, condition, self._queue)))

    def running(self, workers: Collection[str]) -> list[Leg]:
        """Return the legs that workers execute, without the runs that a server executes."""
        is_leg = sa.and_(_runs.c.state == "running", _runs.c.executor == "dbos")
        return self._legs(sa.and_(is_leg, _runs.c.worker.in_(workers)))

    def legs(self, run_ids: Collection[str]) -> list[Leg]:
        """Return the last legs of runs."""
        return self._legs(_runs.c.run_id.in_(run_ids))

    def _legs(self, condition: sa.ColumnElement[bool]) -> list[Leg]:
        column = _runs.c
        query = sa.select(column.number, column.run_id, column.leg, column.request)
        query = query.where(condition, column.top.is_(None))
        return self._database.work(lambda connection: [Leg(*row) for row in connection.execute(query)])

    def expire(self) -> None:
        """Deny the calls that were not decided in time, and queue the runs that wait for no other decision."""
        late = sa.and_(_decisions.c.decision.is_(None), _decisions.c.expires_at < self._now)

        def deny(connection: sa.Connection) -> None:
            # Read first: without late calls, the transaction does not wait for the lock of a writer.
            # Sorted: two processes that expire calls lock the runs in the same order, without a deadlock.
            for run_id in sorted(connection.scalars(sa.select(_decisions.c.run).where(late).distinct()).all()):
                lock_run(connection, run_id)
                denied = sa.update(_decisions).where(_decisions.c.run == run_id, late)
                connection.execute(denied.values(decision=_EXPIRED_DECISION, decided_by="", decided_at=self._now))
                waits = sa.exists().where(_decisions.c.run == run_id, _decisions.c.decision.is_(None))
                condition = sa.and_(_runs.c.run_id == run_id, _runs.c.state == "waiting", ~waits)
                queue_again(connection, self._now, condition, self._queue)

        self._database.work(deny)
