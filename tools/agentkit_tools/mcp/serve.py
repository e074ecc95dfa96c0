"""MCP server of agentkit tools, over the pipes of a process or over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import nullcontext
from importlib.util import find_spec
from inspect import isawaitable
from math import inf, nextafter
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from agentkit_prompts.context.messages import ToolCall
from agentkit_prompts.errors import check_types
from agentkit_prompts.extras import install
from agentkit_prompts.limits import MAX_MESSAGE_CHARS
from agentkit_prompts.names import misnamed
from agentkit_prompts.system.local_requests import LocalRequests, is_loopback
from agentkit_tools.calling.tool_result import ToolResult, unknown_tool
from agentkit_tools.dispatch import call_to_approve
from agentkit_tools.errors import ToolDefinitionError
from agentkit_tools.mcp.content import from_result
from agentkit_tools.mcp.remote_tools import IDEMPOTENCY_KEY
from agentkit_tools.mcp.served_forms import ServedForms
from agentkit_tools.mcp.served_list import ServedList
from agentkit_tools.mcp.served_prompts import ServedPrompts
from agentkit_tools.mcp.served_resources import Resources, ServedResources
from agentkit_tools.tool import Tool
from agentkit_tools.tool_context import ToolContext

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp.server.session import ServerSession
    from mcp_types import CallToolRequestParams, CallToolResult, InputRequiredResult, ListToolsResult


_CLOSING_SECONDS = 1.0
"""Maximum seconds that a result waits for a client that does not read the reports of progress."""


class ServerOptions(TypedDict, total=False):
    """Options of a server."""

    name: str
    """Name of the server; "agentkit" by default."""
    version: str
    """Version of the server."""
    instructions: str | None
    """Advice about the tools for the model of the client."""
    resources: Resources
    """Resources by address: text, a document, media, or a function; see `Resources`."""
    prompts: Iterable[Tool | Callable[..., Any]]
    """Functions with text parameters that return the text, the message or the messages of a prompt."""
    deps: Any
    """Value of `ToolContext.deps` in calls."""
    approve: Callable[[ToolCall], bool | Awaitable[bool]] | None
    """Function that approves or denies calls that need approval; without it they are denied."""


def mcp_server(tools: Iterable[Tool | Callable[..., Any]], **options: Unpack[ServerOptions]) -> Server[Any]:
    """Return a server of the official SDK that offers `tools`; `serve_mcp` runs a server.

    Mount `.streamable_http_app()` in an ASGI application, for example to add authentication. Arguments are validated
    and policies are enforced as in an agent; the result of a failed call has `isError` and the reason. Calls of
    sequential tools wait for each other. `max_calls` has no effect, because a server has no runs.

    Args:
        tools: Tools, plain functions or a toolset. The server follows changes of a list, also of the list of prompts
            and of the mapping of resources; `mcp_changed` announces them.
        **options: See `ServerOptions`.

    Raises:
        ToolDefinitionError: Two tools have the same name, a resource, a prompt or an option is invalid, tools need deps
            of another type, or the extra `mcp` is not installed.
    """
    if problems := misnamed("unknown option", options, ServerOptions.__annotations__):
        unknown = [name for name in options if name not in ServerOptions.__annotations__]
        raise ToolDefinitionError(f"MCP server: {'; '.join(problems)}", names=unknown)
    if find_spec("mcp") is None:
        raise ToolDefinitionError(f"an MCP server needs the extra `mcp`: {install('mcp')}")
    from agentkit_tools.mcp.offering_server import offering_server

    offer = _Offer(ServedList(tools), options)
    _check_deps(offer.tools, options.get("deps"))
    resources = prompts = None
    if "resources" in options:
        resources = ServedResources(options["resources"], options.get("deps"))
    if "prompts" in options:
        prompts = ServedPrompts(options["prompts"], options.get("deps"))
    return offering_server(
        {
            "name": options.get("name", "agentkit"),
            "version": options.get("version", ""),
            "instructions": options.get("instructions"),
        },
        offer,
        resources,
        prompts,
    )


def _check_deps(tools: Mapping[str, Tool], deps: object) -> None:
    """Refuse tools whose calls would all fail.

    Raises:
        ToolDefinitionError: Tools need deps of another type.
    """
    problems = {tool.name: problem for tool in tools.values() if (problem := tool.deps_problem(deps))}
    if problems:
        raise ToolDefinitionError(
            f"MCP server: {'; '.join(problems.values())}: pass deps=, or for an agent Agent.with_deps or `deps` in its "
            "file",
            names=[*problems],
        )


class _Offer:
    """Handlers of the requests of clients for tools."""

    def __init__(self, tools: ServedList, options: ServerOptions) -> None:
        self._tools = tools
        self._options = options
        self._one_at_a_time = asyncio.Lock()

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools by name."""
        return self._tools.tools

    async def list_tools(self, ctx: Any, params: Any) -> ListToolsResult:
        from mcp_types import ListToolsResult

        return ListToolsResult.model_validate({"tools": [_described(tool) for tool in self.tools.values()]})

    async def call_tool(self, ctx: Any, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        from mcp import MCPError
        from mcp_types import INVALID_PARAMS, CallToolResult

        key = (ctx.meta or {}).get(IDEMPOTENCY_KEY)
        call = ToolCall(str(key or os.urandom(16).hex()), params.name, json.dumps(params.arguments or {}))
        tools = self.tools
        tool = tools.get(params.name)
        if tool is None:
            raise MCPError(INVALID_PARAMS, str(unknown_tool(call, tools).content))
        # Sequential tools wait for each other, also in calls of different clients.
        async with self._one_at_a_time if tool.policy.sequential else nullcontext():
            forms = ServedForms(ctx, params)
            progress = _Progress(ctx.session, forms)
            try:
                result = await self._result(tool, call, progress)
            finally:
                await progress.close()
        request = forms.request
        if request is not None:
            return request
        return CallToolResult.model_validate(from_result(result))

    async def _result(self, tool: Tool, call: ToolCall, progress: _Progress) -> ToolResult:
        context = ToolContext(self._options.get("deps"), "mcp", call.id, run=progress)
        approve = self._options.get("approve")
        waiting = None
        if approve is not None:
            waiting = await call_to_approve(tool, call, context)
        if approve is not None and waiting is not None:
            verdict = approve(waiting)
            if isawaitable(verdict):
                verdict = await verdict
            context.approved = bool(verdict)
        return await tool.call(call, context)


def serve_mcp(
    tools: Iterable[Tool | Callable[..., Any]],
    *,
    port: int | None = None,
    host: str = "127.0.0.1",
    **options: Unpack[ServerOptions],
) -> None:
    """Run an MCP server of `tools` until the client disconnects or the process is terminated. See `mcp_server`.

    Args:
        tools: Tools, plain functions or a toolset.
        port: Port of `http://host:port/mcp`, without authentication; None for stdin and stdout, which redirects the
            output of the tools to stderr.
        host: Address to listen on. With the default, the server accepts only requests to a name of this machine.
        **options: See `ServerOptions`.

    Raises:
        ToolDefinitionError: Two tools have the same name, or an option is unknown.
    """
    check_types(
        ToolDefinitionError,
        "serve_mcp",
        port=(port, (int, type(None)), "a port"),
        host=(host, str, "an address to listen on"),
    )
    if port is not None and not 0 <= port < 65536:
        raise ToolDefinitionError(f"serve_mcp: port: expected a number from 0 to 65535, got {port}", names=["port"])
    server = mcp_server(tools, **options)
    if port is None:
        asyncio.run(_serve_pipes(server))
        return
    import uvicorn

    app = http_app(server, host)
    uvicorn.run(app, host=host, port=port, log_level="warning", proxy_headers=False)


def http_app(server: Server[Any], host: str) -> Any:
    """Return the ASGI application of a server that listens on `host`; on loopback, it serves this machine only."""
    app = server.streamable_http_app(host=host)
    if not is_loopback(host):
        return app
    return LocalRequests(app, _refused)


def _refused(reason: str) -> Callable[[Any, Any, Any], Awaitable[None]]:
    """Return the ASGI application that answers a refused request."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"text/plain; charset=utf-8")]
        await send({"type": "http.response.start", "status": 403, "headers": headers})
        await send({"type": "http.response.body", "body": f"an MCP server without tokens {reason}".encode()})

    return answer


async def _serve_pipes(server: Server[Any]) -> None:
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


class _Progress:
    """`RunState` of a call of a client. It sends forms, and reports of progress, at least the latest report."""

    step = 0
    messages = ()
    untrusted = ()
    loaded_skills = ()
    usage: Any = None

    @property
    def scope(self) -> Any:
        """A client of MCP names no tenant."""
        raise LookupError("ToolContext.scope: a client of an MCP server has no scope")

    def __init__(self, session: ServerSession, forms: ServedForms) -> None:
        self._session = session
        self._forms = forms
        self._loop = asyncio.get_running_loop()
        self._newest: tuple[str, float | None, float | None] | None = None
        self._sent = 0.0
        self._sending: asyncio.Task[None] | None = None

    async def decide(self, call_id: str, form: ToolCall, *, can_repeat: bool) -> Mapping[str, Any] | None:
        return await self._forms.decide(form, can_repeat=can_repeat)

    def report(self, call_id: str, message: str, done: float | None, total: float | None) -> None:
        # Sync tools report from their thread.
        self._loop.call_soon_threadsafe(self._send, (message, done, total))

    def _send(self, newest: tuple[str, float | None, float | None]) -> None:
        self._newest = newest
        if self._sending is None or self._sending.done():
            self._sending = self._loop.create_task(self._send_all())

    async def _send_all(self) -> None:
        while self._newest is not None:
            (message, done, total), self._newest = self._newest, None
            # The protocol requires that progress increases.
            if done is None:
                self._sent += 1
            else:
                self._sent = max(done, nextafter(self._sent, inf))
            await self._session.report_progress(self._sent, total, message[:MAX_MESSAGE_CHARS] or None)

    async def close(self) -> None:
        """Send the last report, before the result."""
        # The last report from a thread is scheduled in the loop.
        await asyncio.sleep(0)
        if self._sending is not None:
            await asyncio.wait((self._sending,), timeout=_CLOSING_SECONDS)
            self._sending.cancel()


def _described(tool: Tool) -> dict[str, Any]:
    described = tool.to_mcp()
    if tool.policy.approval == "always":
        described["annotations"] = {"destructiveHint": True}
    return described
