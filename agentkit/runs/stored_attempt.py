"""`Attempt`: an attempt at a stored run, and its start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from agentkit.runs.inner_runs import InnerRuns
from agentkit.runs.run_database import lines_table, runs_table
from agentkit.runs.run_rows import lock_run

_runs, _lines = runs_table, lines_table


@dataclass(slots=True)
class Attempt:
    """An attempt, which may store lines and the end of a run until another attempt starts or the run is cancelled."""

    run_id: str
    fence: str
    """Random text in the row of the run while this attempt may write."""
    lines: int
    """Number of the next line of the journal."""
    inside: InnerRuns
    """The agents inside of the run."""
    tenant: str
    """Tenant of the run."""
    unread: int = 0
    """Number of messages to the run that it has not received, when its last line was stored."""


def started_attempt(
    connection: sa.Connection, now: Any, run_id: str, fence: str, *, leg: int | None = None, worker: str | None = None
) -> Attempt | None:
    """Start an attempt of a queued run; None if the run is not queued, or is in another leg."""
    row = _runs.c
    started = sa.update(_runs).where(row.run_id == run_id, row.state == "queued")
    if leg is not None:
        started = started.where(row.leg == leg)
    values = {"state": "running", "fence": fence, "worker": worker, "reason": "", "updated_at": now}
    started = started.values(**values, attempts=row.attempts + 1)
    run = connection.execute(started.returning(row.tenant, row.unread)).first()
    if run is None:
        return None
    last = connection.scalar(sa.select(sa.func.max(_lines.c.number)).where(_lines.c.run == run_id))
    lines = 0
    if last is not None:
        lines = last + 1
    return Attempt(run_id, fence, lines, InnerRuns.read(connection, run_id), run.tenant, run.unread)


def has_fence(connection: sa.Connection, run_id: str, fence: str) -> bool:
    """True if an attempt with this fence has started, or an operation with this fence has ended it, as the last one."""
    # The lock waits for a lost transaction that is still in its commit.
    lock_run(connection, run_id)
    query = sa.select(_runs.c.run_id).where(_runs.c.run_id == run_id, _runs.c.fence == fence)
    return connection.scalar(query) is not None
