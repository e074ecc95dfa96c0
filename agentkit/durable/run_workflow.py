"""One attempt at a durable run: reads its journal from the store, and stores each line before the run continues."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from agentkit.durable.added_agents import AddedAgent, AddedAgents
from agentkit.durable.durable_errors import WorkerError
from agentkit.durable.stored.durable_store import DurableStore
from agentkit.durable.stored.run_request import RunRequest
from agentkit.errors import JournalError, Paused, RunBusy, SessionBusy
from agentkit.ground.threads import in_thread
from agentkit.run.journal.journal import Journal
from agentkit.run.journal.journal_file import Keeper
from agentkit.run.parts.citations import citation_form
from agentkit.runs.run_errors import AttemptEnded
from agentkit.runs.run_record import RunError, RunRecord, WaitingCall
from agentkit.runs.run_store import Attempt, RunStore

if TYPE_CHECKING:
    from agentkit.run.parts.decisions import Decision
    from agentkit.run.parts.session import SessionProtocol

__all__ = ["RunAttempt", "TakenOver"]

T = TypeVar("T")

_SECONDS_BUSY = 60.0
"""How long a run waits for one of the same session whose end is under way in this process."""
_PAUSE = 0.1
_MAX_ATTEMPTS = 100
"""How often a run is begun with, for each line that it stored."""
_log = logging.getLogger("agentkit")


class TakenOver(BaseException):
    """The run is not this worker's any more, or it cannot know: nothing more is done. No handler may stop it."""


class _StoreKeeper(Keeper):
    """Keeps the lines of a journal in the store, which refuses lines of an attempt that has ended."""

    __slots__ = ("_check", "_rows", "attempt", "has_ended")

    def __init__(self, rows: RunStore, attempt: Attempt, check: Callable[[], None]) -> None:
        super().__init__(lambda line: self._store([(line, ())]))
        self._rows, self._check = rows, check
        self.attempt = attempt
        self.has_ended = False
        """Whether the run was cancelled or deleted, or another attempt continues it."""

    async def written(self) -> None:
        """Wait until all lines are stored, and refuse to go on where the lease has ended."""
        await super().written()
        self.check()

    def write(self) -> None:
        """Store all lines that wait, at once, from any thread."""
        with self._lock:
            if waiting := len(self._lines):
                self._store([self._lines[number] for number in range(waiting)])
                for _ in range(waiting):
                    self._lines.popleft()

    def check(self) -> None:
        """Refuse to go on where the run may belong to another worker."""
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
            # After a cancellation the conversation is still completed; after a takeover that is the other's.
            self.has_ended = True
            self.is_taken = not error.is_cancelled
            raise
        except SQLAlchemyError as error:
            self.is_taken = True
            _log.warning("a line of a run could not be stored, the run is tried again: %s", error)
            raise TakenOver from error


class RunAttempt:
    """One attempt at a run, on a worker.

    Args:
        store: Where the run is.
        agents: What its agent is found in.
        attempt: What may store something of the run.
        check: Raises `TakenOver` where the worker may not act any more.
    """

    __slots__ = ("_agents", "_keeper", "_loop", "_store", "_task", "attempt", "run_id")

    def __init__(self, store: DurableStore, agents: AddedAgents, attempt: Attempt, check: Callable[[], None]) -> None:
        self._store, self._agents = store, agents
        self.attempt, self.run_id = attempt, attempt.run_id
        self._keeper = _StoreKeeper(store.rows, attempt, check)
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None

    def leave(self, *, is_taken: bool, has_ended: bool) -> None:
        """End the attempt, from any thread.

        Args:
            is_taken: True if the run continues elsewhere, so that nothing more of it is stored.
            has_ended: True if the run was cancelled or deleted, or another attempt continues it already.
        """
        self._keeper.is_taken = self._keeper.is_taken or is_taken
        self._keeper.has_ended = self._keeper.has_ended or has_ended
        if self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)

    async def execute(self) -> None:
        """Continue the run until it ends or waits, and store the outcome.

        Raises:
            CancelledError: The run is to be started again.
        """
        # What tools do with DBOS is no step of the leg, which has none: the context of DBOS is not theirs.
        self._task = self._loop.create_task(self._execute(), context=contextvars.Context())
        try:
            await self._task
        except (TakenOver, AttemptEnded, asyncio.CancelledError) as error:
            if not self._task.done():
                self._task.cancel()
            if not self._keeper.has_ended:
                raise asyncio.CancelledError from error

    async def _execute(self) -> None:
        try:
            if (ended := await self._outcome()) is not None:
                await self._end(ended)
        except AttemptEnded:
            self._keeper.has_ended = True
            raise
        except Exception as error:
            if self._keeper.is_taken:
                raise TakenOver from error
            if self._keeper.has_ended:
                return
            failure = RunError(type(error).__name__, _storable(str(error)))
            usage = getattr(error, "usage", None)
            record = await self._stored(lambda: self._store.rows.get(self.run_id))
            await self._end(replace(record, state="failed", error=failure, usage=usage or record.usage))

    async def _end(self, record: RunRecord, timeout: float | None = None) -> bool:
        record = replace(record, updated_at=time.time())
        try:
            return await self._stored(lambda: self._store.rows.end_attempt(self.attempt, record, timeout=timeout))
        except AttemptEnded:
            self._keeper.has_ended = True
            raise

    async def _stored(self, work: Callable[[], T]) -> T:
        """Ask the database of the runs, in a thread; where it does not answer, the run is begun with again later."""
        try:
            return await in_thread(work)
        except SQLAlchemyError as error:
            self._keeper.is_taken = True
            _log.warning("run %s: its database does not answer, it is begun with again later: %s", self.run_id, error)
            raise TakenOver from error

    async def _outcome(self) -> RunRecord | None:
        """Return the run as it ended; None if it waits for decisions, which is stored then."""
        record = await self._stored(lambda: self._store.rows.get(self.run_id))
        request = RunRequest.loads(await self._stored(lambda: self._store.queue.request(self.run_id)))
        added = self._agents.of(request)
        if record.attempts > _MAX_ATTEMPTS * (self.attempt.lines + 1):
            raise WorkerError(
                f"{record.attempts} workers began with it and did not end it: it may be what ends them",
                name="attempts",
                value=record.attempts,
            )
        journal = await self._stored(lambda: self._store.journal(self.run_id))
        named = request.session
        session = None if named is None else await in_thread(lambda: added.session(named))
        while True:
            try:
                result = await self._resumed(added, journal, session)
            except Paused as paused:
                journal = paused.journal
                calls = tuple([WaitingCall.of(call, paused.agents.get(call.id, "")) for call in paused.calls])
                waiting = replace(record, state="waiting", waiting=calls, error=None, usage=journal.usage)
                if await self._end(waiting, added.approval_timeout):
                    return None
                continue
            is_cut = result.limit is not None
            try:
                output = _storable(result.output if is_cut else added.agent.definition.chain.answer.data(result.output))
            except (ValueError, TypeError, RecursionError) as error:
                raise JournalError(f"the answer cannot be stored as JSON: {error}", name="output") from error
            return replace(
                record,
                state="finished",
                error=None,
                waiting=(),
                output=output,
                usage=result.usage,
                steps=result.steps,
                finish_reason=result.finish_reason,
                citations=[citation_form(one) for one in result.citations],
                unknown_labels=list(result.unknown_labels),
            )

    async def _resumed(self, added: AddedAgent, journal: Journal, session: SessionProtocol | None) -> Any:
        until = self._loop.time() + _SECONDS_BUSY
        while True:
            decisions = await self._stored(partial(self._decisions, journal))
            self._keeper.check()
            try:
                return await added.agent.resume(
                    journal, journal=self._keeper, session=session, deps=added.deps, approve=decisions or None
                )
            except (RunBusy, SessionBusy):  # an attempt that was left has not ended
                if self._loop.time() > until:
                    raise
                await asyncio.sleep(_PAUSE)

    def _decisions(self, journal: Journal) -> dict[str, Decision]:
        """Return what was decided since the run paused."""
        return self._store.rows.decisions(self.run_id, journal)


def _storable(data: Any) -> Any:
    """Return JSON data without halves of surrogate pairs, which no database holds."""
    return json.loads(json.dumps(data, ensure_ascii=False).encode("utf-8", "replace"))
