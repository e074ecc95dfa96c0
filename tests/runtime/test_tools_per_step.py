"""Tools that differ between steps, toolsets next to functions, tools of a provider, and searches among thousands."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agentkit import Agent, Journal, PromptContext, ScriptedModel, Session, tool
from agentkit.prompts import PromptError
from agentkit.tools import (
    DynamicToolset,
    MCPToolset,
    Tool,
    ToolDefinitionError,
    ToolFailure,
    ToolSearch,
    Toolset,
)
from tests.raising import raises
from tests.runtime.scripts import calling, valid


@tool
def open_door() -> str:
    return "opened"


@tool
def walk() -> str:
    return "walked"


def by_step(context: PromptContext) -> list[Tool]:
    is_open = any(message.text == "opened" for message in context.intermediate)
    return [walk] if is_open else [open_door]


def offered(model: ScriptedModel) -> list[list[str]]:
    return [[spec.name for spec in request.tools] for request in model.requests]


def results(result: Any) -> list[str]:
    return [message.text for message in result.messages if message.role == "tool"]


def test_the_tools_of_a_step_depend_on_earlier_results() -> None:
    model = ScriptedModel([calling("open_door"), calling("walk", "open_door"), "there"])
    result = Agent(model, tools=DynamicToolset(by_step, per_step=True)).run_sync("Go")

    assert offered(model) == [["open_door"], ["walk"], ["walk"]]
    assert results(result)[:2] == ["opened", "walked"]
    assert results(result)[2].startswith("Unknown tool 'open_door'")


def test_a_run_with_tools_per_step_resumes_from_its_journal() -> None:
    agent = Agent(
        ScriptedModel([calling("open_door"), calling("walk"), "there"]), tools=DynamicToolset(by_step, per_step=True)
    )
    whole = agent.run_sync("Go").journal
    for kept in range(len(whole.entries)):
        part = Journal.loads(whole.dumps())
        del part.entries[kept:]
        left = [calling("open_door"), calling("walk"), "there"]
        left = left[sum(entry.effect == "CallModel" for entry in part.entries) :]
        result = agent.resume_sync(part, model=ScriptedModel(left))
        assert result.output == "there" and results(result) == ["opened", "walked"] and valid(result.messages)


def test_a_removed_tool_is_not_offered_in_later_steps() -> None:
    @tool(max_consecutive_failures=1)
    def fail() -> str:
        raise ToolFailure("no")

    model = ScriptedModel([calling("fail"), calling("walk"), "there"])
    Agent(model, tools=DynamicToolset(lambda context: [fail, walk], per_step=True)).run_sync("Go")
    assert offered(model) == [["fail", "walk"], ["walk"], ["walk"]]


def test_toolsets_and_functions_can_be_combined() -> None:
    def hello() -> str:
        """Say hello."""
        return "hello"

    rest = DynamicToolset(lambda context: [walk])
    model = ScriptedModel([calling("hello", "walk", "open_door"), "done"])
    result = Agent(model, tools=[hello, rest, Toolset([open_door])]).run_sync("Go")
    assert offered(model)[0] == ["hello", "walk", "open_door"]
    assert results(result) == ["hello", "walked", "opened"]
    assert [one.name for one in Toolset([hello, Toolset([walk]), open_door])] == ["hello", "walk", "open_door"]
    with raises(ToolDefinitionError, names=("walk",)):
        Agent(ScriptedModel(["done"]), tools=[walk.with_changes(timeout=1), rest]).run_sync("Go")
    with pytest.raises(ToolDefinitionError):
        Toolset([rest])  # type: ignore[list-item]


def test_a_server_and_a_function_can_be_combined(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(
        "from mcp.server.mcpserver import MCPServer\n"
        "server = MCPServer('s')\n"
        "@server.tool()\n"
        "def far() -> str:\n    return 'from afar'\n"
        "server.run()\n"
    )
    with MCPToolset([sys.executable, str(script)]) as server:
        model = ScriptedModel([calling("walk", "far"), "done"])
        assert results(Agent(model, tools=[walk, server]).run_sync("Go")) == ["walked", "from afar"]


NATIVE = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}


def test_tools_of_a_provider_are_sent_unchanged() -> None:
    model = ScriptedModel([calling("web_search"), "done"])
    result = Agent(model, tools=[walk, NATIVE]).run_sync("Go")
    (request, _) = model.requests
    assert request.to_anthropic()["tools"][1] == {**NATIVE, "cache_control": {"type": "ephemeral"}}
    assert request.to_openai()["tools"][1] == NATIVE
    assert "runs at the provider" in results(result)[0]
    assert Tool.from_provider(NATIVE).to_openai() == Tool.from_provider(NATIVE).to_anthropic() == NATIVE
    with pytest.raises(PromptError):
        request.to_text("deepseek-v3")
    journal = Journal.loads(result.journal.dumps())
    assert journal.context.tools[1].native == NATIVE


@pytest.mark.parametrize("native", [{}, {"type": 3}, {"type": "a", "x": object()}, 5, None, ["type"], "web_search"])
def test_an_invalid_tool_of_a_provider_is_refused(native: Any) -> None:
    with pytest.raises(ToolDefinitionError):
        Tool.from_provider(native)


THINGS = ["invoice", "customer", "shipment", "employee", "meeting", "contract", "ticket", "payment", "order"]
ACTS = ["create", "delete", "update", "list", "export", "archive", "approve", "merge", "copy", "print"]


def many(count: int) -> list[Tool]:
    async def run(**arguments: Any) -> str:
        return "did it"

    made = []
    for number in range(count):
        act, thing = ACTS[number % len(ACTS)], THINGS[number // len(ACTS) % len(THINGS)]
        place = number // len(ACTS) // len(THINGS)
        about = f"{act.capitalize()} one {thing} of the office number {place}. It takes a while, and is logged."
        schema = {"properties": {f"{thing}Id": {"type": "string", "description": f"Which {thing}."}}}
        made.append(Tool.from_json_schema(f"{act}_{thing}_{place}", about, schema, run))
    return made


def test_eighteen_hundred_tools_use_no_more_prompt_than_twenty() -> None:
    model = ScriptedModel(
        [calling(("search_tools", {"query": "approve invoices"})), calling("approve_invoice_7"), "done"]
    )
    searched = Agent(model, tools=ToolSearch(many(1_800), about="the office")).run_sync("Go")
    few = ScriptedModel(["done"])
    Agent(few, tools=many(20)).run_sync("Go")

    assert [request.tokens < few.requests[0].tokens for request in model.requests] == [True, True, True]
    assert offered(model)[0] == ["search_tools"]
    assert all(name.startswith("approve_invoice") for name in offered(model)[1][1:])
    assert len(offered(model)[1]) == 6
    assert "approve_invoice" in results(searched)[0]


def test_a_found_tool_can_be_called_and_is_offered_in_later_turns() -> None:
    search = ToolSearch([walk, open_door, *many(50)], always=[Tool.from_provider(NATIVE)], results=2)
    session = Session()
    model = ScriptedModel([calling(("search_tools", {"query": "openDoor"})), calling("open_door"), "done", "again"])
    agent = Agent(model, tools=search)
    result = agent.run_sync("Go", session=session)
    agent.run_sync("More", session=session)

    assert results(result)[1] == "opened"
    assert offered(model)[0] == ["search_tools", "web_search"]
    assert offered(model)[1][:3] == ["search_tools", "web_search", "open_door"] == offered(model)[3][:3]
    assert agent.resume_sync(Journal.loads(result.journal.dumps()), session=session).output == "done"


def test_a_search_without_matches_returns_no_tools_and_the_latest_matches_are_offered() -> None:
    names = [f"{act}_ticket_0" for act in ACTS[:4]]
    calls = [calling(("search_tools", {"query": name})) for name in ["xylophone", *names]]
    model = ScriptedModel([*calls, "done"])
    result = Agent(model, tools=ToolSearch(many(90), results=1, maximum=2)).run_sync("Go")
    assert json.loads(results(result)[0])["tools"] == []
    assert [names[3], names[2]] == offered(model)[5][1:]


def test_a_search_includes_the_tools_of_toolsets() -> None:
    model = ScriptedModel([calling(("search_tools", {"query": "walk"})), calling("walk"), "done"])
    made = DynamicToolset(lambda context: [walk, open_door])
    assert results(Agent(model, tools=[ToolSearch(made), NATIVE]).run_sync("Go"))[1] == "walked"


@pytest.mark.parametrize(
    ("tools", "options"),
    [
        ([walk, walk.with_changes(description="x")], {}),
        ([walk], {"results": 0}),
        ([walk], {"always": [walk.with_changes(timeout=1)]}),
    ],
)
def test_an_invalid_search_is_refused(tools: Any, options: Any) -> None:
    with pytest.raises(ToolDefinitionError):
        ToolSearch(tools, **options)
