"""Clocks that jump: the clock of the database decides about shared rows, and monotonic clocks about waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from agentkit import Agent, Message, Runs, ScriptedModel, ToolCall, tool
from agentkit.runs.run_record import RunRecord
from tests.waiting import LONG, eventually

Working = Callable[..., Runs]
HOUR = 3600.0


@tool(approval="always")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def till(sent: Any) -> Message:
    if len(sent.intermediate):
        return Message("assistant", sent.intermediate[-1].text)
    return Message("assistant", tool_calls=(ToolCall("c", "pay", '{"amount": 3}'),))


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
async def test_a_worker_with_a_jumping_clock_expires_no_approval_and_stores_the_time_of_the_database(
    working: Working, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    agent, now = Agent(ScriptedModel.repeat(till), tools=[pay], name="till"), time.time
    runs = working(agent, worker={"lease": 10.0}, approval_timeout=600)
    rows = runs.store.rows
    handle = await agent.start("Pay.", run_id="r")
    await eventually(lambda: rows.get("r").state == "waiting")
    monkeypatch.setattr(time, "time", lambda: now() + jump)
    runs.store.queue.expire()
    (worker,) = await runs.workers()
    assert worker.is_alive and rows.get("r").state == "waiting"
    await handle.approve()
    assert (await handle.result(timeout=LONG)).output == "paid 3"
    await (await agent.start("Pay.", run_id="jumped")).cancel()
    for run_id in ("r", "jumped"):
        record = rows.get(run_id)
        assert abs(record.created_at - now()) < LONG > abs(record.updated_at - now()), run_id
    assert await runs.delete_ended(timedelta(minutes=30)) == 0
    assert await runs.delete_ended(timedelta(0)) == 2
    assert (await runs.workers())[0].is_alive


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_a_server_with_a_jumping_clock_keeps_runs_and_keys_for_their_time(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    rows, now = runs.store.rows, time.time
    monkeypatch.setattr(time, "time", lambda: now() + jump)
    moment = time.time()

    record = RunRecord(
        run_id="r", agent="a", state="queued", created_at=moment, updated_at=moment, tenant="t", user="u", key="k"
    )
    rows.add(record)
    attempt = rows.begin_attempt("r", worker="alive")
    assert attempt is not None
    rows.end_attempt(attempt, rows.get("r"))
    assert rows.young_keys("t") == 1
    rows.prune()
    assert rows.find("t", "u", "k") is not None
