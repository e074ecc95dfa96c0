"""A lease is renewed while other work waits for the database; a worker that cannot renew it stops in time."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa

from agentkit import Agent, Message, Runs, ScriptedModel, ToolCall, tool
from agentkit.runs.run_database import lines_table
from tests.waiting import LONG, eventually

LEASE = 1.0


@contextmanager
def locked(url: str, tables: str) -> Iterator[None]:
    """Lock a database as another program does: tables, or a complete SQLite file."""
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None) as file:
            file.execute("BEGIN IMMEDIATE")
            yield
            file.execute("ROLLBACK")
        file.close()
        return
    engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg"), poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text(f"LOCK TABLE {tables}"))
        yield


def beats(url: str, worker: str) -> int:
    """Return the number of renewals of the lease of a worker."""
    engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg"), poolclass=sa.NullPool)
    with engine.connect() as connection:
        query = sa.text("SELECT beat FROM agentkit_workers WHERE id = :id AND state = 'alive'")
        return int(connection.scalars(query, {"id": worker}).one())


@pytest.mark.long
@pytest.mark.parametrize("kind", ["url", "postgres_url"])
async def test_a_call_continues_while_the_database_is_locked_for_longer_than_the_lease(
    kind: str, request: pytest.FixtureRequest
) -> None:
    url: str = request.getfixturevalue(kind)
    lease = LEASE if kind == "url" else LONG  # never ends on a file; elsewhere, a busy machine is slow to renew it
    calls, goes_on = list[str](), threading.Event()

    @tool
    def hold() -> str:
        """Hold on."""
        calls.append("hold")
        return str(goes_on.wait(LONG))

    script = [Message("assistant", tool_calls=(ToolCall("a", "hold", "{}"),)), "held"]
    agent, runs = Agent(ScriptedModel(script), tools=[hold], name="holder"), Runs(url)
    runs.add(agent)
    with runs.worker(lease=lease, poll=0.1, grace=0) as worker:
        handle = await agent.start("Go.", run_id=f"held-{os.getpid()}")
        await eventually(lambda: calls)
        # The database can have rows of workers that an earlier test killed.
        (before,) = [row.beat for row in runs.store.workers.all() if row.id == worker.id]
        with locked(url, "agentkit_runs, agentkit_journal_lines"):
            if kind == "url":
                await asyncio.sleep(1.2 * LEASE)
            else:
                await eventually(lambda: beats(url, worker.id) >= before + 4)
        await asyncio.sleep(LEASE / 2)  # until the log reports that the lease was not renewed
        goes_on.set()
        assert (await handle.result(timeout=LONG)).output == "held"
        assert (calls, (await handle.info()).attempts) == (["hold"], 1)
    runs.close()


@pytest.mark.long
async def test_calls_end_before_a_lease_that_cannot_be_renewed_and_are_repeated(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentkit.durable.takeover._MIN_SECONDS_ORPHANED", 0.1)
    calls, ended = list[str](), list[str]()

    @tool(timeout=600)
    async def linger() -> str:
        """Take long."""
        calls.append("linger")
        try:
            await asyncio.sleep(600 if len(calls) == 1 else 0)
        finally:
            ended.append("linger")
        return "done"

    script = [Message("assistant", tool_calls=(ToolCall("a", "linger", "{}"),)), "ended"]
    agent, runs = Agent(ScriptedModel(script), tools=[linger], name="lingers"), Runs(postgres_url)
    runs.add(agent)
    with runs.worker(lease=3 * LEASE, poll=0.1, grace=0):
        handle = await agent.start("Go.", run_id=f"left-{os.getpid()}")
        await eventually(lambda: calls)
        with locked(postgres_url, "agentkit_workers"):
            await eventually(lambda: ended)
        assert (await handle.result(timeout=LONG)).output == "ended"
        assert len(calls) >= 2  # a busy machine may be slow to renew it at other times, too
    runs.close()


async def test_a_call_that_waits_for_another_call_does_not_start_if_the_worker_is_lost(url: str) -> None:
    calls, runs = list[str](), Runs(url)

    @tool(sequential=True)
    def pay(name: str) -> str:
        """Pay a person. Other workers declare this worker dead meanwhile, as if its machine slept."""
        calls.append(name)
        runs.store.workers.end(worker.id, "dead")
        while not worker.is_lost:
            time.sleep(0.001)
        return "paid"

    asked = [ToolCall(name, "pay", f'{{"name": "{name}"}}') for name in ("Ada", "Bob")]
    script = ScriptedModel([Message("assistant", tool_calls=tuple(asked)), "All are paid."])
    agent = Agent(script, tools=[pay], name="payer")
    runs.add(agent)
    worker = runs.worker(lease=LEASE, poll=0.1, grace=0)
    with worker:
        await agent.start("Pay both.")
        await eventually(lambda: worker.is_lost)
    assert calls == ["Ada"]
    runs.close()


@pytest.mark.long
@pytest.mark.parametrize("count", [1, 3])
def test_a_transaction_that_stops_after_an_insert_keeps_no_lock(
    count: int, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentkit.durable.stored.database._SECONDS_IDLE", 1)
    runs = Runs(postgres_url)
    rows = [{"run": f"stops-{os.getpid()}", "number": number, "line": "{}"} for number in range(count)]
    with runs.store.engine.connect() as stopped, runs.store.engine.begin() as other:
        stopped.execute(sa.insert(lines_table), rows)
        other.execute(sa.text(f"SET LOCAL lock_timeout = '{LONG}s'"))
        other.execute(sa.text("LOCK TABLE agentkit_journal_lines"))
        with pytest.raises(sa.exc.DBAPIError, match="idle-in-transaction"):
            stopped.commit()
    runs.close()
