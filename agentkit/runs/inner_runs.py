"""Agents that run as tools inside of a run. Each agent has a row; the journal of the run contains its lines."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from agentkit.runs.run_database import runs_table
from agentkit.runs.run_record import RunError, RunRecord, RunState
from agentkit.runs.run_rows import ended_row, run_row
from agentkit.runs.stored_values import stored_text

_runs = runs_table
_HEAD_PREFIX, _RESULT_PREFIX = '{"journal":', '{"effect":"CallTools"'
"""Prefixes of the first line of a journal and of the line of a tool result."""
_STATE_OF_STATUS: Mapping[str, RunState] = {"success": "finished", "cancelled": "cancelled"}
"""State of an agent by the status of its call; `failed` for other statuses."""
_MAX_ERROR = 1000
"""Maximum characters of the stored error of an agent; the journal has the whole text."""


class InnerRuns:
    """The agents inside of one run; the attempt that stores their lines also updates their rows.

    Args:
        run_id: The run.
        ids: Run ids of the agents, by the ids of the calls that lead to an agent, the outermost call first.
    """

    def __init__(self, run_id: str, ids: Mapping[tuple[str, ...], str]) -> None:
        self._run_id = run_id
        self._ids = dict(ids)

    @classmethod
    def read(cls, connection: sa.Connection, run_id: str) -> InnerRuns:
        """Return the agents inside of a run as they are stored."""
        rows = connection.execute(sa.select(_runs.c.run_id, _runs.c.calls).where(_runs.c.top == run_id))
        return cls(run_id, {tuple(json.loads(calls)): inner for inner, calls in rows})

    def store(self, connection: sa.Connection, lines: Sequence[tuple[str, tuple[str, ...]]]) -> InnerRuns:
        """Store the agents that start or end in journal lines, and return the agents after these lines."""
        # A copy: if the transaction is retried, it starts again from the agents before the lines.
        updated = InnerRuns(self._run_id, self._ids)
        for line, calls in lines:
            if calls and line.startswith(_HEAD_PREFIX):
                updated._begin(connection, json.loads(line), calls)
            # Most runs contain no agents: the results of their calls are not parsed.
            elif updated._ids and line.startswith(_RESULT_PREFIX):
                result = json.loads(line)["answer"]
                inner = updated._ids.get((*calls, result["call_id"]))
                if inner is not None:
                    _end(connection, inner, result)
        return updated

    def _begin(self, connection: sa.Connection, head: Mapping[str, Any], calls: tuple[str, ...]) -> None:
        # The call was repeated after an error: its earlier agent, and the agents inside of that agent, are replaced.
        earlier = [path for path in self._ids if path[: len(calls)] == calls]
        if earlier:
            replaced = [self._ids.pop(path) for path in earlier]
            connection.execute(sa.delete(_runs).where(_runs.c.run_id.in_(replaced)))
        outer = self._ids.get(calls[:-1], self._run_id)
        self._ids[calls] = head["run_id"]
        run = connection.execute(sa.select(_runs.c.tenant, _runs.c.user).where(_runs.c.run_id == self._run_id)).one()
        now = time.time()
        record = RunRecord(
            run_id=head["run_id"],
            agent=stored_text(head["agent"]),
            state="running",
            created_at=now,
            updated_at=now,
            tenant=run.tenant,
            user=run.user,
            executor="dbos",
            parent=outer,
        )
        values = {**run_row(record), "top": self._run_id, "calls": json.dumps(calls)}
        connection.execute(sa.insert(_runs).values(**values))


def _end(connection: sa.Connection, run_id: str, result: Mapping[str, Any]) -> None:
    """Store the end of an agent whose call has a result."""
    state = _STATE_OF_STATUS.get(result["status"], "failed")
    error = None
    if state == "failed":
        content = result["content"]
        text = content[:_MAX_ERROR] if isinstance(content, str) else ""
        error = RunError(result["status"], text)
    now = time.time()
    record = RunRecord(run_id=run_id, agent="", state=state, created_at=now, updated_at=now, error=error)
    ended = sa.update(_runs).where(_runs.c.run_id == run_id, _runs.c.state == "running")
    connection.execute(ended.values(**ended_row(record)))
