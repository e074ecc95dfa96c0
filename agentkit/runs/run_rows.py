"""Conversion of runs, calls and events to rows of the tables, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from pydantic_core import to_json

from agentkit.models.model import NO_USAGE, Usage
from agentkit.run.parts.decisions import Decision, Denied, read_decision
from agentkit.runs.run_database import runs_table
from agentkit.runs.run_record import (
    RunError,
    RunEvent,
    RunRecord,
    RunState,
    WaitingCall,
    searched_words,
    tokens_of,
)
from agentkit.runs.stored_values import call_of, finite_number, stored_call, stored_tags, stored_text, tags_of
from agentkit_prompts.context.prompt_context import UserInput

CORRUPT = RunError("RunStoreError", "the stored data of this run is corrupt")
"""The error of a run whose row cannot be read."""
_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""Errors of reading corrupt data."""
_COPIED = (
    *("run_id", "tenant", "user", "locale", "agent", "session", "executor", "version", "schedule", "parent"),
    *("worker", "state"),
)
"""Fields of `RunRecord` that are columns with the same name and value."""
_NO_OUTCOME: Mapping[str, Any] = {
    **{"output": None, "finish_reason": None, "steps": 0, "response": None, "tool_errors": 0, "error": None},
    **{"citations": (), "unknown_labels": (), "waiting": ()},
}
_OUTCOME = ("output", "finish_reason", "steps", "response", "tool_errors")
"""Fields of `RunRecord` that the outcome contains unchanged."""


def run_row(record: RunRecord) -> dict[str, Any]:
    """Return the columns of a new run."""
    input_json = None
    if record.input is not None:
        input_json = json_text(_input_data(record.input))
    return {
        **{name: getattr(record, name) for name in _COPIED},
        "permissions": " ".join(record.permissions),
        "tags": stored_tags(record.tags),
        "created_at": record.created_at,
        "attempts": record.attempts,
        "leg": 0,
        "input": input_json,
        "words": stored_text(searched_words(record)),
        **ended_row(record),
    }


def ended_row(record: RunRecord) -> dict[str, Any]:
    """Return the columns that change when an attempt ends."""
    outcome = {name: getattr(record, name) for name in _OUTCOME}
    outcome["citations"] = [dict(citation) for citation in record.citations]
    outcome["unknown_labels"] = list(record.unknown_labels)
    outcome["error"] = None
    if record.error is not None:
        outcome["error"] = list(record.error)
    # Calls that wait for decisions have their own rows. After the end, only calls for the client are left.
    calls: Sequence[WaitingCall] = ()
    if record.state != "waiting":
        calls = record.waiting
    outcome["waiting"] = [[call.call_id, call.tool, call.arguments] for call in calls]
    error, seconds = "", 0.0
    if record.error is not None:
        error = stored_text(record.error.type)
    if record.has_ended:
        seconds = max(0.0, record.updated_at - record.created_at)
    return {
        "state": record.state,
        "reason": stored_text(record.reason),
        "updated_at": record.updated_at,
        "error": error,
        "tokens": tokens_of(record.usage),
        "cost": record.cost or 0.0,
        "seconds": seconds,
        "usage": json_text(asdict(record.usage)),
        "outcome": json_text(outcome),
    }


def record_of(row: Mapping[Any, Any], waiting: Sequence[WaitingCall] = ()) -> RunRecord:
    """Return a run from its row. A corrupt row is a run with an error, so that the other runs can be listed."""
    columns: dict[str, Any] = {name: row[name] for name in _COPIED}
    columns |= {name: finite_number(row[name]) for name in ("created_at", "updated_at")}
    columns["permissions"] = tuple(str(row["permissions"]).split())
    columns["tags"] = tags_of(row["tags"])
    columns["reason"], columns["unread"] = str(row["reason"]), row["unread"]
    columns["attempts"] = 0
    if isinstance(row["attempts"], int):
        columns["attempts"] = row["attempts"]
    try:
        outcome = _NO_OUTCOME
        if row["outcome"] is not None:
            outcome = json.loads(row["outcome"])
        error = outcome["error"]
        return RunRecord(
            **columns,
            **{name: outcome[name] for name in _OUTCOME},
            input=None if row["input"] is None else _input_of(json.loads(row["input"])),
            usage=Usage(**json.loads(row["usage"])),
            citations=tuple(outcome["citations"]),
            unknown_labels=tuple(outcome["unknown_labels"]),
            error=None if error is None else RunError(*error),
            waiting=(*waiting, *[WaitingCall(*call) for call in outcome["waiting"]]),
        )
    except _UNREADABLE:
        return RunRecord(**columns, error=CORRUPT, usage=NO_USAGE)


def lock_run(connection: sa.Connection, run_id: str) -> RunState | None:
    """Lock a run until the end of the transaction, and return its state; None if the run is unknown.

    Decisions are stored under this lock. Without it, two transactions that decide about the last two calls would each
    still see the other call without a decision, and neither would queue the run.
    """
    locked = sa.update(runs_table).where(runs_table.c.run_id == run_id).values(fence=runs_table.c.fence)
    state: RunState | None = connection.scalar(locked.returning(runs_table.c.state))
    return state


def call_row(run_id: str, call: WaitingCall) -> dict[str, Any]:
    """Return the columns of a call that starts to wait, without its times."""
    return {
        "run": run_id,
        "call": stored_call(call.call_id),
        "tool": stored_text(call.tool),
        "arguments": stored_text(call.arguments),
        "agent": stored_text(call.agent),
        "decided_by": "",
    }


def waiting_call_of(row: Any) -> WaitingCall:
    """Return a call that waits or waited for a decision from its row."""
    return WaitingCall(
        call_of(str(row.call)),
        str(row.tool),
        str(row.arguments),
        str(row.agent),
        finite_number(row.asked_at),
        _time(row.expires_at),
        None if row.decision is None else _decision_of(row.decision),
        str(row.decided_by),
        _time(row.decided_at),
    )


def event_of(row: Any) -> RunEvent:
    """Return an event from its row."""
    return RunEvent(row.seq, row.kind, json.loads(row.data))


def json_text(data: Any) -> str:
    """Return data as JSON; numbers that JSON does not have, such as NaN, become null."""
    try:
        return to_json(data, inf_nan_mode="null").decode()
    except ValueError:
        # A model or a tool can write an unpaired surrogate, which only `json` escapes.
        finite = json.loads(json.dumps(data), parse_constant=lambda _: None)
        return json.dumps(finite, separators=(",", ":"))


def _input_data(user_input: UserInput) -> dict[str, Any]:
    return {"text": user_input.text, "additional_kwargs": dict(user_input.additional_kwargs)}


def _input_of(data: Any) -> UserInput:
    return UserInput(data["text"], additional_kwargs=data["additional_kwargs"])


def _decision_of(stored: str) -> Decision:
    """Return a stored decision; a corrupt decision is a denial."""
    try:
        return read_decision(json.loads(stored))
    except _UNREADABLE:
        return Denied("its stored decision cannot be read")


def _time(stored: object) -> float | None:
    if stored is None:
        return None
    return finite_number(stored)
