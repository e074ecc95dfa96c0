"""The data that a tool has about its run, and its actions on the run: progress, the end, and a hand-off."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from pydantic import BaseModel

from agentkit import (
    Agent,
    Journal,
    Message,
    RunFinished,
    ScriptedModel,
    Session,
    ToolFinished,
    ToolProgress,
    tool,
)
from agentkit.errors import OutputError
from agentkit.tools import ToolContext, ToolDefinitionError
from tests.raising import raises
from tests.runtime.scripts import calling, roles, valid
from tests.waiting import LONG


class Sum(BaseModel):
    total: int


@tool
async def look(context: ToolContext) -> str:
    assert context.usage is not None
    said = " ".join(f"{message.role}:{message.text}" for message in context.messages)
    return f"{context.step} {context.usage.input_tokens > 0} {said}"


def test_a_tool_can_read_step_usage_and_messages() -> None:
    session = Session()
    agent = Agent(ScriptedModel(["Hello", calling("look"), calling("look"), "Bye"]), tools=[look])
    agent.run_sync("Hi", session=session)
    result = agent.run_sync("Go", session=session)

    first, second = [message.text for message in result.messages if message.role == "tool"]
    assert first.startswith("1 ") and second.startswith("2 ")
    assert first.endswith("user:Hi assistant:Hello user:Go assistant:")
    assert second.endswith(f"user:Hi assistant:Hello user:Go assistant: tool:{first} assistant:")


def test_the_context_of_a_tool_outside_of_a_run_is_empty() -> None:
    context = ToolContext(None)
    context.progress("half", done=1, total=2)
    assert (context.step, context.usage, context.messages) == (0, None, ())


@tool
async def count(context: ToolContext, to: int) -> str:
    for number in range(1, to + 1):
        context.progress(f"at {number}", done=number, total=to)
    return "counted"


@tool
def count_in_a_thread(context: ToolContext) -> str:
    context.progress("begun")
    assert threading.current_thread() is not threading.main_thread()
    return "counted"


@pytest.mark.parametrize("is_async", [False, True])
def test_progress_reaches_a_listener_in_order(is_async: bool) -> None:
    heard: list[Any] = []

    async def listen(event: Any) -> None:
        await asyncio.sleep(0)
        heard.append(event)

    agent = Agent(
        ScriptedModel([calling(("count", {"to": 3}), "count_in_a_thread"), "done"]), tools=[count, count_in_a_thread]
    )
    agent.run_sync("Go", on_event=listen if is_async else heard.append)

    seen = [event for event in heard if isinstance(event, ToolProgress)]
    counted = [event for event in seen if event.call.name == "count"]
    assert (counted[-1].message, counted[-1].done, counted[-1].total, counted[-1].step) == ("at 3", 3, 3, 1)
    assert is_async or [event.done for event in counted] == [1, 2, 3]
    assert [event.message for event in seen if event.call.name == "count_in_a_thread"] == ["begun"]
    for event in counted:
        assert heard.index(event) < next(
            number
            for number, one in enumerate(heard)
            if isinstance(one, ToolFinished) and one.result.call_id == event.call.id
        )
    assert isinstance(heard[-1], RunFinished)


async def test_a_listener_receives_progress_while_the_tool_still_runs() -> None:
    heard, may_end = asyncio.Event(), asyncio.Event()

    @tool
    async def work(context: ToolContext) -> str:
        context.progress("on it")
        await may_end.wait()
        return "done"

    async def listen(event: Any) -> None:
        if isinstance(event, ToolProgress):
            heard.set()

    run = asyncio.create_task(Agent(ScriptedModel([calling("work"), "ok"]), tools=[work]).run("Go", on_event=listen))
    await asyncio.wait_for(heard.wait(), LONG)
    assert not run.done()
    may_end.set()
    assert (await run).output == "ok"


def test_many_progress_events_use_no_memory_and_none_arrives_after_the_end() -> None:
    kept: list[ToolContext] = []
    heard: list[ToolProgress] = []

    @tool
    async def flood(context: ToolContext) -> str:
        kept.append(context)
        for number in range(50_000):
            context.progress(done=number)
        return "ended"

    async def listen(event: Any) -> None:
        await asyncio.sleep(0)
        if isinstance(event, ToolProgress):
            heard.append(event)
        if isinstance(event, ToolFinished):
            kept[0].progress("late")

    Agent(ScriptedModel([calling("flood"), "ok"]), tools=[flood]).run_sync("Go", on_event=listen)
    assert len(heard) < 100
    assert heard[-1].done == 49_999
    assert "late" not in [event.message for event in heard]


def test_a_final_tool_ends_the_run_with_its_result() -> None:
    @tool(final=True)
    def answer(text: str) -> str:
        return text.upper()

    session = Session()
    model = ScriptedModel([calling("look", ("answer", {"text": "done"})), "next"])
    agent = Agent(model, tools=[look, answer])
    result = agent.run_sync("Go", session=session, run_id="r1")

    assert (result.output, result.steps, result.finish_reason) == ("DONE", 1, "stop")
    assert roles(result.messages) == "user assistant tool tool assistant"
    assert valid(session.conversation) and len(model.requests) == 1
    assert agent.run_sync("Go", session=session, run_id="r1").output == "DONE"
    assert agent.run_sync("More", session=session).output == "next"
    assert agent.resume_sync(Journal.loads(result.journal.dumps()), session=session).output == "DONE"


def test_a_final_tool_that_failed_does_not_end_the_run() -> None:
    @tool(final=True)
    def answer(text: str) -> str:
        if text == "bad":
            raise ValueError("no")
        return text

    agent = Agent(
        ScriptedModel([calling(("answer", {"text": "bad"})), calling(("answer", {"text": "good"}))]), tools=[answer]
    )
    result = agent.run_sync("Go")
    assert (result.output, result.steps) == ("good", 2)


def test_the_result_of_a_final_tool_has_the_output_type() -> None:
    @tool(final=True)
    def add(a: int, b: int) -> Sum:
        return Sum(total=a + b)

    @tool(final=True)
    def talk() -> str:
        return "words"

    agent = Agent(ScriptedModel([calling(("add", {"a": 1, "b": 2}))]), output=Sum, tools=[add, talk])
    assert agent.run_sync("Go").output == Sum(total=3)
    agent = Agent(ScriptedModel([calling("talk")]), output=Sum, tools=[add, talk])
    with pytest.raises(OutputError) as caught:
        agent.run_sync("Go")
    assert valid(caught.value.messages) and caught.value.messages[-1].text == "words"


SEEN = [Message("user", "Hi"), Message("assistant", "Hello"), Message("user", "Go")]


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ("none", []),
        ("text", ["Hi", "Hello", "Go"]),
        ("all", ["Hi", "Hello", "Go", "", "noted"]),
        (lambda messages: messages[:2], ["Hi", "Hello"]),
    ],
)
def test_a_hand_off_passes_the_selected_history(history: Any, expected: list[str]) -> None:
    @tool
    def note() -> str:
        return "noted"

    inner = ScriptedModel(["From the expert"])
    expert = Agent(inner, "You are an expert.", name="expert")
    session = Session()
    ask = ("expert", {"input": "Take over"})
    model = ScriptedModel(["Hello", calling("note"), calling(ask), "never"])
    hand_off = expert.as_tool(name="expert", description="Takes over.", history=history, final=True)
    lead = Agent(model, tools=[note, hand_off])
    lead.run_sync("Hi", session=session)
    result = lead.run_sync("Go", session=session)

    assert (result.output, result.steps) == ("From the expert", 2)
    assert [message.text for message in inner.requests[0].conversation] == expected
    assert inner.requests[0].user.text == "Take over"
    assert valid(inner.requests[0].conversation) and valid(session.conversation)
    assert session.conversation[-1].text == "From the expert"


def test_an_unknown_history_is_refused() -> None:
    with raises(ToolDefinitionError, tool="a", names=("history",)):
        Agent(ScriptedModel([])).as_tool(name="a", description="", history="last")  # type: ignore[arg-type]
