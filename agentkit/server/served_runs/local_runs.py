"""`LocalRuns`: runs of this process, which the server that comes next goes on with."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from agentkit.errors import AgentError, JournalError, Paused
from agentkit.ground.threads import in_thread
from agentkit.models.model import NO_USAGE, Usage
from agentkit.run.engine.loop import RunResult
from agentkit.run.journal.journal import Journal
from agentkit.run.parts.decisions import Approved, Decision, Denied
from agentkit.server.served_agents import ServedAgents
from agentkit.server.served_runs.background_runs import OUR_ERRORS, public_error
from agentkit.server.served_runs.event_form import answer_form, usage_form
from agentkit.server.served_runs.live_run import LiveRun
from agentkit.server.served_runs.run_records import (
    ENDED,
    RunEvent,
    RunRecord,
    WaitingCall,
    usage_since,
    user_input_of,
)
from agentkit.server.served_runs.run_services import RunServices
from agentkit.server.server_errors import Conflict, QuotaExceeded, ServerFull, Unprocessable
from agentkit.server.server_options import ServerOptions
from agentkit.server.session_store import Owner

__all__ = ["LocalRuns", "check_decisions", "check_room", "not_waiting", "run_decision", "same_run"]

_log = logging.getLogger("agentkit.server")
_GAP = 1_000
"""What is left free between the numbers of events before and after a restart: a client may have seen a few more than
were kept."""
_PAGE = 500
_CANCELLED_SECONDS = 7.0
"""How long a run that is cancelled has to end when the server stops."""


class LocalRuns:
    """A `BackgroundRuns` of this process. A session has one run at a time."""

    has_deltas = True

    def __init__(self, services: RunServices) -> None:
        self._agents, self._sessions = services.agents, services.sessions
        self._store, self._limits = services.store, services.limits
        self._options = services.options
        self._live: dict[tuple[str, str], LiveRun] = {}
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
        for record in await in_thread(self._store.unfinished):
            if record.agent in known:
                last = await self._last_event(record)
                self._begin(LiveRun(record, self._store, last + _GAP if last else 0))
            else:
                error = {"type": "UnknownAgent", "message": f"the server has no agent {record.agent!r} any more"}
                await in_thread(self._store.put, replace(record, status="failed", error=error))

    async def start(self, record: RunRecord) -> RunRecord:
        if record.key is not None:
            known = await in_thread(self._store.find, record.tenant, record.key)
            if known is not None:
                return same_run(known, record)
        check_room(record.tenant, [tenant for tenant, _ in self._live], self._options, is_closing=self._is_closing)
        live = LiveRun(record, self._store, 0)
        self._reserve(live)
        self._live[live.place] = live  # at once: of many that come together no more begin than there is room for
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

    async def decide(self, record: RunRecord, decisions: Mapping[str, Mapping[str, Any]]) -> RunRecord:
        async with self._deciding:  # of two that decide about different calls none is lost
            return await self._decided(record.tenant, record.id, decisions)

    async def _decided(self, tenant: str, run_id: str, decisions: Mapping[str, Mapping[str, Any]]) -> RunRecord:
        if (live := self._live.get((tenant, run_id))) is not None:
            raise not_waiting(live.record)
        record = await in_thread(self._store.get, tenant, run_id)
        check_decisions(record, decisions)
        left = tuple([call for call in record.waiting if call.id not in decisions])
        made = {**record.decisions, **{call: dict(one) for call, one in decisions.items()}}
        record = replace(record, decisions=made, waiting=left, updated_at=time.time())
        if left:
            await in_thread(self._store.put, record)
            return record
        live = LiveRun(replace(record, status="queued"), self._store, 0)
        self._reserve(live)
        self._live[live.place] = live  # at once: nobody else decides about it now
        try:
            live.base = await self._last_event(record)
            if not await in_thread(self._store.put, live.record, was="waiting"):
                raise not_waiting(await in_thread(self._store.get, tenant, run_id))
        except BaseException:
            self._forget(live)
            raise
        self._begin(live)
        return live.record

    async def cancel(self, record: RunRecord) -> RunRecord:
        place = record.tenant, record.id
        while True:
            if (live := self._live.get(place)) is not None and live.task is not None:
                live.is_cancelled = True
                live.task.cancel()
                await asyncio.wait((live.task,))
            async with self._deciding:
                if place in self._live:  # somebody decided meanwhile: it goes on
                    continue
                record = await in_thread(self._store.get, *place)
                if record.status not in ENDED:  # it waits for decisions
                    record = replace(record, status="cancelled", waiting=(), updated_at=time.time())
                    event = RunEvent(await self._last_event(record) + 1, "run_cancelled", {})
                    await in_thread(self._store.add_events, *place, [event])
                    await in_thread(self._store.put, record)
                    self._limits.used(record.tenant, NO_USAGE)  # the run; what it used is counted
                return record

    async def events(self, record: RunRecord, after: int) -> AsyncGenerator[RunEvent, None]:
        place = record.tenant, record.id
        while True:
            live = self._live.get(place)
            if live is not None and after >= live.base:
                fresh = live.after(after)
                if not fresh:
                    if self._is_closing:
                        return
                    await live.more()
            else:
                fresh = list(await in_thread(self._store.events, *place, after=after, limit=_PAGE))
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
            running = self._busy.setdefault(place, live.record.id)
            if running != live.record.id:
                raise Conflict(
                    f"the session {place[1]!r} is in use by the run {running}: wait until it has ended",
                    code="session_busy",
                )

    def _forget(self, live: LiveRun) -> None:
        self._live.pop(live.place, None)
        place = of_session(live.record)
        if place is not None and self._busy.get(place) == live.record.id:
            del self._busy[place]

    def _begin(self, live: LiveRun) -> None:
        if (place := of_session(live.record)) is not None:
            self._busy[place] = live.record.id
        self._live[live.place] = live
        live.task = asyncio.get_running_loop().create_task(self._drive(live))

    async def _drive(self, live: LiveRun) -> None:
        """Run to the end, or until it waits, and keep how it ended."""
        before = live.record.usage
        ended, last = await self._outcome(live)
        live.record = replace(live.record, **ended, updated_at=time.time())
        if last is not None:
            live.add(last[0], {**last[1], "usage": usage_form(live.record.usage)})
        keeping = asyncio.ensure_future(self._kept(live))
        while not keeping.done():
            with suppress(asyncio.CancelledError):  # what is known must be kept, whoever is impatient
                await asyncio.shield(keeping)
        usage = usage_since(before, live.record.usage)
        self._limits.used(live.record.tenant, usage, has_ended=live.record.status in ENDED)
        self._forget(live)
        live.wake()

    async def _kept(self, live: LiveRun) -> None:
        try:
            await live.written()
            await in_thread(self._store.put, live.record)
        except Exception:
            _log.exception("run %s: its end could not be stored", live.record.id)

    async def _outcome(self, live: LiveRun) -> tuple[dict[str, Any], tuple[str, dict[str, Any]] | None]:
        """Run, and return what changes in the record, and the last event where the run itself has none."""
        try:
            async with self._room:
                live.record = replace(live.record, status="running", updated_at=time.time())
                await in_thread(self._store.put, live.record)
                try:
                    journal = await self._journal(live.record)
                except JournalError as error:  # of a newer version, perhaps: a server that can read it goes on with it
                    _log.error("run %s is left as it is: %s", live.record.id, error)
                    return {"status": "queued", "error": public_error(error)}, None
                result = await self._answer(live, journal)
        except Paused as paused:
            waiting = tuple([WaitingCall(call.id, call.name, call.arguments) for call in paused.calls])
            ended = {"status": "waiting", "waiting": waiting, "decisions": {}, "usage": _usage_of(paused)}
            return ended, ("run_waiting", {"calls": [call._asdict() for call in waiting]})
        except asyncio.CancelledError as error:
            usage = _usage_of(error, live.record.usage)
            if live.is_cancelled:
                return {"status": "cancelled", "usage": usage}, ("run_cancelled", {})
            return {"status": "queued", "usage": usage}, None  # the server stops: it is gone on with later
        except Exception as error:
            if not isinstance(error, OUR_ERRORS):
                _log.exception("run %s failed", live.record.id)
            public = public_error(error)
            return {"status": "failed", "error": public, "usage": _usage_of(error, live.record.usage)}, (
                "run_failed",
                public,
            )
        ended = {"status": "finished", "decisions": {}, "usage": result.usage, "error": None}
        return {**ended, **answer_form(result)}, None

    async def _journal(self, record: RunRecord) -> Journal | None:
        """Return the journal of a run that has begun.

        Raises:
            JournalError: It cannot be read.
        """
        text = await in_thread(self._store.journal, record.tenant, record.id)
        return await in_thread(Journal.loads, text) if "\n" in text else None

    async def _answer(self, live: LiveRun, journal: Journal | None) -> RunResult[Any]:
        record, store = live.record, self._store
        agent = self._agents.of_tenant(record.agent, record.tenant)
        options: dict[str, Any] = {
            "on_event": live.heard,
            "journal": partial(store.add_journal, record.tenant, record.id),
        }
        if record.session is not None:
            owner = Owner(record.tenant, record.user)
            options["session"] = await in_thread(self._sessions.open, owner, record.session)
        limit = asyncio.timeout(self._options.run_seconds)
        try:
            async with limit:
                if journal is not None:
                    decided = {call: run_decision(one) for call, one in record.decisions.items()}
                    return await agent.resume(journal, approve=decided or None, **options)
                scope = ServedAgents.scope(agent, record.tenant, record.user)
                if record.session is None and scope is not None:
                    options["scope"] = scope
                asked = None if record.input is None else user_input_of(record)
                return await agent.run(asked, run_id=record.id, **options)
        except TimeoutError as error:
            if not limit.expired():
                raise
            failure = AgentError(f"the run took longer than the server allows, {self._options.run_seconds:g} seconds")
            failure.usage = _usage_of(error.__cause__ or error)
            raise failure from error

    async def _last_event(self, record: RunRecord) -> int:
        return await in_thread(self._store.last_event, record.tenant, record.id)


def of_session(record: RunRecord) -> tuple[Owner, str] | None:
    """Return the session of a run, with its owner; None without one."""
    return None if record.session is None else (Owner(record.tenant, record.user), record.session)


def run_decision(made: Mapping[str, Any]) -> Decision:
    """Return a decision of a request."""
    return Approved(made.get("arguments")) if made["approve"] else Denied(made.get("reason") or "")


def check_decisions(record: RunRecord, decisions: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse decisions about calls that do not wait.

    Raises:
        Conflict: The run does not wait.
        Unprocessable: No call of that id waits.
    """
    if record.status != "waiting":
        raise not_waiting(record)
    if unknown := sorted(decisions.keys() - {call.id for call in record.waiting}):
        raise Unprocessable(
            f"no call waits with the id {', '.join(map(repr, unknown)):.200}; those that wait: "
            f"{', '.join([call.id for call in record.waiting])}",
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
    return Conflict(f"the run {record.id} does not wait for a decision: it is {record.status}", code="not_waiting")
