"""`RunInfo`: what a database knows of a durable run, read from the status of its workflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from agentkit.durable.run_tables import AskedCall, WorkerRow

__all__ = ["RunInfo", "RunState", "Status", "info_of", "names_of", "outcome_of", "state_of"]

RunState: TypeAlias = Literal["queued", "running", "paused", "finished", "failed", "cancelled"]
Status: TypeAlias = Any
"""A `WorkflowStatus` of DBOS."""
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

    @property
    def has_ended(self) -> bool:
        """Whether it finished, failed or was cancelled."""
        return self.state in ("finished", "failed", "cancelled")


def names_of(state: RunState | None) -> list[str]:
    """Return what DBOS may call a state: a paused run is one that it has finished."""
    return [name for name, own in _STATES.items() if own == ("finished" if state == "paused" else state)]


def state_of(status: Status) -> RunState:
    """Return the state of a workflow's run."""
    state = _STATES.get(status.status, "failed")
    if state == "finished" and isinstance(status.output, Mapping) and status.output.get("state") == "paused":
        return "paused"
    return state


def outcome_of(status: Status) -> Mapping[str, Any] | None:
    """Return how a run ended or why it pauses, as data; None while it is under way."""
    state = state_of(status)
    if state in ("queued", "running"):
        return None
    if state in ("finished", "paused"):
        return dict(status.output)
    if state == "cancelled":
        return {"state": state}
    kind, message = _error_of(status)
    return {"state": state, "kind": kind, "message": message}


def info_of(status: Status, waiting: tuple[AskedCall, ...], workers: Sequence[WorkerRow]) -> RunInfo:
    """Return what is known of a run."""
    about, state = status.attributes or {}, state_of(status)
    agent, version = about.get("agent") or "", about.get("version") or ""
    error = None
    if state == "failed":
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
        attempts=status.recovery_attempts or 0,
        waiting=waiting,
        error=error,
        problem=_problem(state, status.executor_id, (agent, version), workers),
    )


def _error_of(status: Status) -> tuple[str, str]:
    if status.status == "MAX_RECOVERY_ATTEMPTS_EXCEEDED":
        return "WorkerError", f"{status.recovery_attempts} workers died with it: it may be what ends them"
    error = status.error
    data = getattr(error, "data", None)
    if isinstance(data, Mapping) and "kind" in data:
        return str(data["kind"]), str(data["message"])
    return getattr(error, "name", type(error).__name__), str(error)


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


def _time(milliseconds: int | None) -> datetime:
    return datetime.fromtimestamp((milliseconds or 0) / 1000, UTC)
