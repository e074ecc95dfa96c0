"""Events: their kinds, their order, and the end of a stream that is not read to its end."""

from __future__ import annotations

import asyncio
import gc
from contextlib import aclosing

import pytest

from agentkit import (
    Agent,
    Event,
    Layers,
    ModelReplied,
    PromptComposed,
    Recalled,
    RunFinished,
    ScriptedModel,
    Session,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from agentkit.models import ModelUnavailable
from agentkit.prompts import KwargsError, TextPrompt
from tests.raising import raises
from tests.runtime.scripts import Library, Never, calling, roles


async def echo(text: str) -> str:
    """Repeat the text."""
    return text


async def events_of(agent: Agent, text: str = "go") -> list[Event]:
    return [event async for event in agent.stream(text)]


async def test_events_have_the_order_of_the_actions() -> None:
    model = ScriptedModel([calling(("echo", {"text": "hi"}), text="Let me see."), "It says hi."])
    events = await events_of(Agent(model, tools=[echo], memory=Library("a chunk")))
    assert [type(event) for event in events] == [
        Recalled,
        PromptComposed,
        TextDelta,
        TextDelta,
        TextDelta,
        ModelReplied,
        ToolStarted,
        ToolFinished,
        PromptComposed,
        TextDelta,
        TextDelta,
        TextDelta,
        ModelReplied,
        RunFinished,
    ]


async def test_the_pieces_of_text_joined_are_the_answer() -> None:
    events = await events_of(Agent(ScriptedModel(["One two\nthree."])))
    pieces = [event.text for event in events if isinstance(event, TextDelta)]
    assert len(pieces) == 3
    assert "".join(pieces) == "One two\nthree."


async def test_events_contain_the_compositions_calls_and_results() -> None:
    model = ScriptedModel([calling(("echo", {"text": "hi"})), "done"])
    events = await events_of(Agent(model, tools=[echo]))
    composed = [event for event in events if isinstance(event, PromptComposed)]
    assert [event.composition for event in composed] == list(model.requests)
    assert [event.step for event in composed] == [1, 2]
    (started,) = [event for event in events if isinstance(event, ToolStarted)]
    (finished,) = [event for event in events if isinstance(event, ToolFinished)]
    assert (started.call.name, started.call.id) == ("echo", "id1")
    assert (finished.result.call_id, finished.result.value, finished.step) == ("id1", "hi", 1)
    last = events[-1]
    assert isinstance(last, RunFinished) and last.result.output == "done"


async def test_parallel_calls_each_start_and_finish() -> None:
    model = ScriptedModel([calling(("echo", {"text": "a"}), ("echo", {"text": "b"}), "missing"), "done"])
    events = await events_of(Agent(model, tools=[echo]))
    assert [event.call.id for event in events if isinstance(event, ToolStarted)] == ["id1", "id2", "id3"]
    finished = {event.result.call_id: event.result.status for event in events if isinstance(event, ToolFinished)}
    assert finished == {"id1": "success", "id2": "success", "id3": "error"}


async def test_an_error_is_raised_after_the_events_before_it() -> None:
    events: list[Event] = []
    agent = Agent(ScriptedModel([calling(("echo", {"text": "a"})), ModelUnavailable("gone")]), tools=[echo])
    with raises(ModelUnavailable, args=("gone",)):
        async for event in agent.stream("go"):
            events.append(event)
    assert isinstance(events[-1], PromptComposed) and events[-1].step == 2


async def test_a_broken_prompt_is_raised_before_any_event() -> None:
    agent = Agent(ScriptedModel(["never"]), layers=Layers(before_input=TextPrompt("{{ additional_kwargs.x }}")))
    with pytest.raises(KwargsError) as caught:
        await events_of(agent)
    assert list(caught.value.problems) == ["x"]


async def test_closing_a_stream_early_cancels_the_run() -> None:
    ended = asyncio.Event()

    async def linger() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    session = Session()
    agent = Agent(ScriptedModel([calling("linger"), "never"]), tools=[linger])
    async with aclosing(agent.stream("go", session=session)) as events:
        async for event in events:
            if isinstance(event, ToolStarted):
                break
    assert ended.is_set()
    assert roles(session.conversation) == "user assistant tool"


async def test_leaving_a_stream_without_closing_it_cancels_the_run_shortly_after() -> None:
    model = Never()
    agent = Agent(model)
    async for event in agent.stream("go"):
        assert isinstance(event, PromptComposed)
        break
    before = asyncio.all_tasks()
    for _ in range(10):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() < before or asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_stream_that_is_not_read_never_starts() -> None:
    model = ScriptedModel(["never"])
    stream = Agent(model).stream("go")
    await asyncio.sleep(0)
    await stream.aclose()
    assert not model.requests


async def test_cancelling_the_reader_cancels_the_run() -> None:
    model = Never()
    reader = asyncio.create_task(events_of(Agent(model)))
    await model.asked.wait()
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_listener_that_raises_ends_the_run_with_a_valid_history() -> None:
    """It raises while a sibling call is still running: this call is cancelled and does not remain."""
    cancelled = asyncio.Event()

    running = asyncio.Event()

    async def wait_for_it() -> str:
        await running.wait()
        return "a"

    async def linger() -> str:
        running.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return ""

    def listen(event: Event) -> None:
        if isinstance(event, ToolFinished):
            raise ZeroDivisionError("my bug")

    session = Session()
    model = ScriptedModel([calling("wait_for_it", "linger", "echo"), "never"])
    with raises(ZeroDivisionError, args=("my bug",)):
        await Agent(model, tools=[wait_for_it, linger]).run("go", session=session, on_event=listen)
    assert cancelled.is_set()
    assert roles(session.conversation) == "user assistant tool tool tool"
    assert [message.text for message in session.conversation][2:4] == [
        "a",
        "linger was cancelled with the run. It may still have had an effect.",
    ]


async def test_closing_the_stream_of_a_run_that_failed_meanwhile_raises_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = Agent(ScriptedModel([ModelUnavailable("gone")])).stream("go")
    async for _ in stream:
        await asyncio.sleep(0.05)
        break
    await stream.aclose()
    del stream
    gc.collect()
    await asyncio.sleep(0)
    assert caplog.records == []
