"""`BackgroundRuns`: what starts runs that go on whoever listens, such as `LocalRuns`, or a durable driver."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Protocol

from agentkit.errors import AgentError
from agentkit.models.model_errors import ModelError
from agentkit.server.served_runs.run_records import RunEvent, RunRecord
from agentkit_memory import StoreError
from agentkit_prompts.errors import PromptError
from agentkit_tools.errors import ToolError

__all__ = ["OUR_ERRORS", "BackgroundRuns", "public_error"]

OUR_ERRORS = (AgentError, ModelError, PromptError, ToolError, StoreError)
"""Errors whose text may be shown to clients."""


class BackgroundRuns(Protocol):
    """Starts runs and goes on with them. The runs, and what is known of them, are in a `StoredRuns`."""

    @property
    def has_deltas(self) -> bool:
        """Whether events show the text as it grows; otherwise whole replies and results only."""
        ...

    @property
    def live(self) -> int:
        """Runs that go on here, or wait for room."""
        ...

    async def open(self) -> None:
        """Begin to work: go on with what a server before left unfinished."""
        ...

    async def start(self, record: RunRecord) -> RunRecord:
        """Begin a run that is described by its record, and return it as it is kept.

        Raises:
            Conflict: The session is in use, or the tenant used the key for another run.
            ServerFull: Too many runs wait already.
        """
        ...

    async def decide(self, record: RunRecord, decisions: Mapping[str, Mapping[str, Any]]) -> RunRecord:
        """Decide about calls that wait. The run goes on when there is a decision about each of them.

        Args:
            record: The run.
            decisions: By the id of the call: `approve`, and `reason` or `arguments`.

        Raises:
            Conflict: The run does not wait, or its session is in use.
            Unprocessable: No call of that id waits.
        """
        ...

    async def cancel(self, record: RunRecord) -> RunRecord:
        """Cancel a run; one that has ended stays as it is."""
        ...

    def events(self, record: RunRecord, after: int) -> AsyncGenerator[RunEvent, None]:
        """Yield the events of a run behind number `after`, and those to come until it ends or waits.

        A database that stops answering once they have begun is waited for.
        """
        ...

    def stop_listening(self) -> None:
        """End the streams of events: the server stops, and their clients resume with the one that comes next."""
        ...

    async def close(self) -> None:
        """Stop: what does not end soon is kept, to be gone on with by the server that comes next."""
        ...


def public_error(error: BaseException) -> dict[str, Any]:
    """Return what clients read about an error: of one that is not ours, its class only."""
    name = type(error).__name__
    if isinstance(error, OUR_ERRORS):
        return {"type": name, "message": str(error)}
    return {"type": name, "message": "an internal error ended the run; the log of the server has more"}
