"""Data that this release stores opens in the next release, and data of a newer release is refused by name."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from agentkit import Agent, Composition, Message, Reply, Runs, ScriptedModel, ToolCall, Usage, tool
from agentkit.durable import DurableError, RunFailed
from agentkit.durable.stored.run_request import RunRequest
from agentkit.errors import JournalError
from agentkit.models import Price
from agentkit.runs.run_errors import RunStoreError
from tests.effort import spread
from tests.raising import raises
from tests.waiting import LONG, eventually

Working = Callable[..., Runs]


@pytest.mark.parametrize(
    ("data", "name", "value"),
    [
        ({"format": 2}, "format", 2),
        ({"format": 1}, "request", None),
        (None, "request", None),
        ("text", "request", None),
    ],
)
def test_unreadable_requests_are_refused_by_name(data: object, name: str, value: int | None) -> None:
    with raises(DurableError, name=name, value=value):
        RunRequest.from_data(data)


async def test_a_run_of_a_newer_release_fails_by_name(working: Working) -> None:
    agent = Agent(ScriptedModel(["x"]), name="a")
    runs = working(agent)
    started = runs.requested(runs.agents.all[0], "Hello", {"run_id": "r"})
    newer = started.request.dumps().replace('"format": 1', '"format": 9')
    await agent.start("Hello", run_id="r", delay=0.5)
    with runs.store.rows.database.engine.begin() as connection:
        connection.execute(sa.text("UPDATE agentkit_runs SET request = :request"), {"request": newer})
    with raises(RunFailed, kind="DurableError"):
        await runs.handle("r").result(timeout=LONG)
    assert [info.state for info in await runs.list_runs()] == ["failed"]


def test_a_database_of_a_version_before_the_first_is_refused_by_name(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "runs.db")) as file, file:
        file.execute("CREATE TABLE agentkit_approvals (run_id TEXT)")
    with raises(RunStoreError, value="old"):
        assert Runs(f"sqlite:///{tmp_path / 'runs.db'}").store.rows


@tool(approval="always")
def pay(amount: int) -> str:
    """Pay."""
    raise AssertionError("nobody approved it")


DAMAGED = ["''", "'null'", "'{\"a\": 1}'", "'[[1]]'", f"'{'[' * 20_000}'"]


@pytest.mark.parametrize("damaged", spread(DAMAGED, 2))
async def test_a_damaged_decision_or_worker_approves_nothing_and_affects_no_other_run(
    runs: Runs, url: str, damaged: str
) -> None:
    script = [Message("assistant", tool_calls=(ToolCall("c1", "pay", '{"amount": 3}'),)), "Not paid."]
    till, agent = Agent(ScriptedModel(script), tools=[pay], name="till"), Agent(ScriptedModel(["x"]), name="a")
    runs.add(till)
    runs.add(agent)
    with runs.worker(poll=0.1, grace=0):
        await till.start("Pay.", run_id="waits")
        await eventually(lambda: runs.store.rows.calls("waits"))
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database, database:
        database.execute(f"UPDATE agentkit_decisions SET decision = {damaged}, call = '\u202e\\x'")
        database.execute(f"UPDATE agentkit_workers SET serves = {damaged}")
    assert [one.run_id for one in await runs.list_runs()] == ["waits"]
    assert [one.serves for one in await runs.workers()] == [()]
    assert (await runs.handle("waits").info()).waiting == ()
    with runs.worker(poll=0.1, grace=0):
        assert (await (await agent.start("Hi.")).result(timeout=LONG)).output == "x"


@pytest.mark.parametrize("damaged", ["'x' || char(10)", "'null'", "x'ff'"])
async def test_a_run_with_a_damaged_journal_is_reported_and_affects_no_other_run(
    runs: Runs, url: str, damaged: str
) -> None:
    agent = Agent(ScriptedModel.repeat("x"), name="a")
    runs.add(agent)
    with runs.worker(poll=0.1, grace=0):
        for name in ("bad", "good"):
            await (await agent.start("Hi.", run_id=name, tenant="acme")).result(timeout=LONG)
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database, database:
        database.execute(f"UPDATE agentkit_journal_lines SET line = {damaged} WHERE run = 'bad'")
    assert {one.name: one.runs for one in await runs.costs(by="run")} == {"good": 1}
    assert {one.run_id for one in await runs.list_runs(tenant="acme")} == {"bad", "good"}
    with raises(JournalError):
        await runs.handle("bad").journal()


async def test_costs_are_counted_from_journals(working: Working) -> None:
    asked = tuple([ToolCall(name, name, '{"input": "x"}') for name in ("ask", "ask_twice")])

    def reply(sent: Composition) -> Reply:
        if len(sent.intermediate):
            return Reply(Message("assistant", "Done."), Usage(100, 10))
        return Reply(Message("assistant", tool_calls=asked), Usage(100, 10))

    price = Price(input=1.0, output=2.0)
    inner = Agent(ScriptedModel.repeat(Reply(Message("assistant", "ok"), Usage(7, 3)), price=price), name="inner")

    @tool
    async def ask_twice(input: str) -> str:
        """Ask twice."""
        return "".join([(await inner.run(input)).output for _ in range(2)])

    tools = [inner.as_tool(name="ask", description="Asks."), ask_twice]
    agent = Agent(ScriptedModel.repeat(reply, price=price), tools=tools, name="outer")
    runs = working(agent)
    for tenant in ("a", "a", "b"):
        await (await agent.start("Go.", tenant=tenant)).result(timeout=LONG)
    by_tenant = [(one.name, one.runs, one.usage.input_tokens) for one in await runs.costs("tenant")]
    assert by_tenant == [("a", 2, 442), ("b", 1, 221)]
    (whole,) = await runs.costs("agent")
    assert whole.usage.money == pytest.approx(3 * (221 * 1e-6 + 29 * 2e-6))
    by_tool = [(one.name, one.runs, one.usage.input_tokens) for one in await runs.costs("tool")]
    assert by_tool == [("ask_twice", 3, 42), ("ask", 3, 21)]
    assert [one.name for one in await runs.costs("run", tenant="b")] == [
        info.run_id for info in await runs.list_runs(tenant="b")
    ]
    layers = await runs.costs("layer")
    found = {one.name: one for one in layers}
    named = {"input[0]", "tools", "reply", "ask_twice"}
    assert {*(f"outer/{one}" for one in named), "inner/input[0]", "inner/reply"} <= found.keys()
    assert sum(one.usage.input_tokens for one in layers) == whole.usage.input_tokens
    assert sum(one.usage.output_tokens for one in layers) == whole.usage.output_tokens
    assert sum(one.usage.money or 0 for one in layers) == pytest.approx(whole.usage.money)
    assert found["outer/reply"].runs == 6 and found["outer/reply"].usage.money == pytest.approx(6 * 10 * 2e-6)
    with raises(DurableError, name="by", value="color"):
        await runs.costs("color")  # type: ignore[arg-type]
