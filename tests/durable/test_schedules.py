"""Runs that begin by the clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from agentkit import Agent, Runs, ScriptedModel
from agentkit.durable import DurableError

Working = Callable[..., Runs]


async def test_a_schedule_begins_a_run_each_time_it_is_due_until_it_is_deleted(working: Working) -> None:
    agent = Agent(ScriptedModel.repeat(lambda sent: f"did {sent.user.text}"), "You work.", name="nightly")
    runs = working(agent)
    await runs.schedule(agent, "the old work", name="often", cron="0 0 1 1 *")
    await runs.schedule("nightly", "the work", name="often", cron="* * * * * *", tenant="acme", priority=7)
    (known,) = await runs.schedules()
    assert (known.name, known.agent, known.cron, known.timezone) == ("often", "nightly", "* * * * * *", "UTC")
    end = time.monotonic() + 60
    while len(found := await runs.list_runs(tenant="acme", state="finished")) < 2:
        assert time.monotonic() < end
        await asyncio.sleep(0.1)
    await runs.unschedule("often")
    assert await runs.schedules() == []
    assert len({info.run_id for info in found}) == len(found)
    for info in found:
        assert info.run_id.startswith("often/20") and (await runs.handle(info.run_id).result()).output == "did the work"


async def test_what_can_never_be_due_is_refused_and_nothing_is_stored(runs: Runs) -> None:
    agent = Agent(ScriptedModel.repeat("ok"), name="nightly")
    runs.add(agent)
    with pytest.raises(DurableError, match=r"cron='never': .*; timezone='Mars/X': .*; nothing was stored"):
        await runs.schedule(agent, "work", name="a", cron="never", timezone="Mars/X")
    with pytest.raises(DurableError, match="delay, run_id: each run has its own"):
        await runs.schedule(agent, "work", name="a", cron="* * * * *", run_id="x", delay=3)
    with pytest.raises(DurableError, match="there is no agent 'nigthly'; did you mean 'nightly'"):
        await runs.schedule("nigthly", "work", name="a", cron="* * * * *")
    with pytest.raises(DurableError, match="there is no schedule 'a'"):
        await runs.unschedule("a")
    assert await runs.schedules() == []
