"""A PostgreSQL server that restarts under durable runs: no run is lost or executed twice, and the log stays short."""

from __future__ import annotations

import logging
import os
import threading
from typing import Any

import pytest
from sqlalchemy import event

from agentkit import Agent, Message, Runs, ScriptedModel, ToolCall, ToolContext, tool
from tests.postgres import stopped
from tests.waiting import LONG, eventually

pytestmark = pytest.mark.long


async def test_a_restart_loses_and_repeats_no_waiting_running_or_queued_run(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("agentkit.runs.run_database._RECONNECT_SECONDS", 0.1)
    monkeypatch.setattr("agentkit.durable.takeover._MIN_SECONDS_ORPHANED", 0.1)
    acts, goes_on = list[str](), threading.Event()
    keys: set[str] = set()

    def act(what: str, context: ToolContext[None]) -> str:
        if context.idempotency_key not in keys:
            keys.add(context.idempotency_key)
            acts.append(what)
        return what

    @tool(approval="always")
    def pay(context: ToolContext[None]) -> str:
        """Pay."""
        return act("paid", context)

    @tool(timeout=600)
    def hold(context: ToolContext[None]) -> str:
        """Hold until the database is back."""
        act("held", context)
        goes_on.wait(LONG)
        return "held"

    def reply(sent: Any) -> Message:
        if len(sent.intermediate):
            return Message("assistant", sent.intermediate[-1].text)
        return Message("assistant", tool_calls=(ToolCall("c", sent.user.text, "{}"),))

    tries: list[Any] = []
    runs, agent = Runs(postgres_url), Agent(ScriptedModel.repeat(reply), tools=[pay, hold], name="restarts")
    runs.add(agent)
    name = f"restart-{os.getpid()}"
    with runs.worker(lease=1, poll=0.1, grace=0):
        waits = await agent.start("pay", run_id=f"{name}/waits")
        holds = await agent.start("hold", run_id=f"{name}/holds")
        queued = await agent.start("pay", run_id=f"{name}/queued", delay=1.0)
        await eventually(lambda: runs.store.rows.get(waits.run_id).state == "waiting" and acts)
        caplog.clear()
        logging.getLogger("dbos").addHandler(caplog.handler)  # it does not propagate its records
        for engine in (runs.store.engine, runs.store._open().leases):
            event.listen(engine, "do_connect", lambda *arguments: tries.append(arguments))
        with stopped(postgres_url), caplog.at_level(logging.WARNING):
            goes_on.set()
            await eventually(lambda: len(tries) >= 60)
            lines = len(caplog.records)
        logging.getLogger("dbos").removeHandler(caplog.handler)
        assert lines < 25, caplog.text
        await eventually(lambda: runs.store.rows.get(queued.run_id).state == "waiting")
        for handle in (waits, queued):
            await handle.approve()
        outputs = [(await handle.result(timeout=LONG)).output for handle in (waits, holds, queued)]
    assert outputs == ["paid", "held", "paid"]
    assert sorted(acts) == ["held", "paid", "paid"]
    runs.close()
