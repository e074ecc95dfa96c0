"""`/sessions`: the conversations of a tenant, or of a user of it."""

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
from agentkit.server.endpoints.exchange import JSONAnswer, read_json, validated
from agentkit.server.endpoints.http_endpoint import Endpoint, Parameter, checked_name, number, text
from agentkit.server.served_runs.event_form import message_form
from agentkit.server.server_errors import Conflict
from agentkit.server.server_options import ServerOptions
from agentkit.server.session_store import Owner, SessionStore
from agentkit_memory.store.records import SessionInfo

__all__ = ["SessionEndpoints"]

_MAX_LIMIT = 500
_LIMIT = Parameter("limit", "Most to return.", {"type": "integer", "minimum": 1, "maximum": _MAX_LIMIT, "default": 50})
_USER = Parameter("user", "A user of the tenant; none for what belongs to the tenant itself.")
_BUSY: tuple[RunState, ...] = ("queued", "running")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NewSession(_Part):
    """A session to begin; one that is there already stays as it is."""

    name: str
    user: str | None = None


class ForkSession(_Part):
    """A session to begin with messages of another one."""

    name: str
    at: int | None = Field(default=None, ge=0, description="How many of the first messages; all where it is null.")


class SessionEndpoints:
    """The endpoints under `/sessions`.

    Args:
        sessions: Where they are.
        store: Where runs are: a session that has one is not deleted.
        options: What the server allows.
    """

    def __init__(self, sessions: SessionStore, store: RunStore, options: ServerOptions) -> None:
        self._sessions = sessions
        self._store = store
        self._options = options

    def endpoints(self) -> list[Endpoint]:
        """Return the endpoints."""
        one = "/sessions/{session}"
        after = Parameter("after", "Only names after this one.")
        seq = Parameter("after", "Only messages after this number.", {"type": "integer", "minimum": 0})
        return [
            Endpoint("POST", "/sessions", self.begin, "Begin a session", "run", NewSession, status=201, query=()),
            Endpoint("GET", "/sessions", self.page, "Sessions, by name", "read", query=(_USER, after, _LIMIT)),
            Endpoint("GET", one, self.get, "A session", "read", query=(_USER,)),
            Endpoint("DELETE", one, self.delete, "Delete a session", "run", status=204, query=(_USER,)),
            Endpoint("GET", f"{one}/messages", self.messages, "Its messages", "read", query=(_USER, seq, _LIMIT)),
            Endpoint("POST", f"{one}/fork", self.fork, "Fork it", "run", ForkSession, status=201, query=(_USER,)),
        ]

    async def begin(self, request: Request, caller: Caller) -> Response:
        """Begin a session."""
        asked = validated(NewSession, await read_json(request, self._options))
        owner = _owner(caller, asked.user)
        name = checked_name(asked.name, "name")
        await in_thread(self._sessions.open, owner, name)
        return JSONAnswer(_form(await in_thread(self._sessions.get, owner, name)), 201)

    async def page(self, request: Request, caller: Caller) -> Response:
        """List sessions."""
        found: Sequence[SessionInfo] = await in_thread(
            self._sessions.page,
            _owner(caller, text(request, "user")),
            after=text(request, "after") or "",
            limit=number(request, "limit", 50, 1, _MAX_LIMIT),
        )
        return JSONAnswer({"sessions": [_form(one) for one in found]})

    async def get(self, request: Request, caller: Caller) -> Response:
        """Return a session."""
        return JSONAnswer(_form(await in_thread(self._sessions.get, *_named(request, caller))))

    async def delete(self, request: Request, caller: Caller) -> Response:
        """Delete a session."""
        owner, name = _named(request, caller)
        for state in _BUSY:
            wanted = RunsWanted(tenant=owner.tenant, user=owner.user, session=name, state=state, limit=1)
            if running := await in_thread(self._store.page, wanted):
                raise Conflict(
                    f"the session {name!r} is in use by the run {running[0].run_id}: cancel it first",
                    code="session_busy",
                )
        await in_thread(self._sessions.delete, owner, name)
        return Response(status_code=204)

    async def messages(self, request: Request, caller: Caller) -> Response:
        """Return messages of a session."""
        page = partial(
            self._sessions.messages,
            *_named(request, caller),
            after=number(request, "after", 0, 0, 2**31 - 1),
            limit=number(request, "limit", 50, 1, _MAX_LIMIT),
        )
        return JSONAnswer(
            {"messages": [{"seq": seq, **message_form(message)} for seq, message in await in_thread(page)]}
        )

    async def fork(self, request: Request, caller: Caller) -> Response:
        """Fork a session."""
        owner, name = _named(request, caller)
        asked = validated(ForkSession, await read_json(request, self._options))
        to = checked_name(asked.name, "name")
        return JSONAnswer(_form(await in_thread(self._sessions.fork, owner, name, to, asked.at)), 201)


def _owner(caller: Caller, user: str | None) -> Owner:
    return Owner(caller.tenant, caller.as_user(None if user is None else checked_name(user, "user")))


def _named(request: Request, caller: Caller) -> tuple[Owner, str]:
    name = checked_name(request.path_params["session"], "session")
    return _owner(caller, text(request, "user")), name


def _form(info: SessionInfo) -> dict[str, Any]:
    return {"name": info.name, "messages": info.messages, "created_at": info.created_at, "last_at": info.last_at}
