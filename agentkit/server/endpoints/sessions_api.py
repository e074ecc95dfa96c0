"""`/sessions`: endpoints of the sessions of a tenant or of a user."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from agentkit.ground.threads import in_thread
from agentkit.runs.run_record import RunState, RunsWanted
from agentkit.runs.run_store import RunStore
from agentkit.server.access import Caller
from agentkit.server.client_names import checked_name
from agentkit.server.endpoints.exchange import JSONAnswer, read_json, validated
from agentkit.server.endpoints.http_endpoint import Endpoint, Parameter, query_int, query_text
from agentkit.server.owner import Owner
from agentkit.server.served_runs.event_form import message_form
from agentkit.server.server_errors import Conflict
from agentkit.server.server_options import ServerOptions
from agentkit.server.session_store import SessionStore
from agentkit_memory.store.records import SessionInfo

_MAX_LIMIT = 500
_LIMIT = Parameter(
    "limit", "Maximum number of results.", {"type": "integer", "minimum": 1, "maximum": _MAX_LIMIT, "default": 50}
)
_USER = Parameter("user", "A user of the tenant; omit it for sessions of the tenant itself.")
_BUSY: tuple[RunState, ...] = ("queued", "running")


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NewSession(_Body):
    """A session to start; an existing session is not changed."""

    name: str
    user: str | None = None


class ForkSession(_Body):
    """A session to start with the first messages of another session."""

    name: str
    at: int | None = Field(default=None, ge=0, description="Number of messages to copy; null copies all messages.")


class SessionEndpoints:
    """The endpoints under `/sessions`.

    Args:
        sessions: The sessions.
        store: Store of the runs: a session with an unfinished run is not deleted.
        options: Limits of the server.
    """

    def __init__(self, sessions: SessionStore, store: RunStore, options: ServerOptions) -> None:
        self._sessions = sessions
        self._store = store
        self._options = options

    def endpoints(self) -> list[Endpoint]:
        """Return the endpoints."""
        path = "/sessions/{session}"
        after = Parameter("after", "Only sessions whose name sorts after this name.")
        seq = Parameter("after", "Only messages after this number.", {"type": "integer", "minimum": 0})
        return [
            Endpoint("POST", "/sessions", self.start, "Start a session", "run", NewSession, status=201),
            Endpoint("GET", "/sessions", self.page, "Sessions by name", "read", query=(_USER, after, _LIMIT)),
            Endpoint("GET", path, self.get, "A session", "read", query=(_USER,)),
            Endpoint("DELETE", path, self.delete, "Delete a session", "run", status=204, query=(_USER,)),
            Endpoint(
                "GET", f"{path}/messages", self.messages, "Messages of a session", "read", query=(_USER, seq, _LIMIT)
            ),
            Endpoint(
                "POST", f"{path}/fork", self.fork, "Fork a session", "run", ForkSession, status=201, query=(_USER,)
            ),
        ]

    async def start(self, request: Request, caller: Caller) -> Response:
        """Start a session."""
        body = validated(NewSession, await read_json(request, self._options))
        owner = _owner(caller, body.user)
        name = checked_name(body.name, "name")
        await in_thread(self._sessions.open, owner, name)
        return JSONAnswer(_to_json(await in_thread(self._sessions.get, owner, name)), 201)

    async def page(self, request: Request, caller: Caller) -> Response:
        """List sessions."""
        sessions: Sequence[SessionInfo] = await in_thread(
            self._sessions.page,
            _owner(caller, query_text(request, "user")),
            after=query_text(request, "after") or "",
            limit=query_int(request, "limit", 50, 1, _MAX_LIMIT),
        )
        return JSONAnswer({"sessions": [_to_json(session) for session in sessions]})

    async def get(self, request: Request, caller: Caller) -> Response:
        """Return the name, length and times of a session."""
        return JSONAnswer(_to_json(await in_thread(self._sessions.get, *_session_key(request, caller))))

    async def delete(self, request: Request, caller: Caller) -> Response:
        """Delete a session."""
        owner, name = _session_key(request, caller)
        for state in _BUSY:
            wanted = RunsWanted(tenant=owner.tenant, user=owner.user, session=name, state=state, limit=1)
            unfinished = await in_thread(self._store.page, wanted)
            if unfinished:
                raise Conflict(
                    f"the session {name!r} is in use by the run {unfinished[0].run_id}: cancel it first",
                    code="session_busy",
                )
        await in_thread(self._sessions.delete, owner, name)
        return Response(status_code=204)

    async def messages(self, request: Request, caller: Caller) -> Response:
        """Return messages of a session."""
        read_page = partial(
            self._sessions.messages,
            *_session_key(request, caller),
            after=query_int(request, "after", 0, 0, 2**31 - 1),
            limit=query_int(request, "limit", 50, 1, _MAX_LIMIT),
        )
        return JSONAnswer(
            {"messages": [{"seq": seq, **message_form(message)} for seq, message in await in_thread(read_page)]}
        )

    async def fork(self, request: Request, caller: Caller) -> Response:
        """Fork a session."""
        owner, name = _session_key(request, caller)
        body = validated(ForkSession, await read_json(request, self._options))
        new_name = checked_name(body.name, "name")
        return JSONAnswer(_to_json(await in_thread(self._sessions.fork, owner, name, new_name, body.at)), 201)


def _owner(caller: Caller, user: str | None) -> Owner:
    return Owner(caller.tenant, caller.as_user(user))


def _session_key(request: Request, caller: Caller) -> tuple[Owner, str]:
    name = checked_name(request.path_params["session"], "session")
    return _owner(caller, query_text(request, "user")), name


def _to_json(info: SessionInfo) -> dict[str, Any]:
    return {"name": info.name, "messages": info.messages, "created_at": info.created_at, "last_at": info.last_at}
