"""`Executor`: what executes the runs of a store, such as tasks of this process or the workers of a database."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Protocol

from agentkit.run.parts.decisions import Decision
from agentkit.runs.run_record import RunEvent, RunRecord

__all__ = ["Executor"]


class Executor(Protocol):
    """Executes runs, which are described and stored in a `RunStore`."""

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
        """Begin to work: continue the runs that a stopped process left."""
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
        """Delete a run that has ended, with all that is stored of it."""
        ...

    def events(self, record: RunRecord, after: int) -> AsyncGenerator[RunEvent, None]:
        """Yield the events of a run after number `after`, until it ends or waits.

        Once they have begun, a database that does not answer is asked again until it does.
        """
        ...

    def stop_listening(self) -> None:
        """End the streams of events: the server stops, and their clients resume with the next server."""
        ...

    async def close(self) -> None:
        """Stop: what does not end soon stays stored, for the next process."""
        ...
