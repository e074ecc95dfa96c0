"""`WorkerRows`: the workers on a database of runs, each with a lease that it renews."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from agentkit.runs.run_database import RunDatabase, workers_table
from agentkit.runs.stored_values import finite_number

_workers = workers_table


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker, as other workers see it."""

    id: str
    state: str
    """`alive`, `stopped` (by itself) or `dead` (its lease expired)."""
    beat: int
    """Number of renewals of its lease; below 0 if the row is corrupt."""
    serves: tuple[tuple[str, str], ...]
    """Names and versions of its agents."""
    lease: float
    """Seconds without a renewal after which other workers mark it as dead."""
    host: str
    pid: int
    started_at: float
    """Seconds since 1970, by the clock of the database."""
    silent: float
    """Seconds since the last renewal of the lease, by the clock of the database."""

    @property
    def is_alive(self) -> bool:
        """True if the worker has not stopped, and its lease has not expired."""
        return self.state == "alive" and self.silent <= self.lease


class WorkerRows:
    """Store of workers.

    Args:
        database: The database of the runs.
        leases: Separate engine to renew leases, because operations that wait for a lock can use all other connections.
    """

    def __init__(self, database: RunDatabase, leases: sa.Engine) -> None:
        self._database, self._leases = database, leases
        self._now = database.now

    def add(self, id: str, serves: Iterable[tuple[str, str]], lease: float, host: str, pid: int) -> None:
        """Add a worker that is alive."""
        row = {"id": id, "state": "alive", "beat": 0, "serves": json.dumps([*serves])}
        times = {"lease": lease, "started_at": self._now, "beat_at": self._now}
        added = sa.insert(_workers).values(**row, **times, host=host, pid=pid)
        query = sa.select(_workers.c.id).where(_workers.c.id == id)
        self._database.work(
            lambda connection: connection.execute(added), lambda connection, _: connection.scalar(query) is not None
        )

    def beat(self, id: str) -> bool:
        """Renew the lease of a worker, without retries; False if other workers marked it as dead."""
        alive = sa.update(_workers).where(_workers.c.id == id, _workers.c.state == "alive")
        with self._leases.begin() as connection:
            return connection.execute(alive.values(beat=_workers.c.beat + 1, beat_at=self._now)).rowcount > 0

    def end(self, id: str, state: str, beat: int | None = None) -> bool:
        """Store that a worker stopped or died.

        Returns False if the worker is not alive, or `beat` is set and is not its number of renewals.
        """
        ended = sa.update(_workers).where(_workers.c.id == id, _workers.c.state == "alive")
        if beat is not None:
            ended = ended.where(_workers.c.beat == beat)
        # The lock waits for a lost transaction that is still in its commit.
        locked = sa.update(_workers).where(_workers.c.id == id).values(state=_workers.c.state)
        return self._database.work(
            lambda connection: connection.execute(ended.values(state=state)).rowcount > 0,
            lambda connection, _: connection.scalar(locked.returning(_workers.c.state)) == state,
        )

    def forget(self, seconds: float) -> None:
        """Delete workers that ended more than `seconds` ago."""
        old = sa.delete(_workers).where(_workers.c.state != "alive", _workers.c.beat_at < self._now - seconds)
        self._database.work(lambda connection: connection.execute(old))

    def all(self) -> list[WorkerRow]:
        """Return all workers, the oldest first."""
        silent = (self._now - _workers.c.beat_at).label("silent")
        query = sa.select(_workers, silent).order_by(_workers.c.started_at)
        return self._database.work(lambda connection: [_worker(row) for row in connection.execute(query)])


def _worker(row: Any) -> WorkerRow:
    """Return a worker from its row; a corrupt lease is expired."""
    return WorkerRow(
        str(row.id),
        str(row.state),
        row.beat if isinstance(row.beat, int) else -1,
        _serves(row.serves),
        finite_number(row.lease),
        str(row.host),
        row.pid if isinstance(row.pid, int) else 0,
        finite_number(row.started_at),
        row.silent if isinstance(row.silent, int | float) else math.inf,
    )


def _serves(stored: str) -> tuple[tuple[str, str], ...]:
    try:
        return tuple([(str(agent), str(version)) for agent, version in json.loads(stored)])
    except (ValueError, TypeError, RecursionError):
        return ()
