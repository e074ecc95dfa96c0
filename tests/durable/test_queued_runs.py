"""The order in which waiting runs start, and the records of inner agents."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from agentkit import Agent, Composition, Message, Runs, ScriptedModel, ToolCall, tool
from agentkit.cli.app import app
from agentkit.durable import RunCancelled, RunNotFound
from tests.waiting import LONG, eventually

Working = Callable[..., Runs]


async def test_runs_start_by_their_priority_and_not_before_their_delay(runs: Runs) -> None:
    begun: list[str] = []

    def reply(sent: Composition) -> str:
        begun.append(sent.user.text)
        return "ok"

    agent = Agent(ScriptedModel.repeat(reply), name="quick")
    runs.add(agent)
    handles = [
        await agent.start("later", delay=0.5, priority=1),
        await agent.start("first come"),
        await agent.start("last", priority=101),
        await agent.start("urgent", priority=1),
    ]
    assert [(await handle.info()).state for handle in handles] == ["queued"] * 4
    with runs.worker(concurrency=1, poll=0.1, grace=0):
        for handle in handles:
            await handle.result(timeout=LONG)
    assert [one for one in begun if one != "later"] == ["urgent", "first come", "last"]
    info = await handles[0].info()
    assert info.updated_at - info.created_at >= 0.5


async def test_the_inner_agents_of_a_run_are_listed_and_cancelled_with_it(working: Working, url: str) -> None:
    begun, cancelled = list[str](), list[str]()

    @tool(timeout=600)
    async def fetch(name: str) -> str:
        """Fetch something."""
        begun.append(name)
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            cancelled.append(name)
            raise
        return f"{name} is here"

    def fetching(sent: Composition) -> Message:
        return Message("assistant", tool_calls=(ToolCall("f", "fetch", f'{{"name": "{sent.user.text}"}}'),))

    helper = Agent(ScriptedModel.repeat(fetching), tools=[fetch], name="helper")
    asked = [ToolCall(name, "help", f'{{"input": "{name}"}}') for name in ("Ada", "Bob")]
    script = ScriptedModel([Message("assistant", tool_calls=tuple(asked))])
    outer = Agent(script, tools=[helper.as_tool(name="help", description="Helps.")], name="outer")
    working(outer, worker={"lease": 1.0})
    handle = await outer.start("Go.")
    await eventually(lambda: len(begun) >= 2)
    inner = (await handle.journal()).inner
    asked_for = {name: [entry.effect for entry in one.entries].count("CallModel") for name, one in inner.items()}
    assert asked_for == {"Ada": 1, "Bob": 1}
    shown = await asyncio.to_thread(CliRunner().invoke, app, ["runs", "show", handle.run_id, "--url", url])
    for name in ("Ada", "Bob"):
        call = f'model calls fetch {{"name": "{name}"}} (f)'
        assert f'model calls help {{"input": "{name}"}} ({name})\n  user: {name}\n  {call}\n' in shown.stdout
    await handle.cancel()
    with pytest.raises(RunCancelled):
        await handle.result(timeout=LONG)
    await eventually(lambda: len(cancelled) >= 2)
    assert sorted(cancelled) == ["Ada", "Bob"]


async def test_decisions_are_shown_with_their_person_also_of_inner_agents(working: Working, url: str) -> None:
    @tool(approval="always")
    def pay(amount: int) -> str:
        """Pay a person."""
        return f"paid {amount}"

    asks = tuple([ToolCall(id, "pay", f'{{"amount": {amount}}}') for id, amount in (("a", 3), ("b", 4), ("c", 5))])
    clerk = Agent(ScriptedModel.repeat(_then_answer(asks[2:])), tools=[pay], name="clerk")
    inside = ToolCall("d", "clerk", '{"input": "Pay."}')
    outer = Agent(
        ScriptedModel.repeat(_then_answer((*asks[:2], inside))),
        tools=[pay, clerk.as_tool(name="clerk", description="Pays.")],
        name="payer",
    )
    runs = working(outer)
    handle = await outer.start("Go.", run_id="bills")
    waiting = 0
    while (await handle.info()).state != "finished":  # the calls of the inner agent may wait a moment later
        for call in (await handle.info()).waiting:
            waiting += 1
            if call.call_id == "a":
                await handle.approve("a", by="ada")
            elif call.call_id == "b":
                await handle.deny("b", "too much", by="bob")
            else:
                assert (call.call_id, call.agent) == ("d/c", "clerk")
                await handle.approve("d/c", {"amount": 6}, by="eve")
        await asyncio.sleep(0.02)
    decided = {call.call_id: call for call in await runs.handle("bills").decided()}
    assert {id: call.decided_by for id, call in decided.items()} == {"a": "ada", "b": "bob", "d/c": "eve"}
    assert all(call.decided_at is not None and call.decided_at >= call.asked_at for call in decided.values())
    shown = await asyncio.to_thread(CliRunner().invoke, app, ["runs", "show", "bills", "--url", url])
    for line in ("approved a by ada", "denied b by bob: too much", '  approved c by eve, to run with {"amount": 6}'):
        assert f"\n{line}\n" in shown.stdout, shown.stdout
    written = await asyncio.to_thread(CliRunner().invoke, app, ["runs", "show", "bills", "--url", url, "--json"])
    data = json.loads(written.stdout)["decided"]
    assert {one["call_id"]: (one["decided_by"], one["decision"]) for one in data} == {
        "a": ("ada", {"approve": True, "reason": "", "arguments": None}),
        "b": ("bob", {"approve": False, "reason": "too much", "arguments": None}),
        "d/c": ("eve", {"approve": True, "reason": "", "arguments": {"amount": 6}}),
    }
    with pytest.raises(RunNotFound):
        await runs.handle("nothing").decided()


def _then_answer(calls: tuple[ToolCall, ...]) -> Callable[[Composition], Message]:
    def reply(sent: Composition) -> Message:
        return Message("assistant", "done") if len(sent.intermediate) else Message("assistant", tool_calls=calls)

    return reply
