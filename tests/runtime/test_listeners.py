"""Listeners: async or not, slow, failing or hanging; the run waits for them, and its memory does not grow."""

from __future__ import annotations

import asyncio
import logging
import tracemalloc
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest

from agentkit import (
    Agent,
    Composition,
    Event,
    LimitExceeded,
    Limits,
    Message,
    ModelReplied,
    Nested,
    OfflineModel,
    Reply,
    RunFinished,
    ScriptedModel,
    Session,
    TextDelta,
    ToolContext,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    tool,
)
from agentkit.models import Delta, OnDelta
from agentkit.testing import controlled_time
from agentkit_tools.errors import RunInterrupt
from tests.raising import raises
from tests.runtime.scripts import calling, roles, valid

MANY = 100_000


class Stop(RunInterrupt):
    """An exception of the runtime."""


class Panic(BaseException):
    """A panic of Rust code."""


async def echo(text: str = "") -> str:
    """Repeat the text."""
    return text


def scripted(calls: int = 1) -> Agent[None, str]:
    return Agent(ScriptedModel([calling(*["echo"] * calls, text="On it."), "All done now."]), tools=[echo])


class Talker:
    """A model with a long answer that pauses sometimes or never."""

    name = "talker"

    def __init__(self, pause: int) -> None:
        self.pause = pause
        self.said = 0

    async def request(self, composition: Composition, *, on_delta: OnDelta | None = None) -> Reply:
        assert on_delta is not None
        for number in range(MANY):
            on_delta(Delta("word "))
            self.said = number
            if self.pause and number % self.pause == 0:
                await asyncio.sleep(0)
        return Reply(Message("assistant", "word " * MANY))


def kinds(events: list[Event]) -> list[type]:
    return [type(event) for event in events]


def test_an_async_listener_receives_the_events_of_a_sync_listener_in_the_same_order() -> None:
    plain: list[Event] = []
    waited: list[Event] = []

    async def listen(event: Event) -> None:
        await asyncio.sleep(0)
        waited.append(event)

    scripted().run_sync("x", on_event=plain.append)
    scripted().run_sync("x", on_event=listen)
    assert kinds(waited) == kinds(plain)
    assert kinds(plain)[-1] is RunFinished
    fromlambda: list[Event] = []

    async def store_event(event: Event) -> None:
        fromlambda.append(event)

    scripted().run_sync("x", on_event=lambda event: store_event(event))
    assert kinds(fromlambda) == kinds(plain)


def test_an_async_listener_is_called_with_one_event_at_a_time_while_tools_run_together() -> None:
    at_once = most = 0

    async def listen(event: Event) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.001)
        at_once -= 1

    scripted().run_sync("x", on_event=listen)
    assert most == 1


@pytest.mark.untraced
@pytest.mark.parametrize("model", [ScriptedModel(["word " * MANY]), OfflineModel()], ids=["scripted", "offline"])
async def test_the_producer_is_no_faster_than_the_reader(model: Any) -> None:
    heard = waiting = most = 0

    def listen(event: Event) -> None:
        nonlocal waiting, most
        waiting += 1
        most = max(most, waiting)

    async for _ in Agent(model).stream("Say something about " + "words " * 500, on_event=listen):
        waiting -= 1
        heard += 1
        if heard < 2_000:
            await asyncio.sleep(0)
    assert heard > 20
    assert most <= 70


def test_a_sync_reader_is_no_slower_than_the_producer_and_receives_all_events() -> None:
    events = list(Agent(ScriptedModel(["word " * 5_000])).stream_sync("x"))
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "word " * 5_000


@pytest.mark.untraced
@pytest.mark.parametrize("pause", [0, 100])
async def test_a_model_that_does_not_wait_uses_no_more_memory_than_its_text(pause: int) -> None:
    agent = Agent(Talker(pause))
    texts: list[str] = []
    tracemalloc.start()
    try:
        async with aclosing(agent.stream("x")) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    texts.append(event.text)
                    await asyncio.sleep(0.0001)
                    if len(texts) == 1:
                        before = tracemalloc.get_traced_memory()[0]
                        tracemalloc.reset_peak()
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert "".join(texts) == "word " * MANY
    assert peak < 8_000_000  # an event for each delta would take more than twice as much


def failing(kind: type, seen: list[Event], is_async: bool) -> Callable[[Event], Any]:
    def listen(event: Event) -> None:
        seen.append(event)
        if isinstance(event, kind):
            raise ValueError(f"cannot show {kind.__name__}")

    async def alisten(event: Event) -> None:
        await asyncio.sleep(0)
        listen(event)

    return alisten if is_async else listen


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("kind", [TextDelta, ModelReplied, ToolStarted, ToolFinished, RunFinished])
def test_a_listener_that_raises_ends_the_run_or_is_reported(
    kind: type, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    session, seen = Session(), list[Event]()
    with raises(ValueError, args=(f"cannot show {kind.__name__}",)):
        scripted().run_sync("x", session=session, on_event=failing(kind, seen, is_async))
    assert valid(session.conversation)
    whole: list[Event] = []
    with caplog.at_level(logging.WARNING, "agentkit"):
        result = scripted().run_sync("x", on_event=failing(kind, whole, is_async), on_event_error="report")
    assert result.output == "All done now."
    failed = [event for event in whole if isinstance(event, kind)]
    assert [str(error) for error in result.listener_errors] == [f"cannot show {kind.__name__}"] * len(failed)
    assert sum("a listener failed" in record.message for record in caplog.records) == len(failed)
    assert kinds(whole)[-1] is RunFinished


def test_the_first_errors_of_a_listener_are_listed_and_all_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    deltas: list[Event] = []
    with caplog.at_level(logging.WARNING, "agentkit"):
        result = Agent(ScriptedModel(["word " * 500])).run_sync(
            "x", on_event=failing(TextDelta, deltas, False), on_event_error="report"
        )
    assert len(result.listener_errors) == 16
    failures = [record for record in caplog.records if "a listener failed" in record.message]
    assert len(failures) == sum(isinstance(event, TextDelta) for event in deltas) > 16
    assert sum(record.exc_info is not None for record in failures) == 16
    assert "cannot show TextDelta" in failures[-1].message


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_a_stream_shows_every_event_also_when_its_listener_fails(is_async: bool) -> None:
    seen: list[Event] = []
    options: Any = {"on_event": failing(ToolStarted, [], is_async), "on_event_error": "report"}
    seen += [event async for event in scripted().stream("x", **options)]
    plain: list[Event] = []
    await scripted().run("x", on_event=plain.append)
    assert kinds(seen) == kinds(plain)
    threaded = await asyncio.to_thread(lambda: list(scripted().stream_sync("x", **options)))
    assert kinds(threaded) == kinds(plain)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_listener_that_raises_at_an_event_of_an_inner_agent_ends_the_outer_run(is_async: bool) -> None:
    inner = Agent(ScriptedModel(["inner"])).as_tool(name="ask", description="Asks.")
    outer = Agent(ScriptedModel([calling(("ask", {"input": "x"})), "done"]), tools=[inner])
    with raises(ValueError, args=("cannot show Nested",)):
        outer.run_sync("x", on_event=failing(Nested, [], is_async))


def test_a_listener_that_hangs_counts_in_the_seconds_of_the_run() -> None:
    async def hang(event: Event) -> None:
        if isinstance(event, ToolFinished):
            await asyncio.Event().wait()

    agent, session = scripted().with_changes(limits=Limits(seconds=60)), Session()
    with controlled_time() as clock, pytest.raises(LimitExceeded) as caught:
        agent.run_sync("x", on_event=hang, session=session)
    assert caught.value.limit == "seconds"
    assert clock.seconds == pytest.approx(60)
    assert valid(session.conversation) and roles(session.conversation) == "user assistant tool"


@pytest.mark.parametrize("given", [{"on_event": 3}, {"on_event_error": "ignore"}])
def test_a_value_that_is_not_a_listener_is_refused(given: Any) -> None:
    with pytest.raises(TypeError):
        scripted().run_sync("x", **{"on_event": print, **given})


def test_an_unknown_rule_for_errors_of_a_listener_is_refused() -> None:
    with pytest.raises(TypeError):
        scripted().run_sync("x", on_event_error="report")
    assert scripted().run_sync("x", on_event=None, on_event_error="report").output
    assert [*scripted().stream_sync("x", on_event_error="report")]


def test_closing_a_sync_stream_cancels_a_run_without_events() -> None:
    ended: list[bool] = []

    @tool
    async def linger() -> str:
        """Waits."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)
        return ""

    events = Agent(ScriptedModel([calling("linger")]), tools=[linger]).stream_sync("x")
    while not isinstance(next(events), ToolStarted):
        pass
    events.close()
    assert ended == [True]


def test_a_listener_may_return_an_awaitable_for_some_events_only() -> None:
    plain: list[Event] = []
    mixed: list[Event] = []
    scripted().run_sync("x", on_event=plain.append)

    async def later(event: Event) -> None:
        mixed.append(event)

    def listen(event: Event) -> Any:
        return later(event) if isinstance(event, ToolStarted) else mixed.append(event)  # type: ignore[func-returns-value]

    scripted().run_sync("x", on_event=listen)
    assert kinds(mixed) == kinds(plain)


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_panic_of_a_listener_is_reported_or_ends_the_stream(is_async: bool) -> None:
    def handle(event: Event) -> None:
        raise Panic(type(event).__name__)

    async def handle_later(event: Event) -> None:
        await asyncio.sleep(0)
        handle(event)

    listener: Any = handle_later if is_async else handle
    result = await scripted().run("x", on_event=listener, on_event_error="report")
    assert {type(error) for error in result.listener_errors} == {Panic}
    with pytest.raises(Panic):
        async for _ in scripted().stream("x", on_event=listener):
            pass
    with pytest.raises(Panic):
        list(scripted().stream_sync("x", on_event=listener))


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, Stop])
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("errors", ["raise", "report"])
def test_a_listener_that_ends_the_program_during_progress_of_a_tool_ends_the_run(
    error: type[BaseException], is_async: bool, errors: Any
) -> None:
    @tool
    def count(context: ToolContext[None]) -> str:
        """Count."""
        context.progress("half")
        return "1 2"

    @tool
    async def sing(context: ToolContext[None]) -> str:
        """Sing."""
        await asyncio.sleep(0)
        context.progress("half")
        return "la"

    def handle(event: Event) -> None:
        if isinstance(event, ToolProgress):
            raise error("now")

    async def handle_later(event: Event) -> None:
        await asyncio.sleep(0)
        handle(event)

    agent = Agent(ScriptedModel([calling("sing", "count", "sing"), "done"]), tools=[count, sing])
    with raises(error, args=("now",)) as caught:
        agent.run_sync("go", on_event=handle_later if is_async else handle, on_event_error=errors)
    result = agent.resume_sync(caught.value.journal)  # type: ignore[attr-defined]
    assert result.output == "done" and valid(result.messages)
