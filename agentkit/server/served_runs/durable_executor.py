"""`DurableExecutor`: runs that outlive the server: any worker on their database continues them."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sqlalchemy.exc import SQLAlchemyError

from agentkit.durable.added_agents import AddedAgent
from agentkit.durable.durable_errors import RunIdTaken, WorkerError
from agentkit.durable.run_handle import entry_events
from agentkit.durable.runs_facade import Runs
from agentkit.durable.stored.durable_store import StartedRun
from agentkit.durable.stored.run_request import SessionName
from agentkit.errors import AgentDefinitionError, ApprovalError, JournalError
from agentkit.ground.threads import in_thread
from agentkit.models.model import NO_USAGE, Usage
from agentkit.run.engine.loop import RunResult
from agentkit.run.engine.run_options import RunOptions
from agentkit.run.journal.journal import Journal
from agentkit.run.parts.agent_definition import AgentDefinition
from agentkit.run.parts.decisions import Decision
from agentkit.run.parts.session import SessionProtocol
from agentkit.runs.run_errors import RunNotFound
from agentkit.runs.run_record import RunEvent, RunRecord, RunsWanted, usage_since
from agentkit.server.served_agents import ServedAgents
from agentkit.server.served_runs.event_form import call_form, event_form, usage_form
from agentkit.server.served_runs.process_executor import check_decisions, check_room, same_run
from agentkit.server.served_runs.public_errors import shown_error
from agentkit.server.served_runs.tenant_limits import TenantLimits
from agentkit.server.server_errors import Conflict
from agentkit.server.server_options import ServerOptions
from agentkit.server.session_store import Owner, SessionStore
from agentkit_memory import Scope

__all__ = ["DurableExecutor"]

_MIN_WAIT, _MAX_WAIT = 0.05, 1.0
_ADOPT_EVERY = 5.0
"""Seconds after which a server looks again for requests that a stopped server left."""
_STEP = 1_000
"""Between the numbers of events of two entries of a journal: an entry has an event for each decision in it, and what is
no entry comes after the last one."""
_log = logging.getLogger("agentkit.server")


class DurableExecutor:
    """An `Executor` on a database of durable runs.

    Runs of one session are executed in the order in which they came, one at a time. The server has a worker, unless the
    database has its one worker already; a run continues with the agents of any worker that has them by name and
    version. Events are whole replies and results: they come from the journal.

    Args:
        runs: The durable runs.
        agents: The agents.
        sessions: Where conversations are.
        limits: Counts what runs use.
        options: What the server allows.
        version: One version of all agents, for agents that are replaced while the server runs: a run continues with the
            agent as it is then. None for one that changes with what the model is sent; see `Runs.add`.

    Raises:
        AgentDefinitionError: The server has no memory: what is not stored cannot continue elsewhere.
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
    ) -> None:
        if sessions.memory is None:
            raise AgentDefinitionError(
                "server: durable runs need a memory: a session in one process is lost with it", name="memory"
            )
        self._memory = sessions.memory
        self._agents, self._sessions = agents, sessions
        self._options, self._limits = options, limits
        self._runs, self._store, self._rows = runs, runs.store, runs.store.rows
        self._added: dict[str, AddedAgent] = {}
        for loaded in agents:
            agent = _OfTenants(agents, loaded.name)
            runs.add(agent, sessions=self._session, version=version)
            self._added[loaded.name] = runs.agents.latest(agent)
        self._worker: Any = None
        self._starting: list[str] = []
        """Tenants of the runs that are being stored."""
        self._live: dict[str, _LiveRun] = {}
        """The runs that this server started or continued, until they end or wait for decisions, by their ids."""
        self._watching: asyncio.Task[None] | None = None
        self._adopting: asyncio.Task[None] | None = None
        self._is_closing = False

    @property
    def worker(self) -> str | None:
        return None if self._worker is None else self._worker.id

    @property
    def live(self) -> int:
        return len(self._starting) + len(self._live)

    async def open(self) -> None:
        worker = self._runs.worker(concurrency=self._options.background_runs, grace=self._options.grace_seconds)
        try:
            await in_thread(worker.start)
            self._worker = worker
        except WorkerError as error:
            _log.warning("runs are left to another worker: %s", error)
        await self._adopt_all(await in_thread(self._rows.requeue_interrupted, await in_thread(self._alive)))
        self._adopting = asyncio.get_running_loop().create_task(self._adopt_abandoned())

    def _alive(self) -> list[str]:
        return [worker.id for worker in self._store.workers.all() if worker.is_alive]

    async def _adopt_abandoned(self) -> None:
        """Continue what other servers left when they stopped: a server may never start again."""
        while True:
            await asyncio.sleep(_ADOPT_EVERY)
            try:
                alive = await in_thread(self._alive)
                await self._adopt_all(await in_thread(self._rows.requeue_abandoned, alive, self._added))
            except Exception:
                _log.exception("requests of stopped servers could not be looked for")

    async def _adopt_all(self, records: Sequence[RunRecord]) -> None:
        for record in records:
            if record.agent in self._added:
                await in_thread(self._adopt, record)
                self._watch(record, record.usage)

    def _adopt(self, record: RunRecord) -> None:
        """Have workers continue a run of a request, which its server left."""
        self._store.queue.adopt(self._started(record).new())

    async def start(self, record: RunRecord) -> RunRecord:
        if record.key is not None:  # the same key is the same run
            record = replace(record, run_id=_id_of(record.tenant, record.key))
            if (known := await in_thread(self._known, record)) is not None:
                return known
        live = [*self._starting, *(one.tenant for one in self._live.values())]
        check_room(record.tenant, live, self._options, is_closing=self._is_closing)
        self._starting.append(record.tenant)
        try:
            begun, is_new = await in_thread(self._start, record)
        finally:
            self._starting.remove(record.tenant)
        if is_new:
            self._watch(begun, NO_USAGE)
        return begun

    def _known(self, record: RunRecord) -> RunRecord | None:
        """Return the run that the tenant began under the key of this one, if it has."""
        try:
            return same_run(self._rows.get(record.run_id, tenant=record.tenant), record)
        except RunNotFound:
            return None

    def _start(self, record: RunRecord) -> tuple[RunRecord, bool]:
        started = self._started(record)
        try:
            self._store.enqueue([started])
        except RunIdTaken:  # another server was first
            return same_run(self._rows.get(record.run_id, tenant=record.tenant), record), False
        return self._rows.get(record.run_id), True

    def _started(self, record: RunRecord) -> StartedRun:
        """Return a run as workers take it."""
        options: RunOptions[Any, Any] = {"run_id": record.run_id, "tenant": record.tenant, "user": record.user}
        agent = self._agents.of_tenant(record.agent, record.tenant)
        if record.session is not None:
            options["session"] = self._sessions.open(Owner(record.tenant, record.user), record.session)
        elif (scope := ServedAgents.scope(agent, record.tenant, record.user)) is not None:
            options["scope"] = scope
        return self._runs.requested(replace(self._added[record.agent], agent=agent), record.input, options)

    async def decide(self, record: RunRecord, decisions: Mapping[str, Decision]) -> RunRecord:
        check_decisions(record, decisions)
        if record.executor == "process":
            await in_thread(self._adopt, record)
        try:
            await in_thread(self._rows.decide, record.run_id, decisions, queue=self._store.queue_leg)
        except ApprovalError as error:  # another one was first
            raise Conflict(str(error), code="not_waiting") from error
        if decisions.keys() >= {call.call_id for call in record.waiting}:
            self._watch(record, record.usage)
        return await in_thread(self._rows.get, record.run_id)

    async def cancel(self, record: RunRecord) -> RunRecord:
        if await in_thread(self._rows.cancel, record.run_id):
            self._watch(record, record.usage)
        return await in_thread(self._rows.get, record.run_id)

    async def delete(self, record: RunRecord) -> None:
        await in_thread(self._store.delete, [record.run_id])

    async def events(self, record: RunRecord, after: int) -> AsyncGenerator[RunEvent, None]:
        wait, has_begun = _MIN_WAIT, False
        while record.executor == "dbos":
            try:
                now = await in_thread(self._rows.get, record.run_id)
                journal = await in_thread(self._store.journal, record.run_id)
            except SQLAlchemyError:
                if not has_begun or self._is_closing:
                    raise
                await asyncio.sleep(_MAX_WAIT)
                continue
            has_begun = True
            fresh = [event for event in _events(journal, shown_error(now)) if event.seq > after]
            for event in fresh:
                yield event
                after = event.seq
            if now.has_ended or now.state == "waiting" or self._is_closing:
                return
            wait = _MIN_WAIT if fresh else min(wait * 1.5, _MAX_WAIT)
            await asyncio.sleep(wait)

    def stop_listening(self) -> None:
        self._is_closing = True

    async def close(self) -> None:
        self.stop_listening()
        for task in (self._watching, self._adopting):
            if task is not None:
                task.cancel()
        if self._worker is not None:
            await in_thread(self._worker.stop)
        await self._count_ended()

    def _session(self, name: SessionName) -> SessionProtocol:
        """Open the session of a run."""
        return self._memory.within(Scope(*(name.scope or ()))).session(name.id, branch=name.branch or "main")

    def _watch(self, record: RunRecord, counted: Usage) -> None:
        """Count what a run used once it ends or waits; `counted` is what was counted of it before."""
        known = self._live.get(record.run_id)
        self._live[record.run_id] = _LiveRun(record.tenant, counted if known is None else known.counted)
        if self._watching is None or self._watching.done():
            self._watching = asyncio.get_running_loop().create_task(self._count())

    async def _count(self) -> None:
        while self._live:
            await asyncio.sleep(_MAX_WAIT)
            await self._count_ended()

    async def _count_ended(self) -> None:
        live = dict(self._live)
        if not live:
            return
        try:
            wanted = RunsWanted(ids=[*live], limit=len(live))
            found = {record.run_id: record for record in await in_thread(self._rows.page, wanted)}
            for run_id, watched in live.items():
                record = found.get(run_id)
                if record is not None and not (record.has_ended or record.state == "waiting"):
                    continue
                total = await in_thread(self._usage, run_id, record)
                if self._live[run_id] is watched:  # no request continued it in between
                    del self._live[run_id]
                    used = usage_since(watched.counted, total)
                    self._limits.used(watched.tenant, used, has_ended=record is None or record.has_ended)
        except Exception:
            _log.exception("what %d runs used could not be counted", len(live))

    def _usage(self, run_id: str, record: RunRecord | None) -> Usage:
        """Return what a run used; `record` is None if it was deleted, which it may be as soon as it has ended."""
        try:
            journal = self._rows.journal(run_id)
        except JournalError as error:  # the run still has to make room for others
            _log.warning("run %s: what it used since it waited or began is not known: %s", run_id, error)
            journal = None
        if journal is not None:
            return journal.usage
        return NO_USAGE if record is None else record.usage


class _LiveRun(NamedTuple):
    tenant: str
    counted: Usage
    """What it used until this server began to watch it."""


class _OfTenants:
    """An agent of a server as it is now, as a worker has it: each run reads the memory of its own tenant."""

    def __init__(self, agents: ServedAgents, name: str) -> None:
        self.name = name
        self.runs: Runs | None = None
        self._agents = agents

    @property
    def definition(self) -> AgentDefinition[Any]:
        return next(one for one in self._agents if one.name == self.name).agent.definition

    def resume(self, journal: Journal, /, **options: Any) -> Coroutine[Any, Any, RunResult[Any]]:
        """Resume a run; see `Agent.resume`."""
        tenant = journal.scope[0] if journal.scope else ""
        return self._agents.of_tenant(self.name, tenant).resume(journal, **options)


def _id_of(tenant: str, key: str) -> str:
    """Return the id of the run that a tenant begins under a key."""
    return hashlib.blake2b(f"{tenant}\0{key}".encode(), digest_size=16, person=b"agentkit.run.key").hexdigest()


def _events(journal: Journal, record: RunRecord) -> list[RunEvent]:
    """Return the events of a run so far: those of its journal, and how it ended or why it waits."""
    found = [
        RunEvent((number + 1) * _STEP + at, *event_form(event))
        for number, events in entry_events(journal)
        for at, event in enumerate(events)
    ]
    usage = {"usage": usage_form(record.usage)}
    last: tuple[str, dict[str, Any]] | None = None
    if record.state == "finished":
        steps = sum(step.kind == "model" for step in journal.steps())
        answer = {name: getattr(record, name) for name in ("output", "finish_reason", "citations", "unknown_labels")}
        last = "run_finished", {**answer, "steps": steps}
    elif record.state == "waiting":
        last = "run_waiting", {"calls": [call_form(one.call) for one in record.waiting]}
    elif record.state == "failed":
        last = "run_failed", {} if record.error is None else record.error._asdict()
    elif record.state == "cancelled":
        last = "run_cancelled", {}
    if last is not None:
        found.append(RunEvent(len(journal.entries) * _STEP + _STEP // 2, last[0], {**last[1], **usage}))
    return found
