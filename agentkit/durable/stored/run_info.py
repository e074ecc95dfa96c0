"""`RunInfo`: what a database knows of a durable run, read from the status of its workflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from agentkit.durable.stored.run_tables import AskedCall, WorkerRow
from agentkit.durable.stored.workflow_rows import WorkflowRow

__all__ = ["RunInfo", "RunState", "info_of", "inner_info", "names_of", "outcome_of", "state_of"]

RunState: TypeAlias = Literal["queued", "running", "paused", "finished", "failed", "cancelled"]
_STATES: Mapping[str, RunState] = {
    "ENQUEUED": "queued",
    "DELAYED": "queued",
    "PENDING": "running",
    "SUCCESS": "finished",
    "ERROR": "failed",
    "MAX_RECOVERY_ATTEMPTS_EXCEEDED": "failed",
    "CANCELLED": "cancelled",
}


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What the database knows of a run, without its messages."""

    run_id: str
    state: RunState
    agent: str
    version: str
    session: str | None
    tenant: str
    user: str
    created_at: datetime
    updated_at: datetime
    worker: str | None
    """Id of the worker that has it, or had it last."""
    attempts: int
    """How often a worker began with it since it was started or resumed."""
    waiting: tuple[AskedCall, ...] = ()
    """Calls that wait for a person, where it is paused."""
    error: str | None = None
    """Why it failed."""
    problem: str | None = None
    """Why it does not go on by itself, such as that no worker has its agent."""
    inside: str | None = None
    """Id of what an agent runs inside of as a tool: a run, or another such agent; None where it is a run."""

    @property
    def has_ended(self) -> bool:
        """Whether it finished, failed or was cancelled."""
        return self.state in ("finished", "failed", "cancelled")


def names_of(state: RunState | None) -> list[str]:
    """Return what DBOS may call a state: a paused run is one that it has finished."""
    return [name for name, own in _STATES.items() if own == ("finished" if state == "paused" else state)]


def state_of(status: WorkflowRow) -> RunState:
    """Return the state of a workflow's run."""
    state = _STATES.get(status.status, "failed")
    if state == "finished" and isinstance(status.output, Mapping) and status.output.get("state") == "paused":
        return "paused"
    return state


def outcome_of(status: WorkflowRow) -> Mapping[str, Any] | None:
    """Return how a run ended or why it pauses, as data; None while it is under way."""
    state = state_of(status)
    if state in ("queued", "running"):
        return None
    if state in ("finished", "paused") and not _is_damaged(status):
        return dict(status.output)
    if state == "cancelled":
        return {"state": state}
    kind, message = _error_of(status)
    return {"state": "failed", "kind": kind, "message": message}


def info_of(status: WorkflowRow, waiting: tuple[AskedCall, ...], workers: Sequence[WorkerRow]) -> RunInfo:
    """Return what is known of a run."""
    about, state = status.attributes, state_of(status)
    agent, version = about.get("agent") or "", about.get("version") or ""
    error = None
    if state == "failed" or _is_damaged(status):
        kind, message = _error_of(status)
        error = f"{kind}: {message}"
    return RunInfo(
        run_id=status.workflow_id,
        state=state,
        agent=agent,
        version=version,
        session=about.get("session"),
        tenant=about.get("tenant") or "",
        user=about.get("user") or "",
        created_at=_time(status.created_at),
        updated_at=_time(status.updated_at),
        worker=status.executor_id,
        attempts=status.recovery_attempts,
        waiting=waiting,
        error=error,
        problem=_problem(state, status.executor_id, (agent, version), workers),
    )


def inner_info(status: WorkflowRow, run: RunInfo) -> RunInfo:
    """Return what is known of an agent inside of a run: until its call has an answer, it goes on as the run does."""
    about, state, error = status.attributes, run.state, None
    if status.status != "PENDING":
        state = _STATES.get(status.status, "failed")
    if state == "failed" and status.error is not None:
        error = f"{status.error.get('name', 'error')}: {status.error.get('message', '')}"
    return replace(
        run,
        run_id=status.workflow_id,
        state=state,
        agent=about.get("agent") or "",
        version="",
        session=None,
        created_at=_time(status.created_at),
        updated_at=_time(status.updated_at),
        waiting=(),
        error=error,
        problem=None,
        inside=status.parent_id,
    )


def _is_damaged(status: WorkflowRow) -> bool:
    """Whether a run is stored as one that ended well, and its answer cannot be read."""
    if state_of(status) != "finished":
        return False
    output = status.output
    return not isinstance(output, dict) or not {"state", "output", "steps", "finish_reason"} <= output.keys()


def _error_of(status: WorkflowRow) -> tuple[str, str]:
    if _is_damaged(status):
        return "JournalError", "what is stored of its answer is damaged"
    if status.status == "MAX_RECOVERY_ATTEMPTS_EXCEEDED":
        return "WorkerError", f"{status.recovery_attempts} workers died with it: it may be what ends them"
    error = status.error
    if error is None:
        return "JournalError", f"what is stored of its end is damaged (status {status.status!r:.40})"
    data = error.get("data")
    if isinstance(data, Mapping) and "kind" in data:
        return str(data["kind"]), str(data.get("message", ""))
    return str(error.get("name", "Error")), str(error.get("message", ""))


def _problem(state: RunState, worker: str | None, key: tuple[str, str], workers: Sequence[WorkerRow]) -> str | None:
    """Return why a run does not go on by itself; None where it does, or has ended."""
    alive = [one for one in workers if one.is_alive]
    if state == "queued" and not any(key in one.serves for one in alive):
        if silent := [one.id for one in workers if one.state == "alive" and key in one.serves]:
            return f"worker {silent[-1]} is silent: it was stopped, or cannot write to the database: see its log"
        others = sorted({version for one in alive for name, version in one.serves if name == key[0]})
        have = f"; those that run have {', '.join(map(repr, others))}" if others else ""
        return f"no worker has version {key[1]!r} of agent {key[0]!r}{have}: start one, or cancel the run"
    if state == "running" and worker not in {one.id for one in alive}:
        cause = "it was stopped, or cannot write to the database: see its log"
        return f"its worker is silent: {cause}; another one goes on with it when its lease has ended"
    return None


def _time(milliseconds: int) -> datetime:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # it is damaged
        return datetime.fromtimestamp(0, UTC)
