"""A tool asks the person of the run: the form waits like a call that needs approval."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentkit import Agent, Approved, Denied, Journal, Paused, ScriptedModel, ToolCall, tool
from agentkit.errors import ApprovalError
from agentkit.tools import ToolContext

SIZE = {"type": "object", "properties": {"size": {"type": "string", "enum": ["S", "L"]}}, "required": ["size"]}
COLOUR = {"type": "object", "properties": {"colour": {"type": "string", "default": "red"}}}
STARTS: list[str] = []


@tool
async def order(context: ToolContext, item: str) -> str:
    """Order a shirt."""
    STARTS.append(item)
    size = await context.ask("Which size?", SIZE)
    if size is None:
        return "no order"
    colour = await context.ask("Which colour?", COLOUR)
    return f"{item} {size['size']} {colour}"


@tool(sequential=True)
async def pay(context: ToolContext) -> str:
    """Pay."""
    return str(await context.ask("Pay?", {"type": "object"}, can_repeat=False))


@tool(approval="always")
async def send(context: ToolContext) -> str:
    """Send it."""
    return str(await context.ask("Where?", COLOUR))


def shop(*calls: ToolCall, answer: str = "done") -> Agent[str]:
    return Agent(ScriptedModel([list(calls), answer]), "You sell.", tools=[order, pay, send])


def results(journal: Journal) -> list[str]:
    return [str(result.content) for result in journal.tool_results]


def form_of(call: ToolCall) -> dict[str, Any]:
    return dict(json.loads(call.arguments))


ORDER = ToolCall("c1", "order", '{"item": "shirt"}')
PAY = ToolCall("c2", "pay", "{}")
SEND = ToolCall("c3", "send", "{}")


async def test_a_form_pauses_the_run_and_its_answer_resumes_it_in_another_process() -> None:
    agent = shop(ORDER, PAY)
    STARTS.clear()
    with pytest.raises(Paused) as first:
        await agent.run("A shirt.")
    (size,) = first.value.calls
    assert size.id.startswith("c1/")
    assert form_of(size)["question"] == "Which size?"
    assert form_of(size)["answer"] == {"size": None}
    # The next call is sequential: it has not run.
    assert results(first.value.journal) == []
    with pytest.raises(Paused) as second:
        journal = Journal.loads(first.value.journal.dumps())
        await agent.resume(journal, approve={size.id: Approved({"answer": {"size": "L"}})})
    (colour,) = second.value.calls
    assert form_of(colour)["answer"] == {"colour": "red"}
    journal = Journal.loads(second.value.journal.dumps())
    assert set(journal.decisions) == {size.id}
    # Without other arguments, the person accepts the defaults. A server passes earlier decisions again.
    decisions: dict[str, Any] = {size.id: Approved({"answer": {"size": "L"}}), colour.id: True}
    result = await agent.resume(journal, approve=decisions)
    assert results(result.journal) == ["shirt L {'colour': 'red'}", "None"]
    assert STARTS == ["shirt"] * 3
    assert (await agent.resume(Journal.loads(result.journal.dumps()))).output == "done"
    assert len(STARTS) == 3


async def test_a_function_answers_forms_during_the_call() -> None:
    questions: list[str] = []

    async def approve(call: ToolCall) -> Any:
        form = form_of(call)
        questions.append(form["question"])
        if form["question"] == "Which size?":
            return Approved({"answer": {"size": "L" if "problems" in form else "M"}})
        return True

    agent = shop(ORDER, PAY)
    result = await agent.run("A shirt.", approve=approve)
    assert results(result.journal) == ["shirt L {'colour': 'red'}", "{}"]
    assert questions == ["Which size?", "Which size?", "Which colour?", "Pay?"]
    refused = await shop(ORDER, PAY).run("A shirt.", approve=lambda call: False)
    assert results(refused.journal) == ["no order", "None"]


async def test_wrong_answers_and_decisions_are_errors() -> None:
    agent = shop(ORDER)
    always = Approved({"answer": {"size": "M"}})
    result = await agent.run("A shirt.", approve=lambda call: always)
    assert result.journal.tool_results[0].status == "error"
    with pytest.raises(ApprovalError):
        await shop(ORDER).run("A shirt.", approve=lambda call: "yes")  # type: ignore[arg-type, return-value]
    with pytest.raises(Paused) as paused:
        await shop(ORDER).run("A shirt.")
    for wrong in ("c1/other", "c1/ask-0", "c9/form"):
        with pytest.raises(ApprovalError) as caught:
            await shop(ORDER).resume(paused.value.journal, approve={wrong: True})
        assert wrong in str(caught.value.value)


async def test_forms_of_approved_calls_and_of_inner_agents_wait_too() -> None:
    agent = shop(SEND)
    with pytest.raises(Paused) as first:
        await agent.run("Go.")
    assert [call.id for call in first.value.calls] == ["c3"]
    with pytest.raises(Paused) as second:
        await agent.resume(first.value.journal, approve={"c3": True})
    (form,) = second.value.calls
    result = await agent.resume(second.value.journal, approve={form.id: Approved({"answer": {"colour": "blue"}})})
    assert results(result.journal) == ["{'colour': 'blue'}"]
    inner = shop(ORDER).as_tool(name="seller", description="Sells.")
    outer: Agent[str] = Agent(
        ScriptedModel([[ToolCall("o1", "seller", '{"input": "shirt"}')], "sold"]), "You ask.", tools=[inner]
    )
    with pytest.raises(Paused) as waiting:
        await outer.run("A shirt.")
    (form,) = waiting.value.calls
    assert form.id.startswith("o1/c1/")
    done = await outer.resume(waiting.value.journal, approve={form.id: Denied()})
    assert results(done.journal) == ["done"]


async def test_outside_of_a_run_and_with_a_wrong_schema_no_form_is_shown() -> None:
    assert await ToolContext(None).ask("Which size?", SIZE) is None

    @tool
    async def ask(context: ToolContext, schema: dict[str, Any]) -> str:
        """Ask."""
        return str(await context.ask("?", schema))

    for wrong in ({"type": "string"}, {"type": "object", "properties": {"a": {"type": 7}}}):
        call = ToolCall("c1", "ask", json.dumps({"schema": wrong}))
        agent: Agent[str] = Agent(ScriptedModel([[call], "no"]), "You ask.", tools=[ask])
        result = await agent.run("Go.")
        assert result.journal.tool_results[0].status == "error"
