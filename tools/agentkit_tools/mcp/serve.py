"""agentkit tools as an MCP server: validated, under their policy, over the pipes of a process or over HTTP."""

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
from agentkit_prompts.limits import MAX_MESSAGE_CHARS
from agentkit_prompts.names import misnamed
from agentkit_tools.calling.tool_result import ToolResult, unknown_tool
from agentkit_tools.errors import ToolDefinitionError
from agentkit_tools.mcp.content import from_result
from agentkit_tools.mcp.remote_tools import IDEMPOTENCY_KEY
from agentkit_tools.tool import Tool
from agentkit_tools.tool_context import ToolContext
from agentkit_tools.toolsets.toolset import by_name

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp.server.session import ServerSession
    from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult

__all__ = ["ServerOptions", "mcp_server", "serve_mcp"]


_CLOSING_SECONDS = 1.0
"""How long an answer waits for progress to be sent, where the client does not take it."""


class ServerOptions(TypedDict, total=False):
    """What a server may be given besides its tools."""

    name: str
    """What the server calls itself; "agentkit" if left out."""
    version: str
    """Its version."""
    instructions: str | None
    """For the model of the client: how the tools are meant to be used."""
    deps: Any
    """Handed to tools in their `ToolContext`."""
    approve: Callable[[ToolCall], bool | Awaitable[bool]] | None
    """Decides about calls that need approval; without it they are denied."""


def mcp_server(tools: Iterable[Tool | Callable[..., Any]], **options: Unpack[ServerOptions]) -> Server[Any]:
    """Return a server of the official SDK that offers `tools`; `serve_mcp` runs one.

    Mount `.streamable_http_app()` where there is an ASGI application already, or authentication is wanted. Arguments
    are validated and policies hold as in an agent: what fails is an answer with `isError` with the reason. Calls of
    sequential tools wait for each other. `max_calls` is not counted, because a server knows no runs.

    Args:
        tools: Tools, plain functions or a toolset.
        **options: See `ServerOptions`.

    Raises:
        ToolDefinitionError: Two tools have the same name, there is no such option, or the extra `mcp` is not installed.
    """
    if problems := misnamed("there is no option", options, ServerOptions.__annotations__):
        unknown = [name for name in options if name not in ServerOptions.__annotations__]
        raise ToolDefinitionError(f"MCP server: {'; '.join(problems)}", names=unknown)
    if find_spec("mcp") is None:
        raise ToolDefinitionError("an MCP server needs the extra `mcp`: pip install 'agentkit-prompt-tree[mcp]'")
    from mcp.server import Server

    offer = _Offer(by_name(tools), options)
    return Server(
        options.get("name", "agentkit"),
        version=options.get("version", ""),
        instructions=options.get("instructions"),
        on_list_tools=offer.list_tools,
        on_call_tool=offer.call_tool,
    )


class _Offer:
    """Answers the requests of clients for tools."""

    def __init__(self, tools: Mapping[str, Tool], options: ServerOptions) -> None:
        self._tools = tools
        self._options = options
        self._one_at_a_time = asyncio.Lock()

    async def list_tools(self, ctx: Any, params: Any) -> ListToolsResult:
        from mcp_types import ListToolsResult

        return ListToolsResult.model_validate({"tools": [_described(tool) for tool in self._tools.values()]})

    async def call_tool(self, ctx: Any, params: CallToolRequestParams) -> CallToolResult:
        from mcp import MCPError
        from mcp_types import INVALID_PARAMS, CallToolResult

        key = (ctx.meta or {}).get(IDEMPOTENCY_KEY)
        call = ToolCall(str(key or os.urandom(16).hex()), params.name, json.dumps(params.arguments or {}))
        tool = self._tools.get(params.name)
        if tool is None:
            raise MCPError(INVALID_PARAMS, str(unknown_tool(call, self._tools).content))
        # Sequential tools wait for each other, whichever client calls them.
        async with self._one_at_a_time if tool.policy.sequential else nullcontext():
            progress = _Progress(ctx.session)
            try:
                result = await self._answer(tool, call, progress)
            finally:
                await progress.close()
        return CallToolResult.model_validate(from_result(result))

    async def _answer(self, tool: Tool, call: ToolCall, progress: _Progress) -> ToolResult:
        context = ToolContext(self._options.get("deps"), "mcp", call.id, run=progress)
        approve = self._options.get("approve")
        if approve is not None and await tool.needs_approval(call, context):
            verdict = approve(call)
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
    """Offer `tools` as an MCP server until the client leaves or the process is asked to end. See `mcp_server`.

    Args:
        tools: Tools, plain functions or a toolset.
        port: Serve `http://host:port/mcp`, without authentication; None serves stdin and stdout, where whatever the
            tools print goes to stderr.
        host: Address to listen on. Only requests that name this machine are taken on the default.
        **options: See `ServerOptions`.

    Raises:
        ToolDefinitionError: Two tools have the same name, or there is no such option.
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

    uvicorn.run(server.streamable_http_app(host=host), host=host, port=port, log_level="warning")


async def _serve_pipes(server: Server[Any]) -> None:
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


class _Progress:
    """What a call shows of itself where no run is around it: how far it is goes to the client, the newest at least."""

    step = 0
    messages = ()
    usage: Any = None

    def __init__(self, session: ServerSession) -> None:
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._newest: tuple[str, float | None, float | None] | None = None
        self._sent = 0.0
        self._sending: asyncio.Task[None] | None = None

    def report(self, call_id: str, message: str, done: float | None, total: float | None) -> None:
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
        """Send what is left: the answer comes behind it."""
        # Lets the last report of a thread arrive.
        await asyncio.sleep(0)
        if self._sending is not None:
            await asyncio.wait((self._sending,), timeout=_CLOSING_SECONDS)
            self._sending.cancel()


def _described(tool: Tool) -> dict[str, Any]:
    described = tool.to_mcp()
    if tool.policy.approval == "always":
        described["annotations"] = {"destructiveHint": True}
    return described
