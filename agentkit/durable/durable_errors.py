"""What can go wrong with runs that outlive their process."""

from __future__ import annotations

from agentkit.runs.run_errors import DurableError, RunNotFound

__all__ = [
    "DatabaseUnavailable",
    "DurableError",
    "RunCancelled",
    "RunFailed",
    "RunIdTaken",
    "RunNotFound",
    "WorkerError",
]


class DatabaseUnavailable(DurableError):
    """The database of the runs does not answer, or refuses what it is asked: it is down, out of reach or full.

    Whether what was asked for is stored is not known then: runs go on either way, and `start` with the same `run_id`
    begins a run once.
    """


class RunIdTaken(DurableError, ValueError):
    """The id of a new run is that of another one: of another agent, input or session. Nothing was started.

    Attributes:
        run_id: Id that was asked for.
    """

    def __init__(self, run_id: str, what: str) -> None:
        super().__init__(f"run {run_id!r} exists, with another {what}: give every run an id of its own")
        self.run_id = run_id


class RunFailed(DurableError):
    """The run ended with an error, as a rule in another process. `journal`, `messages` and `usage` are those of it.

    Attributes:
        run_id: Id of the run.
        kind: Name of the class of the error, such as `ModelUnavailable`.
        message: Its text.
        data: Kind and message: what DBOS stores of an error.
    """

    def __init__(self, run_id: str, kind: str, message: str) -> None:
        super().__init__(f"run {run_id!r} failed: {kind}: {message}")
        self.run_id = run_id
        self.kind = kind
        self.message = message
        self.data = {"kind": kind, "message": message}


class RunCancelled(DurableError):
    """The run was cancelled. `journal`, `messages` and `usage` are those of the run.

    Attributes:
        run_id: Id of the run.
    """

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id!r} was cancelled: `resume` goes on with it")
        self.run_id = run_id


class WorkerError(DurableError):
    """A worker cannot start, or may not go on: the message says which, and what to do."""
