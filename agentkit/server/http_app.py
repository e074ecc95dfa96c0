"""`Server`: a Starlette application that serves agents."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from types import NoneType
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from agentkit.agent.agent import Agent
from agentkit.agent_files.loaded_agent import LoadedAgent
from agentkit.durable.runs_facade import Runs
from agentkit.errors import AgentDefinitionError
from agentkit.ground.graceful_shutdown.ended_requests import EndedRequests
from agentkit.inspector import routes as inspector_routes
from agentkit.runs.executor import Executor
from agentkit.runs.run_store import RunStore
from agentkit.server.access import Access, Caller
from agentkit.server.endpoints.exchange import error_answer, stopped
from agentkit.server.endpoints.http_endpoint import Endpoint
from agentkit.server.endpoints.inspected import CallerSource, as_http
from agentkit.server.endpoints.open_api import described
from agentkit.server.endpoints.operations_api import Measures, OperationEndpoints
from agentkit.server.endpoints.runs_api import RunEndpoints
from agentkit.server.endpoints.sessions_api import SessionEndpoints
from agentkit.server.openai_endpoints.openai_api import OpenAIEndpoints
from agentkit.server.served_agents import ServedAgents
from agentkit.server.served_runs.durable_executor import DurableExecutor
from agentkit.server.served_runs.process_executor import ProcessExecutor
from agentkit.server.served_runs.tenant_limits import TenantLimits
from agentkit.server.server_errors import AccessDenied, BadRequest, ServerError
from agentkit.server.server_options import ServerOptions
from agentkit.server.session_store import SessionStore
from agentkit.server.turns.answering import Turns
from agentkit.server.turns.turn_errors import server_error
from agentkit_memory import Memory
from agentkit_prompts.errors import check_types

__all__ = ["Server", "is_loopback"]

_log = logging.getLogger("agentkit.server")
_OPTIONS = ServerOptions()
_NAMES = {404: "there is nothing at this path", 405: "this path takes another method"}


class Server:
    """All that belongs to one server; `app` is the application.

    Args:
        agents: The agents. Those with a memory share one store.
        memory: Where conversations are kept, where no agent has a memory; None keeps them in this process.
        store: Where runs are kept; None keeps them in this process.
        access: The tokens; None asks for none and refuses whoever does not come from this machine: callers are then
            the tenant whose memory the agents have.
        options: What the server allows.
        runs: Durable runs, which any worker on their database continues; None executes runs in this process.
        version: The version of the agents in durable runs; see `Runs.add`.

    Raises:
        AgentDefinitionError: There is no agent, or two do not go together.
    """

    def __init__(
        self,
        agents: Iterable[Agent[Any, Any] | LoadedAgent],
        *,
        memory: Memory | None = None,
        store: RunStore | None = None,
        access: Access | None = None,
        options: ServerOptions = _OPTIONS,
        runs: Runs | None = None,
        version: str | None = None,
    ) -> None:
        check_types(
            AgentDefinitionError,
            "Server",
            agents=(agents, Iterable, "a list of agents"),
            memory=(memory, (Memory, NoneType), "a Memory, or None"),
            store=(store, (RunStore, NoneType), "a RunStore, or None"),
            access=(access, (Access, NoneType), "an Access, or None"),
            options=(options, ServerOptions, "ServerOptions"),
            runs=(runs, (Runs, NoneType), "Runs, or None"),
        )
        self.options = options
        self.agents = ServedAgents(agents)
        self.access = access or Access(tenant=min(self.agents.tenants, default="local"))
        if self.access.is_open and self.agents.tenants - {self.access.tenant}:
            raise AgentDefinitionError(
                f"server: without tokens every caller is the tenant {self.access.tenant!r}, and agents have the memory "
                f"of {', '.join(sorted(self.agents.tenants))}: give tokens, or agents the memory of one tenant",
                name="tenant",
                value=self.access.tenant,
            )
        self._owns_store = store is None and runs is None
        if runs is not None:
            self.store = runs.store.rows
        else:
            self.store = RunStore() if store is None else store
        self.sessions = SessionStore(self.agents.memory or memory, options.sessions_in_memory)
        self.limits = TenantLimits(options, self.store)
        self.measures = Measures()
        self.runs: Executor
        if runs is None:
            self.runs = ProcessExecutor(self.store, self.agents, self.sessions, self.limits, options)
        else:
            self.runs = DurableExecutor(runs, self.agents, self.sessions, self.limits, options, version)
        self._turns = Turns(self.store, self.limits, options)
        self._openai = OpenAIEndpoints(self.agents, self.store, self._turns, options)
        self.run_endpoints = RunEndpoints(
            self.runs, self.store, self.agents, self.sessions, self.limits, options, self._turns.kept
        )
        self._operations = OperationEndpoints(
            self.agents, self.access, self.runs, self.store, self.limits, self.measures, self._description
        )
        self._endpoints = [
            *self._openai.endpoints(),
            *self.run_endpoints.endpoints(),
            *SessionEndpoints(self.sessions, self.store, options).endpoints(),
            *self._operations.endpoints(),
        ]
        if find_spec("ag_ui") is not None:
            from agentkit.server.ag_ui.ag_ui_api import AGUIEndpoints

            self._endpoints += AGUIEndpoints(self.agents, self.store, self.runs, self._turns, options).endpoints()
        self._tasks: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self.app = Starlette(
            routes=self._routes(),
            middleware=[*([_cors(options)] if options.cors_origins else []), self._ended()],
            exception_handlers={HTTPException: _http_error, Exception: _error},
            lifespan=self._lifespan,
        )

    def during(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do something while the server serves; it is cancelled at the end. Call this before it begins."""
        self._tasks.append(work)

    def stop_listening(self) -> None:
        """End streams of events, so that their clients do not hold up a server that stops."""
        self._operations.is_closing = self._turns.is_closing = True
        self.runs.stop_listening()

    def caller(self, request: Request) -> Caller:
        """Return who sent a request.

        Raises:
            Unauthenticated: There is no token, or no such token.
            AccessDenied: No token is asked for, and the request is not meant for this machine.
        """
        headers = request.headers.getlist("authorization")
        if len(headers) > 1:
            raise BadRequest("there are several Authorization headers", code="invalid_header")
        if self.access.is_open and not _is_from_here(request):
            raise AccessDenied(
                "without tokens only this machine is served, under its own name: serve with an access file",
                code="not_loopback",
            )
        return self.access.caller(headers[0] if headers else None)

    def _description(self) -> dict[str, Any]:
        return described(self._endpoints, is_open=self.access.is_open)

    def _routes(self) -> list[BaseRoute]:
        own: list[BaseRoute] = [Route(one.path, self._endpoint(one), methods=[one.method]) for one in self._endpoints]
        own.append(Route("/", _to_inspector))  # what a person who opens the address looks for
        return [*own, *inspector_routes(self._inspected)]

    def _inspected(self, request: Request) -> CallerSource:
        """Return what the inspector may show to the caller of a request."""
        try:
            caller = self.caller(request)
            self.limits.admit(caller)
            return CallerSource(caller, self.agents, self.store, self.sessions, self.runs, self.run_endpoints)
        except ServerError as error:
            raise as_http(error) from error

    def _ended(self) -> Middleware:
        return Middleware(
            EndedRequests, answer=lambda: error_answer(stopped()), is_stopping=lambda: self._turns.is_closing
        )

    def _endpoint(self, one: Endpoint) -> Callable[[Request], Any]:
        async def call(request: Request) -> Response:
            began = time.perf_counter()
            status = 499
            try:
                answer = await self._answered(one, request)
                status = answer.status_code
                return answer
            except asyncio.CancelledError:
                status = stopped().status
                raise
            finally:
                self.measures.count(one.method, one.path, status, time.perf_counter() - began)

        return call

    async def _answered(self, one: Endpoint, request: Request) -> Response:
        try:
            if one.permission is None:
                return await one.call(request, Caller(""))
            caller = self.caller(request)
            self.limits.admit(caller)
            caller.check(one.permission)
            return await one.call(request, caller)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads it
        except TimeoutError:
            seconds = self.options.run_seconds
            return error_answer(ServerError(f"it took longer than {seconds:g} seconds", code="timeout"))
        except Exception as error:
            return error_answer(server_error(error))

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        del app
        await self.runs.open()
        tasks = [asyncio.ensure_future(work()) for work in self._tasks]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.stop_listening()
            await self.runs.close()
            await self._turns.kept()
            await self.limits.written()
            if self._owns_store:
                self.store.close()


def _cors(options: ServerOptions) -> Middleware:
    return Middleware(
        CORSMiddleware,
        allow_origins=list(options.cors_origins),
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID"],
    )


async def _to_inspector(request: Request) -> Response:
    return RedirectResponse(f"{request.scope.get('root_path', '')}/inspector/")


def _is_from_here(request: Request) -> bool:
    """Whether a request comes from this machine, and names it: a web page whose name leads here does not."""
    client = request.client
    host = request.headers.get("host", "")
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    return is_loopback(name.lower()) and (client is None or is_loopback(client.host))


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    made = ServerError(_NAMES.get(error.status_code, str(error.detail)), code=f"http_{error.status_code}")
    made.status, made.type = error.status_code, "invalid_request_error"
    answer = error_answer(made)
    for name, value in (error.headers or {}).items():
        answer.headers[name] = value
    return answer


async def _error(request: Request, error: Exception) -> Response:
    return error_answer(server_error(error))
