"""Tools that need `deps`: a run without them, or with other deps, ends before any request."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

import pytest

from agentkit import Agent, Paused, ScriptedModel, Session, ToolContext, tool
from agentkit.errors import DepsMismatch
from agentkit.tools import DynamicToolset, Toolset
from tests.raising import raises
from tests.runtime.scripts import calling


@dataclass
class Shop:
    name: str


@tool
def order(context: ToolContext[Shop], what: str) -> str:
    """Order."""
    return f"{what} at {context.deps.name}"


@tool(approval="always")
def pay(context: ToolContext[Shop]) -> str:
    """Pay."""
    return context.deps.name


@tool
def look() -> str:
    """Look."""
    return "seen"


@pytest.mark.parametrize("given", [{}, {"deps": None}, {"deps": "shop"}, {"deps": 5}])
def test_every_tool_that_cannot_work_is_named_before_any_request(given: dict[str, Any]) -> None:
    model, session = ScriptedModel(["never"]), Session()
    agent = Agent(model, tools=[order, look, pay])
    with raises(DepsMismatch, name="deps") as caught:
        agent.run_sync("x", session=session, **given)
    assert len(caught.value.problems) == 2 and isinstance(caught.value, TypeError)
    assert pickle.loads(pickle.dumps(caught.value)).problems == caught.value.problems
    assert len(model.requests) == 0 and len(session.conversation) == 0


def test_deps_of_the_type_reach_the_tool_and_other_tools_need_no_deps() -> None:
    result = Agent(ScriptedModel([calling(("order", {"what": "tea"})), "ok"]), tools=[order]).run_sync(
        "x", deps=Shop("Ada's")
    )
    assert result.messages[2].text == "tea at Ada's"
    assert Agent(ScriptedModel(["ok"]), tools=[look]).run_sync("x").output == "ok"


@pytest.mark.parametrize("tools", [DynamicToolset(lambda ctx: [order, look]), Toolset([order]).prefixed("shop_")])
def test_tools_of_the_turn_and_of_toolsets_are_checked_too(tools: Any) -> None:
    model = ScriptedModel(["never"])
    with raises(DepsMismatch, name="deps"):
        Agent(model, tools=tools).run_sync("x")
    assert len(model.requests) == 0
    Agent(model, tools=tools).compose("x")


def test_a_resumed_run_needs_deps_too() -> None:
    agent = Agent(ScriptedModel([calling("pay"), "ok"]), tools=[pay])
    with pytest.raises(Paused) as paused:
        agent.run_sync("x", deps=Shop("s"))
    with raises(DepsMismatch, name="deps"):
        agent.resume_sync(paused.value.journal, approve=lambda call: True)
    assert agent.resume_sync(paused.value.journal, approve=lambda call: True, deps=Shop("s")).output == "ok"
