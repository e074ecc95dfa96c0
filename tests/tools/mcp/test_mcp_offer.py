"""Resources and prompts of our server, and changes of its lists, for clients of both versions of the protocol."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError

from agentkit import Message, tool
from agentkit.prompts import Document, Image, Text
from agentkit.tools import MCPToolset, ToolContext, ToolDefinitionError, mcp_changed, mcp_server
from tests.waiting import LONG, eventually

PNG = b"\x89PNG\r\n\x1a\n"


def order(number: str) -> dict[str, str]:
    """An order."""
    return {"number": number}


async def broken() -> str:
    raise ValueError("no notes")


def review(code: str, tone: Literal["calm", "curt"] = "calm") -> list[Any]:
    """Review code."""
    return [f"Review {code}, {tone}", Message("assistant", "Yes?"), Image(PNG, media_type="image/png")]


@tool
def look(context: ToolContext) -> str:
    """Look at deps."""
    return str(context.deps)


RESOURCES: dict[str, Any] = {
    "notes://today": "Nothing happened.",
    "notes://page": Document("<p>", title="Page", metadata={"mime_type": "text/html"}),
    "notes://logo": Image(PNG, media_type="image/png"),
    "notes://broken": broken,
    "orders://{number}/items": order,
}


def text_of(result: types.ReadResourceResult) -> Any:
    (content,) = result.contents
    return getattr(content, "text", None) or base64.b64decode(content.blob)  # type: ignore[union-attr]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_resources_are_listed_and_read(mode: Any) -> None:
    async with Client(mcp_server([look], resources=RESOURCES), mode=mode) as client:
        listed = (await client.list_resources()).resources
        assert [str(entry.uri) for entry in listed] == [*RESOURCES][:4]
        assert [entry.mime_type for entry in listed] == ["text/plain", "text/html", "image/png", None]
        (template,) = (await client.list_resource_templates()).resource_templates
        assert (template.uri_template, template.name, template.description) == (
            "orders://{number}/items",
            "order",
            "An order.",
        )
        expected = {
            "notes://today": "Nothing happened.",
            "notes://page": "<p>",
            "notes://logo": PNG,
            "orders://a%20b/items": '{"number": "a b"}',
        }
        for uri, content in expected.items():
            assert text_of(await client.read_resource(uri)) == content, uri
        for wrong in ("notes://other", "orders://1/2/items", "orders:///items", "orders://1/items/", "notes://broken"):
            with pytest.raises(MCPError):
                await client.read_resource(wrong)
        assert client.server_capabilities.prompts is None


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_prompts_are_listed_returned_and_completed(mode: Any) -> None:
    async with Client(mcp_server([look], prompts=[review]), mode=mode) as client:
        (prompt,) = (await client.list_prompts()).prompts
        assert (prompt.name, prompt.description) == ("review", "Review code.")
        assert [(each.name, each.required) for each in prompt.arguments or ()] == [("code", True), ("tone", False)]
        result = await client.get_prompt("review", {"code": "x"})
        assert [(each.role, each.content.type) for each in result.messages] == [
            ("user", "text"),
            ("assistant", "text"),
            ("user", "image"),
        ]
        assert result.messages[0].content.text == "Review x, calm"  # type: ignore[union-attr]
        for name, arguments in (("review", {}), ("reviews", {"code": "x"}), ("review", {"code": "x", "tone": "loud"})):
            with pytest.raises(MCPError):
                await client.get_prompt(name, arguments)
        reference = types.PromptReference(name="review")
        done = await client.complete(reference, {"name": "tone", "value": "c"})
        assert done.completion.values == ["calm", "curt"]
        assert (await client.complete(reference, {"name": "code", "value": "c"})).completion.values == []
        assert client.server_capabilities.resources is None


async def test_our_client_reads_the_lists_of_our_server_and_follows_their_changes() -> None:
    tools: list[Any] = [look]
    prompts: list[Any] = [review]
    resources = dict(RESOURCES)

    @tool
    async def change() -> str:
        """Change the lists."""
        tools.append(order)
        prompts.clear()
        resources["notes://new"] = "New."
        await mcp_changed(server)
        return "changed"

    tools.append(change)
    server = mcp_server(tools, resources=resources, prompts=prompts)

    @asynccontextmanager
    async def transport() -> AsyncIterator[Any]:
        to_server, from_client = anyio.create_memory_object_stream[Any](10)
        to_client, from_server = anyio.create_memory_object_stream[Any](10)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.run, from_client, to_client, server.create_initialization_options())
            yield from_server, to_server
            tasks.cancel_scope.cancel()

    async with MCPToolset(transport) as served:
        assert [each.name for each in served] == ["look", "change"]
        assert [document.text for document in await served.documents("notes://page")] == ["<p>"]
        assert len(await served.prompt("review", {"code": "x"})) == 3
        await asyncio.to_thread(lambda: asyncio.run(served["change"].call(_call("change"), ToolContext(None))))
        assert await eventually(lambda: "order" in [each.name for each in served])
        assert await served.prompts() == []
        assert [document.text for document in await served.documents("notes://new")] == ["New."]


def _call(name: str) -> Any:
    from agentkit import ToolCall

    return ToolCall("c1", name, "{}")


async def test_older_clients_are_notified_of_lists_and_of_subscribed_resources() -> None:
    messages: list[Any] = []

    async def receive(message: Any) -> None:
        messages.append(message)

    server = mcp_server([look], resources=RESOURCES, prompts=[review])
    async with Client(server, mode="legacy", message_handler=receive) as client:
        capabilities = client.server_capabilities
        assert capabilities.tools is not None and capabilities.tools.list_changed
        assert capabilities.resources is not None and capabilities.resources.subscribe
        await client.session.subscribe_resource("notes://today")
        await mcp_changed(server, "notes://today", "notes://page")
        await mcp_changed(server)
        async with asyncio.timeout(LONG):
            await eventually(lambda: len(messages) == 4)
        assert [message.method.removeprefix("notifications/") for message in messages] == [
            "resources/updated",
            "tools/list_changed",
            "resources/list_changed",
            "prompts/list_changed",
        ]
        await client.session.unsubscribe_resource("notes://today")
        await mcp_changed(server, "notes://today")
        await client.list_tools()
        assert len(messages) == 4


async def test_invalid_offers_are_refused() -> None:
    wrong: list[dict[str, Any]] = [
        {"resources": {"today": "x"}},
        {"resources": {"notes://{day}": "x"}},
        {"resources": {"notes://{day}": order}},
        {"resources": {"notes://x": 7}},
        {"resources": {"notes://{a}{b}": review}},
        {"resources": {"notes://{day}/{day}": review}},
        {"resources": {"notes://{a day}": "x"}},
        {"resources": {"notes://{day": "x"}},
        {"resources": {"notes://a day": "x"}},
        {"resources": {"notes://a\n": "x"}},
        {"resources": ["notes://a"]},
        {"prompts": [review, review]},
        {"prompt": [review]},
    ]
    for options in wrong:
        with pytest.raises(ToolDefinitionError):
            mcp_server([look], **options)
    with pytest.raises(ToolDefinitionError) as caught:
        mcp_server([], resources={"a": "x", "notes://x": Text("y"), "b": 1})  # type: ignore[dict-item]
    assert "'a'" in str(caught.value) and "'b'" in str(caught.value)
    with pytest.raises(ToolDefinitionError):
        await mcp_changed(object())  # type: ignore[arg-type]
    with pytest.raises(ToolDefinitionError):
        await mcp_changed(mcp_server([look]), 5)  # type: ignore[arg-type]
