"""A database that does not answer: whoever asks it is told by a typed error, and whoever waits goes on waiting."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentkit import Agent, Runs, ScriptedModel
from agentkit.cli.app import app
from agentkit.durable import DatabaseUnavailable, RunCancelled
from tests.postgres import stopped

WAIT = 60.0


async def test_calls_say_that_the_database_is_down_and_a_wait_outlasts_it(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentkit.durable.run_tables._SECONDS_LOST", 0.1)
    runs, agent = Runs(postgres_url), Agent(ScriptedModel(["x"]), name="waits")
    runs.add(agent)
    handle = await agent.start("Hello", run_id=f"down-{os.getpid()}")
    follows = handle.events(follow=True)
    results = asyncio.create_task(handle.result(timeout=WAIT))
    followed = asyncio.create_task(anext(follows, None))
    await asyncio.sleep(0.2)
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "start": lambda: agent.start("Hello", run_id="other"),
        "map": lambda: agent.map(["a"], name="map", out=tmp_path / "out.jsonl"),
        "schedule": lambda: runs.schedule(agent, "Hello", name="s", cron="* * * * *"),
        "unschedule": lambda: runs.unschedule("s"),
        "schedules": runs.schedules,
        "list_runs": runs.list_runs,
        "delete": lambda: runs.delete(["other"]),
        "delete_ended": lambda: runs.delete_ended(timedelta(0)),
        "costs": runs.costs,
        "workers": runs.workers,
        "info": handle.info,
        "journal": handle.journal,
        "result": handle.result,
        "approve": handle.approve,
        "cancel": handle.cancel,
        "resume": handle.resume,
        "open": Runs(postgres_url).list_runs,
        "worker": lambda: asyncio.to_thread(runs.worker().start),
    }
    with stopped(postgres_url):
        for name, call in calls.items():
            with pytest.raises(DatabaseUnavailable, match=r"does not answer.*see that it runs, can be reached"):
                print(name, await call())
        with pytest.raises(DatabaseUnavailable, match="start it again with run_id='other': it begins once"):
            await calls["start"]()
        for words in (["list"], ["cancel", "x"], ["delete", "x"], ["cost"]):
            shown = await asyncio.to_thread(CliRunner().invoke, app, ["runs", *words, "--url", postgres_url])
            assert shown.exit_code == 1 and "does not answer" in shown.stderr, words
            assert "Traceback" not in shown.stderr
        assert not results.done() and not followed.done()
    await handle.cancel()
    with pytest.raises(RunCancelled):
        await results
    assert await followed is None
    runs.close()


async def test_a_database_that_cannot_be_opened_is_named_without_its_password(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for url in (f"sqlite:///{tmp_path}", f"sqlite:///{tmp_path}/file/runs.db", "sqlite:////proc/none/runs.db"):
        with pytest.raises(DatabaseUnavailable, match="the database"):
            await Runs(url).list_runs()
