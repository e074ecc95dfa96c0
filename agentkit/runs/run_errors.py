"""Errors of stored runs."""

from __future__ import annotations

from agentkit.errors import AgentError

__all__ = ["AttemptEnded", "DurableError", "RunNotFound", "RunStoreError"]


class DurableError(AgentError):
    """Base of what can go wrong with durable runs that is not the fault of the run itself."""


class RunStoreError(AgentError):
    """The store of the runs cannot be opened: it is of another format, of something else, or in use."""


class RunNotFound(DurableError, LookupError):
    """The database has no run of this id.

    Attributes:
        run_id: Id that was asked for.
        around: Id of the run that contains it, if it is the run of an agent as a tool.
    """

    def __init__(self, run_id: str, around: str | None = None) -> None:
        what = f"unknown run {run_id!r:.80}: `agentkit runs list` lists the runs of this database"
        if around is not None:
            what = f"{run_id!r} is an agent inside of run {around!r}, and part of it: name that run"
        super().__init__(what)
        self.run_id = run_id
        self.around = around


class AttemptEnded(DurableError):
    """An attempt stores nothing more: the run was cancelled or deleted, or another attempt continues it.

    Attributes:
        is_cancelled: True if the run was cancelled.
    """

    def __init__(self, run_id: str, *, is_cancelled: bool) -> None:
        what = "was cancelled" if is_cancelled else "is continued by another attempt, or was deleted"
        super().__init__(f"run {run_id!r} {what}")
        self.is_cancelled = is_cancelled
