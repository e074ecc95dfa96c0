"""Cancellation, anywhere in a run: the task ends, no task remains, the history stays valid."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress

import pytest

from agentkit import Agent, ScriptedModel, Session, ToolCall, tool
from agentkit.run.journal.journal_file import JournalWriter
from tests.runtime.scripts import Forgetful, Library, Never, calling, roles, valid
from tests.waiting import LONG, eventually


async def quick() -> str:
    """Be quick."""
    return "quick"


async def cancelled(run: asyncio.Task[object]) -> asyncio.CancelledError:
    run.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await run
    assert asyncio.all_tasks() == {asyncio.current_task()}
    return caught.value


async def test_during_the_request_of_the_model() -> None:
    session, model = Session(), Never()
    run = asyncio.create_task(Agent(model).run("go", session=session))
    await model.asked.wait()
    await cancelled(run)
    assert roles(session.conversation) == "user"


async def test_in_the_middle_of_tool_calls_finished_results_stay_and_other_calls_are_marked() -> None:
    running, ended = asyncio.Event(), asyncio.Event()

    async def linger() -> str:
        """Wait."""
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    @tool(sequential=True)
    async def later() -> str:
        """Come later."""
        raise AssertionError("must not run")

    session = Session()
    model = ScriptedModel([calling("quick", "linger", "missing", "later"), "never"])
    agent = Agent(model, tools=[quick, linger, later])
    run = asyncio.create_task(agent.run("go", session=session))
    await running.wait()
    await asyncio.sleep(0)
    await cancelled(run)
    assert ended.is_set()
    assert valid(session.conversation)
    assert roles(session.conversation) == "user assistant tool tool tool tool"
    done, stopped, unknown, never = [message.text for message in session.conversation[2:]]
    assert done == "quick"
    assert stopped == "linger was cancelled with the run. It may still have had an effect."
    assert unknown.startswith("Unknown tool 'missing'; valid names: ")
    assert never == "later was not called: the run was cancelled first."
    follow_up = ScriptedModel(["I see."])
    Agent(follow_up).run_sync("What happened?", session=session)
    assert len(follow_up.requests[0].messages) == 7  # no message had to be removed as an orphan


async def test_during_a_sequential_tool() -> None:
    running = asyncio.Event()

    async def linger() -> str:
        """Wait."""
        running.set()
        await asyncio.Event().wait()
        return ""

    session = Session()
    run = asyncio.create_task(Agent(ScriptedModel([calling("linger")]), tools=[linger]).run("go", session=session))
    await running.wait()
    await cancelled(run)
    assert valid(session.conversation) and roles(session.conversation) == "user assistant tool"


async def test_during_a_sync_tool_in_its_thread() -> None:
    running, go = threading.Event(), threading.Event()

    def linger() -> str:
        """Wait."""
        running.set()
        go.wait(LONG)
        return ""

    session = Session()
    run = asyncio.create_task(Agent(ScriptedModel([calling("linger")]), tools=[linger]).run("go", session=session))
    await asyncio.to_thread(running.wait)
    await cancelled(run)
    go.set()
    assert valid(session.conversation) and "may still have had an effect" in session.conversation[-1].text


async def test_a_tool_that_ignores_its_cancellation_does_not_stop_the_cancellation_of_the_run() -> None:
    running = asyncio.Event()

    async def stubborn() -> str:
        """Stay."""
        running.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "still here"

    session = Session()
    run = asyncio.create_task(Agent(ScriptedModel([calling("stubborn")]), tools=[stubborn]).run("go", session=session))
    await running.wait()
    await cancelled(run)
    assert valid(session.conversation) and roles(session.conversation) == "user assistant tool"


async def test_during_an_approval() -> None:
    asking = asyncio.Event()

    async def approve(call: ToolCall) -> bool:
        asking.set()
        await asyncio.Event().wait()
        return True

    session = Session()
    guarded = tool(approval="always")(quick)
    agent = Agent(ScriptedModel([calling("quick")]), tools=[guarded])
    run = asyncio.create_task(agent.run("go", session=session, approve=approve))
    await asking.wait()
    await cancelled(run)
    assert roles(session.conversation) == "user"


async def test_during_the_recall() -> None:
    go = threading.Event()

    class Slow(Library):
        def recall(self, query: str) -> tuple[()]:
            go.wait(LONG)
            return ()

    session = Session()
    run = asyncio.create_task(Agent(ScriptedModel([]), memory=Slow()).run("go", session=session))
    await asyncio.sleep(0.01)
    await cancelled(run)
    go.set()
    assert len(session.conversation) == 0


async def test_results_that_cannot_be_stored_are_notes_of_the_cancellation() -> None:
    running = asyncio.Event()

    async def linger() -> str:
        """Wait."""
        running.set()
        await asyncio.Event().wait()
        return ""

    session = Forgetful(good=1)
    run = asyncio.create_task(Agent(ScriptedModel([calling("linger")]), tools=[linger]).run("go", session=session))
    await running.wait()
    run.cancel()
    noted: list[str] = []
    try:
        await run
    except asyncio.CancelledError as error:
        while error is not None:
            noted += getattr(error, "__notes__", [])
            error = error.__context__  # type: ignore[assignment]
    assert any("could not be stored: OSError: the disk is gone" in note for note in noted)
    assert roles(session.conversation) == "user"


async def test_cancellation_while_the_journal_is_closed() -> None:
    """The end of a cancelled run is the end of its journal: a resumed run finds the file unlocked."""
    closing, closed = threading.Event(), threading.Event()

    def close() -> None:
        closing.set()
        time.sleep(0.05)
        closed.set()

    writer = JournalWriter(lambda line: None, close)
    run = asyncio.create_task(Agent(ScriptedModel(["ok"])).run("go", journal=writer))
    await eventually(closing.is_set)
    await cancelled(run)
    assert closed.is_set()


async def test_two_cancellations_in_a_row() -> None:
    running = asyncio.Event()

    async def slow_to_leave() -> str:
        """Clean up."""
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
        return ""

    session = Session()
    agent = Agent(ScriptedModel([calling("slow_to_leave", "quick")]), tools=[slow_to_leave, quick])
    run = asyncio.create_task(agent.run("go", session=session))
    await running.wait()
    run.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await eventually(lambda: asyncio.all_tasks() == {asyncio.current_task()})
    assert valid(session.conversation)


async def test_before_the_start() -> None:
    session = Session()
    run = asyncio.create_task(Agent(ScriptedModel(["never"])).run("go", session=session))
    await cancelled(run)
    assert len(session.conversation) == 0
    assert (await Agent(ScriptedModel(["ok"])).run("again", session=session)).output == "ok"
