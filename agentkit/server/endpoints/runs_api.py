"""`/runs`: endpoints that start, list, watch, decide about, cancel and delete background runs."""

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
from agentkit.run.journal.failed_call import text_without_tracebacks
from agentkit.run.parts.cancel_note import MAX_REASON, checked_reason
from agentkit.run.parts.decisions import read_decision
from agentkit.runs.executor import Executor
from agentkit.runs.run_errors import RunNotFound
from agentkit.runs.run_record import STATES, RunRecord, RunsWanted
from agentkit.runs.run_store import RunStore
from agentkit.server.access import Caller
from agentkit.server.client_names import checked_name
from agentkit.server.endpoints.exchange import EventStream, JSONAnswer, has_body, read_json, sse, validated
from agentkit.server.endpoints.http_endpoint import Endpoint, Kwargs, Locale, Parameter, Tags, query_int, query_text
from agentkit.server.owner import Owner
from agentkit.server.served_agents import ServedAgents
from agentkit.server.served_runs.event_form import waiting_form
from agentkit.server.served_runs.public_errors import with_public_error
from agentkit.server.served_runs.tenant_limits import TenantLimits
from agentkit.server.server_errors import BadRequest, Conflict, UnknownResource, Unprocessable
from agentkit.server.server_options import ServerOptions
from agentkit.server.session_store import SessionStore
from agentkit_prompts.context.prompt_context import UserInput

_MAX_LIMIT = 200
_LIMIT = Parameter(
    "limit", "Maximum number of runs.", {"type": "integer", "minimum": 1, "maximum": _MAX_LIMIT, "default": 50}
)
_CallId = Annotated[str, StringConstraints(min_length=1, max_length=300)]


_TEXT = {"type": "string"}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_ANSWER = {
    "output": {"description": "The answer: text, or the typed output of the agent as JSON."},
    "finish_reason": _TEXT_OR_NULL,
    "citations": {
        "description": "Documents whose labels in brackets are in the answer, in order.",
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "label": _TEXT,
                "start": {"type": "integer", "description": "Start of the label in the text, in characters."},
                "end": {"type": "integer", "description": "End of the label in the text, in characters."},
                "source": {"type": "string", "description": "File or address of the document."},
                "title": _TEXT,
                "text": {"type": "string", "description": "Text of the recalled document."},
            },
        },
    },
    "unknown_labels": {
        "description": "Labels in the answer that match no document of the prompt.",
        "type": "array",
        "items": _TEXT,
    },
}
_RUN = {
    "type": "object",
    "properties": {
        **dict.fromkeys(("id", "agent"), _TEXT),
        "status": {"type": "string", "enum": [*STATES]},
        **dict.fromkeys(("version", "session", "user", "locale"), _TEXT_OR_NULL),
        "tags": {"type": "array", "items": _TEXT},
        **{name: {"type": "number", "description": "Seconds since 1970."} for name in ("created_at", "updated_at")},
        "input": {"type": ["object", "null"]},
        **_ANSWER,
        "error": {"type": ["object", "null"], "description": "`type` and `message` of the error."},
        "reason": {"type": ["string", "null"], "description": "Reason of the cancellation."},
        "unread": {"type": "integer", "description": "Number of messages that the run has not received."},
        "waiting": {
            "type": "array",
            "items": {"type": "object"},
            "description": "The calls that wait for a decision; `lines` shows the arguments.",
        },
        "usage": {"type": "object", "description": "Tokens, and `money` in US dollars or null."},
    },
}
_EVENTS = {
    "description": (
        "Server-sent events, each with `id`, `event` (its kind) and `data` (JSON). A finished run has the event "
        f"`run_finished`, with {', '.join(f'`{name}`' for name in _ANSWER)}, `steps` and `usage`. The last event of "
        "the stream is `end`, or `pause` if the run is not finished; it has no `id`, and its data is the `status`."
    )
}


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class StartRun(_Body):
    """A run to start."""

    agent: str = Field(max_length=200)
    input: str | None = Field(
        default=None, description="Text of the user; null: answer the last message of the session."
    )
    session: str | None = Field(default=None, description="Name of a new session, or of a session to continue.")
    user: str | None = Field(default=None, description="The user whose memory is read, within the tenant.")
    locale: Locale | None = Field(default=None, description="Language of the prompts, such as `de`.")
    tags: Tags = Field(default=[], description="Texts by which lists of runs are filtered.")
    additional_kwargs: Kwargs = Field(default={}, description="Values that the prompts of the agent require.")

    @model_validator(mode="after")
    def _check_input(self) -> StartRun:
        if self.input is None and self.session is None:
            raise ValueError("input: required without a session")
        if self.input is None and self.additional_kwargs:
            raise ValueError("additional_kwargs: only valid with an input")
        return self


class CancelRun(_Body):
    """The optional body of a cancellation."""

    reason: str = Field(default="", max_length=MAX_REASON, description="Reason, which the model of the next run reads.")


class _Decision(_Body):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    approve: bool
    reason: str | None = Field(default=None, description="Reason of a denial, which the model receives.")
    arguments: dict[str, Any] | None = Field(default=None, description="Arguments that replace the model's arguments.")

    @model_validator(mode="after")
    def _check_fields(self) -> _Decision:
        if self.approve and self.reason is not None:
            raise ValueError("reason: only valid if approve is false")
        if not self.approve and self.arguments is not None:
            raise ValueError("arguments: only valid if approve is true")
        return self


class DecisionsBody(_Body):
    """Decisions about waiting calls."""

    decisions: dict[_CallId, _Decision] = Field(min_length=1, description="Decisions by the ids of the calls.")


class RunEndpoints:
    """The endpoints under `/runs`.

    Args:
        runs: Executor of the runs.
        store: Store of the runs.
        agents: The agents.
        sessions: The sessions.
        limits: Counts of requests and usage per tenant.
        options: Limits of the server.
        wait_stored: Waits until finished runs of the chat endpoints are stored.
    """

    def __init__(
        self,
        runs: Executor,
        store: RunStore,
        agents: ServedAgents,
        sessions: SessionStore,
        limits: TenantLimits,
        options: ServerOptions,
        wait_stored: Callable[[], Awaitable[None]],
    ) -> None:
        self._runs = runs
        self._wait_stored = wait_stored
        self._agents, self._sessions = agents, sessions
        self._store, self._limits = store, limits
        self._options = options

    def endpoints(self) -> list[Endpoint]:
        """Return the endpoints."""
        statuses = {"type": "string", "enum": [*STATES]}
        filters = (
            Parameter("agent", "Only runs of this agent."),
            Parameter("session", "Only runs of this session."),
            Parameter("user", "Only runs of this user."),
            Parameter("status", "Only runs in this status.", statuses),
            Parameter("tag", "Only runs with this tag."),
            Parameter("before", "Only runs that are older than the run with this id."),
            _LIMIT,
        )
        number_schema = {"type": "integer", "minimum": 0}
        after = Parameter(
            "after", "Only events after this number; the header Last-Event-ID has the same effect.", number_schema
        )
        key = Parameter("Idempotency-Key", "Requests with the same key and the same run start one run.")
        event_summary = "text_delta while the model writes, then model_replied"
        if not self._runs.has_deltas:
            event_summary = "whole replies and results; these runs are durable, and have no text_delta"
        page_schema = {"type": "object", "properties": {"runs": {"type": "array", "items": _RUN}}}
        path = "/runs/{run}"
        return [
            Endpoint("POST", "/runs", self.start, "Start a run", "run", StartRun, _RUN, status=202, headers=(key,)),
            Endpoint("GET", "/runs", self.page, "Runs, newest first", "read", answer_schema=page_schema, query=filters),
            Endpoint("GET", path, self.get, "A run", "read", answer_schema=_RUN),
            Endpoint("DELETE", path, self.delete, "Delete a finished run", "run", status=204),
            Endpoint(
                "GET",
                f"{path}/events",
                self.events,
                f"Events of a run until it finishes or pauses: {event_summary}",
                "read",
                answer_schema=_EVENTS,
                media_type="text/event-stream",
                query=(after,),
            ),
            Endpoint("GET", f"{path}/journal", self.journal, "The journal of a run", "read", media_type="text/plain"),
            Endpoint(
                "POST",
                f"{path}/decisions",
                self.decide,
                "Decide about waiting calls",
                "approve",
                DecisionsBody,
                _RUN,
            ),
            Endpoint("POST", f"{path}/cancel", self.cancel, "Cancel a run", "run", CancelRun, _RUN),
        ]

    async def start(self, request: Request, caller: Caller) -> Response:
        """Start a run."""
        body = validated(StartRun, await read_json(request, self._options))
        record = await self.start_run(caller, body, request.headers.get("idempotency-key"))
        return JSONAnswer(run_form(record), 202, {"Location": f"/runs/{record.run_id}"})

    async def start_run(self, caller: Caller, body: StartRun, key: str | None = None) -> RunRecord:
        """Start a run.

        Raises:
            UnknownResource: The agent is unknown, or the caller may not use it.
            Unprocessable: A name or the key is invalid.
            ServerError: The run cannot start for another reason, such as an exhausted quota.
        """
        loaded = self._agents.get(body.agent, caller, "agent")
        user = caller.as_user(body.user)
        if body.session is not None:
            checked_name(body.session, "session")
        if key is not None:
            checked_name(key, "Idempotency-Key")
        await self._limits.check_quota(caller)
        user_input = None
        if body.input is not None:
            user_input = UserInput(body.input, additional_kwargs=body.additional_kwargs)
            await self._check_input(loaded.name, body.session, Owner(caller.tenant, user), user_input)
        now = time.time()
        return await self._runs.start(
            RunRecord(
                run_id=os.urandom(16).hex(),
                tenant=caller.tenant,
                agent=loaded.name,
                state="queued",
                created_at=now,
                updated_at=now,
                user=user,
                permissions=tuple(sorted(caller.permissions)),
                locale=body.locale,
                tags=tuple(body.tags),
                session=body.session,
                key=key,
                input=user_input,
            )
        )

    async def _check_input(self, name: str, session: str | None, owner: Owner, user_input: UserInput) -> None:
        """Check the kwargs of a run, merged with the kwargs of its session, before anything is stored."""
        agent = self._agents.of_tenant(name, owner.tenant)

        def check() -> None:
            kwargs = {**self._session_kwargs(owner, session), **user_input.additional_kwargs}
            agent.chain.preflight(UserInput(user_input.text, additional_kwargs=kwargs))

        await in_thread(check)

    def _session_kwargs(self, owner: Owner, session: str | None) -> dict[str, Any]:
        if session is None:
            return {}
        try:
            self._sessions.get(owner, session)
        except UnknownResource:
            # The run will start this session: opening it here would store it even if the run is refused.
            return {}
        return dict(getattr(self._sessions.open(owner, session), "additional_kwargs", {}))

    async def page(self, request: Request, caller: Caller) -> Response:
        """List runs."""
        status: Any = query_text(request, "status")
        if status is not None and status not in STATES:
            problem = f"status: expected one of {', '.join(STATES)}, got {status!r:.40}"
            raise Unprocessable(problem, param="status", code="invalid_query")
        wanted = RunsWanted(
            tenant=caller.tenant,
            agent=query_text(request, "agent"),
            session=query_text(request, "session"),
            user=caller.as_user(query_text(request, "user")) or None,
            state=status,
            tag=query_text(request, "tag"),
            before=query_text(request, "before"),
            limit=query_int(request, "limit", 50, 1, _MAX_LIMIT),
        )
        await self._wait_stored()
        records = await in_thread(self._store.page, wanted)
        return JSONAnswer({"runs": [run_form(record) for record in records if _is_visible(record, caller)]})

    async def get(self, request: Request, caller: Caller) -> Response:
        """Return a run."""
        return JSONAnswer(run_form(await self.record(request.path_params["run"], caller)))

    async def record(self, run_id: str, caller: Caller) -> RunRecord:
        """Return the record of a run of the caller.

        Raises:
            RunNotFound: The caller has no run with this id.
        """
        await self._wait_stored()
        record = await in_thread(self._store.get, run_id, tenant=caller.tenant)
        if not _is_visible(record, caller):
            raise RunNotFound(run_id)
        return record

    async def delete(self, request: Request, caller: Caller) -> Response:
        """Delete a finished run."""
        record = await self.record(request.path_params["run"], caller)
        if not record.has_ended:
            raise Conflict(f"the run {record.run_id} is {record.state}: cancel it first", code="run_not_ended")
        await self._runs.delete(record)
        return Response(status_code=204)

    async def events(self, request: Request, caller: Caller) -> Response:
        """Stream the events of a run."""
        record = await self.record(request.path_params["run"], caller)
        after = query_int(request, "after", 0, 0, 2**53)
        event_id = request.headers.get("last-event-id")
        if event_id is not None:
            if not (event_id.isascii() and event_id.isdigit() and len(event_id) < 17):
                raise BadRequest(f"Last-Event-ID: expected the number of an event, got {event_id!r:.40}")
            after = max(after, int(event_id))
        return EventStream(self._stream(record, after, caller), self._options)

    async def _stream(self, record: RunRecord, after: int, caller: Caller) -> AsyncGenerator[bytes, None]:
        async for event in self._runs.events(record, after):
            yield sse(event.data, event=event.kind, id=event.seq)
        record = await self.record(record.run_id, caller)
        # The last event reports if the run ended, or if the client can connect again after a decision.
        kind = "end" if record.has_ended else "pause"
        yield sse({"status": record.state}, event=kind)

    async def journal(self, request: Request, caller: Caller) -> Response:
        """Return the journal of a run as lines of JSON."""
        record = await self.record(request.path_params["run"], caller)
        lines = await in_thread(self._store.journal_text, record.run_id)
        if not caller.is_operator:
            lines = text_without_tracebacks(lines)
        return PlainTextResponse(lines)

    async def decide(self, request: Request, caller: Caller) -> Response:
        """Decide about waiting calls."""
        record = await self.record(request.path_params["run"], caller)
        body = validated(DecisionsBody, await read_json(request, self._options))
        decisions = {call: read_decision(decision.model_dump()) for call, decision in body.decisions.items()}
        return JSONAnswer(run_form(await self._runs.decide(record, decisions)))

    async def cancel(self, request: Request, caller: Caller) -> Response:
        """Cancel a run."""
        record = await self.record(request.path_params["run"], caller)
        body = CancelRun()
        # A form of a web page is no JSON, so that it cannot cancel runs.
        if has_body(request):
            body = validated(CancelRun, await read_json(request, self._options))
        return JSONAnswer(run_form(await self._runs.cancel(record, checked_reason(body.reason))))


def run_form(record: RunRecord) -> dict[str, Any]:
    """Return a run as JSON data."""
    user_input = error = None
    if record.input is not None:
        user_input = {"text": record.input.text, "additional_kwargs": dict(record.input.additional_kwargs)}
    public = with_public_error(record).error
    if public is not None:
        error = public._asdict()
    return {
        "id": record.run_id,
        "agent": record.agent,
        "version": record.version or None,
        "status": record.state,
        "session": record.session,
        "user": record.user or None,
        "locale": record.locale,
        "tags": list(record.tags),
        "created_at": record.created_at,
        "updated_at": record.updated_at,
        "input": user_input,
        "output": record.output,
        "citations": [dict(citation) for citation in record.citations],
        "unknown_labels": list(record.unknown_labels),
        "finish_reason": record.finish_reason,
        "error": error,
        "reason": record.reason or None,
        "unread": record.unread,
        "waiting": [waiting_form(waiting.call) for waiting in record.waiting],
        "usage": asdict(record.usage),
    }


def _is_visible(record: RunRecord, caller: Caller) -> bool:
    if caller.user and record.user != caller.user:
        return False
    return caller.agents is None or record.agent in caller.agents
