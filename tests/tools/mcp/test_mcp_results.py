"""Results and definitions of MCP servers that a model must see completely, with a server in this process."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
import pytest
from mcp.server import Server
from mcp.server.lowlevel import NotificationOptions
from mcp.shared.memory import create_client_server_memory_streams

from agentkit import ToolCall
from agentkit.prompts import Image, Text
from agentkit.tools import MCPToolset, Tool, ToolContext, ToolDefinitionError, ToolResult

LINK = "repo://docs/README.md"
_document = types.TextResourceContents(uri=LINK, text="# Title")
_picture = types.BlobResourceContents(uri=LINK, mime_type="image/png", blob=base64.b64encode(b"\x89PNG").decode())
_header = {"x": {"type": "array", "x-mcp-header": "X"}}


def text(*texts: str) -> list[Any]:
    return [types.TextContent(text=item) for item in texts]


RESULTS: dict[str, tuple[list[Any], Any, str]] = {
    # Name: blocks, structured content, content for the model.
    "summary": (text("2 found"), {"rows": [1, 2]}, '2 found\n{"rows": [1, 2]}'),
    "other numbers": (text('{"n": 1}'), {"n": 2}, '{"n": 1}\n{"n": 2}'),
    "part of it": (text('{"n": 1}'), {"n": 1, "m": 2}, '{"n": 1}\n{"n": 1, "m": 2}'),
    "several summaries": (text("a", "b"), {"n": 1}, 'a\nb\n{"n": 1}'),
    "only structured": ([], {"n": 1}, '{"n": 1}'),
    "empty list only": ([], {"result": []}, '{"result": []}'),
    "nothing structured": (text("ok"), {}, "ok"),
    "null": (text("ok"), None, "ok"),
    "serialised": (text('{"n": 1, "m": "é"}'), {"m": "é", "n": 1}, '{"n": 1, "m": "é"}'),
    "indented": (text('{\n  "n": 1.0\n}'), {"n": 1}, '{\n  "n": 1.0\n}'),
    "fenced": (text('```json\n{"n": 1}\n```'), {"n": 1}, '```json\n{"n": 1}\n```'),
    "serialised after a summary": (text("2 found", '{"n": 1}'), {"n": 1}, '2 found\n{"n": 1}'),
    "wrapped text": (text("hello"), {"result": "hello"}, "hello"),
    "wrapped number": (text("5"), {"result": 5}, "5"),
    "wrapped texts": (text("a", "b"), {"result": ["a", "b"]}, "a\nb"),
    "wrapped items": (text('{"n": 1}', '{"n": 2}'), {"result": [{"n": 1}, {"n": 2}]}, '{"n": 1}\n{"n": 2}'),
    "wrapped lines": (text("a\nb"), {"content": "a\nb"}, "a\nb"),
    "other wrapped text": (text("hello"), {"result": "bye"}, 'hello\n{"result": "bye"}'),
    "embedded text": ([types.EmbeddedResource(resource=_document)], None, f"[resource: {LINK}]\n# Title"),
    "embedded and structured": (
        [types.EmbeddedResource(resource=_document)],
        {"n": 1},
        f'[resource: {LINK}]\n# Title\n{{"n": 1}}',
    ),
}
OUTPUTS: dict[str, dict[str, Any]] = {
    "no type": {"properties": {"n": {"type": "string"}}},
    "slow": {"type": "object", "properties": {"n": {"pattern": "(a+)+$(?!x)"}}},
    "pattern of JavaScript": {"type": "object", "properties": {"n": {"pattern": r"[\w-.]"}}},
    "other document": {"type": "object", "$ref": "https://example.org/n.json"},
    "missing target": {"$ref": "#/$defs/N"},
    "huge pattern": {"type": "object", "properties": {"n": {"pattern": "a" * 200_000}}},
    "cycle": {"$ref": "#"},
    "unknown type": {"type": "record"},
}
MORE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    # Name: input schema, fields of the definition.
    "array header": ({"type": "object", "properties": _header}, {}),
    "nested header": ({"type": "object", "properties": {"a": {"items": _header["x"]}}}, {}),
    "good header": ({"type": "object", "properties": {"x": {"type": "string", "x-mcp-header": "X"}}}, {}),
    **{name: ({"type": "object"}, {"output_schema": schema}) for name, schema in OUTPUTS.items()},
}


async def _list(ctx: Any, params: Any) -> types.ListToolsResult:
    plain = [types.Tool(name=name, input_schema={"type": "object"}) for name in [*RESULTS, "picture", "failing"]]
    more = [types.Tool(name=name, input_schema=schema, **fields) for name, (schema, fields) in MORE.items()]
    return types.ListToolsResult(tools=[*plain, *more])


async def _call(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    if params.name in RESULTS:
        blocks, structured, _ = RESULTS[params.name]
        return types.CallToolResult(content=blocks, structured_content=structured)
    if params.name == "picture":
        return types.CallToolResult(content=[types.EmbeddedResource(resource=_picture)], structured_content={"n": 1})
    if params.name == "failing":
        return types.CallToolResult(content=text("no"), structured_content={"code": 7}, is_error=True)
    return types.CallToolResult(content=text("ok"), structured_content={"n": "a" * 50 + "!"})


@asynccontextmanager
async def transport() -> AsyncIterator[Any]:
    server: Server[Any] = Server("here", on_list_tools=_list, on_call_tool=_call)
    async with create_client_server_memory_streams() as (client, (read, write)):
        options = server.create_initialization_options(NotificationOptions())
        serving = asyncio.create_task(server.run(read, write, options))
        try:
            yield client
        finally:
            serving.cancel()


@pytest.fixture(scope="module")
def server() -> Iterator[MCPToolset]:
    with MCPToolset(transport) as toolset:
        yield toolset


async def ask(server: MCPToolset, name: str) -> ToolResult:
    tool: Tool = next(item for item in server if item.original_name == name)
    return await tool.call(ToolCall("c", tool.name, json.dumps({})), ToolContext(None, "r", "c"))


async def test_structured_content_is_shown_unless_the_text_contains_it(server: MCPToolset) -> None:
    contents = {name: (await ask(server, name)).content for name in RESULTS}
    assert contents == {name: content for name, (_, _, content) in RESULTS.items()}


async def test_an_embedded_image_has_its_address_and_structured_content(server: MCPToolset) -> None:
    address, image, data = tuple((await ask(server, "picture")).content)
    assert (address, data) == (Text(f"[resource: {LINK}]"), Text('{"n": 1}'))
    assert isinstance(image, Image)


async def test_an_error_shows_its_structured_content(server: MCPToolset) -> None:
    result = await ask(server, "failing")
    assert (result.status, result.content) == ("error", 'no\n{"code": 7}')


def test_tools_that_the_sdk_drops_are_problems(server: MCPToolset) -> None:
    names = [tool.original_name for tool in server]
    problems = [problem.tool for problem in server.problems if isinstance(problem, ToolDefinitionError)]
    assert "good header" in names
    assert [name for name in ("array header", "nested header") if name in names or name not in problems] == []


async def test_an_output_schema_that_cannot_be_checked_is_a_problem_of_the_list_only(server: MCPToolset) -> None:
    names = [name for name, (_, fields) in MORE.items() if fields]
    problems = [problem.tool for problem in server.problems if isinstance(problem, ToolDefinitionError)]
    # A pattern that takes too long for one text is valid.
    assert [name for name in names if name not in problems] == ["no type", "slow"]
    assert {name: (await ask(server, name)).status for name in names} == dict.fromkeys(names, "success")
