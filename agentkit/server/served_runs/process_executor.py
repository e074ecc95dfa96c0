"""`ProcessExecutor`: executes runs as tasks of this process; the next server continues unfinished runs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from agentkit.errors import AgentError, ApprovalError, JournalError, Paused
from agentkit.ground.contained import contained
from agentkit.ground.threads import in_thread
from agentkit.models.model import NO_USAGE, Usage
from agentkit.run.engine.run_result import RunResult
from agentkit.run.journal.journal import Journal
from agentkit.run.parts.agent_version import AgentVersion
from agentkit.run.parts.decisions import Decision
from agentkit.runs.run_errors import AttemptEnded
from agentkit.runs.run_record import RunError, RunEvent, RunRecord, WaitingCall, usage_since
from agentkit.runs.run_store import RunStore
from agentkit.runs.stored_attempt import Attempt
from agentkit.runs.stored_inbox import StoredInbox
from agentkit.server.owner import Owner
from agentkit.server.served_agents import ServedAgents
from agentkit.server.served_runs.event_form import answer_form, usage_form, waiting_form
from agentkit.server.served_runs.fair_places import FairPlaces
from agentkit.server.served_runs.live_run import LiveRun
from agentkit.server.served_runs.public_errors import is_public, public_error
from agentkit.server.served_runs.request_checks import (
    check_decisions,
    check_keys,
    check_room,
    not_waiting,
    refused_decision,
    same_run,
)
from agentkit.server.served_runs.tenant_limits import TenantLimits
from agentkit.server.server_errors import Conflict
from agentkit.server.server_options import ServerOptions
from agentkit.server.session_store import SessionStore

_log = logging.getLogger("agentkit.server")
_GAP = 1_000
"""Difference of the event numbers before and after a restart: clients may have events that were not stored."""
_PAGE = 500
_CANCEL_SECONDS = 7.0
"""Seconds for cancelled runs to finish when the server stops."""


class ProcessExecutor:
    """An `Executor` of this process. A session has one run at a time.

    Args:
        store: Store of the runs.
        agents: The agents.
        sessions: The sessions.
        limits: Counts of requests and usage per tenant.
        options: Limits of the server.
        is_shared: True if several tenants can use the server.
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
        *,
        is_shared: bool,
    ) -> None:
        self._agents, self._sessions = agents, sessions
        self._store, self._limits = store, limits
        self._options = options
        self._live: dict[str, LiveRun] = {}
        """Running and queued runs by id."""
        self._busy: dict[tuple[Owner, str], str] = {}
        """Ids of the runs that use a session, by session."""
        self._deciding = asyncio.Lock()
        self._places = FairPlaces(options.background_runs, options.places_per_tenant(is_shared=is_shared))
        self._is_closing = False

    @property
    def live(self) -> int:
        return len(self._live)

    async def open(self) -> None:
        names = {loaded.name for loaded in self._agents}
        for record in await in_thread(self._store.requeue_interrupted):
            if record.agent in names:
                # Events that the stopped server sent, but had not stored, have numbers after the last stored event.
                base = await self._last_event(record)
                if base:
                    base += _GAP
                self._begin(LiveRun(record, self._store, base))
            else:
                error = RunError("UnknownAgent", f"the server no longer has the agent {record.agent!r}")
                await in_thread(self._fail, record, error)

    def _fail(self, record: RunRecord, error: RunError) -> None:
        attempt = self._store.begin_attempt(record.run_id)
        if attempt is not None:
            self._store.end_attempt(attempt, replace(record, state="failed", error=error))

    async def start(self, record: RunRecord) -> RunRecord:
        if record.key is not None:
            existing = await in_thread(self._store.find, record.tenant, record.user, record.key)
            if existing is not None:
                return same_run(existing, record)
            check_keys(await in_thread(self._store.young_keys, record.tenant), record.tenant, self._options)
        # Requests that repeat a key were answered above: they need no room.
        tenants = [live.record.tenant for live in self._live.values()]
        check_room(record.tenant, tenants, self._options, is_closing=self._is_closing)
        owner = Owner(record.tenant, record.user)
        number = self._agents.number(record.agent, owner, record.session, record.run_id)
        version = self._agents.version(record.agent, number)
        record = replace(record, version=version.id)
        live = LiveRun(record, self._store, 0)
        self._reserve(live)
        # Before the first await, so that concurrent requests cannot start more runs than the limit.
        self._live[record.run_id] = live
        try:
            stored = await in_thread(self._add, record, version)
        except BaseException:
            self._forget(live)
            raise
        if stored is not record:
            # A concurrent request stored a run with this key first.
            self._forget(live)
            return same_run(stored, record)
        self._begin(live)
        return record

    def _add(self, record: RunRecord, version: AgentVersion) -> RunRecord:
        self._store.versions.store(version)
        return self._store.add(record)

    async def decide(self, record: RunRecord, decisions: Mapping[str, Decision]) -> RunRecord:
        # Two clients may decide about different calls: the second must see the decisions of the first.
        async with self._deciding:
            return await self._decide(record.run_id, decisions)

    async def _decide(self, run_id: str, decisions: Mapping[str, Decision]) -> RunRecord:
        live = self._live.get(run_id)
        if live is not None:
            raise not_waiting(live.record)
        record = await in_thread(self._store.get, run_id)
        check_decisions(record, decisions)
        undecided = tuple([call for call in record.waiting if call.call_id not in decisions])
        if undecided:
            try:
                await in_thread(self._store.decide, run_id, decisions)
            except ApprovalError as error:
                raise refused_decision(error) from error
            return replace(record, waiting=undecided)
        live = LiveRun(replace(record, state="queued", waiting=()), self._store, 0)
        self._reserve(live)
        # Before the next await, so that no other request decides about the run.
        self._live[run_id] = live
        try:
            live.base = await self._last_event(record)
            try:
                await in_thread(self._store.decide, run_id, decisions)
            except ApprovalError as error:
                raise refused_decision(error) from error
        except BaseException:
            self._forget(live)
            raise
        self._begin(live)
        return live.record

    async def cancel(self, record: RunRecord, reason: str = "") -> RunRecord:
        run_id = record.run_id
        while True:
            live = self._live.get(run_id)
            if live is not None:
                if live.task is None:
                    # The run is being stored: its task starts after that.
                    await live.wait_change()
                    continue
                # A task that is cancelled before its first step runs nothing: the run would stay live.
                await asyncio.sleep(0)
                live.is_cancelled, live.reason = True, reason
                if live.inbox is not None:
                    live.inbox.reason = reason
                live.task.cancel()
                await asyncio.wait((live.task,))
                if live.inbox is None:
                    await self._sessions.add_cancel_note(record, reason)
            async with self._deciding:
                # A decision may have resumed the run in the meantime.
                if run_id in self._live:
                    continue
                last = await self._last_event(record)
                # True for a paused run only: a running run was cancelled with its task.
                if await in_thread(self._store.cancel, run_id, reason):
                    event = RunEvent(last + 1, "run_cancelled", {"reason": reason})
                    await in_thread(self._store.events.add, run_id, [event])
                    await self._sessions.add_cancel_note(record, reason)
                    # Counts the run; its usage was counted when it paused.
                    self._limits.add_run(replace(record, state="cancelled"), NO_USAGE)
                return await in_thread(self._store.get, run_id)

    async def delete(self, record: RunRecord) -> None:
        await in_thread(self._store.delete, record.run_id)

    async def events(self, record: RunRecord, after: int) -> AsyncGenerator[RunEvent, None]:
        while True:
            live = self._live.get(record.run_id)
            if live is not None and after >= live.base:
                events = live.after(after)
                if not events:
                    if self._is_closing:
                        return
                    await live.wait_change()
            else:
                # Events of an earlier process or attempt are only in the store.
                events = list(await in_thread(self._store.events.after, record.run_id, after, limit=_PAGE))
                if not events:
                    if live is None:
                        return
                    after = live.base
            for event in events:
                yield event
                after = event.seq

    def stop_listening(self) -> None:
        self._is_closing = True
        for live in self._live.values():
            live.notify()

    async def close(self) -> None:
        self.stop_listening()
        tasks = [live.task for live in self._live.values() if live.task is not None]
        if not tasks:
            return
        _, unfinished = await asyncio.wait(tasks, timeout=self._options.grace_seconds)
        for task in unfinished:
            task.cancel()
        # A cancelled run stores the results of its tools, and is queued for the next server.
        if unfinished:
            _, unfinished = await asyncio.wait(unfinished, timeout=_CANCEL_SECONDS)
        if unfinished:
            _log.warning("%d runs do not stop: the next server continues them", len(unfinished))

    def _reserve(self, live: LiveRun) -> None:
        """Reserve the session of a run.

        Raises:
            Conflict: Another run uses the session.
        """
        key = _session_key(live.record)
        if key is None:
            return
        running = self._busy.setdefault(key, live.record.run_id)
        if running != live.record.run_id:
            raise Conflict(
                f"the session {live.record.session!r} is in use by the run {running}: wait until it has finished",
                code="session_busy",
            )

    def _forget(self, live: LiveRun) -> None:
        self._live.pop(live.record.run_id, None)
        key = _session_key(live.record)
        # A run that could not reserve the session must not release it for the run that uses it.
        if key is not None and self._busy.get(key) == live.record.run_id:
            del self._busy[key]
        live.notify()

    def _begin(self, live: LiveRun) -> None:
        key = _session_key(live.record)
        if key is not None:
            self._busy[key] = live.record.run_id
        self._live[live.record.run_id] = live
        live.task = asyncio.get_running_loop().create_task(self._drive(live))
        live.notify()

    async def _drive(self, live: LiveRun) -> None:
        """Execute a run until it finishes or pauses, and store its outcome."""
        before = live.record.usage
        try:
            has_ended = False
            while not has_ended:
                live.last = None
                changes, last = await self._outcome(live)
                live.record = replace(live.record, **changes, updated_at=time.time())
                if last is not None:
                    live.end_with(last.kind, {**last.data, "usage": usage_form(live.record.usage)})
                elif live.record.state != "finished":
                    live.last = None  # the run was stopped after its last step: the next server ends it
                storing = asyncio.ensure_future(self._store_outcome(live))
                while not storing.done():
                    # The outcome is stored even if the task is cancelled.
                    with suppress(asyncio.CancelledError):
                        await asyncio.shield(storing)
                # Otherwise a message arrived before the end was stored, and the run continues with it.
                has_ended = storing.result()
            usage = usage_since(before, live.record.usage)
            self._limits.add_run(live.record, usage)
        finally:
            # A run that stays live would keep its session, and a cancellation would wait for it without end.
            self._forget(live)

    async def _store_outcome(self, live: LiveRun) -> bool:
        """Store the outcome of a run; return False if the run continues instead."""
        is_stored = False
        try:
            has_ended = await contained(self._stored_outcome(live))
            is_stored = live.attempt is not None
        except Exception:
            _log.exception("run %s: its outcome could not be stored", live.record.run_id)
            has_ended = True
        if has_ended:
            live.add_last(is_stored=is_stored)
        return has_ended

    async def _stored_outcome(self, live: LiveRun) -> bool:
        # Events before the outcome: a client that reads a finished run expects all its events.
        await live.wait_written()
        if live.attempt is None:
            live.attempt = await in_thread(self._store.begin_attempt, live.record.run_id)
        if live.attempt is None:
            return True
        last = [event for event in (live.last,) if event is not None]
        return await in_thread(partial(self._store.end_attempt, live.attempt, live.record, events=last))

    async def _outcome(self, live: LiveRun) -> tuple[dict[str, Any], RunEvent | None]:
        """Execute a run; return the changes of its record, and its last event if the agent does not send it."""
        run_id = live.record.run_id
        try:
            async with self._places.place(live.record.tenant):
                if live.attempt is None:
                    live.attempt = await in_thread(self._store.begin_attempt, run_id)
                if live.attempt is None:
                    raise AttemptEnded(run_id, is_cancelled=False)
                live.record = replace(live.record, state="running", updated_at=time.time())
                try:
                    journal = await in_thread(self._store.journal, run_id)
                except JournalError as error:
                    # A newer version may have written the journal: a server that can read it continues the run.
                    _log.error("run %s is not changed: %s", run_id, error)
                    return {"state": "queued", "error": public_error(error)}, None
                result = await contained(self._execute(live, live.attempt, journal))
        except Paused as paused:
            return _paused_outcome(paused, live.record)
        except asyncio.CancelledError as error:
            changes = _spent(error, live.record)
            if live.is_cancelled:
                return {**changes, "state": "cancelled", "reason": live.reason}, _event(
                    "run_cancelled", reason=live.reason
                )
            # The server stops: the next server continues the run.
            return {**changes, "state": "queued"}, None
        except Exception as error:
            if not is_public(error):
                _log.exception("run %s failed", run_id)
            failure, changes = public_error(error), _spent(error, live.record)
            return {**changes, "state": "failed", "error": failure}, _event("run_failed", **failure._asdict())
        changes = {"usage": result.usage, "steps": result.steps, "tool_errors": len(result.tool_errors)}
        return {**changes, "state": "finished", "error": None, **answer_form(result)}, None

    async def _execute(self, live: LiveRun, attempt: Attempt, journal: Journal | None) -> RunResult[Any]:
        record = live.record
        owner = Owner(record.tenant, record.user)
        live.inbox = StoredInbox(self._store, attempt)
        number = self._agents.number(record.agent, owner, record.session, record.run_id, record.version)
        agent = self._agents.of_tenant(record.agent, record.tenant, number)
        options: dict[str, Any] = {
            "on_event": live.on_event,
            "permissions": record.permissions,
            "journal": lambda line: self._store.add_lines(attempt, [(line, ())]),
            "inbox": live.inbox,
        }
        session = None
        if record.session is not None:
            session = options["session"] = await in_thread(self._sessions.open, owner, record.session)
        timeout = asyncio.timeout(self._options.run_seconds)
        try:
            async with timeout:
                if journal is not None:
                    decisions = await in_thread(self._store.decisions, record.run_id, journal)
                    return await agent.resume(journal, approve=decisions or None, **options)
                if getattr(session, "scope", None) is None:
                    options |= ServedAgents.owner(agent, owner, record.run_id)
                options |= {"run_id": record.run_id, "locale": record.locale, "tags": record.tags}
                return await agent.run(record.input, **options)
        except TimeoutError as error:
            # A tool or a model can raise TimeoutError too.
            if not timeout.expired():
                raise
            failure = AgentError(
                f"the run took longer than the server's limit of {self._options.run_seconds:g} seconds"
            )
            failure.usage = _usage_of(error.__cause__ or error)
            raise failure from error

    async def _last_event(self, record: RunRecord) -> int:
        return await in_thread(self._store.events.last, record.run_id)


def _session_key(record: RunRecord) -> tuple[Owner, str] | None:
    """Return the owner and name of the session of a run; None without a session."""
    if record.session is None:
        return None
    return Owner(record.tenant, record.user), record.session


def _paused_outcome(paused: Paused, record: RunRecord) -> tuple[dict[str, Any], RunEvent]:
    waiting = tuple([WaitingCall.of(call, paused.agents.get(call.id, "")) for call in paused.calls])
    changes = {**_spent(paused, record), "state": "waiting", "waiting": waiting}
    return changes, _event("run_waiting", calls=[waiting_form(call) for call in paused.calls])


def _spent(error: BaseException, record: RunRecord) -> dict[str, Any]:
    """Return the usage and the number of tool errors of a run that an error ended or paused."""
    tool_errors = record.tool_errors
    journal = getattr(error, "journal", None)
    if isinstance(journal, Journal):
        tool_errors = len(journal.tool_errors)
    return {"usage": _usage_of(error, record.usage), "tool_errors": tool_errors}


def _usage_of(error: BaseException, default: Usage = NO_USAGE) -> Usage:
    usage = getattr(error, "usage", None)
    if isinstance(usage, Usage):
        return usage
    return default


def _event(kind: str, **data: Any) -> RunEvent:
    # `LiveRun.add` numbers the event.
    return RunEvent(0, kind, data)
