"""A damaged row hides no other run, ends no worker, and is listed with its problem."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from agentkit import Agent, Runs, ScriptedModel
from agentkit.runs.run_record import RunsWanted
from tests.effort import spread
from tests.waiting import LONG, eventually

NO_UTF_8 = "CAST(x'ff' AS TEXT)"


def alter(url: str, statement: str) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database, database:
        assert database.execute(statement).rowcount == 1


@pytest.mark.parametrize(
    "change",
    spread(["updated_at = 'x'", "created_at = 9223372036854775807", "outcome = '[]'", f"usage = {NO_UTF_8}"], 2),
)
async def test_a_run_with_a_damaged_row_hides_no_other(runs: Runs, url: str, change: str) -> None:
    agent = Agent(ScriptedModel.repeat("x"), name="a")
    runs.add(agent)
    with runs.worker(poll=0.1, grace=0):
        for name in ("bad", "good"):
            await (await agent.start("Hi.", run_id=name)).result(timeout=LONG)
    alter(url, f"UPDATE agentkit_runs SET {change} WHERE run_id = 'bad'")
    listed = {one.run_id: one for one in await runs.list_runs()}
    assert listed.keys() == {"bad", "good"} and listed["good"].error is None
    assert "good" in {one.name for one in await runs.costs(by="run")}
    with runs.worker(poll=0.1, grace=0):
        report = await agent.map(["a"], name="m", out=Path(url.removeprefix("sqlite:///")).with_name("out.jsonl"))
        assert report.finished == 1
    assert await runs.delete(["bad", "good", "m/0"]) == 3
    assert await runs.list_runs() == []


@pytest.mark.parametrize("change", spread(["request = '{'", "request = '[]'", f"state = {NO_UTF_8}"], 2))
async def test_a_damaged_row_of_a_waiting_run_keeps_no_other_run_from_a_worker(
    runs: Runs, url: str, change: str
) -> None:
    agent = Agent(ScriptedModel.repeat("x"), name="a")
    runs.add(agent)
    for name in ("bad", "good"):
        await agent.start("Hi.", run_id=name)
    alter(url, f"UPDATE agentkit_runs SET {change} WHERE run_id = 'bad'")
    with runs.worker(poll=0.1, grace=0):
        assert (await runs.handle("good").result(timeout=LONG)).output == "x"
        assert (await (await agent.start("Hi.")).result(timeout=LONG)).output == "x"


@pytest.mark.parametrize(
    "change", spread(["lease = 'x'", f"beat = {NO_UTF_8}", f"pid = {NO_UTF_8}", "beat_at = 'x'"], 2)
)
async def test_a_damaged_worker_is_listed_and_another_worker_continues_its_runs(
    runs: Runs, url: str, change: str
) -> None:
    agent = Agent(ScriptedModel.repeat("x"), name="a")
    runs.add(agent)
    await agent.start("Hi.", run_id="taken")
    alter(url, "UPDATE workflow_status SET status = 'PENDING', executor_id = 'dead-1'")
    runs.store.workers.add("dead-1", [], 1.0, "host", 1)
    alter(url, f"UPDATE agentkit_workers SET {change}")
    assert [one.id for one in await runs.workers()] == ["dead-1"]
    with runs.worker(poll=0.1, grace=0):
        assert (await runs.handle("taken").result(timeout=LONG)).output == "x"


@pytest.mark.parametrize("change", spread(["schedule = 'x'", f"context = {NO_UTF_8}"], 2))
async def test_a_damaged_schedule_hides_no_other(runs: Runs, url: str, change: str) -> None:
    agent = Agent(ScriptedModel.repeat("x"), name="a")
    runs.add(agent)
    for name in ("bad", "good"):
        await runs.schedule(agent, "Hi.", name=name, cron="0 6 * * *")
    alter(url, f"UPDATE workflow_schedules SET {change} WHERE schedule_name = 'bad'")
    assert "good" in [one.name for one in await runs.schedules()]
    with runs.worker(poll=0.1, grace=0):
        await runs.schedule(agent, "Hi.", name="new", cron="* * * * * *")
        await eventually(lambda: [one for one in runs.store.listed(RunsWanted()) if one.run_id.startswith("new/")])
    await runs.unschedule("bad")
