"""Where the lines of a journal are stored: a run is a workflow, and each agent that runs as a tool a child of it.

DBOS executes the workflow of the run alone. Those of the agents inside are in no queue and have no worker: whoever does
the run stores the lines of all of them, in the order in which they were written, those that wait in one transaction.
DBOS refuses that to whoever does not own the run. So a run has one owner at any depth, and a kill leaves a journal that
is whole up to some line. An agent ends with the result of its call; until then it is pending, whatever its run is.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from agentkit.durable.stored.run_request import RunRequest
from agentkit.durable.stored.run_tables import call_of, stored_call, stored_text
from agentkit.durable.stored.workflow_rows import StepRow, WorkflowRows, delete_rows
from agentkit.errors import JournalError
from agentkit.run.journal.journal import inner_line

__all__ = ["INNER", "JOURNAL", "JournalRow", "JournalRows", "journal_rows", "journal_text"]

INNER = "agentkit.agent"
"""Name of the workflows of agents inside of runs."""
JOURNAL = "journal"
"""Name of the steps."""
_HEAD, _RESULT = '{"journal":', '{"effect":"CallTools"'
"""How lines begin: the first one of a journal, and the result of a call."""
_ENDED: Mapping[str, str] = {"success": "SUCCESS", "cancelled": "CANCELLED"}
"""What DBOS calls the end of a workflow, by the status of the call; any other is an error."""
_MAX_ERROR = 1000


@dataclass(slots=True)
class JournalRow:
    """A workflow that has lines of a journal."""

    workflow_id: str
    calls: tuple[str, ...]
    """The ids of the calls that lead to its agent, the outermost first; none where it is the run itself."""
    lines: list[Any] = field(default_factory=list)
    """Its lines, in the pieces they were stored in."""
    steps: int = 0
    """The number of its last step."""


def journal_rows(workflows: WorkflowRows, run_ids: Sequence[str]) -> dict[str, list[JournalRow]]:
    """Return what is stored of the journals of runs, or of agents inside of runs: the rows of each, its own first."""
    found: dict[str, dict[str, list[StepRow]]] = {}
    for step in workflows.steps(run_ids, JOURNAL):
        found.setdefault(step.top, {}).setdefault(step.workflow_id, []).append(step)
    return {top: sorted(_rows(top, steps), key=lambda row: len(row.calls)) for top, steps in found.items()}


def _rows(top: str, steps: Mapping[str, Sequence[StepRow]]) -> list[JournalRow]:
    found: list[JournalRow] = []
    for workflow_id, own in steps.items():
        calls: list[str] = []
        at = workflow_id
        while at != top and at in steps and len(calls) <= len(steps):
            calls.insert(0, call_of(steps[at][0].attributes.get("call", "")))
            at = steps[at][0].parent_id or ""
        found.append(JournalRow(workflow_id, tuple(calls), [step.output for step in own], own[-1].number))
    return found


def journal_text(head: str, rows: Sequence[JournalRow]) -> str:
    """Return a journal as `Journal.loads` takes it; `head` is its first line, where that is no line of the rows.

    Raises:
        JournalError: It is damaged.
    """
    pieces = [head]
    for row in rows:
        if not all(isinstance(lines, str) for lines in row.lines):
            raise JournalError("what is stored of its journal is damaged", name="journal")
        for lines in row.lines:
            pieces += (
                [inner_line(line, row.calls) for line in lines.splitlines(keepends=True)] if row.calls else [lines]
            )
    return "".join(pieces)


class JournalRows:
    """The rows of a run that goes on, as the one attempt stores lines in them that owns the run.

    Args:
        system: What the worker stores with: it waits for a server that restarts.
        run_id: Id of the run.
        owner: What DBOS knows the attempt by.
        request: What the run was started with.
        rows: What is stored of it.
    """

    def __init__(self, system: Any, run_id: str, owner: str, request: RunRequest, rows: Sequence[JournalRow]) -> None:
        self._system, self._run_id, self._owner, self._request = system, run_id, owner, request
        self._rows = {row.calls: JournalRow(row.workflow_id, row.calls, steps=row.steps) for row in rows}
        self._rows.setdefault((), JournalRow(run_id, ()))

    def store(self, lines: Sequence[tuple[str, tuple[str, ...]]]) -> None:
        """Store lines, each with the calls that lead to its agent: all of them or none.

        Raises:
            DBOSWorkflowConflictIDError: Another attempt owns the run.
            DBOSWorkflowCancelledError: The run was cancelled.
        """
        from dbos._sys_db import db_retry

        waiting, system, at = _Waiting(dict(self._rows)), self._system, int(time.time() * 1000)
        for line, calls in lines:
            if self._request.format == 1:
                line, calls = inner_line(line, calls), ()
            waiting.add(line, calls)
        begun = [(self._status(*one), os.urandom(16).hex()) for one in waiting.begun.values()]
        steps = [self._step(row, "".join(texts), at) for row, texts in waiting.texts.values()]

        def write() -> None:  # once more, where the connection was lost: the same rows
            with system.engine.begin() as connection:
                self._check_owner(connection)
                if waiting.gone:
                    delete_rows(connection, system.tables, waiting.gone)
                for status, key in begun:
                    system._insert_workflow_status(status, connection, creator_xid=key)
                for step in steps:
                    system._record_operation_result_txn(step, at, connection)
                for workflow_id, result in waiting.ended.items():
                    self._end(connection, workflow_id, result)

        db_retry(sys_db=system)(write)()
        for row, _ in waiting.texts.values():
            row.steps += 1
        self._rows = waiting.rows

    def _check_owner(self, connection: sa.Connection) -> None:
        """Lock the run, and refuse to store anything where another attempt owns it."""
        from dbos import error

        try:
            self._system._check_owner_txn(connection, self._run_id, self._owner)
        except error.DBOSWorkflowConflictIDError:
            row = self._system.tables.workflow_status
            status = connection.scalar(sa.select(row.c.status).where(row.c.workflow_uuid == self._run_id))
            if status == "CANCELLED":
                raise error.DBOSWorkflowCancelledError(f"run {self._run_id} was cancelled") from None
            raise

    def _status(self, row: JournalRow, parent: str, head: Mapping[str, Any]) -> dict[str, Any]:
        """Return a new workflow as DBOS stores it: a child that goes on with its parent, in no queue."""
        from dbos import WorkflowSerializationFormat
        from dbos._enqueue_options import build_enqueue_status

        about = {"agent": stored_text(head["agent"]), "call": stored_call(row.calls[-1])}
        options: Any = {
            "workflow_name": INNER,
            "queue_name": INNER,
            "workflow_id": row.workflow_id,
            "application_name": self._system.app_name,
            "serialization_type": WorkflowSerializationFormat.PORTABLE,
            "attributes": {**about, "tenant": self._request.tenant, "user": self._request.user},
        }
        _, status = build_enqueue_status(options, self._system.serializer, (), {})
        return {**status, "status": "PENDING", "queue_name": None, "parent_workflow_id": parent}

    def _step(self, row: JournalRow, text: str, at: int) -> dict[str, Any]:
        """Return a step as DBOS stores it."""
        serializer = self._system.serializer
        return {
            "workflow_uuid": row.workflow_id,
            "function_id": row.steps + 1,
            "function_name": JOURNAL,
            "output": serializer.serialize(text),
            "error": None,
            "serialization": serializer.name(),
            "started_at_epoch_ms": at,
            "child_workflow_id": None,
        }

    def _end(self, connection: sa.Connection, workflow_id: str, result: Mapping[str, Any]) -> None:
        """Note that an agent has answered the call that it is the tool of."""
        system, row = self._system, self._system.tables.workflow_status
        status, now = _ENDED.get(result["status"], "ERROR"), system._now_ms_sql()
        ended = sa.update(row).where(row.c.workflow_uuid == workflow_id, row.c.status == "PENDING")
        connection.execute(ended.values(status=status, owner_xid=None, updated_at=now, completed_at=now))
        if status == "ERROR":
            text = result["content"] if isinstance(result["content"], str) else ""
            error = json.dumps({"name": result["status"], "message": text[:_MAX_ERROR]})
            made = system.dialect.insert(system.tables.workflow_output).values(workflow_uuid=workflow_id, error=error)
            connection.execute(made.on_conflict_do_nothing())


@dataclass(slots=True)
class _Waiting:
    """What is to be stored at once, by the ids of workflows, and the rows as they are then."""

    rows: dict[tuple[str, ...], JournalRow]
    gone: list[str] = field(default_factory=list)
    begun: dict[str, tuple[JournalRow, str, Mapping[str, Any]]] = field(default_factory=dict)
    """Those that are new, with the ids of those they are inside of, and how their journals begin."""
    texts: dict[str, tuple[JournalRow, list[str]]] = field(default_factory=dict)
    ended: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """The results of the calls of agents."""

    def add(self, line: str, calls: tuple[str, ...]) -> None:
        if calls and line.startswith(_HEAD):
            self._begin(json.loads(line), calls)
        elif line.startswith(_RESULT) and len(self.rows) > 1:
            result = json.loads(line)["answer"]
            if (inner := self.rows.get((*calls, result["call_id"]))) is not None:
                self.ended[inner.workflow_id] = result
        row = self.rows[calls]
        self.texts.setdefault(row.workflow_id, (row, []))[1].append(line)

    def _begin(self, head: Mapping[str, Any], calls: tuple[str, ...]) -> None:
        for known in [one for one in self.rows if one[: len(calls)] == calls]:  # it is begun anew
            workflow_id = self.rows.pop(known).workflow_id
            self.gone.append(workflow_id)
            self.begun.pop(workflow_id, None)
            self.texts.pop(workflow_id, None)
            self.ended.pop(workflow_id, None)
        row = self.rows[calls] = JournalRow(head["run_id"], calls)
        self.begun[row.workflow_id] = row, self.rows[calls[:-1]].workflow_id, head
