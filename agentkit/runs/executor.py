"""`Executor`: executes the runs of a store, such as in tasks of this process or on the workers of a database."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Protocol

from agentkit.run.parts.decisions import Decision
from agentkit.runs.run_record import RunEvent, RunRecord


class Executor(Protocol):
    """Executor of the runs of a `RunStore`."""

    @property
    def has_deltas(self) -> bool:
        """True if events contain deltas of the text; otherwise only whole replies and results."""
        ...

    @property
    def live(self) -> int:
        """Number of runs that this process executes, watches, or has in its queue."""
        ...

    @property
    def worker(self) -> str | None:
        """Id of the worker of this process, which renews a lease; None without a worker."""
        ...

    async def open(self) -> None:
        """Start to execute runs, including runs that a stopped process left unfinished."""
        ...

    async def start(self, record: RunRecord) -> RunRecord:
        """Start a run from its record, and return the stored record.

        Raises:
            Conflict: The session is in use, or the tenant used the key for another run.
            ServerFull: The queue of runs is full.
        """
        ...

    async def decide(self, record: RunRecord, decisions: Mapping[str, Decision]) -> RunRecord:
        """Decide about waiting calls, by their ids. The run continues when no decision is missing.

        Raises:
            Conflict: The run does not wait, or its session is in use.
            Unprocessable: No waiting call has the id.
        """
        ...

    async def cancel(self, record: RunRecord, reason: str = "") -> RunRecord:
        """Cancel a run; a run that has ended is not changed. `reason`: text that the model of the next run reads."""
        ...

    async def delete(self, record: RunRecord) -> None:
        """Delete a run that has ended, with its journal, events and decisions."""
        ...

    def events(self, record: RunRecord, after: int) -> AsyncGenerator[RunEvent, None]:
        """Yield the events of a run after the event number `after`, until the run ends or waits for a decision.

        After the first event, a query that fails is retried until the database responds.
        """
        ...

    def stop_listening(self) -> None:
        """End the streams of events, because the server stops; clients continue the streams with the next server."""
        ...

    async def close(self) -> None:
        """Stop the executor; the next process continues the runs that do not end soon."""
        ...
