"""`CallerSource`: the agents, runs and sessions of a caller for the inspector."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from starlette.exceptions import HTTPException

from agentkit.agent.agent import Agent
from agentkit.errors import AgentError, ApprovalError
from agentkit.ground.threads import in_thread
from agentkit.inspector.evaluation_view import StoredEvaluation
from agentkit.inspector.played_prompt import PlayedPrompt, asked
from agentkit.inspector.source import MAX_FIGURES, OutlinedRun, empty_journal
from agentkit.models.model import NO_USAGE, Reply
from agentkit.models.model_errors import ModelError
from agentkit.observing.redaction import Redact, process_redact
from agentkit.run.journal.failed_call import text_without_tracebacks
from agentkit.run.journal.journal_outline import JournalOutline
from agentkit.run.parts.decisions import Decision
from agentkit.run.parts.recaller import RecallSource
from agentkit.run.parts.session import SessionProtocol
from agentkit.runs.executor import Executor
from agentkit.runs.run_errors import RunNotFound
from agentkit.runs.run_record import RunFigures, RunList, RunRecord, RunsWanted
from agentkit.runs.run_store import RunStore
from agentkit.server.access import Caller, Permission
from agentkit.server.endpoints.exchange import validated
from agentkit.server.endpoints.runs_api import RunEndpoints, StartRun
from agentkit.server.owner import Owner
from agentkit.server.served_agents import ServedAgents
from agentkit.server.served_runs.public_errors import with_public_error
from agentkit.server.served_runs.tenant_limits import TenantLimits
from agentkit.server.server_errors import AccessDenied, ServerError, UnknownResource
from agentkit.server.session_store import SessionStore
from agentkit_memory import Memory
from agentkit_prompts.context.prompt_context import UserInput


class CallerSource:
    """An `InspectorSource` of one caller: it contains only data of the caller and checks the permissions."""

    def __init__(
        self,
        caller: Caller,
        agents: ServedAgents,
        store: RunStore,
        sessions: SessionStore,
        runs: Executor,
        endpoints: RunEndpoints,
        limits: TenantLimits,
    ) -> None:
        caller.check("read")
        self._caller = caller
        self._agents = agents
        self._store = store
        self._sessions = sessions
        self._runs = runs
        self._endpoints = endpoints
        self._limits = limits
        self._owner = Owner(caller.tenant, caller.user)

    async def agents(self) -> Mapping[str, Agent[Any, Any]]:
        return {name: self._agents.of_tenant(name, self._caller.tenant) for name in self._agents.names(self._caller)}

    async def evaluations(self) -> Mapping[str, StoredEvaluation]:
        # The files of evaluations belong to developers, not to tenants.
        return {}

    async def runs(self, wanted: RunsWanted) -> RunList:
        wanted = replace(wanted, tenant=self._caller.tenant, user=self._caller.user or wanted.user, is_short=True)
        if wanted.session is not None:
            key = self._session_key(wanted.session)
            if key is None:
                return RunList([], None)
            owner, name = key
            wanted = replace(wanted, user=owner.user, session=name)
        agents = set(self._agents.names(self._caller))
        try:
            listed = await in_thread(self._store.listed, wanted)
        except RunNotFound as error:
            # The last run of the part before this part was deleted.
            raise HTTPException(409, "the list of runs changed: load it again from its start") from error
        runs = [self._visible_run(record) for record in listed.runs if record.agent in agents]
        return RunList(runs, listed.older)

    async def figures(self, agent: str) -> Sequence[RunFigures]:
        if agent not in self._agents.names(self._caller):
            return []
        owner = self._owner
        return await in_thread(
            self._store.figures, agent, tenant=owner.tenant, user=owner.user or None, limit=MAX_FIGURES
        )

    async def run(self, run_id: str, *, lines: int | None = None) -> RunRecord | None:
        try:
            record = await self._endpoints.record(run_id, self._caller)
        except RunNotFound:
            return None
        journal = await in_thread(self._store.journal, run_id, lines)
        if journal is not None and not self._caller.is_operator:
            journal.remove_tracebacks()
        return replace(self._visible_run(record), journal=journal)

    async def outlined(self, run_id: str, *, lines: int | None = None) -> OutlinedRun | None:
        try:
            record = self._visible_run(await self._endpoints.record(run_id, self._caller))
        except RunNotFound:
            return None

        def read() -> JournalOutline:
            text = self._store.journal_text(run_id, lines)
            if "\n" not in text:
                return JournalOutline.of(empty_journal(record))
            if not self._caller.is_operator:
                text = text_without_tracebacks(text)
            return JournalOutline.read(text, is_whole=lines is None or text.count("\n") < lines)

        return OutlinedRun(record, await in_thread(read))

    async def sessions(self, *, limit: int) -> Sequence[str]:
        keys = await in_thread(self._sessions.newest, self._owner, limit)
        return [self._visible_name(owner.user, name) for owner, name in keys]

    async def session(self, name: str) -> SessionProtocol | None:
        key = self._session_key(name)
        if key is None:
            return None
        try:
            return await in_thread(self._sessions.read, *key)
        except UnknownResource:
            return None

    def _session_key(self, name: str) -> tuple[Owner, str] | None:
        """Return the owner and the stored name of a session; None if the caller cannot have this session.

        A caller without a user sees the sessions of all users of the tenant as `user/name`.
        """
        user, slash, stored_name = name.rpartition("/")
        if not slash:
            return self._owner, stored_name
        if self._caller.user:
            return None
        return Owner(self._owner.tenant, user), stored_name

    def _visible_name(self, user: str, session: str) -> str:
        """Return the name of a session in the inspector; see `_session_key`."""
        if user and not self._caller.user:
            return f"{user}/{session}"
        return session

    def _visible_run(self, record: RunRecord) -> RunRecord:
        """Return a run with its public error and the visible name of its session."""
        record = with_public_error(record)
        if record.session is None:
            return record
        return replace(record, session=self._visible_name(record.user, record.session))

    async def memory(self, agent: str, user: str | None) -> RecallSource | None:
        try:
            owner = Owner(self._caller.tenant, self._caller.as_user(user))
        except ServerError as error:
            raise as_http(error) from error
        loaded = self._agents.get(agent, self._caller)
        memory = self._agents.of_tenant(loaded.name, self._caller.tenant).memory
        if isinstance(memory, Memory):
            # The scope of a new run: without a user, it reads no conversation.
            return memory.within(owner.scope(os.urandom(16).hex()))
        return memory

    @property
    def names_users(self) -> bool:
        return not self._caller.user

    @property
    def can_play(self) -> bool:
        return "play" in self._caller.permissions

    @property
    def cases_file(self) -> str | None:
        # A file of the server would mix test cases of tenants.
        return None

    @property
    def redact(self) -> Redact | None:
        return process_redact()

    async def ask(self, agent: Agent[Any, Any], prompt: PlayedPrompt) -> Reply:
        self._check("play")
        usage = NO_USAGE
        try:
            async with self._limits.running_one(self._caller):
                try:
                    reply = await asked(agent, prompt)
                    usage = reply.usage
                except ModelError as error:
                    usage = getattr(error, "usage", NO_USAGE)
                    raise
                finally:
                    self._limits.add_call(self._caller.tenant, agent.name, usage)
        except ServerError as error:
            raise as_http(error) from error
        return reply

    async def save_case(self, line: str) -> str:
        raise AgentError("a server has no file of test cases: download the test case")

    def _check(self, permission: Permission) -> None:
        try:
            self._caller.check(permission)
        except AccessDenied as error:
            raise as_http(error) from error

    async def start(
        self, agent: str, user_input: UserInput, session: str | None, user: str | None, tags: Sequence[str]
    ) -> str:
        self._check("run")
        if not isinstance(user_input.input, str):
            raise AgentError("expected text as the input of a run of the inspector")
        if session is not None:
            # A session of the list has the name `user/name`.
            session_user, slash, session = session.rpartition("/")
            if slash and user not in (None, session_user):
                raise AgentError(f"the session belongs to the user {session_user!r:.80}, not to {user!r:.80}")
            user = session_user or user
        kwargs = dict(user_input.additional_kwargs)
        fields = {"agent": agent, "input": user_input.input, "session": session, "user": user, "tags": [*tags]}
        try:
            body = validated(StartRun, {**fields, "additional_kwargs": kwargs})
            record = await self._endpoints.start_run(self._caller, body)
        except ServerError as error:
            raise as_http(error) from error
        return record.run_id

    async def decide(self, run_id: str, decisions: Mapping[str, Decision]) -> None:
        self._check("approve")
        record = await self._endpoints.record(run_id, self._caller)
        try:
            await self._runs.decide(record, decisions)
        except ServerError as error:
            raise ApprovalError(str(error)) from error


def as_http(error: ServerError) -> HTTPException:
    """Return an error of the server as an error of the inspector's routes."""
    return HTTPException(error.status, str(error))
