"""Messages to a durable run: received once and in order, even if workers stop, or refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentkit import Agent, Paused, Runs, ScriptedModel, Session, ToolCall
from agentkit.cli.app import app
from agentkit.durable import DurableError, RunCancelled, RunNotFound
from agentkit.errors import AgentDefinitionError, RunEnded
from agentkit.inbox import MessageReceived
from agentkit.memory import Memory
from tests.lookout import Lookout
from tests.raising import raises
from tests.waiting import LONG, eventually

Working = Callable[..., Runs]
PAY = ToolCall(name="pay", arguments={})


async def test_a_running_run_receives_messages_in_order(working: Working) -> None:
    lookout = Lookout(ToolCall(name="look", arguments={}), "Both.", "Bye.")
    working(lookout.agent)
    handle = await lookout.agent.start("Is a there?", run_id="r")
    await eventually(lookout.calls.is_set)
    await handle.send("And b?", by="ada", key="1")
    await handle.send("And b?", by="ada", key="1")  # sent again, such as after a lost answer
    await handle.send("And c?", by="bob")
    await handle.send("Thanks.", when="idle")
    with pytest.raises(DurableError):
        await handle.send("Another.", by="ada", key="1")
    invalid: Any = 7
    for key in ("", invalid):
        with pytest.raises(AgentDefinitionError):
            await handle.send("Another.", key=key)
    assert [sent.message.text for sent in await handle.unread()] == ["And b?", "And c?", "Thanks."]
    lookout.go.set()
    ended = await handle.result(timeout=LONG)
    texts = [message.text for message in ended.messages]
    assert texts == ["Is a there?", "", "there", "And b?", "And c?", "Both.", "Thanks.", "Bye."]
    assert (ended.output, await handle.unread()) == ("Bye.", [])
    received = [event.sent async for event in handle.events() if isinstance(event, MessageReceived)]
    assert [(sent.by, sent.when) for sent in received] == [("ada", "next_step"), ("bob", "next_step"), ("", "idle")]
    with pytest.raises(RunEnded) as refused:
        await handle.send("Too late.")
    assert (refused.value.state, await handle.unread()) == ("finished", [])
    with pytest.raises(RunNotFound):
        await lookout.agent.runs.handle("other").send("Hello?")  # type: ignore[union-attr]


async def test_a_waiting_run_receives_a_message_after_the_decision(working: Working) -> None:
    lookout = Lookout(PAY, "Done.")
    working(lookout.agent)
    handle = await lookout.agent.start("Pay.")
    with pytest.raises(Paused):
        await handle.result(timeout=LONG)
    await handle.send("Quickly.")
    await handle.approve(by="ada")
    ended = await handle.result(timeout=LONG)
    assert [message.text for message in ended.messages] == ["Pay.", "", "paid", "Quickly.", "Done."]


async def test_a_message_to_a_cancelled_run_is_refused_and_an_earlier_message_waits(working: Working) -> None:
    lookout = Lookout(PAY, "Done.")
    working(lookout.agent)
    handle = await lookout.agent.start("Pay.")
    with pytest.raises(Paused):
        await handle.result(timeout=LONG)
    await handle.send("Quickly.")
    await handle.cancel()
    with pytest.raises(RunEnded):
        await handle.send("Hello?")
    assert [sent.message.text for sent in await handle.unread()] == ["Quickly."]
    await handle.resume()
    with pytest.raises(Paused):
        await handle.result(timeout=LONG)
    await handle.approve()
    assert "Quickly." in [message.text for message in (await handle.result(timeout=LONG)).messages]


async def test_a_message_that_arrives_before_the_end_is_stored_is_received(working: Working, runs: Runs) -> None:
    sent: list[str] = []

    async def deps(caller: Any) -> AsyncIterator[str]:
        yield "deps"
        # After the last step of the run, and before its end is stored.
        if not sent:
            sent.append(caller.run_id)
            await runs.handle(caller.run_id).send("One more.")

    agent = Agent(ScriptedModel(["One.", "Two."]), name="racing").with_deps(deps)
    working(agent)
    ended = await (await agent.start("Go.")).result(timeout=LONG)
    assert [message.text for message in ended.messages] == ["Go.", "One.", "One more.", "Two."]
    assert ended.output == "Two."


async def test_the_reason_of_a_cancellation_is_in_the_session(working: Working, tmp_path: Path) -> None:
    memory = Memory(tmp_path / "memory")
    lookout = Lookout(ToolCall(name="look", arguments={}), PAY, "Sorry.")
    agent = lookout.agent.with_changes(memory=memory)
    runs = working(agent)
    handle = await agent.start("Look.", session=memory.session("s"))
    await eventually(lookout.calls.is_set)
    invoke = CliRunner().invoke
    url = runs.store.url.render_as_string(hide_password=False)
    assert invoke(app, ["runs", "cancel", handle.run_id, "--url", url, "--reason", "wrong shop"]).exit_code == 0
    lookout.go.set()
    with raises(RunCancelled, reason="wrong shop"):
        await handle.result(timeout=LONG)

    def notes() -> list[str]:
        texts = [message.text for message in memory.session("s").conversation]
        return [text for text in texts if "wrong" in text]

    await eventually(lambda: "The run was cancelled: wrong shop" in notes())
    # A waiting run has no attempt: the process that cancels it stores the reason.
    waiting = await agent.start("Pay.", session=memory.session("s"))
    with pytest.raises(Paused):
        await waiting.result(timeout=LONG)
    await waiting.cancel("wrong price")
    assert notes()[-1] == "The run was cancelled: wrong price"
    assert (await waiting.info()).reason == "wrong price"
    # The run was resumed, and is cancelled again.
    await waiting.resume()
    with pytest.raises(Paused):
        await waiting.result(timeout=LONG)
    invalid: Any = 7
    with pytest.raises(AgentDefinitionError):
        await waiting.cancel(invalid)
    await waiting.cancel("wrong day")
    assert notes()[-1] == "The run was cancelled: wrong day"
    memory.close()


async def test_a_session_that_cannot_be_opened_does_not_hide_a_cancellation(
    runs: Runs, caplog: pytest.LogCaptureFixture
) -> None:
    is_away = False

    def sessions(name: Any) -> Session:
        if is_away:
            raise OSError("the disk is away")
        return Session(name.id)

    agent = Agent(ScriptedModel(["Done."]), name="away")
    runs.add(agent, sessions=sessions)
    handle = await agent.start("Go.", session=Session("s"))
    is_away = True
    await handle.cancel("wrong shop")
    info = await handle.info()
    assert (info.state, info.reason) == ("cancelled", "wrong shop")
    assert "the disk is away" in caplog.text


async def test_a_message_is_sent_by_a_command(working: Working) -> None:
    lookout = Lookout(PAY, "Done.")
    runs = working(lookout.agent)
    handle = await lookout.agent.start("Pay.")
    with pytest.raises(Paused):
        await handle.result(timeout=LONG)
    url = runs.store.url.render_as_string(hide_password=False)
    sent = CliRunner().invoke(app, ["runs", "send", handle.run_id, "Quickly.", "--url", url, "--by", "ada", "--json"])
    assert sent.exit_code == 0, sent.output
    assert ((await handle.info()).unread, [one.by for one in await handle.unread()]) == (1, ["ada"])
    await handle.approve()
    await handle.result(timeout=LONG)
    shown = CliRunner().invoke(app, ["runs", "show", handle.run_id, "--url", url])
    assert "ada: Quickly." in shown.output
