"""Errors of durable runs."""

from __future__ import annotations

from agentkit.runs.run_errors import DurableError, RunNotFound

__all__ = [
    "DurableError",
    "RunCancelled",
    "RunFailed",
    "RunIdTaken",
    "RunNotFound",
    "WorkerError",
]


class RunIdTaken(DurableError, ValueError):
    """A run with this id exists, with another agent, input or session. Nothing was started.

    Attributes:
        run_id: The requested id.
    """

    def __init__(self, run_id: str, difference: str) -> None:
        super().__init__(f"run {run_id!r} exists, with another {difference}: use a unique id for every run")
        self.run_id = run_id


class RunFailed(DurableError):
    """The run failed with an error, usually in another process. Has the `journal`, `messages` and `usage` of the run.

    Attributes:
        run_id: Id of the run.
        kind: Name of the class of the error, such as `ModelUnavailable`.
        message: Text of the error.
        data: Kind and message, as DBOS stores an error.
    """

    def __init__(self, run_id: str, kind: str, message: str) -> None:
        super().__init__(f"run {run_id!r} failed: {kind}: {message}")
        self.run_id = run_id
        self.kind = kind
        self.message = message
        self.data = {"kind": kind, "message": message}


class RunCancelled(DurableError):
    """The run was cancelled. Has the `journal`, `messages` and `usage` of the run.

    Attributes:
        run_id: Id of the run.
        reason: Reason of the cancellation; empty without a reason.
    """

    def __init__(self, run_id: str, reason: str = "") -> None:
        cause = f" ({reason:.200})" if reason else ""
        super().__init__(f"run {run_id!r} was cancelled{cause}: `resume` continues the run")
        self.run_id = run_id
        self.reason = reason


class WorkerError(DurableError):
    """A worker cannot start, or cannot continue a run."""
