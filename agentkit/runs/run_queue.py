"""`RunQueue`: the queue of the workers. Each entry of a run in the queue is a leg of the run.

A leg is queued in the transaction that stores the state of the run, so that both happen or neither.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from agentkit.run.parts.decisions import Denied, decision_data
from agentkit.runs.admission import admit, held_since
from agentkit.runs.leg import Leg, QueueLeg
from agentkit.runs.run_database import RunDatabase, decisions_table, lines_table, runs_table
from agentkit.runs.run_record import RunRecord, RunState
from agentkit.runs.run_rows import lock_run, run_row
from agentkit.runs.tag_rows import store_tags

_runs, _decisions = runs_table, decisions_table
_QUEUED = (_runs.c.number, _runs.c.run_id, _runs.c.leg, _runs.c.request, _runs.c.held_until)
_EXPIRED_DECISION = json.dumps(decision_data(Denied("it was not decided in time")))


class NewRun(NamedTuple):
    """A run to be stored and queued."""

    record: RunRecord
    head: str
    """The first line of its journal."""
    request: str
    """Request for the executor that queues the run, as JSON."""


def queue_again(
    connection: sa.Connection, now: object, condition: sa.ColumnElement[bool], queue: QueueLeg | None
) -> list[str]:
    """Queue the runs that meet a condition, each as its next leg, and return their ids.

    A run with a session is held if its tenant has other runs in the queue; see `admit`.
    """
    values = {"state": "queued", "fence": None, "leg": _runs.c.leg + 1, "updated_at": now}
    values["held_until"] = held_since(now)
    queued = sa.update(_runs).where(condition, _runs.c.top.is_(None)).values(**values)
    rows = connection.execute(queued.returning(*_QUEUED)).all()
    if queue is not None:
        _queue_rows(connection, now, rows, queue)
    return [row.run_id for row in rows]


def _queue_rows(connection: sa.Connection, now: object, rows: Sequence[Any], queue: QueueLeg) -> None:
    """Queue the legs of rows that are not held, and the first held run of each tenant without runs in the queue."""
    for row in rows:
        if row.request is not None and row.held_until is None:
            queue(connection, Leg(row.number, row.run_id, row.leg, row.request))
    ids = [row.run_id for row in rows if row.held_until is not None]
    if ids:
        # One place is free under any limit; further places are known to the workers.
        admit(connection, now, _runs.c.run_id.in_(ids), 1, queue)


class RunQueue:
    """Queues runs.

    Args:
        database: The database of the runs.
        queue: Queues a leg, in a transaction of the database.
    """

    def __init__(self, database: RunDatabase, queue: QueueLeg) -> None:
        self._database, self._queue = database, queue
        self._now = database.now

    def add(self, runs: Sequence[NewRun], delay: float = 0.0) -> list[NewRun]:
        """Store and queue new runs in one transaction; return the runs whose ids are stored already.

        Args:
            runs: The runs.
            delay: Seconds for which runs are held if they have a session and a tenant.
        """

        def add(connection: sa.Connection) -> list[NewRun]:
            ids = [run.record.run_id for run in runs]
            stored = set(connection.scalars(sa.select(_runs.c.run_id).where(_runs.c.run_id.in_(ids))))
            new_runs = [run for run in runs if run.record.run_id not in stored]
            if new_runs:
                added = sa.insert(_runs).returning(*_QUEUED, sort_by_parameter_order=True)
                # The clock of this process can differ from the clocks of the workers.
                now = self._database.time_in(connection)
                times = {"created_at": now, "updated_at": now}
                rows = [{**run_row(run.record), "request": run.request, **times} for run in new_runs]
                for row in rows:
                    row["held_until"] = None
                    if row["tenant"] and row["session"] is not None:
                        row["held_until"] = now + delay
                inserted = connection.execute(added, rows).all()
                store_tags(connection, [run.record for run in new_runs])
                heads = [{"run": run.record.run_id, "number": 0, "line": run.head} for run in new_runs]
                connection.execute(sa.insert(lines_table), heads)
                _queue_rows(connection, self._now, inserted, self._queue)
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

    def admit(self, agents: Collection[tuple[str, str]], places: int | None) -> None:
        """Queue held runs of tenants with free places.

        Args:
            agents: Names and versions of the agents of the runs.
            places: Maximum number of runs with a session, of one tenant and one version of an agent; None: no limit.
        """
        is_of_agents = sa.tuple_(_runs.c.agent, _runs.c.version).in_([*agents])
        self._database.work(lambda connection: admit(connection, self._now, is_of_agents, places, self._queue))

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
