"""A database that does not respond: a call raises a typed error, and a wait continues."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event
from typer.testing import CliRunner

from agentkit import Agent, Composition, Message, Runs, ScriptedModel, ToolCall, ToolContext, tool
from agentkit.cli.app import app
from agentkit.durable import DatabaseUnavailable, RunCancelled, RunNotFound
from agentkit.memory import Memory
from tests.postgres import stopped
from tests.raising import raises
from tests.waiting import LONG, eventually


async def test_calls_report_an_unavailable_database_and_a_wait_continues_after_it(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentkit.runs.run_database._RECONNECT_SECONDS", 0.1)
    runs, agent = Runs(postgres_url), Agent(ScriptedModel(["x"]), name="waits")
    runs.add(agent)
    handle = await agent.start("Hello", run_id=f"down-{os.getpid()}")
    follows = handle.events(follow=True)
    answered: list[str] = []

    def note(_: Any, __: Any, statement: str, *rest: Any) -> None:
        answered.append(statement)

    event.listen(Engine, "after_cursor_execute", note)
    results = asyncio.create_task(handle.result(timeout=10 * LONG))
    followed = asyncio.create_task(anext(follows, None))
    await eventually(lambda: len(answered) >= 10)  # both have been answered once: after that they wait
    event.remove(Engine, "after_cursor_execute", note)
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
            with raises(DatabaseUnavailable, name="database"):
                print(name, await call())
        for words in (["list"], ["cancel", "x"], ["delete", "x"], ["cost"]):
            shown = await asyncio.to_thread(CliRunner().invoke, app, ["runs", *words, "--url", postgres_url])
            assert shown.exit_code == 1 and "does not respond" in shown.stderr, words
            assert "Traceback" not in shown.stderr
        assert not results.done() and not followed.done()
    await handle.cancel()
    with pytest.raises(RunCancelled):
        await results
    assert await followed is None
    runs.close()


@pytest.mark.parametrize("kind", ["url", "postgres_url"])
@pytest.mark.parametrize("text", ["a\0b", "a\ud800b"])
async def test_an_id_that_no_database_can_store_is_an_unknown_run(
    kind: str, text: str, request: pytest.FixtureRequest
) -> None:
    runs = Runs(request.getfixturevalue(kind))
    handle = runs.handle(text)
    for ask in (handle.info, handle.cancel, handle.journal, handle.result, handle.approve, lambda: runs.delete([text])):
        with pytest.raises(RunNotFound):
            await ask()
    for name in ("agent", "tenant", "user", "session"):
        assert await runs.list_runs(**{name: text}) == []  # type: ignore[arg-type]
    assert await runs.costs(tenant=text) == []
    runs.close()


@pytest.mark.long
async def test_a_map_continues_after_an_outage_of_the_database_and_each_input_acts_once(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentkit.runs.run_database._RECONNECT_SECONDS", 0.1)
    monkeypatch.setattr("agentkit.durable.takeover._MIN_SECONDS_ORPHANED", 0.1)
    acts, attempts, goes_on = dict[str, str](), list[str](), threading.Event()

    @tool
    async def act(name: str, context: ToolContext[None]) -> str:
        """Act once per key."""
        attempts.append(name)
        acts[context.idempotency_key] = name
        if len(attempts) > 4:  # the other inputs take longer than the stop of the database
            await eventually(goes_on.is_set)
        return f"acted for {name}"

    def reply(sent: Composition) -> Message:
        if len(sent.intermediate):
            return Message("assistant", sent.intermediate[-1].text)
        return Message("assistant", tool_calls=(ToolCall("a", "act", json.dumps({"name": sent.user.text})),))

    runs, agent = Runs(postgres_url), Agent(ScriptedModel.repeat(reply), tools=[act], name="mapper")
    runs.add(agent)
    inputs, out = [f"input {number}" for number in range(12)], tmp_path / "out.jsonl"
    with runs.worker(lease=1, poll=0.1, grace=0):
        mapping = asyncio.create_task(agent.map(inputs, name=f"away-{os.getpid()}", out=out, concurrency=2))
        await eventually(lambda: len(attempts) >= 4)
        with stopped(postgres_url):
            assert not mapping.done()
            goes_on.set()
        report = await asyncio.wait_for(mapping, LONG)
    assert (report.finished, report.failed) == (12, 0)
    answers = [json.loads(line)["output"] for line in out.read_text().splitlines()]
    assert answers == [f"acted for {one}" for one in inputs]
    assert sorted(acts.values()) == sorted(inputs)
    runs.close()


def test_a_server_answers_503_during_an_outage_of_the_database_and_its_streams_continue(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("starlette", reason="needs the extra `server`")
    from tests.server.serving_agents import served

    monkeypatch.setattr("agentkit.runs.run_database._RECONNECT_SECONDS", 0.1)
    monkeypatch.setattr("agentkit.durable.takeover._MIN_SECONDS_ORPHANED", 0.1)
    goes_on = threading.Event()

    @tool(timeout=600)
    def hold() -> str:
        """Hold on."""
        return str(goes_on.wait(LONG))

    def reply(sent: Composition) -> Message:
        if len(sent.intermediate):
            return Message("assistant", "held")
        return Message("assistant", tool_calls=(ToolCall("a", "hold", "{}"),))

    agent = Agent(ScriptedModel.repeat(reply), "You hold.", tools=[hold], name="holder")
    runs = Runs(postgres_url)
    with (
        Memory(tmp_path / "home", scope="acme") as memory,
        served(agent.with_changes(memory=memory), runs=runs) as client,
    ):
        run = client.post("/runs", {"agent": "holder", "input": "Go."}).json()["id"]
        with client.http.stream("GET", f"/runs/{run}/events") as stream:
            lines = stream.iter_lines()
            while next(lines) != "event: model_replied":
                pass
            with stopped(postgres_url):
                asked = {
                    "start": client.post("/runs", {"agent": "holder", "input": "Again."}),
                    "page": client.get("/runs"),
                    "run": client.get(f"/runs/{run}"),
                    "events": client.get(f"/runs/{run}/events"),
                    "journal": client.get(f"/runs/{run}/journal"),
                    "decide": client.post(f"/runs/{run}/decisions", {"decisions": {"a": {"approve": True}}}),
                    "cancel": client.post(f"/runs/{run}/cancel"),
                    "delete": client.delete(f"/runs/{run}"),
                }
                for name, answer in asked.items():
                    assert (answer.status_code, answer.headers.get("retry-after")) == (503, "5"), (name, answer.text)
                    assert answer.json()["error"]["code"] == "store_unavailable"
                    assert "postgresql" not in answer.text, "it tells no address"
            goes_on.set()
            rest = [line for line in lines if line.startswith("event: ")]
        assert rest[-2:] == ["event: run_finished", "event: end"]
        assert client.get(f"/runs/{run}").json()["output"] == "held"
    runs.close()


async def test_a_database_that_cannot_be_opened_is_named_without_its_password(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for url in (f"sqlite:///{tmp_path}", f"sqlite:///{tmp_path}/file/runs.db", "sqlite:////proc/none/runs.db"):
        with pytest.raises(DatabaseUnavailable):
            await Runs(url).list_runs()
