"""`DurableExecutor`: executes runs on a database of durable runs, where any worker continues them."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from agentkit.agent.tenant_agent import TenantAgent
from agentkit.durable.added_agents import AddedAgent
from agentkit.durable.durable_errors import RunIdTaken, WorkerError
from agentkit.durable.run_handle import entry_events
from agentkit.durable.runs_facade import Runs
from agentkit.durable.stored.durable_store import StartedRun
from agentkit.durable.stored.run_request import SessionName
from agentkit.errors import AgentDefinitionError, ApprovalError, JournalError
from agentkit.ground.threads import in_thread
from agentkit.models.model import NO_USAGE, Usage
from agentkit.run.engine.run_options import StartOptions
from agentkit.run.journal.journal import Journal
from agentkit.run.parts.decisions import Decision
from agentkit.run.parts.session import SessionProtocol
from agentkit.runs.run_errors import DatabaseUnavailable, RunNotFound
from agentkit.runs.run_record import RunEvent, RunRecord, RunsWanted, usage_since
from agentkit.server.owner import Owner
from agentkit.server.served_agents import ServedAgents
from agentkit.server.served_runs.event_form import event_form, usage_form, waiting_form
from agentkit.server.served_runs.public_errors import with_public_error
from agentkit.server.served_runs.request_checks import check_decisions, check_room, refused_decision, same_run
from agentkit.server.served_runs.tenant_limits import TenantLimits
from agentkit.server.server_options import ServerOptions
from agentkit.server.session_store import SessionStore
from agentkit_memory import Scope

_MIN_WAIT, _MAX_WAIT = 0.05, 1.0
_ADOPT_SECONDS = 5.0
"""Seconds between two searches for unfinished requests of stopped servers."""
_STEP = 1_000
"""Difference of the event numbers of two journal entries. An entry may have several events, and the last event of a run
has a number after its last entry."""
_log = logging.getLogger("agentkit.server")


class DurableExecutor:
    """An `Executor` on a database of durable runs.

    Runs of a session are executed in the order of their requests, one at a time. The server starts a worker, unless
    the database permits only one worker and has it. A run continues on any worker that has its agent by name and
    version. Events are whole replies and results from the journal.

    Args:
        runs: The durable runs.
        agents: The agents.
        sessions: The sessions.
        limits: Counts of requests and usage per tenant.
        options: Limits of the server.
        version: One version of all agents, for agents that are replaced while the server runs: a run continues with the
            current agent. None derives the version from the requests to the model; see `Runs.add`.
        is_shared: True if several tenants can use the server.

    Raises:
        AgentDefinitionError: The server has no memory, so another process could not read the sessions.
    """

    has_deltas = False

    def __init__(
        self,
        runs: Runs,
        agents: ServedAgents,
        sessions: SessionStore,
        limits: TenantLimits,
        options: ServerOptions,
        version: str | None = None,
        *,
        is_shared: bool = False,
    ) -> None:
        self._tenant_concurrency: int | None = None
        if is_shared:
            self._tenant_concurrency = options.places_per_tenant(is_shared=True)
        if sessions.memory is None:
            raise AgentDefinitionError(
                "server: durable runs require a memory, because other processes must read the sessions", name="memory"
            )
        self._memory = sessions.memory
        self._agents, self._sessions = agents, sessions
        self._options, self._limits = options, limits
        self._runs, self._store, self._rows = runs, runs.store, runs.store.rows
        self._added: dict[tuple[str, int], AddedAgent] = {}
        """Registrations by the name and the number of the version; see `ServedAgents.number`."""
        self._names = [loaded.name for loaded in agents]
        for name in self._names:
            # The served agent last: schedules start the latest agent of a name.
            for number in reversed(range(len(agents.versions(name)))):
                agent = TenantAgent(name, partial(agents.current, name, number), agents.bound[number])
                runs.add(agent, sessions=self._session, version=_registered(version, number))
                self._added[name, number] = runs.agents.latest(agent)
        self._worker: Any = None
        self._starting: list[str] = []
        """Tenants of the runs that are being stored."""
        self._live: dict[str, _LiveRun] = {}
        """Runs that this server started or resumed, by id, until they finish or pause."""
        self._watching: asyncio.Task[None] | None = None
        self._adopting: asyncio.Task[None] | None = None
        self._is_closing = False

    @property
    def worker(self) -> str | None:
        if self._worker is None:
            return None
        worker_id: str = self._worker.id
        return worker_id

    @property
    def live(self) -> int:
        return len(self._starting) + len(self._live)

    async def open(self) -> None:
        worker = self._runs.worker(
            concurrency=self._options.background_runs,
            grace=self._options.grace_seconds,
            tenant_concurrency=self._tenant_concurrency,
        )
        try:
            await in_thread(worker.start)
            self._worker = worker
        except WorkerError as error:
            # Another process is the worker of this SQLite file: this server only adds runs to its queue.
            _log.warning("runs are left to another worker: %s", error)
        alive = await in_thread(self._alive_workers)
        await self._adopt_all(await in_thread(self._rows.requeue_interrupted, alive))
        self._adopting = asyncio.get_running_loop().create_task(self._adopt_abandoned())

    def _alive_workers(self) -> list[str]:
        return [worker.id for worker in self._store.workers.all() if worker.is_alive]

    async def _adopt_abandoned(self) -> None:
        """Continue unfinished requests of stopped servers, which may never start again."""
        while True:
            await asyncio.sleep(_ADOPT_SECONDS)
            try:
                alive = await in_thread(self._alive_workers)
                await self._adopt_all(await in_thread(self._rows.requeue_abandoned, alive, self._names))
            except Exception:
                _log.exception("requests of stopped servers could not be read")

    async def _adopt_all(self, records: Sequence[RunRecord]) -> None:
        for record in records:
            if record.agent in self._names:
                await in_thread(self._adopt, record)
                self._watch(record, record.usage)

    def _adopt(self, record: RunRecord) -> None:
        """Add an unfinished run of a request to the queue of the workers."""
        self._store.queue.adopt(self._queued_run(record).new())

    async def start(self, record: RunRecord) -> RunRecord:
        if record.key is not None:
            # The id is derived from the key, so that two servers cannot start two runs with one key.
            record = replace(record, run_id=_id_of(record.tenant, record.user, record.key))
            existing = await in_thread(self._existing, record)
            if existing is not None:
                return existing
        tenants = [*self._starting, *(live.record.tenant for live in self._live.values())]
        check_room(record.tenant, tenants, self._options, is_closing=self._is_closing)
        self._starting.append(record.tenant)
        try:
            stored, is_new = await in_thread(self._start, record)
        finally:
            self._starting.remove(record.tenant)
        if is_new:
            self._watch(stored, NO_USAGE)
        return stored

    def _existing(self, record: RunRecord) -> RunRecord | None:
        """Return the run that the user started with the same key; None without such a run."""
        try:
            return same_run(self._rows.get(record.run_id, tenant=record.tenant), record)
        except RunNotFound:
            return None

    def _start(self, record: RunRecord) -> tuple[RunRecord, bool]:
        """Store a run; return its record, and False if another server stored it first."""
        try:
            self._store.enqueue([self._queued_run(record)])
        except RunIdTaken:
            return same_run(self._rows.get(record.run_id, tenant=record.tenant), record), False
        return self._rows.get(record.run_id), True

    def _queued_run(self, record: RunRecord) -> StartedRun:
        """Return a run for the queue of the workers."""
        options: StartOptions = {"run_id": record.run_id, "locale": record.locale, "tags": record.tags}
        owner = Owner(record.tenant, record.user)
        number = self._agents.number(record.agent, owner, record.session, record.run_id, record.version)
        agent = self._agents.of_tenant(record.agent, record.tenant, number)
        if record.session is not None:
            options["session"] = self._sessions.open(owner, record.session)
        else:
            options = {**options, **ServedAgents.owner(agent, owner, record.run_id)}
        started = self._runs.requested(replace(self._added[record.agent, number], agent=agent), record.input, options)
        return replace(started, permissions=record.permissions)

    async def decide(self, record: RunRecord, decisions: Mapping[str, Decision]) -> RunRecord:
        check_decisions(record, decisions)
        # A request paused in this server: from now on it is a run of the workers.
        if record.executor == "process":
            await in_thread(self._adopt, record)
        try:
            state = await in_thread(self._rows.decide, record.run_id, decisions, queue=self._store.queue_leg)
        except ApprovalError as error:
            raise refused_decision(error) from error
        # By the stored state: other requests can have decided about other calls since `record` was read.
        if state == "queued":
            self._watch(record, record.usage)
        return await in_thread(self._rows.get, record.run_id)

    async def cancel(self, record: RunRecord, reason: str = "") -> RunRecord:
        if await in_thread(self._rows.cancel, record.run_id, reason):
            self._watch(record, record.usage)
            # The worker of a running run stores the reason after the results of its calls.
            if record.state != "running":
                await self._sessions.add_cancel_note(record, reason)
        return await in_thread(self._rows.get, record.run_id)

    async def delete(self, record: RunRecord) -> None:
        await in_thread(self._store.delete, [record.run_id])

    async def events(self, record: RunRecord, after: int) -> AsyncGenerator[RunEvent, None]:
        wait, has_started = _MIN_WAIT, False
        while record.executor == "dbos":
            try:
                current = await in_thread(self._rows.get, record.run_id)
                journal = await in_thread(self._store.journal, record.run_id)
            except DatabaseUnavailable:
                # A started stream survives a restart of the database; before, the client receives the error.
                if not has_started or self._is_closing:
                    raise
                await asyncio.sleep(_MAX_WAIT)
                continue
            has_started = True
            # Fast while entries arrive, and slower for a run that waits for a long tool.
            wait = min(wait * 1.5, _MAX_WAIT)
            for event in _events(journal, with_public_error(current)):
                if event.seq > after:
                    yield event
                    after = event.seq
                    wait = _MIN_WAIT
            if current.has_ended or current.state == "waiting" or self._is_closing:
                return
            await asyncio.sleep(wait)

    def stop_listening(self) -> None:
        self._is_closing = True

    async def close(self) -> None:
        self.stop_listening()
        # Before the worker stops: it hands its runs over, and this server must not adopt them.
        for task in (self._watching, self._adopting):
            if task is not None:
                task.cancel()
        if self._worker is not None:
            await in_thread(self._worker.stop)
        await self._count_finished()

    def _session(self, name: SessionName) -> SessionProtocol:
        """Open the session of a run."""
        return self._memory.within(Scope(*(name.scope or ()))).session(name.id, branch=name.branch or "main")

    def _watch(self, record: RunRecord, counted: Usage) -> None:
        """Count the usage of a run when it finishes or pauses.

        Args:
            record: The run.
            counted: Usage of the run that was counted before.
        """
        live = self._live.get(record.run_id)
        if live is not None:
            counted = live.counted
        # A new object, so that `_count_finished` detects a run that was resumed during its queries.
        self._live[record.run_id] = _LiveRun(record, counted)
        if self._watching is None or self._watching.done():
            self._watching = asyncio.get_running_loop().create_task(self._count())

    async def _count(self) -> None:
        while self._live:
            await asyncio.sleep(_MAX_WAIT)
            await self._count_finished()

    async def _count_finished(self) -> None:
        live = dict(self._live)
        if not live:
            return
        try:
            wanted = RunsWanted(ids=[*live], limit=len(live))
            records = {record.run_id: record for record in await in_thread(self._rows.page, wanted)}
            for run_id, run in live.items():
                await self._count_if_finished(run_id, run, records.get(run_id))
        except Exception:
            _log.exception("the usage of %d runs could not be counted", len(live))

    async def _count_if_finished(self, run_id: str, live: _LiveRun, record: RunRecord | None) -> None:
        """Count a run that is finished, paused or deleted (`record` is None)."""
        if record is not None and not record.has_ended and record.state != "waiting":
            return
        usage = await in_thread(self._usage, run_id, record)
        # Otherwise a request resumed the run during the queries: it is counted at its next end.
        if self._live[run_id] is live:
            del self._live[run_id]
            if record is None:
                record = replace(live.record, state="finished")
            self._limits.add_run(record, usage_since(live.counted, usage))

    def _usage(self, run_id: str, record: RunRecord | None) -> Usage:
        try:
            journal = self._rows.journal(run_id)
        except JournalError as error:
            # The run must leave `_live` even if its journal is corrupt: it would use the room of other runs.
            _log.warning("run %s: its usage since its start or its pause is unknown: %s", run_id, error)
            journal = None
        if journal is not None:
            return journal.usage
        if record is not None:
            return record.usage
        return NO_USAGE


class _LiveRun(NamedTuple):
    record: RunRecord
    counted: Usage
    """Usage that was counted before."""


def _registered(version: str | None, number: int) -> str | None:
    """Return the version of a variant, if all agents of the server have one version."""
    if version is None or not number:
        return version
    return f"{version}-{number}"


def _id_of(tenant: str, user: str, key: str) -> str:
    """Return the id of the run of a user of a tenant and a key."""
    # NUL separates the parts, because none can contain it: ("a", "bc") and ("ab", "c") have different ids.
    return hashlib.blake2b(f"{tenant}\0{user}\0{key}".encode(), digest_size=16, person=b"agentkit.run.key").hexdigest()


def _events(journal: Journal, record: RunRecord) -> list[RunEvent]:
    """Return the events of the journal of a run, and the event of its outcome or pause."""
    events = [
        RunEvent((number + 1) * _STEP + offset, *event_form(event))
        for number, entry in entry_events(journal)
        for offset, event in enumerate(entry)
    ]
    last = _last_event(journal, record)
    if last is not None:
        kind, data = last
        data = {**data, "usage": usage_form(record.usage)}
        events.append(RunEvent(len(journal.entries) * _STEP + _STEP // 2, kind, data))
    return events


def _last_event(journal: Journal, record: RunRecord) -> tuple[str, dict[str, Any]] | None:
    """Return the kind and data of the event of an outcome or pause; None for a running run."""
    match record.state:
        case "finished":
            data = {
                "output": record.output,
                "finish_reason": record.finish_reason,
                "citations": record.citations,
                "unknown_labels": record.unknown_labels,
                "steps": sum(step.kind == "model" for step in journal.steps()),
            }
            return "run_finished", data
        case "waiting":
            return "run_waiting", {"calls": [waiting_form(waiting.call) for waiting in record.waiting]}
        case "failed":
            error: dict[str, Any] = {}
            if record.error is not None:
                error = record.error._asdict()
            return "run_failed", error
        case "cancelled":
            return "run_cancelled", {"reason": record.reason}
        case _:
            return None
