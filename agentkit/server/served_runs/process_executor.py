"""`ProcessExecutor`: executes runs as tasks of this process; the next server continues what it leaves."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from agentkit.errors import AgentError, ApprovalError, JournalError, Paused
from agentkit.ground.threads import in_thread
from agentkit.models.model import NO_USAGE, Usage
from agentkit.run.engine.loop import RunResult
from agentkit.run.journal.journal import Journal
from agentkit.run.parts.decisions import Decision
from agentkit.runs.run_errors import AttemptEnded
from agentkit.runs.run_record import RunError, RunEvent, RunRecord, WaitingCall, usage_since
from agentkit.runs.run_store import Attempt, RunStore
from agentkit.server.served_agents import ServedAgents
from agentkit.server.served_runs.event_form import answer_form, call_form, usage_form
from agentkit.server.served_runs.live_run import LiveRun
from agentkit.server.served_runs.public_errors import OUR_ERRORS, public_error
from agentkit.server.served_runs.tenant_limits import TenantLimits
from agentkit.server.server_errors import Conflict, QuotaExceeded, ServerFull, Unprocessable
from agentkit.server.server_options import ServerOptions
from agentkit.server.session_store import Owner, SessionStore

__all__ = ["ProcessExecutor", "check_decisions", "check_room", "not_waiting", "same_run"]

_log = logging.getLogger("agentkit.server")
_GAP = 1_000
"""Numbers that are left free between the events before and after a restart: a client may have seen a few more than
were stored."""
_PAGE = 500
_CANCELLED_SECONDS = 7.0
"""How long a cancelled run has to end when the server stops."""


class ProcessExecutor:
    """An `Executor` of this process. A session has one run at a time.

    Args:
        store: Where the runs are.
        agents: The agents.
        sessions: Where conversations are.
        limits: Counts what runs use.
        options: What the server allows.
    """

    has_deltas = True
    worker = None

    def __init__(
        self,
        store: RunStore,
        agents: ServedAgents,
        sessions: SessionStore,
        limits: TenantLimits,
        options: ServerOptions,
    ) -> None:
        self._agents, self._sessions = agents, sessions
        self._store, self._limits = store, limits
        self._options = options
        self._live: dict[str, LiveRun] = {}
        """By the ids of the runs."""
        self._busy: dict[tuple[Owner, str], str] = {}
        """Sessions that have a run, and its id."""
        self._deciding = asyncio.Lock()
        self._room = asyncio.Semaphore(self._options.background_runs)
        self._is_closing = False

    @property
    def live(self) -> int:
        return len(self._live)

    async def open(self) -> None:
        known = {one.name for one in self._agents}
        for record in await in_thread(self._store.requeue_interrupted):
            if record.agent in known:
                last = await self._last_event(record)
                self._begin(LiveRun(record, self._store, last + _GAP if last else 0))
            else:
                error = RunError("UnknownAgent", f"the server has no agent {record.agent!r} any more")
                await in_thread(self._fail, record, error)

    def _fail(self, record: RunRecord, error: RunError) -> None:
        attempt = self._store.begin_attempt(record.run_id)
        if attempt is not None:
            self._store.end_attempt(attempt, replace(record, state="failed", error=error))

    async def start(self, record: RunRecord) -> RunRecord:
        if record.key is not None:
            known = await in_thread(self._store.find, record.tenant, record.key)
            if known is not None:
                return same_run(known, record)
        tenants = [live.record.tenant for live in self._live.values()]
        check_room(record.tenant, tenants, self._options, is_closing=self._is_closing)
        live = LiveRun(record, self._store, 0)
        self._reserve(live)
        self._live[record.run_id] = live  # at once, so that concurrent requests cannot begin more runs than the limit
        try:
            kept = await in_thread(self._store.add, record)
        except BaseException:
            self._forget(live)
            raise
        if kept is not record:
            self._forget(live)
            return same_run(kept, record)
        self._begin(live)
        return record

    async def decide(self, record: RunRecord, decisions: Mapping[str, Decision]) -> RunRecord:
        async with self._deciding:  # no decision is lost if two clients decide about different calls
            return await self._decided(record.run_id, decisions)

    async def _decided(self, run_id: str, decisions: Mapping[str, Decision]) -> RunRecord:
        if (live := self._live.get(run_id)) is not None:
            raise not_waiting(live.record)
        record = await in_thread(self._store.get, run_id)
        check_decisions(record, decisions)
        left = tuple([call for call in record.waiting if call.call_id not in decisions])
        if left:
            await in_thread(self._store.decide, run_id, decisions)
            return replace(record, waiting=left)
        live = LiveRun(replace(record, state="queued", waiting=()), self._store, 0)
        self._reserve(live)
        self._live[run_id] = live  # at once: no other request decides about it now
        try:
            live.base = await self._last_event(record)
            try:
                await in_thread(self._store.decide, run_id, decisions)
            except ApprovalError as error:
                raise not_waiting(await in_thread(self._store.get, run_id)) from error
        except BaseException:
            self._forget(live)
            raise
        self._begin(live)
        return live.record

    async def cancel(self, record: RunRecord) -> RunRecord:
        run_id = record.run_id
        while True:
            live = self._live.get(run_id)
            if live is not None:
                if live.task is None:  # the run is being stored
                    await live.more()
                    continue
                # A task that is cancelled before its first step runs nothing: the run would stay live.
                await asyncio.sleep(0)
                live.is_cancelled = True
                live.task.cancel()
                await asyncio.wait((live.task,))
            async with self._deciding:
                if run_id in self._live:  # a decision came in between: it continues
                    continue
                last = await self._last_event(record)
                if await in_thread(self._store.cancel, run_id):  # it waited for decisions
                    await in_thread(self._store.events.add, run_id, [RunEvent(last + 1, "run_cancelled", {})])
                    self._limits.used(record.tenant, NO_USAGE)  # the run; what it used is counted
                return await in_thread(self._store.get, run_id)

    async def delete(self, record: RunRecord) -> None:
        await in_thread(self._store.delete, record.run_id)

    async def events(self, record: RunRecord, after: int) -> AsyncGenerator[RunEvent, None]:
        while True:
            live = self._live.get(record.run_id)
            if live is not None and after >= live.base:
                fresh = live.after(after)
                if not fresh:
                    if self._is_closing:
                        return
                    await live.more()
            else:
                fresh = list(await in_thread(self._store.events.after, record.run_id, after, limit=_PAGE))
                if not fresh:
                    if live is None:
                        return
                    after = live.base
            for event in fresh:
                yield event
                after = event.seq

    def stop_listening(self) -> None:
        self._is_closing = True
        for live in self._live.values():
            live.wake()

    async def close(self) -> None:
        self.stop_listening()
        tasks = [live.task for live in self._live.values() if live.task is not None]
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=self._options.grace_seconds)
            for task in left:
                task.cancel()
            if left:
                _, left = await asyncio.wait(left, timeout=_CANCELLED_SECONDS)
            if left:
                _log.warning("%d runs do not end: the next server goes on with them", len(left))

    def _reserve(self, live: LiveRun) -> None:
        """Have the session of a run to itself.

        Raises:
            Conflict: It has another run.
        """
        if (place := of_session(live.record)) is not None:
            running = self._busy.setdefault(place, live.record.run_id)
            if running != live.record.run_id:
                raise Conflict(
                    f"the session {place[1]!r} is in use by the run {running}: wait until it has ended",
                    code="session_busy",
                )

    def _forget(self, live: LiveRun) -> None:
        self._live.pop(live.record.run_id, None)
        place = of_session(live.record)
        if place is not None and self._busy.get(place) == live.record.run_id:
            del self._busy[place]
        live.wake()

    def _begin(self, live: LiveRun) -> None:
        if (place := of_session(live.record)) is not None:
            self._busy[place] = live.record.run_id
        self._live[live.record.run_id] = live
        live.task = asyncio.get_running_loop().create_task(self._drive(live))
        live.wake()

    async def _drive(self, live: LiveRun) -> None:
        """Run to the end, or until it waits, and store how it ended."""
        before = live.record.usage
        changes, last = await self._outcome(live)
        live.record = replace(live.record, **changes, updated_at=time.time())
        if last is not None:
            live.add(last.kind, {**last.data, "usage": usage_form(live.record.usage)})
        storing = asyncio.ensure_future(self._stored(live))
        while not storing.done():
            with suppress(asyncio.CancelledError):  # the end is stored even if the task is cancelled
                await asyncio.shield(storing)
        usage = usage_since(before, live.record.usage)
        self._limits.used(live.record.tenant, usage, has_ended=live.record.has_ended)
        self._forget(live)

    async def _stored(self, live: LiveRun) -> None:
        try:
            await live.written()
            attempt = live.attempt or await in_thread(self._store.begin_attempt, live.record.run_id)
            if attempt is not None:
                await in_thread(self._store.end_attempt, attempt, live.record)
        except Exception:
            _log.exception("run %s: its end could not be stored", live.record.run_id)

    async def _outcome(self, live: LiveRun) -> tuple[dict[str, Any], RunEvent | None]:
        """Run, and return what changes in the record, and the last event if the run itself has none."""
        run_id = live.record.run_id
        try:
            async with self._room:
                live.attempt = await in_thread(self._store.begin_attempt, run_id)
                if live.attempt is None:
                    raise AttemptEnded(run_id, is_cancelled=False)
                live.record = replace(live.record, state="running", updated_at=time.time())
                try:
                    journal = await in_thread(self._store.journal, run_id)
                except JournalError as error:  # perhaps of a newer version: a server that can read it continues it
                    _log.error("run %s is left as it is: %s", run_id, error)
                    return {"state": "queued", "error": public_error(error)}, None
                result = await self._answer(live, live.attempt, journal)
        except Paused as paused:
            waiting = tuple([WaitingCall.of(call, paused.agents.get(call.id, "")) for call in paused.calls])
            calls = [call_form(call) for call in paused.calls]
            return {"state": "waiting", "waiting": waiting, "usage": _usage_of(paused)}, _last(
                "run_waiting", calls=calls
            )
        except asyncio.CancelledError as error:
            usage = _usage_of(error, live.record.usage)
            if live.is_cancelled:
                return {"state": "cancelled", "usage": usage}, _last("run_cancelled")
            return {"state": "queued", "usage": usage}, None  # the server stops: it is continued later
        except Exception as error:
            if not isinstance(error, OUR_ERRORS):
                _log.exception("run %s failed", run_id)
            failure, usage = public_error(error), _usage_of(error, live.record.usage)
            return {"state": "failed", "error": failure, "usage": usage}, _last("run_failed", **failure._asdict())
        ended = {"state": "finished", "usage": result.usage, "steps": result.steps, "error": None}
        return {**ended, **answer_form(result)}, None

    async def _answer(self, live: LiveRun, attempt: Attempt, journal: Journal | None) -> RunResult[Any]:
        record = live.record
        agent = self._agents.of_tenant(record.agent, record.tenant)
        options: dict[str, Any] = {
            "on_event": live.heard,
            "journal": lambda line: self._store.add_lines(attempt, [(line, ())]),
        }
        if record.session is not None:
            owner = Owner(record.tenant, record.user)
            options["session"] = await in_thread(self._sessions.open, owner, record.session)
        limit = asyncio.timeout(self._options.run_seconds)
        try:
            async with limit:
                if journal is not None:
                    decisions = await in_thread(self._store.decisions, record.run_id, journal)
                    return await agent.resume(journal, approve=decisions or None, **options)
                scope = ServedAgents.scope(agent, record.tenant, record.user)
                if record.session is None and scope is not None:
                    options["scope"] = scope
                return await agent.run(record.input, run_id=record.run_id, **options)
        except TimeoutError as error:
            if not limit.expired():
                raise
            failure = AgentError(f"the run took longer than the server allows, {self._options.run_seconds:g} seconds")
            failure.usage = _usage_of(error.__cause__ or error)
            raise failure from error

    async def _last_event(self, record: RunRecord) -> int:
        return await in_thread(self._store.events.last, record.run_id)


def of_session(record: RunRecord) -> tuple[Owner, str] | None:
    """Return the session of a run, with its owner; None without one."""
    return None if record.session is None else (Owner(record.tenant, record.user), record.session)


def check_decisions(record: RunRecord, decisions: Mapping[str, Decision]) -> None:
    """Refuse decisions about calls that do not wait.

    Raises:
        Conflict: The run does not wait.
        Unprocessable: No call of that id waits.
    """
    if record.state != "waiting":
        raise not_waiting(record)
    if unknown := sorted(decisions.keys() - {call.call_id for call in record.waiting}):
        raise Unprocessable(
            f"no call waits with the id {', '.join(map(repr, unknown)):.200}; those that wait: "
            f"{', '.join([call.call_id for call in record.waiting])}",
            param="decisions",
            code="unknown_call",
        )


def check_room(tenant: str, live: Sequence[str], options: ServerOptions, *, is_closing: bool) -> None:
    """Refuse a run for which there is no room.

    Args:
        tenant: Whose run it is.
        live: The tenants of the runs that go on or wait for room, one for each run.
        options: What the server allows.
        is_closing: Whether the server stops.

    Raises:
        ServerFull: The server stops, or too many runs wait already.
        QuotaExceeded: The tenant has too many runs that have not ended.
    """
    if is_closing:
        raise ServerFull("the server is shutting down: try again", code="shutting_down", retry_after=5.0)
    if len(live) >= options.background_runs + options.queued_runs:
        raise ServerFull(f"{len(live)} runs wait already: try again", code="overloaded", retry_after=5.0)
    own = live.count(tenant)
    if own >= options.runs_per_tenant:
        raise QuotaExceeded(
            f"the tenant {tenant!r} has {own} runs that have not ended, the most it may have: wait for one",
            code="concurrency_limit_exceeded",
            retry_after=5.0,
        )


def same_run(known: RunRecord, asked: RunRecord) -> RunRecord:
    """Return the run that a tenant began under a key.

    Raises:
        Conflict: It was another one.
    """
    if any(getattr(known, name) != getattr(asked, name) for name in ("agent", "input", "session", "user")):
        raise Conflict(
            f"the idempotency key {asked.key!r:.80} was used for another run: give each run its own",
            code="idempotency_key_reused",
        )
    return known


def _usage_of(error: BaseException, otherwise: Usage = NO_USAGE) -> Usage:
    usage = getattr(error, "usage", None)
    return usage if isinstance(usage, Usage) else otherwise


def not_waiting(record: RunRecord) -> Conflict:
    """Return the error of a decision about a run that waits for none."""
    return Conflict(f"the run {record.run_id} does not wait for a decision: it is {record.state}", code="not_waiting")


def _last(kind: str, **data: Any) -> RunEvent:
    return RunEvent(0, kind, data)
