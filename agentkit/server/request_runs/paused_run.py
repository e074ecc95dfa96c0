"""A paused run that a request resumes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentkit.errors import ApprovalError
from agentkit.ground.threads import finish_in_thread
from agentkit.run.journal.journal import Journal
from agentkit.run.parts.decisions import Decision
from agentkit.runs.run_record import RunRecord
from agentkit.runs.run_store import RunStore
from agentkit.runs.stored_attempt import Attempt
from agentkit.runs.stored_inbox import StoredInbox
from agentkit.server.server_errors import Conflict, Unprocessable


@dataclass(slots=True)
class PausedRun:
    """A paused run with the decisions of a request that resumes it."""

    record: RunRecord
    journal: Journal
    decisions: Mapping[str, Decision]
    """Decisions of the request by the ids of the calls; once the run is claimed, all decisions."""
    store: RunStore
    """The store of the run."""
    worker: str | None
    """Id of the worker of this server; see `Executor.worker`."""
    attempt: Attempt | None = None
    """The attempt that resumes the run, once it is claimed."""

    async def claim(self) -> None:
        """Store the decisions and start the attempt that resumes the run.

        A cancelled task waits for the store, so that a run is not decided and then left without an attempt.

        Raises:
            Conflict: Another request resumed the run.
            Unprocessable: Changed arguments are invalid.
        """
        try:
            await finish_in_thread(self._claim)
        except ApprovalError as error:
            raise Unprocessable(str(error), param="resume", code="invalid_arguments") from error
        if self.attempt is None:
            raise Conflict(f"the run {self.record.run_id} no longer waits for a decision", code="not_waiting")

    def _claim(self) -> None:
        run_id = self.record.run_id
        # Other requests may have decided about other calls of the run.
        earlier = self.store.decisions(run_id, self.journal)
        self.attempt = self.store.claim(run_id, self.decisions, worker=self.worker)
        self.decisions = {**earlier, **self.decisions}

    @property
    def inbox(self) -> StoredInbox:
        """The messages that were sent to the run."""
        assert self.attempt is not None
        return StoredInbox(self.store, self.attempt)

    def add_line(self, line: str) -> None:
        """Store a line of the journal of the run."""
        assert self.attempt is not None
        self.store.add_lines(self.attempt, [(line, ())])
