"""Runs that start by the clock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from agentkit import Agent, Runs, ScriptedModel
from agentkit.cli.app import app
from agentkit.durable import DurableError
from tests.raising import raises

Working = Callable[..., Runs]


def command(url: str, *words: str) -> list[dict[str, Any]]:
    """Return the lines of JSON that a command prints."""
    ended = CliRunner().invoke(app, ["runs", *words, "--url", url, "--json"])
    assert ended.exit_code == 0, ended.output
    return [json.loads(line) for line in ended.stdout.splitlines()]


@pytest.mark.long
async def test_a_schedule_starts_a_run_at_each_due_time_until_it_is_deleted(working: Working, url: str) -> None:
    agent = Agent(ScriptedModel.repeat(lambda sent: f"did {sent.user.text}"), "You work.", name="nightly")
    runs = working(agent)
    await runs.schedule(agent, "the old work", name="often", cron="0 0 1 1 *")
    await runs.schedule(
        "nightly",
        "the work",
        name="often",
        cron="* * * * * *",
        tenant="acme",
        user="ada",
        locale="de",
        tags=["night"],
        priority=7,
    )
    await runs.schedule(agent, "rare work", name="rarely", cron="0 6 29 2 *", timezone="Europe/Berlin")
    often, rarely = await runs.schedules()
    assert (often.name, often.agent, often.cron, often.timezone) == ("often", "nightly", "* * * * * *", "UTC")
    assert abs(often.next_at - datetime.now(UTC)) < timedelta(minutes=1)
    assert (rarely.next_at.hour, rarely.next_at.day, rarely.next_at.utcoffset()) == (6, 29, timedelta(hours=1))
    assert (rarely.last_at, rarely.last_run, rarely.problem) == (None, None, None)
    while len(found := await runs.list_runs(tenant="acme", state="finished")) < 2:
        await asyncio.sleep(0.1)
    while (often := (await runs.schedules())[0]).last_run is None:  # it was due just now
        await asyncio.sleep(0.1)
    assert often.last_at is not None and often.last_run.run_id.startswith("often/20")
    shown, _ = await asyncio.to_thread(command, url, "schedules")
    assert (shown["name"], shown["tenant"], shown["last_run"]["agent"]) == ("often", "acme", "nightly")
    assert datetime.fromisoformat(shown["next_at"]) > often.last_at
    assert await asyncio.to_thread(command, url, "unschedule", "often") == [{"unscheduled": "often"}]
    assert [one.name for one in await runs.schedules()] == ["rarely"]
    assert len({info.run_id for info in found}) == len(found)
    assert {(info.tenant, info.user, info.locale, info.tags) for info in found} == {("acme", "ada", "de", ("night",))}
    for info in found:
        assert info.run_id.startswith("often/20") and (await runs.handle(info.run_id).result()).output == "did the work"


async def test_a_schedule_without_a_worker_reports_the_reason(runs: Runs, url: str) -> None:
    agent = Agent(ScriptedModel.repeat("ok"), name="nightly")
    runs.add(agent)
    await runs.schedule(agent, "work", name="a", cron="* * * * *")
    (known,) = await runs.schedules()
    assert known.problem == "no worker is running: start one"
    runs.store.workers.add("w", [("other", "1")], 60, "host", 1)
    (known,) = await runs.schedules()
    assert known.problem == "no worker has agent 'nightly', so that its runs wait: start one"
    table = await asyncio.to_thread(CliRunner().invoke, app, ["runs", "schedules", "--url", url])
    assert "no worker has agent 'nightly'" in table.stdout and "* * * * * UTC" in table.stdout


async def test_an_invalid_schedule_is_refused_and_not_stored(runs: Runs) -> None:
    agent = Agent(ScriptedModel.repeat("ok"), name="nightly")
    runs.add(agent)
    with raises(DurableError, name="cron, timezone"):
        await runs.schedule(agent, "work", name="a", cron="never", timezone="Mars/X")
    for cron in ("0 0 30 2 *", "0 0 31 2,4,6 *", "0 0 1 1 * 0 2099"):
        with raises(DurableError, name="cron"):
            await runs.schedule(agent, "work", name="a", cron=cron)
    with raises(DurableError, name="cron"):
        await runs.schedule(agent, "work", name="a", cron="R 6 * * *")
    with raises(DurableError, name="cron"):
        await runs.schedule(agent, "work", name="a", cron="0," * 50_000 + "0 * * * *")
    with raises(DurableError, name="delay, run_id"):
        await runs.schedule(agent, "work", name="a", cron="* * * * *", run_id="x", delay=3)
    with raises(DurableError, name="agent", value="nigthly"):
        await runs.schedule("nigthly", "work", name="a", cron="* * * * *")
    with raises(DurableError, name="schedule", value="a"):
        await runs.unschedule("a")
    assert await runs.schedules() == []
