"""An MCP server of the official SDK for tests, honest or not: `python mcp_peer.py NAME [PORT]`."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mcp_types as types
import uvicorn
from mcp import MCPError
from mcp.server import Server
from mcp.server.lowlevel import NotificationOptions
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server

WIRE = os.dup(1)  # stdout itself; the SDK keeps stray prints away from it
PNG = b"\x89PNG\r\n\x1a\npixels"

honest = MCPServer("honest", instructions="Be kind.")


@honest.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@honest.tool(name="files.read", annotations=types.ToolAnnotations(read_only_hint=True))
def read_file(path: str) -> str:
    """Read a file."""
    return f"content of {path}"


@honest.tool(annotations=types.ToolAnnotations(destructive_hint=True))
def wipe() -> str:
    return "wiped"


@honest.tool()
def fail(why: str) -> str:
    raise ValueError(why)


@honest.tool()
async def wait(seconds: float, mark: str = "") -> str:
    if mark:
        Path(mark).write_text("started")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        if mark:
            Path(mark).write_text("cancelled")
        raise
    return "waited"


_here: list[int] = []


@honest.tool()
async def meet(count: int) -> str:
    """Wait until `count` calls are here at the same time."""
    _here.append(1)
    while len(_here) < count:
        await asyncio.sleep(0.01)
    return "met"


def _die(mark: str) -> str:
    """Die the first time, while `mark` is not there; answer the second time."""
    if Path(mark).exists():
        return f"alive again as {os.getpid()}"
    Path(mark).write_text("was here")
    print("goodbye, cruel world", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@honest.tool()
async def die(mark: str) -> str:
    return _die(mark)


@honest.tool(annotations=types.ToolAnnotations(read_only_hint=True))
async def die_reading(mark: str) -> str:
    return _die(mark)


@honest.tool()
async def freeze() -> str:
    """Block the event loop of the server."""
    time.sleep(600)
    return "never"


@honest.tool()
async def torrent() -> str:
    """Write one line that does not end."""
    while True:
        os.write(WIRE, b"x" * 65_536)


@honest.tool()
def pid() -> str:
    return str(os.getpid())


@honest.tool()
def noise(size: int) -> str:
    """Write to both streams of the process."""
    print("n" * size)
    print("m" * size, file=sys.stderr)
    return "quiet"


@honest.tool()
async def grow(context: Context[Any, Any]) -> str:
    """Offer an additional tool."""

    def sprout() -> str:
        return "a new leaf"

    honest.add_tool(sprout)
    await context.session.send_tool_list_changed()
    await context.notify_tools_changed()
    return "grown"


@honest.tool()
async def shrink(context: Context[Any, Any]) -> str:
    """Remove the additional tool."""
    honest.remove_tool("sprout")
    await context.session.send_tool_list_changed()
    await context.notify_tools_changed()
    return "shrunk"


@honest.tool()
def header(name: str, context: Context[Any, Any]) -> str:
    request = context.request_context.request
    return str(request.headers.get(name)) if request is not None else "no request"


@honest.resource("notes://today", mime_type="text/markdown")
def today() -> str:
    return "# Today\nNothing happened."


@honest.resource("pixels://logo", mime_type="image/png")
def logo() -> bytes:
    return PNG


@honest.prompt()
def review(code: str, tone: str = "calm") -> str:
    """Ask for a review."""
    return f"Review this in a {tone} tone: {code}"


Answer = dict[str, Any] | list[Any]


def _text(text: str) -> list[Any]:
    return [types.TextContent(text=text)]


def _tool(name: str, schema: dict[str, Any] | None = None, **fields: Any) -> types.Tool:
    return types.Tool(name=name, input_schema=schema or {"type": "object"}, **fields)


def _image(data: bytes, mime: str = "image/png") -> types.ImageContent:
    return types.ImageContent(data=base64.b64encode(data).decode(), mime_type=mime)


NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
_blob = types.BlobResourceContents(uri="files://a/report.pdf", mime_type="application/pdf", blob="JVBERi0xLjc=")
_embedded = types.TextResourceContents(uri="notes://a", text="embedded text")

LIES: list[tuple[types.Tool, Callable[[dict[str, Any]], types.CallToolResult]]] = [
    (
        _tool("wrong_shape", output_schema=NUMBER),
        lambda _: types.CallToolResult(content=_text("3"), structured_content={"n": "three"}),
    ),
    (_tool("no_structure", output_schema=NUMBER), lambda _: types.CallToolResult(content=_text("3"))),
    (
        _tool("right_shape", output_schema=NUMBER),
        lambda _: types.CallToolResult(content=[], structured_content={"n": 3}),
    ),
    (
        _tool("failing", output_schema=NUMBER),
        lambda _: types.CallToolResult(content=_text("no"), structured_content={"code": 7}, is_error=True),
    ),
    (_tool("mute"), lambda _: types.CallToolResult(content=[], is_error=True)),
    (_tool("twice", description="first"), lambda _: types.CallToolResult(content=_text("twice"))),
    (_tool("twice", description="second"), lambda _: types.CallToolResult(content=_text("twice"))),
    (_tool("nonsense", {"type": "object", "properties": {"x": 3}}), lambda _: types.CallToolResult(content=[])),
    (
        _tool("pattern", {"type": "object", "properties": {"x": {"type": "string", "pattern": "("}}}),
        lambda _: types.CallToolResult(content=_text("matched")),
    ),
    (_tool("wordy", description="x" * 30_000), lambda _: types.CallToolResult(content=[])),
    (_tool("bulky", {"type": "object", "description": "x" * 600_000}), lambda _: types.CallToolResult(content=[])),
    (_tool("  "), lambda _: types.CallToolResult(content=[])),
    (
        _tool("taken", {"type": "object", "properties": {"agentkit_context": {"type": "string"}}}),
        lambda _: types.CallToolResult(content=[]),
    ),
    (
        _tool("flood", {"type": "object", "properties": {"size": {"type": "integer"}}}),
        lambda arguments: types.CallToolResult(content=_text("x" * arguments["size"])),
    ),
    (
        _tool("pictures", {"type": "object", "properties": {"count": {"type": "integer"}}}),
        lambda arguments: types.CallToolResult(content=[_image(PNG + bytes(90_000))] * arguments["count"]),
    ),
    (
        _tool("mixed"),
        lambda _: types.CallToolResult(
            content=[
                *_text("look:"),
                _image(PNG),
                types.ImageContent(data="!!!", mime_type="image/png"),
                types.AudioContent(data=base64.b64encode(b"ID3").decode(), mime_type="audio/mpeg"),
                types.EmbeddedResource(resource=_blob),
                types.EmbeddedResource(resource=_embedded),
                types.ResourceLink(uri="notes://b", name="b", description="more"),
            ]
        ),
    ),
    (_tool("refused"), lambda _: (_ for _ in ()).throw(MCPError(-32000, "not today"))),
    (_tool("asking"), lambda _: types.InputRequiredResult(input_requests={"who": _question()})),  # type: ignore[arg-type,return-value]
]


def _question() -> Any:
    form = types.ElicitRequestFormParams(message="Who are you?", requested_schema={"type": "object", "properties": {}})
    return types.ElicitRequest(params=form)


async def _list_lies(ctx: Any, params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[tool for tool, _ in LIES])


async def _tell_lies(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    answer = next(answer for tool, answer in LIES if tool.name == params.name)
    return answer(params.arguments or {})


async def _endless(ctx: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    page = int(params.cursor) if params is not None and params.cursor else 0
    return types.ListToolsResult(tools=[_tool(f"tool_{page}")], next_cursor=str(page + 1))


async def _paged(ctx: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    page = int(params.cursor) if params is not None and params.cursor else 0
    return types.ListToolsResult(tools=[_tool(f"tool_{page}")], next_cursor=str(page + 1) if page < 4 else None)


async def _key(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    return types.CallToolResult(content=_text(str((ctx.meta or {}).get("agentkit/idempotency-key"))))


SERVERS: dict[str, Server[Any]] = {
    "honest": honest._lowlevel_server,
    "older": honest._lowlevel_server,
    "liar": Server("liar", on_list_tools=_list_lies, on_call_tool=_tell_lies),
    "endless": Server("endless", on_list_tools=_endless),
    "paged": Server("paged", on_list_tools=_paged, on_call_tool=_key),
    "bare": Server("bare"),
}


async def _serve_pipes(server: Server[Any], *, older: bool) -> None:
    options = server.create_initialization_options(NotificationOptions(tools_changed=True))
    async with stdio_server() as (read, write):
        if older:  # without the newest form of the first request
            await serve_loop(server, read, write, lifespan_state={}, init_options=options)
            return
        await server.run(read, write, options)


def _hostile(name: str) -> None:
    """Servers that no SDK can express."""
    if name == "garbage":
        print("this is no JSON-RPC", flush=True)
        print('{"jsonrpc": "2.0", "id": 99, "result": []}', flush=True)
        SERVERS[name] = SERVERS["honest"]
    if name == "stubborn":  # ignores closed pipes, and signals that can be ignored
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        SERVERS[name] = SERVERS["honest"]


def main() -> None:
    name = sys.argv[1]
    _hostile(name)
    if len(sys.argv) > 2:
        app = SERVERS[name].streamable_http_app()
        uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="error", timeout_graceful_shutdown=1)
        return
    asyncio.run(_serve_pipes(SERVERS[name], older=name == "older"))
    if name == "stubborn":
        while True:
            signal.pause()


if __name__ == "__main__":
    main()
