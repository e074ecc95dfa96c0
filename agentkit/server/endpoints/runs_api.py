"""`/runs`: runs that go on whoever listens: start, watch, decide, cancel."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from agentkit.ground.threads import in_thread
from agentkit.run.parts.decisions import read_decision
from agentkit.runs.executor import Executor
from agentkit.runs.run_errors import RunNotFound
from agentkit.runs.run_record import STATES, RunRecord, RunsWanted
from agentkit.runs.run_store import RunStore
from agentkit.server.access import Caller
from agentkit.server.endpoints.exchange import EventStream, JSONAnswer, read_json, sse, validated
from agentkit.server.endpoints.http_endpoint import Endpoint, Kwargs, Parameter, checked_name, number, text
from agentkit.server.served_agents import ServedAgents
from agentkit.server.served_runs.event_form import call_form
from agentkit.server.served_runs.public_errors import shown_error
from agentkit.server.served_runs.tenant_limits import TenantLimits
from agentkit.server.server_errors import BadRequest, Conflict, UnknownResource, Unprocessable
from agentkit.server.server_options import ServerOptions
from agentkit.server.session_store import Owner, SessionStore
from agentkit_prompts.context.prompt_context import UserInput

__all__ = ["Decisions", "RunEndpoints", "StartRun"]

_MAX_LIMIT = 200
_LIMIT = Parameter("limit", "Most to return.", {"type": "integer", "minimum": 1, "maximum": _MAX_LIMIT, "default": 50})
_CallId = Annotated[str, StringConstraints(min_length=1, max_length=300)]


_TEXT = {"type": "string"}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_ANSWER = {
    "output": {"description": "The answer: text, or what the output type of the agent has as JSON."},
    "finish_reason": _TEXT_OR_NULL,
    "citations": {
        "description": "The documents that the answer names by their labels in brackets, in order.",
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "label": _TEXT,
                "start": {"type": "integer", "description": "Where the label begins in the text, in characters."},
                "end": {"type": "integer", "description": "Where it ends there."},
                "source": {"type": "string", "description": "The file or address that the document is from."},
                "title": _TEXT,
                "text": {"type": "string", "description": "The text of the document, as it was recalled."},
            },
        },
    },
    "unknown_labels": {
        "description": "What looks like a label in the answer, and is that of no document that was sent.",
        "type": "array",
        "items": _TEXT,
    },
}
_RUN = {
    "type": "object",
    "properties": {
        **dict.fromkeys(("id", "agent"), _TEXT),
        "status": {"type": "string", "enum": [*STATES]},
        **dict.fromkeys(("session", "user"), _TEXT_OR_NULL),
        **{name: {"type": "number", "description": "Seconds since 1970."} for name in ("created_at", "updated_at")},
        "input": {"type": ["object", "null"]},
        **_ANSWER,
        "error": {"type": ["object", "null"], "description": "`type` and `message` of what ended it."},
        "waiting": {"type": "array", "items": {"type": "object"}, "description": "The calls that wait for a decision."},
        "usage": {"type": "object", "description": "Tokens, and `money` in US dollars or null."},
    },
}
_EVENTS = {
    "description": (
        "Server-sent events, each with `id`, `event` (its kind) and `data` (JSON). The last of a run that finished is "
        f"`run_finished`, with {', '.join(f'`{name}`' for name in _ANSWER)}, `steps` and `usage`."
    )
}


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class StartRun(_Part):
    """A run to start."""

    agent: str = Field(max_length=200)
    input: str | None = Field(default=None, description="What to ask; null goes on with a session without an answer.")
    session: str | None = Field(default=None, description="A conversation to go on with, or to begin.")
    user: str | None = Field(default=None, description="The user whose memory is read, within the tenant.")
    additional_kwargs: Kwargs = Field(default={}, description="What the prompts of the agent require.")

    @model_validator(mode="after")
    def _has_something_to_do(self) -> StartRun:
        if self.input is None and self.session is None:
            raise ValueError("input: give it, or a session to go on with")
        if self.input is None and self.additional_kwargs:
            raise ValueError("additional_kwargs: are of an input: give one")
        return self


class _Decision(_Part):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    approve: bool
    reason: str | None = Field(default=None, description="What the model reads where it is denied.")
    arguments: dict[str, Any] | None = Field(default=None, description="In place of those of the model.")

    @model_validator(mode="after")
    def _fits(self) -> _Decision:
        if self.approve and self.reason is not None:
            raise ValueError("reason: only where approve is false, as it would be ignored")
        if not self.approve and self.arguments is not None:
            raise ValueError("arguments: only where approve is true, as they would be ignored")
        return self


class Decisions(_Part):
    """Decisions about calls that wait."""

    decisions: dict[_CallId, _Decision] = Field(min_length=1, description="By the ids of the calls.")


class RunEndpoints:
    """The endpoints under `/runs`; `runs` starts them, and `kept` waits until those are kept that were answered."""

    def __init__(
        self,
        runs: Executor,
        store: RunStore,
        agents: ServedAgents,
        sessions: SessionStore,
        limits: TenantLimits,
        options: ServerOptions,
        kept: Callable[[], Awaitable[None]],
    ) -> None:
        self._runs = runs
        self._kept = kept
        self._agents, self._sessions = agents, sessions
        self._store, self._limits = store, limits
        self._options = options

    def endpoints(self) -> list[Endpoint]:
        """Return the endpoints."""
        statuses = {"type": "string", "enum": [*STATES]}
        listed = (
            Parameter("agent", "Only those of this agent."),
            Parameter("session", "Only those on this session."),
            Parameter("user", "Only those of this user."),
            Parameter("status", "Only those in this status.", statuses),
            Parameter("before", "Only those that are older than the run of this id."),
            _LIMIT,
        )
        after = {"type": "integer", "minimum": 0}
        resumed = Parameter("after", "Only events after this number; or the header Last-Event-ID.", after)
        key = Parameter("Idempotency-Key", "The same key with the same run starts it once.")
        events = "text_delta while the model writes, then model_replied"
        if not self._runs.has_deltas:
            events = "whole replies and results; these runs are durable, and have no text_delta"
        page = {"type": "object", "properties": {"runs": {"type": "array", "items": _RUN}}}
        read, run = "/runs/{run}", self
        return [
            Endpoint("POST", "/runs", run.start, "Start a run", "run", StartRun, _RUN, status=202, headers=(key,)),
            Endpoint("GET", "/runs", run.page, "Runs, the newest first", "read", answers=page, query=listed),
            Endpoint("GET", read, run.get, "A run", "read", answers=_RUN),
            Endpoint("DELETE", read, run.delete, "Forget a run that has ended", "run", status=204),
            Endpoint(
                "GET",
                f"{read}/events",
                run.events,
                f"The events of a run, until it ends or waits: {events}",
                "read",
                answers=_EVENTS,
                media="text/event-stream",
                query=(resumed,),
            ),
            Endpoint("GET", f"{read}/journal", run.journal, "The journal of a run", "read", media="text/plain"),
            Endpoint(
                "POST", f"{read}/decisions", run.decide, "Decide about calls that wait", "approve", Decisions, _RUN
            ),
            Endpoint("POST", f"{read}/cancel", run.cancel, "Cancel a run", "run", answers=_RUN),
        ]

    async def start(self, request: Request, caller: Caller) -> Response:
        """Start a run."""
        asked = validated(StartRun, await read_json(request, self._options))
        record = await self.begin(caller, asked, request.headers.get("idempotency-key"))
        return JSONAnswer(run_form(record), 202, {"Location": f"/runs/{record.run_id}"})

    async def begin(self, caller: Caller, asked: StartRun, key: str | None = None) -> RunRecord:
        """Start a run, once all that it needs is there.

        Raises:
            ServerError: It cannot begin.
        """
        loaded = self._agents.get(asked.agent, caller)
        user = caller.as_user(None if asked.user is None else checked_name(asked.user, "user"))
        session = None if asked.session is None else checked_name(asked.session, "session")
        if key is not None:
            checked_name(key, "Idempotency-Key")
        await self._limits.check_quota(caller)
        await self._check_input(loaded.name, caller, asked, user)
        now = time.time()
        given = None if asked.input is None else UserInput(asked.input, additional_kwargs=asked.additional_kwargs)
        return await self._runs.start(
            RunRecord(
                run_id=os.urandom(16).hex(),
                tenant=caller.tenant,
                agent=loaded.name,
                state="queued",
                created_at=now,
                updated_at=now,
                user=user,
                session=session,
                key=key,
                input=given,
            )
        )

    async def _check_input(self, name: str, caller: Caller, asked: StartRun, user: str) -> None:
        """Refuse what the prompts do not have, before anything is kept."""
        text = asked.input
        if text is None:
            return
        agent = self._agents.of_tenant(name, caller.tenant)

        def check() -> None:
            kept: dict[str, Any] = {}
            if asked.session is not None:
                owner = Owner(caller.tenant, user)
                try:
                    self._sessions.get(owner, asked.session)
                except UnknownResource:
                    pass
                else:
                    kept = dict(getattr(self._sessions.open(owner, asked.session), "additional_kwargs", {}))
            agent.chain.preflight(UserInput(text, additional_kwargs={**kept, **asked.additional_kwargs}))

        await in_thread(check)

    async def page(self, request: Request, caller: Caller) -> Response:
        """List runs."""
        status: Any = text(request, "status")
        if status is not None and status not in STATES:
            raise Unprocessable(f"status: expected one of {', '.join(STATES)}", param="status", code="invalid_query")
        wanted = RunsWanted(
            tenant=caller.tenant,
            agent=text(request, "agent"),
            session=text(request, "session"),
            user=caller.as_user(text(request, "user")) or None,
            state=status,
            before=text(request, "before"),
            limit=number(request, "limit", 50, 1, _MAX_LIMIT),
        )
        await self._kept()
        found = await in_thread(self._store.page, wanted)
        return JSONAnswer({"runs": [run_form(record) for record in found if _is_seen(record, caller)]})

    async def get(self, request: Request, caller: Caller) -> Response:
        """Return a run."""
        return JSONAnswer(run_form(await self.record(request.path_params["run"], caller)))

    async def record(self, run_id: str, caller: Caller) -> RunRecord:
        """Return a run that the caller may see.

        Raises:
            RunNotFound: The caller has no such run.
        """
        await self._kept()
        record = await in_thread(self._store.get, run_id, tenant=caller.tenant)
        if not _is_seen(record, caller):
            raise RunNotFound(run_id)
        return record

    async def delete(self, request: Request, caller: Caller) -> Response:
        """Forget a run."""
        record = await self.record(request.path_params["run"], caller)
        if not record.has_ended:
            raise Conflict(f"the run {record.run_id} is {record.state}: cancel it first", code="run_not_ended")
        await self._runs.delete(record)
        return Response(status_code=204)

    async def events(self, request: Request, caller: Caller) -> Response:
        """Stream the events of a run."""
        record = await self.record(request.path_params["run"], caller)
        after = number(request, "after", 0, 0, 2**53)
        if (last := request.headers.get("last-event-id")) is not None:
            if not (last.isascii() and last.isdigit() and len(last) < 17):
                raise BadRequest(f"Last-Event-ID: expected the number of an event, got {last!r:.40}")
            after = max(after, int(last))

        async def stream() -> AsyncGenerator[bytes, None]:
            async for event in self._runs.events(record, after):
                yield sse(event.data, event=event.kind, id=event.seq)
            now = await self.record(record.run_id, caller)
            yield sse({"status": now.state}, event="end" if now.has_ended else "pause")

        return EventStream(stream(), self._options)

    async def journal(self, request: Request, caller: Caller) -> Response:
        """Return the journal of a run, as lines of JSON."""
        record = await self.record(request.path_params["run"], caller)
        lines = await in_thread(self._store.journal_text, record.run_id)
        return PlainTextResponse(lines)

    async def decide(self, request: Request, caller: Caller) -> Response:
        """Decide about calls that wait."""
        record = await self.record(request.path_params["run"], caller)
        asked = validated(Decisions, await read_json(request, self._options))
        made = {call: read_decision(one.model_dump()) for call, one in asked.decisions.items()}
        return JSONAnswer(run_form(await self._runs.decide(record, made)))

    async def cancel(self, request: Request, caller: Caller) -> Response:
        """Cancel a run."""
        record = await self.record(request.path_params["run"], caller)
        return JSONAnswer(run_form(await self._runs.cancel(record)))


def run_form(record: RunRecord) -> dict[str, Any]:
    """Return a run as JSON data."""
    asked, error = record.input, shown_error(record).error
    return {
        "id": record.run_id,
        "agent": record.agent,
        "status": record.state,
        "session": record.session,
        "user": record.user or None,
        "created_at": record.created_at,
        "updated_at": record.updated_at,
        "input": None if asked is None else {"text": asked.text, "additional_kwargs": dict(asked.additional_kwargs)},
        "output": record.output,
        "citations": [dict(one) for one in record.citations],
        "unknown_labels": list(record.unknown_labels),
        "finish_reason": record.finish_reason,
        "error": None if error is None else error._asdict(),
        "waiting": [call_form(one.call) for one in record.waiting],
        "usage": asdict(record.usage),
    }


def _is_seen(record: RunRecord, caller: Caller) -> bool:
    is_own = not caller.user or record.user == caller.user
    return is_own and (caller.agents is None or record.agent in caller.agents)
