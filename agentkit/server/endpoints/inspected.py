"""What the inspector shows of a server: the agents, runs and sessions of one caller."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from starlette.exceptions import HTTPException

from agentkit.agent.agent import Agent
from agentkit.errors import AgentError, ApprovalError
from agentkit.ground.threads import in_thread
from agentkit.run.parts.decisions import Decision
from agentkit.run.parts.recaller import RecallSource
from agentkit.run.parts.session import SessionProtocol
from agentkit.runs.executor import Executor
from agentkit.runs.run_errors import RunNotFound
from agentkit.runs.run_record import RunRecord, RunsWanted
from agentkit.runs.run_store import RunStore
from agentkit.server.access import Caller, Permission
from agentkit.server.endpoints.runs_api import RunEndpoints, StartRun
from agentkit.server.served_agents import ServedAgents
from agentkit.server.served_runs.public_errors import shown_error
from agentkit.server.server_errors import AccessDenied, ServerError, UnknownResource
from agentkit.server.session_store import Owner, SessionStore
from agentkit_memory import Memory
from agentkit_prompts.context.prompt_context import UserInput

__all__ = ["CallerSource", "as_http"]


class CallerSource:
    """An `InspectorSource` of one caller. What its token may not do is refused; what is of others is not there."""

    def __init__(
        self,
        caller: Caller,
        agents: ServedAgents,
        store: RunStore,
        sessions: SessionStore,
        runs: Executor,
        endpoints: RunEndpoints,
    ) -> None:
        caller.check("read")
        self._caller = caller
        self._agents = agents
        self._store = store
        self._sessions = sessions
        self._runs = runs
        self._endpoints = endpoints
        self._owner = Owner(caller.tenant, caller.user)

    async def agents(self) -> Mapping[str, Agent[Any, Any]]:
        return {name: self._agents.of_tenant(name, self._caller.tenant) for name in self._agents.names(self._caller)}

    async def runs(
        self, *, limit: int, session: str | None = None, ids: Collection[str] | None = None
    ) -> Sequence[RunRecord]:
        wanted = RunsWanted(tenant=self._caller.tenant, user=self._caller.user or None, ids=ids, limit=limit)
        if session is not None:
            if (place := self._place(session)) is None:
                return []
            wanted = replace(wanted, user=place[0].user, session=place[1])
        names = set(self._agents.names(self._caller))
        return [self._named_run(one) for one in await in_thread(self._store.page, wanted) if one.agent in names]

    async def run(self, run_id: str) -> RunRecord | None:
        try:
            record = await self._endpoints.record(run_id, self._caller)
        except RunNotFound:
            return None
        return replace(self._named_run(record), journal=await in_thread(self._store.journal, run_id))

    async def sessions(self, *, limit: int) -> Sequence[str]:
        found = await in_thread(self._sessions.newest, self._owner, limit)
        return [self._named(owner.user, name) for owner, name in found]

    async def session(self, name: str) -> SessionProtocol | None:
        if (place := self._place(name)) is None:
            return None
        owner, own = place
        try:
            return await in_thread(self._sessions.read, owner, own)
        except UnknownResource:
            return None

    def _place(self, name: str) -> tuple[Owner, str] | None:
        """Return whose session a name is, and its own name; None where it can be none of the caller.

        For a caller without a user those of the users are `user/name`.
        """
        user, slash, own = name.rpartition("/")
        if slash and self._caller.user:
            return None
        return (Owner(self._owner.tenant, user) if slash else self._owner), own

    def _named(self, user: str, session: str) -> str:
        """Return what a session is called here; see `_place`."""
        return f"{user}/{session}" if user and not self._caller.user else session

    def _named_run(self, record: RunRecord) -> RunRecord:
        """Return a run as the caller may see it: its session has the name that it has here."""
        record = shown_error(record)
        if record.session is None:
            return record
        return replace(record, session=self._named(record.user, record.session))

    async def memory(self, agent: str) -> RecallSource | None:
        memory = self._agents.of_tenant(self._agents.get(agent, self._caller).name, self._caller.tenant).memory
        scope = ServedAgents.scope(self._agents.get(agent, self._caller).agent, *self._owner)
        return memory.within(scope) if isinstance(memory, Memory) and scope is not None else memory

    def _check(self, permission: Permission) -> None:
        try:
            self._caller.check(permission)
        except AccessDenied as error:
            raise as_http(error) from error

    async def start(self, agent: str, user_input: UserInput, session: str | None) -> str:
        self._check("run")
        if not isinstance(user_input.input, str):
            raise AgentError("runs are started here with text only")
        kwargs = dict(user_input.additional_kwargs)
        user, _, session = (None, "", session) if session is None else session.rpartition("/")
        asked = StartRun(
            agent=agent, input=user_input.input, session=session, user=user or None, additional_kwargs=kwargs
        )
        try:
            return (await self._endpoints.begin(self._caller, asked)).run_id
        except ServerError as error:
            raise as_http(error) from error

    async def decide(self, run_id: str, decisions: Mapping[str, Decision]) -> None:
        self._check("approve")
        record = await self._endpoints.record(run_id, self._caller)
        try:
            await self._runs.decide(record, decisions)
        except ServerError as error:
            raise ApprovalError(str(error)) from error


def as_http(error: ServerError) -> HTTPException:
    """Return an error as the routes of the inspector know it."""
    return HTTPException(error.status, str(error))
