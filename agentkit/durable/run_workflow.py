"""One attempt at a durable run: its journal is read from the steps that are stored, and goes on, a step a line."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from agentkit.durable.added_agents import AddedAgent, AddedAgents
from agentkit.durable.durable_errors import RunFailed, WorkerError
from agentkit.durable.stored.durable_store import DurableStore
from agentkit.durable.stored.journal_rows import JournalRows, journal_text
from agentkit.durable.stored.run_request import RunRequest
from agentkit.errors import JournalError, Paused, RunBusy, SessionBusy
from agentkit.ground.threads import in_thread
from agentkit.run.journal.journal import Journal
from agentkit.run.journal.journal_file import Keeper
from agentkit.run.parts.citations import citation_form

if TYPE_CHECKING:
    from agentkit.run.parts.decisions import Decision
    from agentkit.run.parts.session import Session

__all__ = ["Attempt", "TakenOver"]

T = TypeVar("T")

_SECONDS_BUSY = 60.0
"""How long a run waits for one of the same session whose end is under way in this process."""
_PAUSE = 0.1
_MAX_ATTEMPTS = 100
"""How often a run is begun with, for each step that it stored."""
_log = logging.getLogger("agentkit")


class TakenOver(BaseException):
    """The run is not this worker's any more, or it cannot know: nothing more is done. No handler may stop it."""


class _StepKeeper(Keeper):
    """Keeps the lines of a journal as steps, which are refused where the run belongs to another worker."""

    __slots__ = ("_check", "rows")

    rows: JournalRows
    """Where they are stored."""

    def __init__(self, check: Callable[[], None]) -> None:
        super().__init__(lambda line: self._store([(line, ())]))
        self._check = check

    def begin(self) -> None:
        """Begin to store the lines there are."""
        asyncio.create_task(asyncio.to_thread(self.write)).add_done_callback(_seen)

    async def written(self) -> None:
        """Wait until all lines are stored, and refuse to go on where the lease has ended."""
        if self._lines:
            await asyncio.to_thread(self.write)
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
        from dbos import error as dbos_errors

        if self.is_taken:
            raise TakenOver
        try:
            self.rows.store(lines)
        except dbos_errors.DBOSWorkflowConflictIDError:
            # After a cancellation the conversation is still completed; after a takeover that is the other's.
            self.is_taken = True
            raise
        except SQLAlchemyError as error:
            self.is_taken = True
            _log.warning("a step of a run could not be stored, it is tried again: %s", error)
            raise TakenOver from error


class Attempt:
    """One attempt at a run, on a worker.

    Args:
        store: Where the run is.
        agents: What its agent is found in.
        system: What the worker stores steps with.
        run_id: Its id.
        check: Raises `TakenOver` where the worker may not act any more.
    """

    __slots__ = ("_agents", "_keeper", "_loop", "_owner", "_store", "_system", "_task", "run_id")

    def __init__(
        self, store: DurableStore, agents: AddedAgents, system: Any, run_id: str, check: Callable[[], None]
    ) -> None:
        from dbos._context import current_owner_xid

        self._store, self._agents, self._system = store, agents, system
        self.run_id = run_id
        self._owner = current_owner_xid(run_id) or ""
        self._keeper = _StepKeeper(check)
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()

    def leave(self, *, is_taken: bool) -> None:
        """End the attempt, from any thread; `is_taken` where the run goes on elsewhere, so that nothing is kept."""
        self._keeper.is_taken = self._keeper.is_taken or is_taken
        if self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)

    async def outcome(self, data: Any) -> Mapping[str, Any]:
        """Go on with the run until it ends or pauses, and return how.

        Raises:
            RunFailed: It failed.
            CancelledError: Another attempt goes on with it.
        """
        from dbos._context import _clear_local_dbos_context, _set_local_dbos_context, get_local_dbos_context

        context = get_local_dbos_context()
        _clear_local_dbos_context()  # what tools do with DBOS is no step of the run: its steps are lines of the journal
        try:
            return await self._answer(data)
        except TakenOver:
            raise asyncio.CancelledError from None
        finally:
            _set_local_dbos_context(context)

    async def _answer(self, data: Any) -> Mapping[str, Any]:
        try:
            return await self._outcome(RunRequest.of_data(data))
        except RunFailed:
            raise
        except Exception as error:
            if self._keeper.is_taken:
                raise TakenOver from error
            await self._stored(lambda: self._store.tables.take(self.run_id))
            raise RunFailed(self.run_id, type(error).__name__, _storable(str(error))) from error

    async def _stored(self, work: Callable[[], T]) -> T:
        """Ask the database of the runs, in a thread; where it does not answer, the run is begun with again later."""
        try:
            return await in_thread(work)
        except SQLAlchemyError as error:
            raise self._unanswered(error) from error

    def _unanswered(self, error: SQLAlchemyError) -> TakenOver:
        self._keeper.is_taken = True
        _log.warning("run %s: its database does not answer, it is begun with again later: %s", self.run_id, error)
        return TakenOver()

    async def _outcome(self, request: RunRequest) -> Mapping[str, Any]:
        added = self._agents.of(request)
        journal = await self._journal(request)
        named = request.session
        session = None if named is None else await in_thread(lambda: added.session(named))
        while True:
            try:
                result = await self._resumed(added, journal, session)
            except Paused as paused:
                journal = paused.journal
                if await self._stored(partial(self._pauses, added, paused, journal)):
                    return {"state": "paused"}
                continue
            await self._stored(lambda: self._store.tables.take(self.run_id))
            is_cut = result.limit is not None
            try:
                output = _storable(result.output if is_cut else added.agent.definition.chain.answer.data(result.output))
            except (ValueError, TypeError, RecursionError) as error:
                raise JournalError(f"the answer cannot be stored as JSON: {error}", name="output") from error
            return {
                "state": "finished",
                "output": output,
                "steps": result.steps,
                "finish_reason": result.finish_reason,
                "citations": [citation_form(one) for one in result.citations],
                "unknown_labels": list(result.unknown_labels),
            }

    async def _journal(self, request: RunRequest) -> Journal:
        """Return the journal so far, and have the lines to come stored behind it."""
        rows = await self._stored(lambda: self._store.rows([self.run_id]).get(self.run_id, []))
        attempts = (await self._stored(lambda: self._store.info(self.run_id))).attempts
        if attempts > _MAX_ATTEMPTS * (sum(row.steps for row in rows) + 1):
            raise WorkerError(
                f"{attempts} workers began with it and did not end it: it may be what ends them",
                name="attempts",
                value=attempts,
            )
        self._keeper.rows = JournalRows(self._system, self.run_id, self._owner, request, rows)
        return Journal.loads(journal_text(request.head, rows))

    async def _resumed(self, added: AddedAgent, journal: Journal, session: Session | None) -> Any:
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
        known = journal.decisions
        calls = self._store.tables.calls([self.run_id])
        return {
            call.call_id: call.decision for call in calls if call.decision is not None and call.call_id not in known
        }

    def _pauses(self, added: AddedAgent, paused: Paused, journal: Journal) -> bool:
        """Have the calls of a paused run wait; False where all of them have been decided meanwhile."""
        tables = self._store.tables
        tables.take(self.run_id, journal.decisions)
        wanted = [(call.id, call.name, call.arguments, paused.agents.get(call.id, "")) for call in paused.calls]
        tables.ask(self.run_id, wanted, added.approval_timeout)
        ids = {call.id for call in paused.calls}
        return any(call.decision is None for call in tables.calls([self.run_id]) if call.call_id in ids)


def _storable(data: Any) -> Any:
    """Return JSON data without halves of surrogate pairs, which no database holds."""
    return json.loads(json.dumps(data, ensure_ascii=False).encode("utf-8", "replace"))


def _seen(storing: asyncio.Task[None]) -> None:
    """Take the error of what is tried again: asyncio would log it."""
    if not storing.cancelled():
        storing.exception()
