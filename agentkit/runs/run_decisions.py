"""Calls that wait for decisions, and the decisions, as rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

import sqlalchemy as sa

from agentkit.errors import ApprovalError
from agentkit.run.parts.decisions import Approved, Decision, Denied, decision_data
from agentkit.runs.changed_arguments import check_changed_arguments
from agentkit.runs.run_database import decisions_table, runs_table
from agentkit.runs.run_record import RunRecord, RunState, WaitingCall
from agentkit.runs.run_rows import call_row, json_text, lock_run, waiting_call_of
from agentkit.runs.stored_values import stored_call, stored_text

CallDecisions: TypeAlias = Mapping[str, Decision] | Mapping[str | None, Decision]
"""Decisions by the ids of calls; None for all other calls that wait."""
_runs, _decisions = runs_table, decisions_table


def calls_of(connection: sa.Connection, run_ids: Collection[str]) -> list[tuple[str, WaitingCall]]:
    """Return the calls of runs that wait or waited for decisions, each with the id of its run, the oldest first."""
    query = sa.select(_decisions).where(_decisions.c.run.in_(run_ids))
    rows = connection.execute(query.order_by(_decisions.c.asked_at, _decisions.c.call))
    return [(str(row.run), waiting_call_of(row)) for row in rows]


def store_waiting_calls(connection: sa.Connection, now: Any, record: RunRecord, timeout: float | None) -> bool:
    """Store the calls of a run that wait for decisions; stored calls are not changed.

    Returns:
        False if all the calls have been decided.

    Args:
        connection: The transaction.
        now: The time by the clock of the database.
        record: The run; nothing is stored if it does not wait.
        timeout: Seconds after which the calls are denied; None for never.
    """
    if record.state != "waiting":
        return True
    stored = {call.call_id: call for _, call in calls_of(connection, [record.run_id])}
    if all(call.call_id in stored and stored[call.call_id].decision is not None for call in record.waiting):
        return not record.waiting
    expires = None
    if timeout is not None:
        expires = now + timeout
    for call in record.waiting:
        if call.call_id not in stored:
            values = {**call_row(record.run_id, call), "asked_at": now, "expires_at": expires}
            connection.execute(sa.insert(_decisions).values(**values))
    return True


def store_decisions(
    connection: sa.Connection, now: Any, run_id: str, decisions: CallDecisions, by: str
) -> float | None:
    """Store decisions about calls of a waiting run; return the time of the last decision by the clock of the database.

    Return None if a decision cannot be stored: the caller must roll back, because other decisions can have been stored.

    Raises:
        ApprovalError: Changed arguments do not match the schema of their tool; nothing was stored.
    """
    if lock_run(connection, run_id) != "waiting":
        return None
    last: float | None = None
    _check_changed_arguments(connection, run_id, decisions)
    is_late = sa.and_(_decisions.c.run == run_id, _decisions.c.decision.is_(None), _decisions.c.expires_at < now)
    is_in_time = sa.or_(_decisions.c.expires_at.is_(None), _decisions.c.expires_at >= now)
    waits = sa.update(_decisions).where(_decisions.c.run == run_id, _decisions.c.decision.is_(None), is_in_time)
    # The decision for all other calls comes last: the named calls do not wait then.
    for call, decision in sorted(decisions.items(), key=lambda item: item[0] is None):
        decided = waits
        if call is not None:
            decided = waits.where(_decisions.c.call == stored_call(call))
        data = json_text(decision_data(decision))
        decided = decided.values(decision=data, decided_by=stored_text(by), decided_at=now)
        times = connection.scalars(decided.returning(_decisions.c.decided_at)).all()
        has_arguments = isinstance(decision, Approved) and decision.arguments is not None
        # Changed arguments belong to one call: they cannot replace the arguments of several calls.
        if not times or (call is None and has_arguments and len(times) > 1):
            return None
        # A worker denies a late call, so that a decision about all calls cannot be stored completely.
        if call is None and connection.scalar(sa.select(sa.exists().where(is_late))):
            return None
        last = times[-1]
    return last


def has_decision(connection: sa.Connection, run_id: str, at: float) -> bool:
    """True if a decision about a call of a run was stored at this time."""
    lock_run(connection, run_id)  # waits for a lost transaction that is still in its commit
    query = sa.select(_decisions.c.call).where(_decisions.c.run == run_id, _decisions.c.decided_at == at)
    return connection.scalar(query.limit(1)) is not None


def _check_changed_arguments(connection: sa.Connection, run_id: str, decisions: CallDecisions) -> None:
    values = {
        call: decision.arguments
        for call, decision in decisions.items()
        if isinstance(decision, Approved) and decision.arguments is not None
    }
    if not values:
        return
    tools = {call.call_id: call.tool for _, call in calls_of(connection, [run_id]) if call.decision is None}
    # Changed arguments for all calls are refused later if more than one call waits.
    if None in values and len(tools) == 1:
        values[next(iter(tools))] = values[None]
    named = {call: arguments for call, arguments in values.items() if call is not None}
    check_changed_arguments(connection, run_id, tools, named)


def decision_error(
    run_id: str, state: RunState, calls: Sequence[WaitingCall], decisions: CallDecisions, now: float
) -> ApprovalError:
    """Return the error for decisions that could not be stored; `now` is the time by the clock of the database."""
    waiting = [call for call in calls if call.decision is None and state == "waiting"]
    decided = {call.call_id: call for call in calls if call.decision is not None}
    if not waiting:
        last = "".join([f"; {_decided(call)}" for call in decided.values()][-1:])
        message = f"run {run_id!r}: no call waits for a decision{last}; nothing was decided"
        return ApprovalError(message, name="approve", value="nothing waits")
    late = _late_calls(waiting, decisions, now)
    if late:
        message = f"run {run_id!r}: the time to decide about {_listed(late)} is over: a worker denies the calls; "
        return ApprovalError(f"{message}nothing was decided", name="approve", value=", ".join(late))
    names = [call.call_id for call in waiting]
    wrong = [call for call in decisions if call is not None and call not in names]
    if not wrong:
        message = f"run {run_id!r}: the changed arguments belong to one call: name it; waiting calls: {_listed(names)}"
        return ApprovalError(message, name="arguments")
    message = f"run {run_id!r}: {_wrong_calls(wrong, decided, names)}; nothing was decided"
    return ApprovalError(message, name="approve", value=", ".join(wrong))


def _late_calls(waiting: Sequence[WaitingCall], decisions: CallDecisions, now: float) -> list[str]:
    """Return the ids of late calls that are decided now; a decision without an id is about all calls."""
    return [call.call_id for call in waiting if call.is_late(now) and (None in decisions or call.call_id in decisions)]


def _wrong_calls(wrong: Sequence[str], decided: Mapping[str, WaitingCall], waiting: Sequence[str]) -> str:
    """Return the problem of calls that do not wait, because they were decided already or are unknown."""
    problems = [_decided(decided[call]) for call in wrong if call in decided]
    unknown = [call for call in wrong if call not in decided]
    if unknown:
        problems.append(f"unknown call {_listed(unknown)}; waiting calls: {_listed(waiting)}")
    return "; ".join(problems)


def _decided(call: WaitingCall) -> str:
    verb = "approved"
    if isinstance(call.decision, Denied):
        verb = "denied"
    by = ""
    if call.decided_by:
        by = f" by {call.decided_by}"
    return f"{call.call_id} was {verb} already{by}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
