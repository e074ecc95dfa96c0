"""Requests of servers to the person and the model of a run, in both versions of the protocol, and of our server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.server import Server
from mcp.shared.message import SessionMessage

from agentkit import (
    Agent,
    Approved,
    LimitExceeded,
    Limits,
    Message,
    Paused,
    Reply,
    ScriptedModel,
    ToolCall,
    Usage,
    tool,
)
from agentkit.tools import MCPToolset, Sampling, ToolContext, ToolDefinitionError, mcp_server
from agentkit_tools.mcp.target import ServerLike
from tests.waiting import eventually

FORM = {"type": "object", "properties": {"size": {"type": "string"}}, "required": ["size"]}
SIZE = types.ElicitRequest(params=types.ElicitRequestFormParams(message="Which size?", requested_schema=FORM))
PAGE = types.ElicitRequest(params=types.ElicitRequestURLParams(message="Pay here", url="https://shop.example"))
MODEL = types.CreateMessageRequest(
    params=types.CreateMessageRequestParams(
        messages=[types.SamplingMessage(role="user", content=types.TextContent(text="A name for a shop?"))],
        system_prompt="You are brief.",
        max_tokens=10,
    )
)
REQUESTS: dict[str, Any] = {"order": SIZE, "page": PAGE, "name": MODEL}
BUY = ToolCall("c1", "order", "{}")
TOOLS = [
    types.Tool(name=name, input_schema={"type": "object"}, annotations=types.ToolAnnotations(idempotent_hint=hint))
    for name, hint in (("order", False), ("page", False), ("name", False), ("safe", True))
]


def text(value: Any) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=str(value))])


def answer_text(answer: Any) -> str:
    data = answer if isinstance(answer, dict) else answer.model_dump(by_alias=True, exclude_none=True)
    for key in ("content", "action", "message"):
        if key in data:
            return json.dumps(data[key])
    return json.dumps(data)


def newer_server() -> ServerLike:
    """A server of the SDK whose calls end with its requests."""

    async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=TOOLS)

    async def call(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult | types.InputRequiredResult:
        if params.input_responses is None:
            request = REQUESTS.get(params.name, SIZE)
            return types.InputRequiredResult(input_requests={"q": request}, request_state="s")
        assert params.request_state == "s"
        return text(answer_text(params.input_responses["q"]))

    server: Server[Any] = Server("shop", on_list_tools=list_tools, on_call_tool=call)

    return serving(server)


def serving(server: Server[Any]) -> ServerLike:
    @asynccontextmanager
    async def transport() -> AsyncIterator[Any]:
        to_server, from_client = anyio.create_memory_object_stream[Any](10)
        to_client, from_server = anyio.create_memory_object_stream[Any](10)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.run, from_client, to_client, server.create_initialization_options())
            yield from_server, to_server
            tasks.cancel_scope.cancel()

    return transport


def older_server(calls: list[str]) -> ServerLike:
    """A server without an SDK, which sends its requests during a call."""

    async def serve(read: Any, write: Any) -> None:
        asked: dict[Any, Any] = {}

        async def send(**message: Any) -> None:
            message = {"jsonrpc": "2.0", **message}
            await write.send(SessionMessage(types.jsonrpc_message_adapter.validate_python(message, by_name=False)))

        async for item in read:
            message = item.message.model_dump(by_alias=True, exclude_none=True)
            method, number = message.get("method"), message.get("id")
            if method == "initialize":
                about = {"name": "shop", "version": "1"}
                version = message["params"]["protocolVersion"]
                result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
                await send(id=number, result=result)
            elif method == "tools/list":
                tools = [each.model_dump(by_alias=True, exclude_none=True) for each in TOOLS]
                await send(id=number, result={"tools": tools})
            elif method == "tools/call":
                name = message["params"]["name"]
                calls.append(name)
                request = REQUESTS.get(name, SIZE).model_dump(by_alias=True, exclude_none=True, mode="json")
                asked[f"q{number}"] = number
                await send(id=f"q{number}", **request)
            elif number in asked:
                answer = answer_text(message.get("result") or message["error"])
                await send(id=asked.pop(number), result={"content": [{"type": "text", "text": answer}]})
            elif method is not None and number is not None:
                await send(id=number, error={"code": -32601, "message": "Method not found"})

    @asynccontextmanager
    async def transport() -> AsyncIterator[Any]:
        to_server, from_client = anyio.create_memory_object_stream[Any](10)
        to_client, from_server = anyio.create_memory_object_stream[Any](10)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve, from_client, to_client)
            yield from_server, to_server
            tasks.cancel_scope.cancel()

    return transport


SERVERS: dict[str, Callable[[], ServerLike]] = {"newer": newer_server, "older": lambda: older_server([])}


def buyer(server: MCPToolset, *calls: ToolCall, **options: Any) -> Agent[str]:
    return Agent(ScriptedModel([list(calls or (BUY,)), "done"]), "You buy.", tools=server, **options)


def first_result(result: Any) -> str:
    return str(result.journal.tool_results[0].content)


def size(call: ToolCall) -> Approved:
    assert json.loads(call.arguments)["question"].endswith("asks: Which size?")
    return Approved({"answer": {"size": "L"}})


@pytest.mark.parametrize("kind", SERVERS)
async def test_a_function_answers_a_form_of_a_server(kind: str) -> None:
    with MCPToolset(SERVERS[kind]()) as server:
        assert first_result(await buyer(server).run("Buy.", approve=size)) == '{"size": "L"}'
        assert first_result(await buyer(server).run("Buy.", approve=lambda call: False)) == '"decline"'
        # No address is opened.
        page = await buyer(server, ToolCall("c1", "page", "{}")).run("Buy.", approve=size)
        assert first_result(page) == '"decline"'


async def test_a_form_of_a_newer_server_pauses_the_run() -> None:
    with MCPToolset(newer_server()) as server:
        agent = buyer(server)
        with pytest.raises(Paused) as paused:
            await agent.run("Buy.")
        (form,) = paused.value.calls
    # Another process continues the run, with another session.
    with MCPToolset(newer_server()) as server:
        another: Agent[str] = Agent(ScriptedModel(["done"]), "You buy.", tools=server)
        result = await another.resume(paused.value.journal, approve={form.id: size(form)})
    assert first_result(result) == '{"size": "L"}'


async def test_a_call_of_an_older_server_is_not_repeated_unless_it_is_idempotent() -> None:
    calls: list[str] = []
    with MCPToolset(older_server(calls)) as server:
        assert first_result(await buyer(server).run("Buy.")) == '"decline"'
        assert calls == ["order"]
        agent = buyer(server, ToolCall("c1", "safe", "{}"))
        with pytest.raises(Paused) as paused:
            await agent.run("Buy.")
        (form,) = paused.value.calls
        result = await agent.resume(paused.value.journal, approve={form.id: size(form)})
    assert first_result(result) == '{"size": "L"}'
    assert calls == ["order", "safe", "safe"]


@pytest.mark.parametrize("kind", SERVERS)
async def test_forms_of_ended_calls_do_not_wait(kind: str) -> None:
    begun: list[str] = []
    ended: list[str] = []

    async def wait(call: ToolCall) -> bool:
        begun.append(call.id)
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(call.id)
        return True

    with MCPToolset(SERVERS[kind](), timeout=0.02) as server:
        # More calls than requests that may wait.
        for _ in range(10):
            assert "did not end" in first_result(await buyer(server).run("Buy.", approve=wait))
            await eventually(lambda: len(ended) == len(begun))
    with MCPToolset(SERVERS[kind]()) as server:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(buyer(server).run, "Buy.", approve=wait))
            await anyio.sleep(0.05)
            tasks.cancel_scope.cancel()
        assert first_result(await buyer(server).run("Buy.", approve=size)) == '{"size": "L"}'


@pytest.mark.parametrize("kind", SERVERS)
async def test_a_server_uses_a_model_within_its_limits(kind: str) -> None:
    name = ToolCall("c1", "name", "{}")

    def sampler() -> Agent[str]:
        reply = Reply(Message("assistant", "Owl"), usage=Usage(5, 7))
        return Agent(ScriptedModel([reply] * 2), "You help a server.")

    with MCPToolset(SERVERS[kind]()) as server:
        refused = await buyer(server, name).run("Buy.", approve=lambda call: True)
        assert "Owl" not in first_result(refused)
    asked: list[ToolCall] = []
    with MCPToolset(SERVERS[kind](), sampling=Sampling(sampler())) as server:

        def approve(call: ToolCall) -> bool:
            asked.append(call)
            return True

        result = await buyer(server, name).run("Buy.", approve=approve)
        assert "Owl" in first_result(result)
        assert "A name for a shop?" in asked[0].arguments
        assert result.usage.output_tokens == 7
        denied = await buyer(server, name).run("Buy.", approve=lambda call: False)
        assert "Owl" not in first_result(denied)
    with MCPToolset(SERVERS[kind](), sampling=Sampling(sampler(), approval="never")) as server:
        assert "Owl" in first_result(await buyer(server, name).run("Buy."))
        # The limits of the run apply to the requests of its servers.
        with pytest.raises(LimitExceeded):
            await buyer(server, name, limits=Limits(tokens=10)).run("Buy.")


@pytest.mark.parametrize("kind", SERVERS)
async def test_a_model_receives_only_text_that_the_person_has_read(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def request(text: str) -> Any:
        message = types.SamplingMessage(role="user", content=types.TextContent(text=text))
        return types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[message], max_tokens=10))

    asked: list[str] = []

    async def answer(text: str, agent: Any, decision: Any) -> str:
        def approve(call: ToolCall) -> Any:
            asked.append(call.arguments)
            return decision

        monkeypatch.setitem(REQUESTS, "name", request(text))
        with MCPToolset(SERVERS[kind](), sampling=Sampling(agent)) as server:
            return first_result(await buyer(server, ToolCall("c1", "name", "{}")).run("Buy.", approve=approve))

    owl: Agent[str] = Agent(ScriptedModel.repeat("Owl"), "")
    broken: Agent[str] = Agent(ScriptedModel([ValueError("key sk-1")]), "")
    assert "Owl" in await answer("a" * 50_000 + " end", owl, True)
    assert " end" in asked.pop()
    assert "100,000 are allowed" in await answer("a" * 200_000, owl, True)
    assert asked == []
    assert "text was changed" in await answer("A name?", owl, Approved({"messages": []}))
    failed = await answer("A name?", broken, True)
    assert "the model failed: ValueError" in failed
    assert "sk-1" not in failed


def test_invalid_permissions_are_refused() -> None:
    agent: Agent[str] = Agent(ScriptedModel(["x"]), "")
    for wrong in ({"agent": "gpt"}, {"requests": 0}, {"tokens": "9"}, {"approval": "no"}):
        with pytest.raises(ToolDefinitionError):
            Sampling(**{"agent": agent, **wrong})  # type: ignore[arg-type]


def test_the_name_of_forms_is_reserved() -> None:
    @tool(approval="always")
    def fill_in_form(question: str) -> str:
        """Look like a question."""
        return question

    for tools in ([fill_in_form], [order.with_changes(name="fill_in_form")]):
        with pytest.raises(ToolDefinitionError, match="reserved"):
            Agent(ScriptedModel(["x"]), "x", tools=tools)
    definition = types.Tool(name="fill_in_form", input_schema={"type": "object"})

    async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[*TOOLS, definition])

    with MCPToolset(serving(Server("shop", on_list_tools=list_tools))) as server:
        assert [tool.name for tool in server] == [each.name for each in TOOLS]
        assert "reserved" in str(server.problems[0])


async def test_a_form_that_a_person_cannot_read_is_refused() -> None:
    schemas: list[Any] = [
        {"type": "object", "properties": {"size": {"default": "x" * 200_000}}},
        {"type": "object", "properties": {f"field{number}": {"type": "string"} for number in range(5_000)}},
        {"type": "object", "properties": {"size": {"default": object()}}},
    ]

    @tool
    async def ask(context: ToolContext, number: int) -> str:
        """Ask."""
        return str(await context.ask("Which size?", schemas[number]))

    for number in range(len(schemas)):
        call = ToolCall("c1", "ask", json.dumps({"number": number}))
        agent: Agent[str] = Agent(ScriptedModel([[call], "done"]), "x", tools=[ask])
        assert "the form " in first_result(await agent.run("Ask."))


@tool
async def order(context: ToolContext) -> str:
    """Order a shirt."""
    size = await context.ask("Which size?", FORM)
    colour = await context.ask("Which colour?", {"type": "object", "properties": {"colour": {"type": "string"}}})
    return f"{size} {colour}"


@tool
async def once(context: ToolContext) -> str:
    """Order once."""
    return str(await context.ask("Which size?", FORM, can_repeat=False))


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_our_server_sends_forms_to_the_person_of_its_client(mode: str) -> None:
    questions: list[str] = []

    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        questions.append(params.message.partition("\n")[0])
        if "colour" in params.message:
            return types.ElicitResult(action="decline")
        # The first answer is invalid.
        content: dict[str, Any] = {} if len(questions) == 1 else {"size": "L"}
        return types.ElicitResult(action="accept", content=content)

    server = mcp_server([order, once])
    async with Client(server, mode=mode, elicitation_callback=elicit) as client:
        result = await client.call_tool("order", {})
        assert result.content[0].text == "{'size': 'L'} None"  # type: ignore[union-attr]
        assert questions == ["Which size?", "Which size?", "Which colour?"]
        result = await client.call_tool("once", {})
        expected = "{'size': 'L'}" if mode == "legacy" else "None"
        assert result.content[0].text == expected  # type: ignore[union-attr]
    async with Client(server, mode=mode) as client:
        result = await client.call_tool("order", {})
        assert result.content[0].text == "None None"  # type: ignore[union-attr]
