"""Controlled time: limits, retries and delays take no real time, and real work still gets the time it needs."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from contextlib import suppress
from itertools import pairwise

import pytest

from agentkit import Agent, LimitExceeded, Limits, ScriptedModel, Session, TextDelta, tool
from agentkit.errors import AgentDefinitionError
from agentkit.models import ModelInterrupted
from agentkit.testing import CutOff, Delayed, controlled_time
from tests.raising import raises
from tests.runtime.scripts import calling, valid

DAY = 86_400.0


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give threads as much real time as a busy machine needs."""
    monkeypatch.setattr(sys.modules[controlled_time.__module__], "_PATIENCE", 3.0)


def test_a_model_that_takes_a_day_is_cancelled_at_the_limit_of_the_run() -> None:
    agent = Agent(ScriptedModel([Delayed(DAY, "late")]), limits=Limits(seconds=60))
    with controlled_time() as clock, pytest.raises(LimitExceeded) as caught:
        agent.run_sync("x")
    assert caught.value.limit == "seconds"
    assert 60 <= clock.seconds < 120


def test_a_delay_within_the_limit_is_awaited() -> None:
    agent = Agent(ScriptedModel([Delayed(DAY, "late")]), limits=Limits(seconds=2 * DAY))
    with controlled_time() as clock:
        assert agent.run_sync("x").output == "late"
    assert clock.seconds == pytest.approx(DAY)


def test_the_pauses_between_the_attempts_of_a_tool_take_no_real_time() -> None:
    tries: list[float] = []

    @tool(retries=3, backoff=10.0)
    async def flaky() -> str:
        """Works at the fourth try."""
        tries.append(asyncio.get_running_loop().time())
        if len(tries) < 4:
            raise ConnectionError("not yet")
        return "done"

    with controlled_time() as clock:
        result = Agent(ScriptedModel([calling("flaky"), "ok"]), tools=[flaky]).run_sync("x")
    assert result.messages[2].text == "done"
    assert [round(later - earlier) for earlier, later in pairwise(tries)] == [10, 20, 30]
    assert clock.seconds == pytest.approx(60)


def test_a_tool_that_never_answers_ends_at_its_time_limit() -> None:
    @tool(timeout=600)
    async def hang() -> str:
        """Never answers."""
        await asyncio.Event().wait()
        return ""

    with controlled_time() as clock:
        result = Agent(ScriptedModel([calling("hang"), "ok"]), tools=[hang]).run_sync("x")
    assert "600" in result.messages[2].text
    assert clock.seconds == pytest.approx(600)


def test_a_thread_gets_real_time_to_answer_and_a_thread_that_hangs_is_cancelled() -> None:
    released = threading.Event()

    @tool(timeout=600)
    def work() -> str:
        """Takes real time."""
        time.sleep(0.05)
        return "worked"

    @tool(timeout=600)
    def hang() -> str:
        """Never answers."""
        released.wait(60)
        return ""

    try:
        with controlled_time():
            result = Agent(ScriptedModel([calling("work", "hang"), "ok"]), tools=[work, hang]).run_sync("x")
    finally:
        released.set()
    assert result.messages[2].text == "worked"
    assert "600" in result.messages[3].text


async def test_the_running_loop_is_controlled_and_has_real_time_after_the_block() -> None:
    loop = asyncio.get_running_loop()
    with controlled_time() as clock:
        began = loop.time()
        await asyncio.sleep(DAY)
        assert loop.time() - began == pytest.approx(DAY)
        clock.advance(5)
        assert loop.time() - began == pytest.approx(DAY + 5)
        assert await asyncio.to_thread(lambda: "a thread") == "a thread"
    assert loop.time() == pytest.approx(time.monotonic(), abs=DAY / 2)
    await asyncio.sleep(0)


async def test_an_agent_in_a_controlled_loop_and_an_agent_in_its_tool_share_the_clock() -> None:
    inner = Agent(ScriptedModel([Delayed(DAY, "inner")]))

    @tool(timeout=2 * DAY)
    def ask() -> str:
        """Asks another agent."""
        return str(inner.run_sync("x").output)

    with controlled_time() as clock:
        result = await Agent(ScriptedModel([calling("ask"), "ok"]), tools=[ask]).run("x")
    assert result.messages[2].text == "inner"
    assert clock.seconds == pytest.approx(DAY)


def test_time_is_controlled_by_one_block_at_a_time_and_moves_forward_only() -> None:
    with controlled_time() as clock:
        with pytest.raises(RuntimeError), controlled_time():
            pass
        with pytest.raises(ValueError):
            clock.advance(-1)
    with controlled_time():
        assert Agent(ScriptedModel(["again"])).run_sync("x").output == "again"


def test_a_reply_that_is_interrupted_streams_its_text_first() -> None:
    heard: list[str] = []
    agent = Agent(ScriptedModel([Delayed(3, CutOff("Half an ans"))]))
    with controlled_time(), pytest.raises(ModelInterrupted) as caught:
        for event in agent.stream_sync("x"):
            heard += [event.text] if isinstance(event, TextDelta) else []
    assert "".join(heard) == caught.value.text == "Half an ans"
    with raises(ModelInterrupted, text="Half"):
        Agent(ScriptedModel([CutOff("Half")])).run_sync("x")


def test_an_invalid_delay_in_a_script_is_refused() -> None:
    for delayed, name in (
        (Delayed(-1, "x"), "seconds"),
        (Delayed(float("nan"), "x"), "seconds"),
        (Delayed(1, Delayed(2, "x")), "replies"),  # type: ignore[arg-type]
    ):
        with raises(AgentDefinitionError, name=name):
            ScriptedModel([delayed])


def test_a_timeout_inside_of_a_tool_does_not_end_the_tool() -> None:
    @tool(timeout=600)
    async def work() -> str:
        """Stops an inner wait after a timeout, and continues."""
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await asyncio.sleep(DAY)
        await asyncio.sleep(300)
        return "worked"

    agent = Agent(ScriptedModel([calling("work"), "ok"]), tools=[work], limits=Limits(seconds=1_000))
    with controlled_time() as clock:
        assert agent.run_sync("x").messages[2].text == "worked"
    assert clock.seconds == pytest.approx(301)


def test_a_tool_has_time_to_clean_up_when_it_is_cancelled() -> None:
    cleaned: list[str] = []

    @tool
    async def work() -> str:
        """Cleans up, for longer and longer."""
        try:
            await asyncio.sleep(DAY)
        finally:
            await asyncio.sleep(1)
            cleaned.append("a second")
            await asyncio.sleep(10)
            cleaned.append("too long")
        return ""

    session = Session()
    agent = Agent(ScriptedModel([calling("work")]), tools=[work], limits=Limits(seconds=10))
    with controlled_time() as clock, pytest.raises(LimitExceeded):
        agent.run_sync("x", session=session)
    assert cleaned == ["a second"]
    assert clock.seconds == pytest.approx(12)
    assert valid(session.conversation)
    assert "cancelled with the run" in session.conversation[2].text


def test_a_tool_that_hangs_next_to_a_finished_tool_loses_no_result() -> None:
    @tool
    async def stubborn() -> str:
        """Swallows cancellation."""
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(DAY)

    @tool(sequential=True)
    async def done() -> str:
        """Answers."""
        return "done"

    session = Session()
    script = [calling("done", "stubborn", "stubborn", "done")]
    agent = Agent(ScriptedModel(script), tools=[stubborn, done], limits=Limits(seconds=10, on_limit="return"))
    with controlled_time() as clock:
        result = agent.run_sync("x", session=session)
    assert result.limit is not None and result.limit.limit == "seconds"
    assert [message.text[:4] for message in session.conversation[2:]] == ["done", "stub", "stub", "done"]
    assert "was not called" in session.conversation[5].text
    assert tuple(session.conversation) == result.messages and valid(session.conversation)
    assert clock.seconds < 20
