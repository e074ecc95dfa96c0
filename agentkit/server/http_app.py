"""`Server`: a Starlette application that serves agents."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from functools import partial
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
from starlette.types import Receive, Scope, Send

from agentkit.agent.agent import Agent
from agentkit.agent_files.loaded_agent import LoadedAgent
from agentkit.durable.runs_facade import Runs
from agentkit.errors import AgentDefinitionError
from agentkit.ground.contained import contained
from agentkit.ground.graceful_shutdown.ended_requests import EndedRequests
from agentkit.ground.threads import in_thread
from agentkit.inspector import routes as inspector_routes
from agentkit.run.parts.deps_source import Deps
from agentkit.runs.executor import Executor
from agentkit.runs.run_store import RunStore
from agentkit.server.access import Access, Caller
from agentkit.server.endpoints.exchange import error_answer, stopped
from agentkit.server.endpoints.http_endpoint import Endpoint, check_query
from agentkit.server.endpoints.inspected import CallerSource, as_http
from agentkit.server.endpoints.messages_api import MessageEndpoints
from agentkit.server.endpoints.open_api import openapi_document
from agentkit.server.endpoints.operations_api import Measures, OperationEndpoints
from agentkit.server.endpoints.runs_api import RunEndpoints
from agentkit.server.endpoints.sessions_api import SessionEndpoints
from agentkit.server.openai_endpoints.openai_api import OpenAIEndpoints
from agentkit.server.refusal_log import RefusalLog
from agentkit.server.request_runs.request_errors import server_error
from agentkit.server.request_runs.request_runner import RequestRunner
from agentkit.server.served_agents import ServedAgents
from agentkit.server.served_runs.durable_executor import DurableExecutor
from agentkit.server.served_runs.process_executor import ProcessExecutor
from agentkit.server.served_runs.tenant_limits import TenantLimits
from agentkit.server.server_errors import AccessDenied, BadRequest, ServerError
from agentkit.server.server_options import ServerOptions
from agentkit.server.session_store import SessionStore
from agentkit.server.variants import Variant
from agentkit.server.webhooks import Webhook, WebhookSender
from agentkit_memory import Memory
from agentkit_prompts.errors import check_types
from agentkit_prompts.hints import Hinted, with_option_hints
from agentkit_prompts.system.local_requests import LocalRequests

_log = logging.getLogger("agentkit.server")
_OPTIONS = ServerOptions()
_NO_CALLER = Caller("")
_RETENTION_SECONDS = 3600.0
"""Seconds between two deletions of the surplus runs of all tenants."""
_MESSAGES = {404: "unknown path", 405: "this path does not support this method"}
"""Messages of errors of the router, by status."""


class Server(metaclass=Hinted):
    """A server of agents: an ASGI application; `app` is its Starlette application.

    Args:
        agents: The agents. All agents with a memory share one store.
        deps: Deps of the tools, for agents whose file has no `deps`: a function that is called with the `RunCaller` of
            each run (tenant, user, permissions, session, additional kwargs) and returns the deps of the run, also an
            async function or a generator that cleans up after the run; or one object for all runs.
        memory: Store of conversations if no agent has a memory; None stores them in this process.
        store: Store of runs; None stores them in this process.
        access: The tokens. None requires no token and accepts only requests from this machine; the tenant of these
            requests is the tenant of the agents' memory.
        options: Limits of the server.
        runs: Durable runs, which any worker on their database continues; None executes runs in this process.
        version: The version of the agents in durable runs; see `Runs.add`.
        webhooks: Addresses that receive a request when a run of `POST /runs` has ended or waits.
        variants: Other versions of served agents, each for a share of the sessions; see `Variant`.

    Raises:
        AgentDefinitionError: An argument has the wrong type, the list of agents is empty, two agents conflict, or tools
            require deps that the server does not have.
    """

    @with_option_hints
    def __init__(
        self,
        agents: Iterable[Agent[Any, Any] | LoadedAgent],
        *,
        deps: Deps = None,
        memory: Memory | None = None,
        store: RunStore | None = None,
        access: Access | None = None,
        options: ServerOptions = _OPTIONS,
        runs: Runs | None = None,
        version: str | None = None,
        webhooks: Iterable[Webhook] = (),
        variants: Iterable[Variant] = (),
    ) -> None:
        check_types(
            AgentDefinitionError,
            "Server",
            agents=(agents, Iterable, "a list of agents"),
            memory=(memory, (Memory, NoneType), "a Memory, or None"),
            store=(store, (RunStore, NoneType), "a RunStore, or None"),
            access=(access, (Access, NoneType), "an Access(path), or None"),
            options=(options, ServerOptions, "ServerOptions"),
            runs=(runs, (Runs, NoneType), "Runs, or None"),
            webhooks=(webhooks, Iterable, "a list of Webhook"),
            variants=(variants, Iterable, "a list of Variant(agent, share)"),
        )
        self.options = options
        self.agents = ServedAgents(agents, deps, tuple(variants))
        self.access = access or Access(tenant=min(self.agents.tenants, default="local"))
        # Otherwise callers would silently read an empty memory of another tenant.
        if self.access.is_open and self.agents.tenants - {self.access.tenant}:
            raise AgentDefinitionError(
                f"server: without tokens every caller is the tenant {self.access.tenant!r}, but agents have memories "
                f"of {', '.join(sorted(self.agents.tenants))}: pass access=, or agents with a memory of one tenant",
                name="tenant",
                value=self.access.tenant,
            )
        self._owns_store = store is None and runs is None
        if runs is not None:
            self.store = runs.store.rows
        elif store is not None:
            self.store = store
        else:
            self.store = RunStore()
        self.store.retention = options.retention
        self.sessions = SessionStore(self.agents.memory or memory, options.sessions_in_memory)
        self.limits = TenantLimits(options, self.store)
        self.measures = Measures()
        self._refusals = RefusalLog()
        self.runs: Executor
        if runs is None:
            self.runs = ProcessExecutor(
                self.store, self.agents, self.sessions, self.limits, options, is_shared=access is not None
            )
        else:
            self.runs = DurableExecutor(
                runs, self.agents, self.sessions, self.limits, options, version, is_shared=access is not None
            )
        self._runner = RequestRunner(self.store, self.limits, options)
        self._openai = OpenAIEndpoints(self.agents, self.store, self._runner, options)
        self.run_endpoints = RunEndpoints(
            self.runs, self.store, self.agents, self.sessions, self.limits, options, self._runner.wait_stored
        )
        self._messages = MessageEndpoints(self.store, self._runner, self.run_endpoints.record, options)
        self._operations = OperationEndpoints(
            self.agents, self.access, self.runs, self.store, self.limits, self.measures, self._description
        )
        self._endpoints = [
            *self._openai.endpoints(),
            *self.run_endpoints.endpoints(),
            *self._messages.endpoints(),
            *SessionEndpoints(self.sessions, self.store, options).endpoints(),
            *self._operations.endpoints(),
        ]
        if find_spec("ag_ui") is not None:
            from agentkit.server.ag_ui.ag_ui_api import AGUIEndpoints

            self._endpoints += AGUIEndpoints(self.agents, self.store, self.runs, self._runner, options).endpoints()
        self._background_tasks: list[Callable[[], Coroutine[Any, Any, None]]] = [self._delete_surplus_runs]
        receivers = list(webhooks)
        self._webhooks: WebhookSender | None = None
        if receivers:
            self._webhooks = WebhookSender(receivers, self.store)
            self._background_tasks.append(self._webhooks.run)
        middleware = [self._shutdown_middleware()]
        if self.access.is_open:
            middleware.insert(0, Middleware(LocalRequests, _not_local, options.cors_origins))
        if options.cors_origins:
            # CORS is outermost, so that answers of the shutdown have its headers too.
            middleware.insert(0, _cors(options))
        self.app = Starlette(
            routes=self._routes(),
            middleware=middleware,
            exception_handlers={HTTPException: _http_error, Exception: _error},
            lifespan=self._lifespan,
        )
        # Starlette would put the name in the Host header, which any client can choose, into the address of a redirect.
        self.app.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, as an ASGI application."""
        await self.app(scope, receive, send)

    def add_background_task(self, task: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Add a task that runs while the server serves and is cancelled when it stops. Call this before the start."""
        self._background_tasks.append(task)

    def stop_listening(self) -> None:
        """Finish streams of events, so that their clients do not delay the shutdown."""
        self._operations.is_closing = self._runner.is_closing = True
        self.runs.stop_listening()

    def caller(self, request: Request) -> Caller:
        """Return the sender of a request.

        Raises:
            Unauthenticated: The token is missing, malformed or unknown.
            BadRequest: The request has several `Authorization` headers.
        """
        headers = request.headers.getlist("authorization")
        # A proxy can check another of the headers than this server.
        if len(headers) > 1:
            raise BadRequest("expected one Authorization header, got several", code="invalid_header")
        return self.access.caller(next(iter(headers), None))

    def _description(self) -> dict[str, Any]:
        return openapi_document(self._endpoints, is_open=self.access.is_open)

    def _routes(self) -> list[BaseRoute]:
        routes: list[BaseRoute] = [
            Route(endpoint.path, self._handler(endpoint), methods=[endpoint.method]) for endpoint in self._endpoints
        ]
        routes.append(Route("/", _to_inspector))
        return [*routes, *inspector_routes(self._inspector_source)]

    def _inspector_source(self, request: Request) -> CallerSource:
        """Return the source of an inspector page for the caller of a request."""
        caller = _NO_CALLER
        try:
            caller = self.caller(request)
            self.limits.admit(caller)
            return CallerSource(
                caller, self.agents, self.store, self.sessions, self.runs, self.run_endpoints, self.limits
            )
        except ServerError as error:
            self._refusals.log("the inspector", error, caller)
            raise as_http(error) from error

    def _shutdown_middleware(self) -> Middleware:
        return Middleware(
            EndedRequests, answer=lambda: error_answer(stopped()), is_stopping=lambda: self._runner.is_closing
        )

    def _handler(self, endpoint: Endpoint) -> Callable[[Request], Any]:
        async def handle(request: Request) -> Response:
            start = time.perf_counter()
            # Counted for a request without a response, which the server cancels when it stops.
            status = stopped().status
            try:
                response = await self._response(endpoint, request)
                status = response.status_code
                return response
            finally:
                self.measures.count(endpoint.method, endpoint.path, status, time.perf_counter() - start)

        return handle

    async def _response(self, endpoint: Endpoint, request: Request) -> Response:
        caller = _NO_CALLER
        try:
            if endpoint.permission is None:
                return await endpoint.call(request, _NO_CALLER)
            # Counted before the permission is checked: refused requests use up the rate limit too.
            caller = self.caller(request)
            self.limits.admit(caller)
            caller.check(endpoint.permission)
            check_query(endpoint, request)
            return await contained(endpoint.call(request, caller))
        except ClientDisconnect:
            # The client has left, so this response reaches only the counts.
            return Response(status_code=400)
        except Exception as error:
            public_error = server_error(error)
            self._refusals.log(f"{endpoint.method} {endpoint.path}", public_error, caller)
            return error_answer(public_error)

    async def _delete_surplus_runs(self) -> None:
        """Delete runs that exceed the limits of their tenants, also of tenants that start no more runs."""
        while True:
            try:
                await in_thread(partial(self.store.prune, with_size=False))
            except Exception:
                _log.exception("old runs could not be deleted")
            await asyncio.sleep(_RETENTION_SECONDS)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        del app
        # Before the first run, so that no notice is missing.
        if self._webhooks is not None:
            await self._webhooks.open()
        await self.runs.open()
        tasks = [asyncio.ensure_future(task()) for task in self._background_tasks]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            # Runs stop before the counts are written: a run that finishes now is counted too.
            self.stop_listening()
            await self.runs.close()
            await self._runner.wait_stored()
            await self.limits.wait_written()
            if self._owns_store:
                self.store.close()


def _not_local(reason: str) -> Response:
    advice = "create a token with `agentkit token` and serve with its access file"
    return error_answer(AccessDenied(f"a server without tokens {reason}: {advice}", code="not_loopback"))


def _cors(options: ServerOptions) -> Middleware:
    return Middleware(
        CORSMiddleware,
        allow_origins=list(options.cors_origins),
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID"],
    )


async def _to_inspector(request: Request) -> Response:
    return RedirectResponse(f"{request.scope.get('root_path', '')}/inspector/")


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = error.status_code
    public_error = ServerError(_MESSAGES.get(status, str(error.detail)), code=f"http_{status}")
    public_error.status = status
    public_error.type = "invalid_request_error"
    answer = error_answer(public_error)
    for name, value in (error.headers or {}).items():
        answer.headers[name] = value
    return answer


async def _error(request: Request, error: Exception) -> Response:
    return error_answer(server_error(error))
