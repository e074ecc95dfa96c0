"""`Runs`: durable runs, and the agents that are found by name where these go on."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from typing_extensions import Unpack

from agentkit.durable.added_agents import AddedAgent, AddedAgents, DurableAgent, OpenSession
from agentkit.durable.agent_version import version_of
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
from agentkit.run.engine.run_options import RunOptions, check_options
from agentkit.run.engine.start import new_journal
from agentkit.run.parts.agent_tools import check_deps
from agentkit.run.parts.recaller import in_scope
from agentkit.run.parts.session import checked_session
from agentkit.runs.run_errors import DurableError
from agentkit.runs.run_record import RunRecord, RunState, RunsWanted
from agentkit.runs.worker_rows import WorkerRow
from agentkit_prompts.names import nearest

__all__ = ["Runs"]

_OPTIONS = frozenset(("run_id", "session", "scope", "tenant", "user", "priority", "delay"))
_MAX_NUMBER = 2**31 - 1


class Runs:
    """Durable runs in one database.

    A server uses it like this, in any number of processes that need no worker of their own:

        handle = await agent.start("Pay bill 7", run_id="bill-7", session=session)   # or runs.start(agent, ...)
        handle = runs.handle("bill-7")                      # the same run, from any process
        info = await handle.info()                          # info.state, info.waiting
        async for event in handle.events(follow=True): ...  # replies and tool results, as they are stored
        ended = await handle.result()                       # RunRecord, or Paused, RunFailed, RunCancelled
        await handle.approve("c1", by="ada")                # or deny, cancel, resume
        for info in await runs.list_runs(state="waiting"): ...

    The runs themselves are done by workers: `agentkit worker MODULE`, or `with runs.worker():` in a program.

    Args:
        url: The database: `sqlite:///runs.db` for one machine, `postgresql://...` for any number of them.

    Raises:
        DurableError: The url is neither. All that asks the database raises its subclass `DatabaseUnavailable` where
            the database does not answer within seconds.
    """

    def __init__(self, url: str) -> None:
        self.store = DurableStore(url)
        """The database, for what there is no handle for."""
        self.agents = AddedAgents()
        """The agents that were added."""

    # Agents

    def add(
        self,
        agent: DurableAgent,
        *,
        deps: Any = None,
        sessions: OpenSession | None = None,
        version: str | None = None,
        approval_timeout: float | None = None,
    ) -> None:
        """Add an agent, which workers find by its name and version.

        Args:
            agent: The agent. Its runs are started with `agent.start`.
            deps: Handed to its tools in their `ToolContext`.
            sessions: Opens the conversation of a name; when not given, the memory of the agent does.
            version: Changes when runs that have begun must not go on with the agent as it is now; a hash of what the
                model is sent (prompts, tools, output type, model, settings) when not given. Agents of several versions
                may be added: a run goes on with the one it began with, or waits for a worker that has it.
            approval_timeout: Seconds after which a call that waits for a person is denied; None for never.

        Raises:
            AgentDefinitionError: There is one of this name and version, or a name cannot be stored.
            DepsMismatch: Its tools need other deps.
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
        check_deps(agent.definition.tools.tools.values(), deps)
        self.agents.add(AddedAgent(agent, version or version_of(agent), deps, sessions, approval_timeout))
        agent.runs = self

    # Runs

    async def start(
        self, agent: DurableAgent | str, user_input: Any, **options: Unpack[RunOptions[Any, Any]]
    ) -> RunHandle[Any]:
        """Begin a run, of an agent or of the one of this name that was added last; see `Agent.start`."""
        return await in_thread(lambda: self._start(agent, user_input, options))

    def _start(self, agent: DurableAgent | str, user_input: Any, options: RunOptions[Any, Any]) -> RunHandle[Any]:
        check_options("start", options, _OPTIONS)
        started = self.requested(self.agents.latest(agent), user_input, options)
        with self.store.answering(f"then start it again with run_id={started.run_id!r}: it begins once"):
            self.store.enqueue([started], delay=options.get("delay"))
        return RunHandle(self.store, self.agents, started.run_id)

    async def map(
        self,
        agent: DurableAgent | str,
        inputs: Iterable[Any],
        *,
        name: str,
        out: Path | str,
        **options: Unpack[RunOptions[Any, Any]],
    ) -> MapReport:
        """Begin a run for each of many inputs, and write how they end; see `Agent.map`."""
        added = self.agents.latest(agent)

        def request(user_input: Any, about: RunOptions[Any, Any]) -> StartedRun:
            started = self.requested(added, user_input, about)
            return replace(started, request=replace(started.request, is_mapped=True))

        return await mapped(self.store, added, request, inputs, name, Path(out), options)

    def requested(self, added: AddedAgent, user_input: Any, options: RunOptions[Any, Any]) -> StartedRun:
        """Return what is stored of a run: checked, and nothing stored yet."""
        problems: list[str] = []
        tenant: Any = options.get("tenant", "")
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
        memory = in_scope(agent.memory, checked_session(session), options.get("scope"))
        journal = new_journal(agent, memory, user_input, session, run_id)
        if user_input is not None:
            agent.chain.preflight(journal.context.user_input)
        named = None
        if session is not None:
            scope, branch = getattr(session, "scope", None), getattr(session, "branch", None)
            named = SessionName(session.id, None if scope is None else tuple(scope.names), branch)
            added.session(named)  # the worker has to
        user = options.get("user", "")
        request = RunRequest(agent.name, added.version, named, tenant, user=user, priority=priority)
        asked = None if user_input is None else journal.context.user_input
        return StartedRun(run_id, request, journal.dumps(), asked)

    async def schedule(
        self,
        agent: DurableAgent | str,
        user_input: Any,
        *,
        name: str,
        cron: str,
        timezone: str = "UTC",
        catches_up: bool = False,
        **options: Unpack[RunOptions[Any, Any]],
    ) -> None:
        """Begin a run whenever it is due, from now on, in place of the schedule of this name.

        Workers see to it, one of them each time: the run that was due at 6 is `name/2026-11-22T06:00:00.000Z`.
        The run is of the version of the agent that the worker has then.

        Args:
            agent: The agent, or the name of one that was added.
            user_input: As `Agent.run` takes it.
            name: Unique in the database.
            cron: Such as `0 6 * * 1`; six fields begin with seconds.
            timezone: IANA name of the time zone of `cron`.
            catches_up: Whether runs that were due while there was no worker begin when there is one.
            **options: See `RunOptions`; neither `run_id` nor `delay`.

        Raises:
            DurableError: The name, `cron` or `timezone` is invalid, or there is no such agent; nothing was stored.
        """
        check_options("schedule", options, _OPTIONS)
        if given := sorted({"run_id", "delay"} & options.keys()):
            raise DurableError(
                f"schedule: {', '.join(given)}: each run has its own: leave it out", name=", ".join(given)
            )

        started = await in_thread(lambda: self.requested(self.agents.latest(agent), user_input, options))
        await self.store.ask(lambda: set_schedule(self.store, name, started, cron, timezone, catches_up=catches_up))

    async def schedules(self) -> list[ScheduleInfo]:
        """Return the schedules, by name."""
        return await self.store.ask(lambda: known_schedules(self.store))

    async def unschedule(self, name: str) -> None:
        """Delete a schedule; runs that it began go on.

        Raises:
            DurableError: No schedule has this name.
        """
        names = await self.store.ask(lambda: schedule_names(self.store))
        if name not in names:
            raise DurableError(f"there is no schedule {name!r:.80}{nearest(name, names)}", name="schedule", value=name)
        await self.store.ask(lambda: self.store.client.delete_schedule(name))

    def handle(self, run_id: str) -> RunHandle[Any]:
        """Return the handle of a run; nothing is looked up yet."""
        return RunHandle(self.store, self.agents, run_id)

    async def list_runs(
        self,
        *,
        state: RunState | None = None,
        agent: str | None = None,
        tenant: str | None = None,
        user: str | None = None,
        session: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[RunRecord]:
        """Return runs, the latest first: all, or those of a state, agent, tenant, user, or id of a session."""
        about: dict[str, Any] = {"agent": agent, "tenant": tenant, "user": user, "session": session}
        wanted = RunsWanted(state=state, **about, is_short=True, limit=limit, offset=offset)
        return await self.store.ask(lambda: self.store.listed(wanted))

    def worker(self, **options: Any) -> Worker:
        """Return a worker that does the runs of the agents that were added; see `Worker`. It has to be started."""
        return Worker(self.store, self.agents, **options)

    async def delete(self, run_ids: Iterable[str]) -> int:
        """Delete runs that have ended, with all that is stored of them, and return how many; others stay.

        Raises:
            RunNotFound: There is no run of one of the ids; nothing was deleted.
        """
        return await self.store.ask(lambda: delete_runs(self.store, [*run_ids]))

    async def delete_ended(self, older_than: timedelta, *, tenant: str | None = None) -> int:
        """Delete the runs that ended so long ago, with all that is stored of them, and return how many.

        Args:
            older_than: Time since they finished, failed or were cancelled. Those that wait stay.
            tenant: Only those of this one.

        Raises:
            DurableError: The time is below 0; nothing was deleted.
        """
        return await self.store.ask(lambda: delete_ended(self.store, older_than, tenant))

    async def costs(self, by: CostBy = "run", *, tenant: str | None = None) -> list[RunCost]:
        """Return what runs cost, from their journals, the most expensive first; see `run_costs`."""
        return await self.store.ask(lambda: run_costs(self.store, by, tenant))

    async def workers(self) -> list[WorkerRow]:
        """Return the workers, and those that ended lately."""
        return await self.store.ask(lambda: self.store.workers.all())

    def close(self) -> None:
        """Close the connections; whatever is called next opens them again."""
        self.store.close()
