"""agentkit tools offered as an MCP server, called by the client of the official SDK and by our client."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError, StdioServerParameters

from agentkit import Agent, ScriptedModel, ToolCall
from agentkit.prompts import File, Image, Text
from agentkit.testing import controlled_time
from agentkit.tools import MCPToolset, Tool, ToolContext, ToolDefinitionError, ToolFailure, ToolResult, mcp_server, tool
from tests.raising import raises
from tests.tools.mcp.mcp_offering import OPTIONS, TOOLS
from tests.tools.mcp.mcp_running import HTTPPeer, http_server

SCRIPT = Path(__file__).parent / "mcp_offering.py"
COMMAND = [sys.executable, str(SCRIPT), "offering"]


@pytest.fixture(scope="module")
def peer() -> Iterator[HTTPPeer]:
    """One server for all tests that call over HTTP: its start takes a second."""
    with http_server("offering", SCRIPT) as peer:
        yield peer


@asynccontextmanager
async def connected(transport: str, request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    if transport == "here":
        async with Client(mcp_server(TOOLS, **OPTIONS)) as client:
            yield client
        return
    if transport == "pipes":
        async with Client(StdioServerParameters(command=COMMAND[0], args=COMMAND[1:])) as client:
            yield client
        return
    async with Client(request.getfixturevalue("peer").url) as client:
        yield client


@pytest.mark.parametrize("transport", ["here", "pipes", "http"])
async def test_the_official_client_lists_and_calls_our_tools(transport: str, request: pytest.FixtureRequest) -> None:
    async with connected(transport, request) as client:
        listed = {one.name: one for one in (await client.list_tools()).tools}
        scaled = await client.call_tool("scale", {"point": {"x": 2, "y": 3}, "by": 10})
        wrong = await client.call_tool("scale", {"point": {"x": "much"}, "factor": 2})
        info = client.server_info

    assert info is not None and (info.name, info.version) == ("offering", "1.2")
    assert listed["scale"].description == "Scale a point."
    assert listed["scale"].input_schema["required"] == ["point", "by"]
    assert not scaled.is_error
    assert scaled.structured_content == {"x": 20, "y": 30}
    assert wrong.is_error
    (told,) = wrong.content
    assert isinstance(told, types.TextContent)
    assert all(name in told.text for name in ("point.x", "by: is required", "factor"))


@pytest.mark.parametrize("transport", ["here", "pipes"])
async def test_results_of_tools_arrive_in_the_blocks_of_the_protocol(
    transport: str, request: pytest.FixtureRequest
) -> None:
    async with connected(transport, request) as client:
        drawn = await client.call_tool("draw")

    kinds = [block.type for block in drawn.content]
    assert kinds == ["text", "image", "resource", "resource_link", "text"]
    assert "cannot be read" in drawn.content[-1].text  # type: ignore[union-attr]


@pytest.mark.parametrize("transport", ["here", "http"])
async def test_policies_apply_and_failures_have_a_reason(transport: str, request: pytest.FixtureRequest) -> None:
    async with connected(transport, request) as client:
        broke, crash, long, slow = [await client.call_tool(name) for name in ("broke", "crash", "long", "slow")]
        denied, paid = [await client.call_tool("pay", {"amount": amount}) for amount in (7, 5)]
        alone = await asyncio.gather(*(client.call_tool("write", {"name": name}) for name in "abc"))
        with pytest.raises(MCPError) as unknown:
            await client.call_tool("scales")
        assert unknown.value.code == types.INVALID_PARAMS
        hints = next(one.annotations for one in (await client.list_tools()).tools if one.name == "pay")

    def text(result: types.CallToolResult) -> str:
        return result.content[0].text  # type: ignore[union-attr]

    assert broke.is_error and broke.structured_content == {"error": "no funds", "data": {"missing": 3}}
    assert crash.is_error and "upstream is away" in text(crash)
    assert not long.is_error and "only the first 10 are shown" in text(long)
    assert slow.is_error and "did not end within 0.2 seconds" in text(slow)
    assert denied.is_error and "approval" in text(denied)
    assert text(paid) == "paid 5"
    assert [text(one) for one in alone] == ["True"] * 3
    assert hints is not None and hints.destructive_hint


async def ask(made: Tool, arguments: dict[str, Any] | None = None) -> ToolResult:
    call = ToolCall("call_1", made.name, json.dumps(arguments or {}))
    return await made.call(call, ToolContext(None, "run_1", "call_1", approved=True))


async def test_our_client_receives_the_results_of_our_tools() -> None:
    async with MCPToolset(COMMAND) as server:
        tools = {one.name: one for one in server}
        scaled = await ask(tools["scale"], {"point": {"x": 1}, "by": 2})
        drawn = await ask(tools["draw"])
        broke = await ask(tools["broke"])
        context = await ask(tools["context"])

    assert scaled.value == {"x": 2, "y": 0}
    see, near, pdf, *_ = drawn.content
    assert see == Text("see")
    assert isinstance(near, Image) and near.mime == "image/png"
    assert isinstance(pdf, File) and pdf.mime == "application/pdf"
    assert isinstance(broke.error, ToolFailure) and broke.error.data == {"error": "no funds", "data": {"missing": 3}}
    assert json.loads(str(broke.content)) == {"error": "no funds", "data": {"missing": 3}}
    assert context.content == f"deps {ToolContext(None, 'run_1', 'call_1').idempotency_key}"
    assert tools["pay"].policy.approval == "always"


async def test_a_value_without_a_json_form_or_that_is_not_an_object_is_shown_as_text_only() -> None:
    @tool
    def raw() -> bytes:
        return b"just text"

    @tool
    def number() -> int:
        return 7

    async with Client(mcp_server([raw, number])) as client:
        results = [await client.call_tool(name) for name in ("raw", "number")]

    assert [result.structured_content for result in results] == [None, None]
    assert [result.content[0].text for result in results] == ["just text", "7"]  # type: ignore[union-attr]


async def test_a_server_in_the_same_process_needs_no_transport() -> None:
    @tool
    def hello(name: str) -> str:
        return f"hello {name}"

    async with Client(mcp_server([hello])) as client:
        result = await client.call_tool("hello", {"name": "you"})

    assert result.content == [types.TextContent(text="hello you")]


def test_conflicting_names_are_refused_by_the_constructor() -> None:
    def twice() -> None: ...

    with pytest.raises(ToolDefinitionError) as caught:
        mcp_server([tool(twice), tool(twice)])
    assert caught.value.names == ("twice",)


async def test_rows_that_can_be_read_only_once_reach_the_client_as_structured_content() -> None:
    @tool
    def table() -> dict[str, object]:
        return {"rows": (number for number in range(3))}

    async with Client(mcp_server([table])) as client:
        result = await client.call_tool("table")

    assert result.structured_content == {"rows": [0, 1, 2]}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_cancelled_request_ends_although_its_tool_ignores_it() -> None:
    begun, over = asyncio.Event(), list[bool]()

    @tool(timeout=None)
    async def stubborn() -> None:
        begun.set()
        while not over:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                continue

    # The lock of sequential tools shows that the server has ended the first call.
    with controlled_time() as clock:
        async with Client(mcp_server([stubborn.with_changes(sequential=True)])) as client:
            first = asyncio.create_task(client.call_tool("stubborn"))
            await begun.wait()
            first.cancel()
            begun.clear()
            second = asyncio.create_task(client.call_tool("stubborn"))
            await begun.wait()
            assert clock.seconds < 10
            over.append(True)
            second.cancel()


def test_a_server_of_tools_whose_calls_would_all_fail_does_not_start() -> None:
    class Shop: ...

    @tool
    def orders(context: ToolContext[Shop]) -> str:
        """List orders."""
        return "none"

    agent = Agent(ScriptedModel.repeat("ok"), "x", tools=[orders], name="desk")
    for agent_tools, names in (([orders], ("orders",)), ([agent.as_tool(name="desk", description="Asks.")], ("desk",))):
        for deps in (None, "text"):
            with raises(ToolDefinitionError, names=names):
                mcp_server(agent_tools, deps=deps)
        assert mcp_server(agent_tools, deps=Shop())
    assert mcp_server([agent.with_deps(Shop()).as_tool(name="desk", description="Asks.")])
