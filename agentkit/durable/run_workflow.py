"""`RunAttempt`: an attempt at a durable run, which stores each line of the journal before the run continues."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from agentkit.durable.added_agents import AddedAgent, AddedAgents
from agentkit.durable.durable_errors import WorkerError
from agentkit.durable.stored.durable_store import DurableStore
from agentkit.durable.stored.run_request import RunRequest
from agentkit.errors import JournalError, Paused, RunBusy, SessionBusy
from agentkit.ground.contained import contained
from agentkit.ground.threads import in_thread
from agentkit.run.journal.journal import Journal
from agentkit.run.journal.journal_file import JournalWriter
from agentkit.run.parts.citations import citation_form
from agentkit.runs.run_database import DATABASE_ERRORS
from agentkit.runs.run_errors import AttemptEnded, DatabaseDamaged
from agentkit.runs.run_record import RunError, RunRecord, WaitingCall
from agentkit.runs.run_store import RunStore
from agentkit.runs.stored_attempt import Attempt
from agentkit.runs.stored_inbox import StoredInbox
from agentkit_tools.errors import RunInterrupt

if TYPE_CHECKING:
    from agentkit.run.parts.decisions import Decision
    from agentkit.run.parts.session import SessionProtocol

T = TypeVar("T")

_BUSY_SECONDS = 60.0
"""Maximum seconds that a run waits for an abandoned attempt in this process."""
_PAUSE = 0.1
"""Seconds between two tries while an abandoned attempt has not finished."""
_MAX_ATTEMPTS = 100
"""Maximum attempts per stored line of a run."""
_log = logging.getLogger("agentkit")


class TakenOver(RunInterrupt):
    """Another worker may have taken over the run."""


class _StoreWriter(JournalWriter):
    """Writer of a journal to the store. The store refuses the lines of an earlier attempt."""

    __slots__ = ("_check", "_rows", "attempt", "has_ended", "inbox")

    def __init__(self, rows: RunStore, attempt: Attempt, check: Callable[[], None], inbox: StoredInbox) -> None:
        super().__init__(lambda line: self._store([(line, ())]))
        self._rows, self._check = rows, check
        self.attempt = attempt
        self.inbox = inbox
        self.has_ended = False
        """True if the run was cancelled or deleted, or another attempt continues the run."""

    async def written(self) -> None:
        """Wait until all lines are stored, and raise if the lease has expired."""
        await super().written()
        # After the write, which can take longer than the lease: the next step can have effects.
        self.check()

    def write(self) -> None:
        """Store all pending lines in one transaction, from any thread."""
        with self._lock:
            # Another thread can add lines during the write: only the stored lines are removed.
            if count := len(self._lines):
                self._store([self._lines[number] for number in range(count)])
                for _ in range(count):
                    self._lines.popleft()

    def check(self) -> None:
        """Raise `TakenOver` if another worker can have the run."""
        if not self.is_taken:
            try:
                self._check()
            except TakenOver:
                self.is_taken = True
                raise
        if self.is_taken:
            raise TakenOver

    def _store(self, lines: Sequence[tuple[str, tuple[str, ...]]]) -> None:
        if self.is_taken:
            raise TakenOver
        try:
            self._rows.add_lines(self.attempt, lines)
        except AttemptEnded as error:
            # After a cancellation, this attempt completes the conversation; after a takeover, the next attempt does.
            self.has_ended = True
            self.is_taken = not error.is_cancelled
            self.inbox.reason = error.cancel_reason
            raise
        except DatabaseDamaged:
            raise  # no attempt could store the line: the run fails instead of repeating its step
        except DATABASE_ERRORS as error:
            # It is unknown if the line was stored: only a new attempt, which reads the stored lines, can continue.
            self.is_taken = True
            _log.warning("a line of a run could not be stored; the run is retried: %s", error)
            raise TakenOver from error


class RunAttempt:
    """One attempt at a run, on a worker.

    Args:
        store: The store of the run.
        agents: The agents of the process.
        attempt: The attempt, with the fence of the run.
        check: Raises `TakenOver` if the worker must not act any more.
    """

    __slots__ = ("_agents", "_inbox", "_loop", "_store", "_task", "_writer", "attempt", "run_id")

    def __init__(self, store: DurableStore, agents: AddedAgents, attempt: Attempt, check: Callable[[], None]) -> None:
        self._store, self._agents = store, agents
        self.attempt, self.run_id = attempt, attempt.run_id
        self._inbox = StoredInbox(store.rows, attempt, self._call_store)
        self._writer = _StoreWriter(store.rows, attempt, check, self._inbox)
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None

    def leave(self, *, is_taken: bool, has_ended: bool, reason: str = "") -> None:
        """End the attempt, from any thread.

        Args:
            is_taken: True if another attempt continues the run, so that this attempt must store nothing more.
            has_ended: True if the run was cancelled or deleted, or another attempt has started already.
            reason: Reason of the cancellation.
        """
        self._inbox.reason = reason or self._inbox.reason
        self._writer.is_taken = self._writer.is_taken or is_taken
        self._writer.has_ended = self._writer.has_ended or has_ended
        if self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)

    async def execute(self) -> None:
        """Continue the run until it finishes or waits, and store the outcome.

        Raises:
            CancelledError: The run must be started again.
        """
        # An empty context: tools that use DBOS must not add their steps to this workflow.
        self._task = self._loop.create_task(self._execute(), context=contextvars.Context())
        try:
            await self._task
        except (TakenOver, AttemptEnded, asyncio.CancelledError) as error:
            # If DBOS cancelled this workflow, the task of the attempt still runs.
            if not self._task.done():
                self._task.cancel()
            if not self._writer.has_ended:
                raise asyncio.CancelledError from error

    async def _execute(self) -> None:
        try:
            await contained(self._perform())
        except AttemptEnded:
            self._writer.has_ended = True
            raise
        except Exception as error:
            if self._writer.is_taken:
                raise TakenOver from error
            if self._writer.has_ended:
                return
            # The error of the run, such as a model error or a limit, is its outcome.
            failure = RunError(type(error).__name__, _storable(str(error)))
            usage = getattr(error, "usage", None)
            journal = getattr(error, "journal", None)
            try:
                record = await self._call_store(lambda: self._store.rows.get(self.run_id))
                if journal is not None:
                    record = replace(record, tool_errors=len(journal.tool_errors))
                await self._end(replace(record, state="failed", error=failure, usage=usage or record.usage))
            except DatabaseDamaged as damage:
                _log.error("run %s: its failure cannot be stored: %s", self.run_id, damage)
                self._writer.is_taken = True
                raise TakenOver from damage

    async def _end(self, record: RunRecord, timeout: float | None = None) -> bool:
        try:
            return await self._call_store(lambda: self._store.rows.end_attempt(self.attempt, record, timeout=timeout))
        except AttemptEnded:
            self._writer.has_ended = True
            raise

    async def _call_store(self, work: Callable[[], T]) -> T:
        """Return the result of a store operation, called in a thread.

        Raises:
            TakenOver: The database does not respond: DBOS starts the run again later.
            DatabaseDamaged: No retry can succeed: the run fails.
        """
        try:
            return await in_thread(work)
        except DatabaseDamaged:
            raise
        except DATABASE_ERRORS as error:
            self._writer.is_taken = True
            _log.warning(
                "run %s: the database does not respond; the run is started again later: %s", self.run_id, error
            )
            raise TakenOver from error

    async def _perform(self) -> None:
        """Continue the run until it finishes or waits, and store its record."""
        record = await self._call_store(lambda: self._store.rows.get(self.run_id))
        request = RunRequest.loads(await self._call_store(lambda: self._store.queue.request(self.run_id)))
        added = self._agents.of(request)
        # Relative to the stored lines: the number of restarts is limited only for a run without progress.
        if record.attempts > _MAX_ATTEMPTS * (self.attempt.lines + 1):
            raise WorkerError(
                f"{record.attempts} workers started the run and did not finish it: the run can have ended them",
                name="attempts",
                value=record.attempts,
            )
        journal = await self._call_store(lambda: self._journal(added))
        name, session = request.session, None
        if name is not None:
            session = await in_thread(lambda: added.session(name))
        while True:
            try:
                result = await self._result(added, journal, session, record.permissions)
            except Paused as paused:
                journal = paused.journal
                calls = tuple([WaitingCall.of(call, paused.agents.get(call.id, "")) for call in paused.calls])
                record = replace(record, error=None, usage=journal.usage, tool_errors=len(journal.tool_errors))
                waiting = replace(record, state="waiting", waiting=calls)
                if await self._end(waiting, added.approval_timeout):
                    return
                # All calls were decided before the pause was stored: this attempt continues with the decisions.
                continue
            output = result.output
            try:
                # The output of a run that reached a limit is text or None, whatever the output type.
                if result.limit is None:
                    output = added.agent.definition.chain.answer.data(output)
                output = _storable(output)
            except (ValueError, TypeError, RecursionError) as error:
                raise JournalError(f"the answer cannot be stored as JSON: {error}", name="output") from error
            finished = replace(
                record,
                state="finished",
                error=None,
                waiting=(),
                output=output,
                usage=result.usage,
                steps=result.steps,
                finish_reason=result.finish_reason,
                citations=[citation_form(citation) for citation in result.citations],
                unknown_labels=list(result.unknown_labels),
                tool_errors=len(result.tool_errors),
            )
            if await self._end(finished):
                return
            # A message arrived before the end was stored: the attempt continues with it.
            journal = result.journal

    async def _result(
        self, added: AddedAgent, journal: Journal, session: SessionProtocol | None, permissions: Sequence[str]
    ) -> Any:
        """Resume the run, and return its result; wait for an abandoned attempt that has not finished."""
        until = self._loop.time() + _BUSY_SECONDS
        while True:
            decisions = await self._call_store(partial(self._decisions, journal))
            self._writer.check()
            try:
                return await added.agent.resume(
                    journal,
                    journal=self._writer,
                    session=session,
                    deps=added.deps,
                    permissions=permissions,
                    approve=decisions or None,
                    inbox=self._inbox,
                )
            except (RunBusy, SessionBusy):
                if self._loop.time() > until:
                    raise
                await asyncio.sleep(_PAUSE)

    def _journal(self, added: AddedAgent) -> Journal:
        self._store.rows.versions.store(added.agent.definition.version)
        return self._store.journal(self.run_id)

    def _decisions(self, journal: Journal) -> dict[str, Decision]:
        """Return the decisions since the run paused."""
        return self._store.rows.decisions(self.run_id, journal)


def _storable(data: Any) -> Any:
    """Return JSON data without lone surrogates, which no database can store."""
    return json.loads(json.dumps(data, ensure_ascii=False).encode("utf-8", "replace"))
