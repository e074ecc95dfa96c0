"""`Executor`: executes the runs of a store, such as in tasks of this process or on the workers of a database."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Protocol

from agentkit.run.parts.decisions import Decision
from agentkit.runs.run_record import RunEvent, RunRecord

__all__ = ["Executor"]


class Executor(Protocol):
    """Executes the runs that a `RunStore` contains."""

    @property
    def has_deltas(self) -> bool:
        """True if events show the text as it grows; otherwise they are whole replies and results."""
        ...

    @property
    def live(self) -> int:
        """Number of runs that this process executes or watches, or that wait for room."""
        ...

    @property
    def worker(self) -> str | None:
        """Id of the worker of this process, whose lease shows others that it is alive; None without a worker."""
        ...

    async def open(self) -> None:
        """Start to execute runs, including the interrupted runs of a stopped process."""
        ...

    async def start(self, record: RunRecord) -> RunRecord:
        """Start a run that is described by its record, and return it as it is stored.

        Raises:
            Conflict: The session is in use, or the tenant used the key for another run.
            ServerFull: Too many runs wait already.
        """
        ...

    async def decide(self, record: RunRecord, decisions: Mapping[str, Decision]) -> RunRecord:
        """Decide about calls that wait, by their ids. The run continues when no decision is missing.

        Raises:
            Conflict: The run does not wait, or its session is in use.
            Unprocessable: No call of that id waits.
        """
        ...

    async def cancel(self, record: RunRecord) -> RunRecord:
        """Cancel a run; a run that has ended stays as it is."""
        ...

    async def delete(self, record: RunRecord) -> None:
        """Delete a run that has ended, with its journal, events and decisions."""
        ...

    def events(self, record: RunRecord, after: int) -> AsyncGenerator[RunEvent, None]:
        """Yield the events of a run after number `after`, until it ends or waits.

        After the first event, a database that does not respond is queried again until it responds.
        """
        ...

    def stop_listening(self) -> None:
        """End the streams of events: the server stops, and their clients resume with the next server."""
        ...

    async def close(self) -> None:
        """Stop; runs that do not end soon are continued by the next process."""
        ...
