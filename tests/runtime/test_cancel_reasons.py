"""A run that is cancelled with a reason: the next run of its session reads the reason."""

from __future__ import annotations

import asyncio

from agentkit import Agent, ScriptedModel, Session, TextDelta, ToolCall, ToolStarted, tool
from agentkit.testing import Delayed


async def test_the_results_of_calls_and_the_session_name_the_reason() -> None:
    @tool
    async def linger() -> str:
        """Take long."""
        await asyncio.sleep(600)
        return "late"

    agent = Agent(ScriptedModel([ToolCall(name="linger", arguments={}), "Sorry."]), tools=[linger])
    session = Session()
    stream = agent.stream("Look.", session=session)
    async for event in stream:
        if isinstance(event, ToolStarted):
            await asyncio.sleep(0)
            await stream.cancel("wrong shop")
    texts = [message.text for message in session.conversation]
    assert texts[0] == "Look." and texts[-1] == "The run was cancelled: wrong shop"
    assert "Reason: wrong shop" in texts[2]
    result = await agent.run("Go on.", session=session)
    shown = [message.text for message in result.composition.messages]
    assert shown[-2:] == ["The run was cancelled: wrong shop", "Go on."]


async def test_a_run_that_is_cancelled_in_a_reply_or_without_a_reason() -> None:
    for reason, notes in (("too long", ["The run was cancelled: too long"]), ("", [])):
        session = Session()
        stream = Agent(ScriptedModel([Delayed(60, "One two three.")])).stream("Count.", session=session)
        task = asyncio.ensure_future(anext(stream))
        await asyncio.wait([task])
        assert not isinstance(task.result(), TextDelta)
        await stream.cancel(reason)
        assert [message.text for message in session.conversation] == ["Count.", *notes]
