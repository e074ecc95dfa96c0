"""A damaged row of DBOS hides no other run, ends no worker, and is listed with what is wrong with it."""

from __future__ import annotations

import base64
import pickle
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from agentkit import Agent, Runs, ScriptedModel
from agentkit.durable import RunFailed
from tests.effort import spread
from tests.raising import raises
from tests.waiting import LONG, eventually

NO_UTF_8 = "CAST(x'ff' AS TEXT)"


def alter(url: str, statement: str) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database, database:
        assert database.execute(statement).rowcount == 1


def damage(url: str, table: str, change: str, run_id: str) -> None:
    alter(url, f"UPDATE {table} SET {change} WHERE workflow_uuid = '{run_id}'")


@pytest.mark.parametrize(
    ("table", "change"),
    spread(
        [
            ("workflow_status", f"authenticated_user = {NO_UTF_8}"),
            ("workflow_status", "authenticated_roles = 'x'"),
            ("workflow_status", "updated_at = 'x'"),
            ("workflow_status", "created_at = 9223372036854775807"),
            ("workflow_input", 'inputs = \'{"positionalArgs": [{"agent": 1}]}\''),
            ("workflow_output", "output = '[]'"),
        ],
        3,
    ),
)
async def test_a_run_with_a_damaged_row_hides_no_other(runs: Runs, url: str, table: str, change: str) -> None:
    agent = Agent(ScriptedModel.repeat("x"), name="a")
    runs.add(agent)
    with runs.worker(poll=0.1, grace=0):
        for name in ("bad", "good"):
            await (await agent.start("Hi.", run_id=name)).result(timeout=LONG)
    damage(url, table, change, "bad")
    listed = {one.run_id: one for one in await runs.list_runs()}
    assert listed.keys() == {"bad", "good"} and listed["good"].error is None
    assert "good" in {one.name for one in await runs.costs(by="run")}
    with runs.worker(poll=0.1, grace=0):
        report = await agent.map(["a"], name="m", out=Path(url.removeprefix("sqlite:///")).with_name("out.jsonl"))
        assert report.finished == 1
    assert await runs.delete_ended(timedelta(0)) == 3
    assert await runs.list_runs() == []


@pytest.mark.parametrize(
    "change",
    spread([f"priority = {NO_UTF_8}", f"workflow_uuid = {NO_UTF_8}", "attributes = '['", "created_at = x'ff'"], 2),
)
async def test_a_run_that_waits_with_a_damaged_row_keeps_no_other_from_a_worker(
    runs: Runs, url: str, change: str
) -> None:
    agent = Agent(ScriptedModel.repeat("x"), name="a")
    runs.add(agent)
    for name in ("bad", "good"):
        await agent.start("Hi.", run_id=name)
    damage(url, "workflow_status", change, "bad")
    with runs.worker(poll=0.1, grace=0):
        assert (await runs.handle("good").result(timeout=LONG)).output == "x"
        assert (await (await agent.start("Hi.")).result(timeout=LONG)).output == "x"


async def test_a_finished_run_whose_answer_is_damaged_failed_for_whoever_asks(runs: Runs, url: str) -> None:
    agent = Agent(ScriptedModel.repeat("x"), name="a")
    runs.add(agent)
    with runs.worker(poll=0.1, grace=0):
        await (await agent.start("Hi.", run_id="bad")).result(timeout=LONG)
    damage(url, "workflow_output", 'output = \'{"state": "finished"}\'', "bad")
    with raises(RunFailed, run_id="bad", kind="JournalError"):
        await runs.handle("bad").result(timeout=LONG)
    assert (await runs.handle("bad").info()).error == "JournalError: what is stored of its answer is damaged"


@pytest.mark.parametrize(
    "change", spread(["lease = 'x'", f"beat = {NO_UTF_8}", f"pid = {NO_UTF_8}", "beat_at = 'x'"], 2)
)
async def test_a_damaged_worker_is_listed_and_its_runs_are_taken_over(runs: Runs, url: str, change: str) -> None:
    agent = Agent(ScriptedModel.repeat("x"), name="a")
    runs.add(agent)
    await agent.start("Hi.", run_id="taken")
    damage(url, "workflow_status", "status = 'PENDING', executor_id = 'dead-1'", "taken")
    runs.store.tables.add_worker("dead-1", [], 1.0, "host", 1)
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
        await eventually(lambda: [one for one in runs.store.listed(None, {}, 9, 0) if one.run_id.startswith("new/")])
    await runs.unschedule("bad")


class Opened:
    """Says that it was unpickled."""

    seen: list[int] = []  # noqa: RUF012

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return Opened.seen.append, (1,)


async def test_nothing_of_a_run_is_unpickled_where_it_is_read(runs: Runs, url: str) -> None:
    agent = Agent(ScriptedModel.repeat("x"), name="a")
    runs.add(agent)
    with runs.worker(poll=0.1, grace=0):
        await (await agent.start("Hi.", run_id="bad")).result(timeout=LONG)
    pickled = base64.b64encode(pickle.dumps(Opened())).decode()
    damage(url, "workflow_status", "serialization = 'py_pickle'", "bad")
    damage(url, "workflow_output", f"output = '{pickled}'", "bad")
    damage(url, "workflow_input", f"inputs = '{pickled}'", "bad")
    assert len(await runs.list_runs()) == 1
    assert await runs.costs() == []
    assert Opened.seen == []
