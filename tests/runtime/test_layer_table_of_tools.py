"""The row of the tools in the layer table: their number, and their time limits."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from agentkit import Agent, Journal, PromptContext, ScriptedModel, Tool
from agentkit.prompts import ToolSpec
from agentkit.tools import DynamicToolset
from tests.runtime.scripts import calling


def named(name: str, **policy: Any) -> Tool:
    return Tool(lambda: "done", name=name, description="Does it.", **policy)


def row(*tools: Tool) -> str:
    (found,) = (row for row in Agent(ScriptedModel(["x"]), tools=tools).compose("x").explain() if row.layer == "tools")
    return found.source


def test_the_usual_time_limit_is_shown_and_each_different_limit() -> None:
    assert row(named("a")) == "tools (60 s a call)"
    assert row(named("a"), named("b", timeout=0.5), named("c")) == "tools (60 s a call, b: 0.5 s)"
    assert row(named("a", timeout=5), named("b", timeout=None)) == "tools (5 s a call, b: any time)"
    assert row(named("a").with_changes(timeout=7)) == "tools (7 s a call)"
    assert row(named("a", timeout=7).with_changes(timeout=None).with_changes(name="b")) == "tools (any time a call)"


def test_many_different_limits_are_counted() -> None:
    tools = [named(f"usual{number}") for number in range(9)]
    tools += [named(f"own{number}", timeout=number + 1) for number in range(6)]
    assert row(*tools) == "tools (60 s a call, own0: 1 s, own1: 2 s, own2: 3 s, 3 others)"


def test_only_tools_have_time_limits_which_are_not_sent() -> None:
    spec = ToolSpec("a", "Does it.")
    context = PromptContext(user_input="x", tools=[spec])
    (found,) = (row for row in Agent(ScriptedModel(["x"])).chain.compose(context).explain() if row.layer == "tools")
    assert found.source == "tools"
    short, long = named("a", timeout=1), named("a", timeout=9)
    assert short.spec == long.spec and short.spec.json == long.spec.json and "timeout" not in short.spec.json
    adapter = TypeAdapter(ToolSpec)
    assert adapter.validate_json(adapter.dump_json(named("a", timeout=None).spec)) == short.spec


def test_a_resumed_run_shows_the_time_limits_too() -> None:
    agent = Agent(
        ScriptedModel([calling("a"), OSError("gone"), "done"]),
        tools=DynamicToolset(lambda ctx: [named("a", timeout=3)]),
    )
    with pytest.raises(OSError) as gone:
        agent.run_sync("x")
    journal = Journal.loads(gone.value.journal.dumps())  # type: ignore[attr-defined]
    resumed = agent.resume_sync(journal)
    assert [row.source for row in resumed.composition.explain() if row.layer == "tools"] == ["tools (3 s a call)"]
