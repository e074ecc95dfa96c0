"""Errors of stored runs."""

from __future__ import annotations

from agentkit.errors import AgentError


class DurableError(AgentError):
    """Base class of errors of the storage and the workers of durable runs."""


class RunStoreError(AgentError):
    """The store of the runs cannot be opened: another format, another kind of database, or a file in use.

    The subclass `DatabaseUnavailable` is the error of an open store.
    """


class DatabaseUnavailable(DurableError, RunStoreError):
    """The database of the runs does not respond, or refuses a request: it is down, unreachable or full.

    It is unknown if the last change was stored. Runs continue in any case, and `start` with the same `run_id` starts a
    run only once.
    """


class DatabaseDamaged(DatabaseUnavailable):
    """The database of the runs is damaged, or has no such table or column: retries do not help.

    A run that needs the damaged rows fails; a wait for its result ends with this error.
    """


class RunNotFound(DurableError, LookupError):
    """The database has no run of this id.

    Attributes:
        run_id: The requested id.
        around: Id of the outer run if the id belongs to an agent that runs as a tool; otherwise None.
    """

    def __init__(self, run_id: str, around: str | None = None) -> None:
        message = f"unknown run {run_id!r:.80}: `agentkit runs list` lists the runs of this database"
        if around is not None:
            message = f"{run_id!r} is an agent inside of run {around!r}: use the id of that run"
        super().__init__(message)
        self.run_id = run_id
        self.around = around


class AttemptEnded(DurableError):
    """An attempt cannot store anything more: the run was cancelled or deleted, or another attempt continues it.

    Attributes:
        is_cancelled: True if the run was cancelled.
        cancel_reason: Reason of the cancellation; empty without a reason.
    """

    def __init__(self, run_id: str, *, is_cancelled: bool, cancel_reason: str = "") -> None:
        reason = "is continued by another attempt, or was deleted"
        if is_cancelled:
            reason = "was cancelled"
        super().__init__(f"run {run_id!r} {reason}")
        self.is_cancelled = is_cancelled
        self.cancel_reason = cancel_reason
