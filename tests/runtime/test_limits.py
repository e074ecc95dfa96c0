"""Limits: the end of a run that would not end by itself, and its result."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from agentkit import (
    Agent,
    Composition,
    Document,
    Layers,
    LimitExceeded,
    Limits,
    Message,
    Reply,
    ScriptedModel,
    Session,
    Usage,
    tool,
)
from agentkit.errors import AgentDefinitionError, UnknownOption
from agentkit.prompts import Example, ExamplesPrompt
from agentkit.testing import controlled_time
from tests.raising import raises
from tests.runtime.scripts import Forgetful, Never, calling, roles, valid
from tests.waiting import LONG


async def echo(text: str = "") -> str:
    """Repeat the text."""
    return text


def test_a_model_that_never_stops_calling_tools_is_stopped() -> None:
    session, model = Session(), ScriptedModel.repeat(calling("echo"))
    with raises(LimitExceeded, value=16, limit="steps") as caught:
        Agent(model, tools=[echo]).run_sync("go", session=session)
    assert caught.value.limit == "steps"
    assert len(model.requests) == 16
    assert valid(session.conversation)
    assert tuple(session.conversation) == caught.value.messages
    assert Agent(ScriptedModel(["ok"])).run_sync("and?", session=session).output == "ok"


def test_the_last_step_may_be_the_answer() -> None:
    model = ScriptedModel([calling("echo"), "done"])
    assert Agent(model, tools=[echo], limits=Limits(steps=2)).run_sync("go").output == "done"


def test_tool_calls_over_the_limit_are_not_run() -> None:
    ran: list[str] = []

    async def note(text: str) -> None:
        """Note."""
        ran.append(text)

    session = Session()
    rounds = [calling(("note", {"text": "a"}), ("note", {"text": "b"})), calling(("note", {"text": "c"}))]
    with pytest.raises(LimitExceeded) as caught:
        Agent(ScriptedModel(rounds), tools=[note], limits=Limits(tool_calls=2)).run_sync("go", session=session)
    assert caught.value.limit == "tool_calls"
    assert ran == ["a", "b"]
    assert roles(caught.value.messages) == roles(session.conversation) == "user assistant tool tool"
    result = Agent(ScriptedModel([rounds[0], "done"]), tools=[note], limits=Limits(tool_calls=2)).run_sync("go")
    assert result.output == "done"


def test_tool_calls_can_be_forbidden() -> None:
    with raises(LimitExceeded, value=0, limit="tool_calls"):
        Agent(ScriptedModel([calling("echo")]), tools=[echo], limits=Limits(tool_calls=0)).run_sync("go")


def test_tokens_are_counted_over_all_steps() -> None:
    session = Session()
    model = ScriptedModel.repeat(Reply(calling("echo"), Usage(30, 10)))
    with raises(LimitExceeded, value=100, limit="tokens") as caught:
        Agent(model, tools=[echo], limits=Limits(tokens=100)).run_sync("go", session=session)
    assert caught.value.limit == "tokens"
    assert len(model.requests) == 3
    assert valid(session.conversation) and len(session.conversation) == 7


def test_a_complete_answer_is_returned_for_any_cost() -> None:
    reply = Reply(Message("assistant", "dear"), Usage(1_000, 1_000))
    assert Agent(ScriptedModel([reply]), limits=Limits(tokens=10)).run_sync("go").output == "dear"


async def test_a_limit_of_seconds_ends_a_model_that_does_not_answer() -> None:
    session = Session()
    with controlled_time(), raises(LimitExceeded, value=60, limit="seconds") as caught:
        await Agent(Never(), limits=Limits(seconds=60)).run("go", session=session)
    assert caught.value.limit == "seconds"
    assert roles(session.conversation) == "user"


async def test_a_limit_of_seconds_ends_tools_and_the_history_stays_valid() -> None:
    async def linger() -> str:
        """Wait."""
        await asyncio.Event().wait()
        return ""

    session = Session()
    agent = Agent(ScriptedModel([calling("echo", "linger")]), tools=[echo, linger], limits=Limits(seconds=60))
    with controlled_time(), pytest.raises(LimitExceeded) as caught:
        await agent.run("go", session=session)
    assert tuple(session.conversation) == caught.value.messages
    assert valid(session.conversation) and roles(session.conversation) == "user assistant tool tool"


async def test_the_messages_so_far_are_in_the_error_without_a_session_too() -> None:
    agent = Agent(Never(), limits=Limits(seconds=60))
    with controlled_time(), pytest.raises(LimitExceeded) as caught:
        await agent.run("go")
    assert [message.text for message in caught.value.messages] == ["go"]


class SlowSelector:
    """Chooses examples, after a while."""

    async def select(self, query: str, examples: Sequence[Example]) -> Sequence[Example]:
        await asyncio.sleep(0 if query == "quick" else 600)
        return examples[:1]


async def test_a_limit_of_seconds_ends_a_slow_selection_of_examples() -> None:
    session, model = Session(), ScriptedModel(["ok"])
    shots = ExamplesPrompt(examples=[Example("2+2", "4")], selector=SlowSelector())
    agent = Agent(model, layers=Layers(before_input=shots), limits=Limits(seconds=60))
    with controlled_time(), pytest.raises(LimitExceeded):
        await agent.run("slow", session=session)
    assert len(session.conversation) == 0
    await agent.run("quick", session=session)
    assert "2+2" in model.requests[0].text


async def test_a_run_within_its_seconds_is_not_disturbed() -> None:
    agent = Agent(ScriptedModel([calling("echo"), "done"]), tools=[echo], limits=Limits(seconds=60))
    assert (await agent.run("go")).output == "done"


async def test_a_timeout_of_the_model_is_not_mistaken_for_the_limit() -> None:
    agent = Agent(ScriptedModel([TimeoutError("socket")]), limits=Limits(seconds=60))
    with raises(TimeoutError, args=("socket",)):
        await agent.run("go")


async def test_cancelling_from_outside_is_not_mistaken_for_the_limit() -> None:
    model = Never()
    run = asyncio.create_task(Agent(model, limits=Limits(seconds=60)).run("go"))
    await model.asked.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


def test_all_impossible_limits_are_named() -> None:
    with raises(AgentDefinitionError, name="steps, tool_calls, tokens, seconds, repairs"):
        Limits(steps=0, tool_calls=-1, tokens=0, seconds=float("nan"), repairs=-1)
    Limits(steps=1, tool_calls=0, tokens=1, seconds=0.001, repairs=0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 0),
        ("tool_calls", -1),
        ("tokens", 0),
        ("input_tokens", 0),
        ("output_tokens", -3),
        ("money", 0.0),
        ("seconds", -0.5),
        ("nested_runs", -1),
        ("repairs", -1),
    ],
)
def test_the_error_has_the_value_of_a_limit(name: str, value: float) -> None:
    options: Any = {name: value}
    with raises(AgentDefinitionError, name=name, value=value):
        Limits(**options)


@pytest.mark.parametrize("steps", [1.5, 2.0, "2", True, None])
def test_the_limit_of_steps_is_a_whole_number(steps: Any) -> None:
    with raises(AgentDefinitionError, name="steps") as caught:
        Limits(steps=steps)
    assert [place for place, _ in caught.value.problems] == ["steps"]


def test_unknown_and_invalid_limits_are_listed_together() -> None:
    options: Any = {"step": 3, "seconds": 0, "on_limit": "stop"}
    with raises(UnknownOption, name="step, seconds, on_limit", suggestion="steps", meant={"step": "steps"}):
        Limits(**options)


def test_a_changed_copy_is_checked() -> None:
    assert replace(Limits(seconds=9), steps=3) == Limits(steps=3, seconds=9)
    with raises(AgentDefinitionError, name="steps", value=0):
        replace(Limits(), steps=0)


def test_simultaneous_inner_runs_share_the_remaining_tokens_of_the_outer_run() -> None:
    sent: list[int] = []

    class Counting:
        name = "counting"

        async def request(self, composition: Composition, *, on_delta: object = None) -> Reply:
            sent.append(composition.tokens)
            await asyncio.sleep(0.05)
            return Reply(Message("assistant", "ok"), Usage(composition.tokens, 2))

    inner = Agent(Counting(), "You help. " * 10).as_tool(name="helper", description="Helps.")
    calls = calling(*[("helper", {"input": "x"})] * 5)
    outer = Agent(ScriptedModel([calls, "Done."]), tools=[inner], limits=Limits(tokens=100))
    result = outer.run_sync("go")
    assert result.usage.input_tokens + result.usage.output_tokens <= 100
    assert 1 <= len(sent) < 5
    assert "limit of 100 tokens" in str([message.text for message in result.messages])


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        (Limits(steps=2, on_limit="return"), "steps"),
        (Limits(input_tokens=15, on_limit="return"), "input_tokens"),
        (Limits(output_tokens=3, on_limit="return"), "output_tokens"),
        (Limits(tokens=15, on_limit="return"), "tokens"),
    ],
)
def test_at_a_limit_a_run_may_return_its_text_so_far_with_the_reason(limits: Limits, name: str) -> None:
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    model = ScriptedModel.repeat(Reply(calling("look", text="So far: blue."), Usage(10, 2)))
    session = Session()
    result = Agent(model, tools=[look], limits=limits).run_sync("go", session=session)
    assert (result.output, result.finish_reason) == ("So far: blue.", "limit")
    assert result.limit is not None and result.limit.limit == name
    assert tuple(session.conversation) == result.messages and valid(result.messages)
    assert result.usage.input_tokens >= 10 and result.journal is not None


@pytest.mark.parametrize("output", [str, int])
def test_a_limit_that_is_reached_before_any_request_is_returned_too(output: type) -> None:
    def hangs(query: str) -> list[Document]:
        over.wait(LONG)
        return []

    over, session = threading.Event(), Session()
    limits = Limits(seconds=0.05, on_limit="return")
    agent = Agent(ScriptedModel(["Hello."]), "Be brief.", memory=hangs, output=output, limits=limits)
    result = agent.run_sync("Hi.", session=session)
    over.set()
    assert result.limit is not None and result.limit.limit == "seconds"
    assert (result.output, result.messages, result.steps) == ("" if output is str else None, (), 0)
    assert "Be brief." in result.composition.system.text and result.composition.user.text == "Hi."
    assert agent.resume_sync(result.journal, session=session, memory=None, limits=Limits(repairs=0), output=str).output


def test_results_that_cannot_be_stored_are_no_answer_at_a_limit() -> None:
    async def linger() -> str:
        """Wait."""
        await asyncio.Event().wait()
        return ""

    limits, session = Limits(seconds=60, on_limit="return"), Forgetful(good=1)
    agent = Agent(ScriptedModel([calling("echo", "linger")]), tools=[echo, linger], limits=limits)
    with controlled_time(), pytest.raises(LimitExceeded) as caught:
        agent.run_sync("go", session=session)
    assert roles(caught.value.messages) == "user assistant tool tool"
    assert any("could not be stored: OSError: the disk is gone" in note for note in caught.value.__notes__)


def test_a_tool_that_fails_several_times_in_a_row_is_removed_also_from_a_resumed_run() -> None:
    @tool(max_consecutive_failures=2)
    def broken() -> str:
        """Fail."""
        raise ValueError("out of order")

    script = [calling("broken"), calling("broken"), ConnectionError("gone"), calling("broken"), "Without it."]
    model = ScriptedModel(script)
    agent = Agent(model, tools=[broken])
    with pytest.raises(ConnectionError) as cut:
        agent.run_sync("go")
    result = agent.resume_sync(cut.value.journal)  # type: ignore[attr-defined]
    assert [[spec.name for spec in sent.tools] for sent in model.requests] == [["broken"], ["broken"], [], [], []]
    texts = [message.text for message in result.messages if message.role == "tool"]
    assert "not available any more" in texts[1]
    assert "was not called: it failed 2 times in a row" in texts[2]
    assert result.output == "Without it."
