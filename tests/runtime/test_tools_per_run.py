"""Tools that each run of an agent computes for itself."""

from __future__ import annotations

from typing import Any

from agentkit import Agent, Message, PromptContext, ScriptedModel, ToolCall, tool
from agentkit.tools import DynamicToolset, ToolDefinitionError, Toolset
from tests.raising import raises


@tool
def read() -> str:
    return "read"


@tool(approval="always")
def write() -> str:
    return "written"


def offered(context: PromptContext) -> list[Any]:
    return [read, write] if "admin" in context.user_input.text else [read]


def calling(name: str) -> Message:
    return Message("assistant", "", (ToolCall("call_1", name),))


def results(result: Any) -> list[str]:
    return [message.text for message in result.messages if message.role == "tool"]


def test_the_tools_of_a_run_depend_on_its_input() -> None:
    model = ScriptedModel([calling("write"), "done", calling("write"), "done"])
    agent = Agent(model, tools=DynamicToolset(offered))

    plain = agent.run_sync("I am a guest")
    admin = agent.run_sync("I am an admin", approve=lambda call: True)

    assert results(plain)[0].startswith("Unknown tool 'write'")
    assert results(admin) == ["written"]
    assert [len(request.tools) for request in model.requests] == [1, 1, 2, 2]


async def test_compose_shows_the_tools_that_a_run_would_have_also_in_a_running_loop() -> None:
    agent = Agent(ScriptedModel(["done"]), tools=DynamicToolset(offered))

    assert [spec.name for spec in agent.compose("admin").tools] == ["read", "write"]
    assert [spec.name for spec in agent.compose("guest").tools] == ["read"]


async def test_tools_may_be_computed_by_async_code() -> None:
    async def later(context: PromptContext) -> Toolset:
        return Toolset(offered(context)).prefixed("my_")

    result = await Agent(ScriptedModel([calling("my_read"), "done"]), tools=DynamicToolset(later)).run("Go")

    assert results(result) == ["read"]


async def test_conflicting_names_of_tools_end_the_run_before_any_request() -> None:
    model = ScriptedModel(["done"])

    with raises(ToolDefinitionError, names=("read",)):
        await Agent(model, tools=DynamicToolset(lambda context: [read, read.with_changes(name="read")])).run("Go")
    assert not model.requests
