"""`open_runs`: the runs of a database that have not ended, as an operator counts them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import sqlalchemy as sa

from agentkit.runs.run_database import RunDatabase, decisions_table, runs_table
from agentkit.runs.worker_rows import WorkerRow, WorkerRows

_OPEN = ("queued", "running", "waiting")


class RunGroup(NamedTuple):
    """The runs of an agent in a state."""

    agent: str
    state: str
    runs: int
    """Number of runs."""
    oldest: float
    """Seconds since the last change of the run that changed first."""


class OpenRuns(NamedTuple):
    """The runs that have not ended, of all servers and programs of a database."""

    groups: Sequence[RunGroup]
    waiting_calls: int
    """Number of tool calls that wait for a decision."""
    workers: Sequence[WorkerRow]


def open_runs(database: RunDatabase) -> OpenRuns:
    """Return the runs of a database that have not ended.

    The query reads the index of the states: its time depends on the number of these runs only.
    """
    run, call = runs_table.c, decisions_table.c
    age = database.now - sa.func.min(run.updated_at)
    groups = sa.select(run.agent, run.state, sa.func.count(), age).where(run.state.in_(_OPEN), run.top.is_(None))
    groups = groups.group_by(run.agent, run.state)
    calls = sa.select(sa.func.count()).select_from(runs_table).join(decisions_table, call.run == run.run_id)
    calls = calls.where(run.state == "waiting", call.decision.is_(None))

    def read(connection: sa.Connection) -> tuple[list[RunGroup], int]:
        rows = [
            RunGroup(agent, state, count, max(0.0, oldest))
            for agent, state, count, oldest in connection.execute(groups)
        ]
        return rows, connection.scalar(calls) or 0

    rows, waiting = database.work(read)
    return OpenRuns(rows, waiting, WorkerRows(database, database.engine).all())
