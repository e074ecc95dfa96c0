"""`Runs`: durable runs of one database, and the registered agents that execute them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from typing_extensions import Unpack

from agentkit.durable.added_agents import AddedAgent, AddedAgents, DurableAgent, OpenSession
from agentkit.durable.mapping import MapReport, mapped
from agentkit.durable.retention import delete_ended, delete_runs
from agentkit.durable.run_costs import CostBy, RunCost, run_costs
from agentkit.durable.run_handle import RunHandle
from agentkit.durable.schedules import ScheduleInfo, known_schedules, schedule_names, set_schedule
from agentkit.durable.stored.durable_store import DurableStore, StartedRun
from agentkit.durable.stored.run_request import PRIORITY, RunRequest, SessionName, check_name
from agentkit.durable.worker import Worker
from agentkit.errors import AgentDefinitionError, named_problems
from agentkit.ground.threads import in_thread
from agentkit.run.engine.run_options import MapOptions, ScheduleOptions, StartOptions, check_options
from agentkit.run.engine.start import new_journal
from agentkit.run.parts.deps_source import Deps, DepsSource
from agentkit.run.parts.run_scope import run_scope, within_scope
from agentkit.run.parts.session import checked_session
from agentkit.runs.run_errors import DurableError
from agentkit.runs.run_record import RunRecord, RunState, RunsWanted
from agentkit.runs.worker_rows import WorkerRow
from agentkit_prompts.hints import Hinted, with_option_hints
from agentkit_prompts.names import nearest

_OPTIONS = frozenset(("run_id", "session", "scope", "tenant", "user", "locale", "tags", "priority", "delay"))
_MAX_NUMBER = 2**31 - 1


class Runs(metaclass=Hinted):
    """Durable runs in one database.

    Example of a server. Its processes need no workers:

        handle = await agent.start("Pay bill 7", run_id="bill-7", session=session)   # or runs.start(agent, ...)
        handle = runs.handle("bill-7")                      # the same run, from any process
        info = await handle.info()                          # info.state, info.waiting
        async for event in handle.events(follow=True): ...  # replies and tool results, as they are stored
        ended = await handle.result()                       # RunRecord, or Paused, RunFailed, RunCancelled
        await handle.approve("c1", by="ada")                # or deny, cancel, resume
        for info in await runs.list_runs(state="waiting"): ...

    Workers execute the runs: `agentkit worker MODULE`, or `with runs.worker():` in a program.

    Args:
        url: The database: `sqlite:///runs.db` for one machine, `postgresql://...` for several machines.

    Raises:
        DurableError: The url is invalid, or the extra `durable` is not installed. All methods with requests raise its
            subclass `DatabaseUnavailable` if the database does not respond within seconds.
    """

    @with_option_hints
    def __init__(self, url: str) -> None:
        self.store = DurableStore(url)
        """Direct access to the database."""
        self.agents = AddedAgents()
        """The registered agents."""

    # Agents

    def add(
        self,
        agent: DurableAgent,
        *,
        deps: Deps = None,
        sessions: OpenSession | None = None,
        version: str | None = None,
        approval_timeout: float | None = None,
    ) -> None:
        """Register an agent, which workers find by name and version.

        Args:
            agent: The agent. `agent.start` starts its runs.
            deps: Passed to its tools in their `ToolContext`: one object for all runs; or a function that is called with
                the `RunCaller` of each run and returns its deps; see `Agent.with_deps`, whose deps are the default.
            sessions: Opens a session by name; by default, the memory of the agent.
            version: Version of the agent; by default a hash of the content of requests (prompts, tools, output type,
                model, settings). Change it if running runs must not continue with the new agent. A run continues with
                the version with which it started, or waits for a worker that has this version.
            approval_timeout: Seconds after which a waiting call is denied; None: never.

        Raises:
            AgentDefinitionError: Another agent has this name and version, or a name cannot be stored.
            DepsMismatch: Tools require deps of another type.
        """
        problems: list[str] = []
        check_name("name", agent.name, problems)
        if version is not None:
            check_name("version", version, problems)
        if approval_timeout is not None and not (
            type(approval_timeout) in (int, float) and 0 < approval_timeout < _MAX_NUMBER
        ):
            problems.append(f"approval_timeout={approval_timeout!r:.40}: expected seconds above 0, or None")
        if problems:
            raise AgentDefinitionError(f"runs.add: {'; '.join(problems)}", **named_problems(problems))
        source = None
        if deps is not None or agent.definition.deps is None:
            source = DepsSource(deps)
            source.check(agent.definition.tools.tools.values())
        self.agents.add(AddedAgent(agent, version or agent.definition.version.id, source, sessions, approval_timeout))
        agent.runs = self

    # Runs

    @with_option_hints
    async def start(
        self, agent: DurableAgent | str, user_input: Any, **options: Unpack[StartOptions]
    ) -> RunHandle[Any]:
        """Start a run of an agent, or of the latest agent with this name; see `Agent.start`."""
        return await in_thread(lambda: self._start(agent, user_input, options))

    def _start(self, agent: DurableAgent | str, user_input: Any, options: StartOptions) -> RunHandle[Any]:
        check_options("start", options, _OPTIONS)
        started = self.requested(self.agents.latest(agent), user_input, options)
        with self.store.answering(f"then start it again with run_id={started.run_id!r}: the run starts only once"):
            self.store.enqueue([started], delay=options.get("delay"))
        return RunHandle(self.store, self.agents, started.run_id)

    @with_option_hints
    async def map(
        self,
        agent: DurableAgent | str,
        inputs: Iterable[Any],
        *,
        name: str,
        out: Path | str,
        **options: Unpack[MapOptions],
    ) -> MapReport:
        """Start a run for each input, and write the outcomes; see `Agent.map`."""
        added = self.agents.latest(agent)

        def request(user_input: Any, run_options: StartOptions) -> StartedRun:
            started = self.requested(added, user_input, run_options)
            return replace(started, request=replace(started.request, is_mapped=True))

        return await mapped(self.store, added, request, inputs, name, Path(out), options)

    def requested(self, added: AddedAgent, user_input: Any, options: StartOptions) -> StartedRun:
        """Return the stored form of a new run, after all checks. Nothing is stored yet."""
        problems: list[str] = []
        run_id = options.get("run_id")
        if run_id is None:
            run_id = os.urandom(16).hex()
        check_name("run_id", run_id, problems)
        for name in ("tenant", "user"):
            if options.get(name, "") != "":
                check_name(name, options.get(name), problems)
        priority, delay = options.get("priority", PRIORITY), options.get("delay")
        if type(priority) is not int or not 1 <= priority <= _MAX_NUMBER:
            problems.append(f"priority={priority!r:.40}: expected an int from 1")
        if delay is not None and not (type(delay) in (int, float) and 0 <= delay < _MAX_NUMBER):
            problems.append(f"delay={delay!r:.40}: expected seconds, 0 or more")
        if problems:
            raise DurableError(f"start: {'; '.join(problems)}; nothing was started", **named_problems(problems))
        session = options.get("session")
        agent = added.agent.definition
        scope = run_scope(agent.memory, checked_session(session), options)
        within_scope(agent.memory, scope)  # raises now instead of in the worker
        tags = options.get("tags", ())
        journal = new_journal(agent, scope, user_input, session, run_id, options.get("locale"), tags)
        if user_input is not None:
            agent.chain.preflight(journal.context.user_input)
        session_name = None
        if session is not None:
            session_name = SessionName.of(session)
            added.session(session_name)  # raises now instead of in the worker
        tenant = user = ""
        if scope is not None:
            tenant, user = scope.tenant, scope.user
        request = RunRequest(agent.name, added.version, session_name, tenant, user=user, priority=priority)
        stored_input = None
        if user_input is not None:
            stored_input = journal.context.user_input
        locale = journal.context.locale
        return StartedRun(run_id, request, journal.dumps(), stored_input, locale=locale, tags=journal.tags)

    @with_option_hints
    async def schedule(
        self,
        agent: DurableAgent | str,
        user_input: Any,
        *,
        name: str,
        cron: str,
        timezone: str = "UTC",
        catches_up: bool = False,
        **options: Unpack[ScheduleOptions],
    ) -> None:
        """Store a schedule, which starts a run at each due time; replace a schedule of the same name.

        One worker starts the run: the id of the run that was due at 6 is `name/2026-11-22T06:00:00.000Z`. The run uses
        the version of the agent in this worker.

        Args:
            agent: The agent, or the name of an added agent.
            user_input: As in `Agent.run`.
            name: Unique in the database.
            cron: Cron expression, such as `0 6 * * 1`; the first of six fields is seconds.
            timezone: IANA name of the time zone of `cron`.
            catches_up: True if runs that were due without a worker start later.
            **options: `session`, `scope`, `tenant`, `user`, `locale`, `tags`, `priority`.

        Raises:
            DurableError: The name, `cron` or `timezone` is invalid, or the agent is unknown; nothing was stored.
        """
        check_options("schedule", options, _OPTIONS)
        names = ", ".join(sorted({"run_id", "delay"} & options.keys()))
        if names:
            raise DurableError(f"schedule: {names}: remove the option, as each run has a separate value", name=names)
        run_options = cast(StartOptions, options)
        started = await in_thread(lambda: self.requested(self.agents.latest(agent), user_input, run_options))
        await self.store.ask(lambda: set_schedule(self.store, name, started, cron, timezone, catches_up=catches_up))

    async def schedules(self) -> list[ScheduleInfo]:
        """Return the schedules, by name."""
        return await self.store.ask(lambda: known_schedules(self.store))

    async def unschedule(self, name: str) -> None:
        """Delete a schedule; its running runs continue.

        Raises:
            DurableError: No schedule has this name.
        """
        names = await self.store.ask(lambda: schedule_names(self.store))
        if name not in names:
            raise DurableError(f"unknown schedule {name!r:.80}{nearest(name, names)}", name="schedule", value=name)
        await self.store.ask(lambda: self.store.client.delete_schedule(name))

    def handle(self, run_id: str) -> RunHandle[Any]:
        """Return the handle of a run, without a request."""
        return RunHandle(self.store, self.agents, run_id)

    @with_option_hints
    async def list_runs(
        self,
        *,
        state: RunState | None = None,
        agent: str | None = None,
        tenant: str | None = None,
        user: str | None = None,
        session: str | None = None,
        tag: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[RunRecord]:
        """Return runs, latest first, optionally filtered by state, agent, tenant, user, session id or tag."""
        filters: dict[str, Any] = {"agent": agent, "tenant": tenant, "user": user, "session": session, "tag": tag}
        wanted = RunsWanted(state=state, **filters, is_short=True, limit=limit, offset=offset)
        return await self.store.ask(lambda: self.store.listed(wanted))

    def worker(self, **options: Any) -> Worker:
        """Return a worker for the runs of the added agents, which must be started; see `Worker`."""
        return Worker(self.store, self.agents, **options)

    async def delete(self, run_ids: str | Iterable[str]) -> int:
        """Delete finished runs with all their data, and return their number. Other runs stay.

        Args:
            run_ids: Id of a run, or ids of runs.

        Raises:
            RunNotFound: A run is unknown; nothing was deleted.
        """
        # A text is one id: its characters would be ids of other runs.
        ids = [run_ids] if isinstance(run_ids, str) else [*run_ids]
        return await self.store.ask(lambda: delete_runs(self.store, ids))

    async def delete_ended(
        self, older_than: timedelta, *, tenant: str | None = None, archive: str | Path | None = None
    ) -> int:
        """Delete runs that finished more than `older_than` ago, with all their data, and return their number.

        Args:
            older_than: Age since the run finished, failed or was cancelled. Waiting runs stay.
            tenant: Tenant of the runs; None: all.
            archive: File to which the runs are appended as JSON lines before they are deleted; `read_archive` reads it.
                Erasures of users do not change archives.

        Raises:
            DurableError: The age is negative, or the archive is no path or cannot be opened; nothing was deleted.
        """
        if archive is not None and not isinstance(archive, str | Path):
            raise DurableError(
                f"archive: expected the path of a file, got {type(archive).__name__}; nothing was deleted",
                name="archive",
            )
        file = None if archive is None else Path(archive)
        return await self.store.ask(lambda: delete_ended(self.store, older_than, tenant, file))

    async def costs(self, by: CostBy = "run", *, tenant: str | None = None) -> list[RunCost]:
        """Return the costs of runs from their journals, most expensive first; see `run_costs`."""
        return await self.store.ask(lambda: run_costs(self.store, by, tenant))

    async def workers(self) -> list[WorkerRow]:
        """Return the live workers, and workers that stopped recently."""
        return await self.store.ask(lambda: self.store.workers.all())

    def close(self) -> None:
        """Close the connections. The next request opens them again."""
        self.store.close()
