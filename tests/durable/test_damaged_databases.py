"""A damaged database of runs: a typed error names the file and the table, and other databases continue to work."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from agentkit import Agent, Message, Runs, ScriptedModel, ToolCall, tool
from agentkit.durable import DatabaseDamaged, RunFailed
from agentkit.server import RunStore
from tests.raising import raises
from tests.waiting import LONG, eventually

Damage = Callable[[Path], object]


def changed(*statements: str) -> Damage:
    def change(path: Path) -> None:
        with closing(sqlite3.connect(path)) as database, database:
            for statement in statements:
                database.execute(statement)

    return change


def overwritten(at: int, count: int) -> Damage:
    def overwrite(path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(at)
            file.write(b"\xa5" * count)

    return overwrite


def without_pages_of(table: str) -> Damage:
    """Overwrite the first page of a table."""

    def overwrite(path: Path) -> None:
        with closing(sqlite3.connect(path)) as database:
            (page,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        overwritten((page - 1) * 4096, 4096)(path)

    return overwrite


def wal_of_another_database(path: Path) -> None:
    other = path.with_name("other.db")
    with closing(sqlite3.connect(other)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE other (x)")
        database.execute("INSERT INTO other VALUES (zeroblob(100000))")
        database.commit()
        # SQLite continues the file from the WAL, whose pages are of the other database.
        shutil.copy(f"{other}-wal", f"{path}-wal")


REFUSED: dict[str, Damage] = {
    "header": overwritten(0, 100),
    "schema": overwritten(100, 3000),
    "cut in the first page": lambda path: os.truncate(path, 1000),
    "half": lambda path: os.truncate(path, path.stat().st_size // 2),
    "text": lambda path: path.write_text("no database " * 1000),
    "format of no version": changed("UPDATE agentkit_store SET format = 'x'"),
    "no format": changed("DELETE FROM agentkit_store"),
    "format page": without_pages_of("agentkit_store"),
    "column of runs": changed("ALTER TABLE agentkit_runs DROP COLUMN usage"),
    **{
        f"no {name}": changed(f"DROP TABLE agentkit_{name}")
        for name in ("runs", "journal_lines", "decisions", "workers", "keys", "events", "usage")
    },
    "migrations": changed("DROP TABLE dbos_migrations"),
    "migrated twice": changed("UPDATE dbos_migrations SET version = 0"),
}
"""Damages with which a database is not opened."""
UNWORKABLE: dict[str, Damage] = {
    "worker page": without_pages_of("agentkit_workers"),
    "queues": changed("DROP TABLE queues"),
    "versions": changed("DROP TABLE application_versions"),
    "workflows": changed("DROP TABLE workflow_status"),
    "schedule page": without_pages_of("workflow_schedules"),
}
"""Damages with which no worker starts."""
UNSTARTABLE: dict[str, Damage] = {
    "workflow page": without_pages_of("workflow_status"),
    "run page": without_pages_of("agentkit_runs"),
    "line page": without_pages_of("agentkit_journal_lines"),
}
"""Damages with which no run starts."""
READABLE: dict[str, Damage] = {
    "empty": lambda path: os.truncate(path, 0),
    "foreign WAL": wal_of_another_database,
    "WAL of noise": lambda path: Path(f"{path}-wal").write_bytes(bytes(range(256)) * 400),
    "unused page": without_pages_of("agentkit_usage"),
}
"""Damages with which runs are executed."""


@pytest.fixture
def damaged(url: str) -> Callable[[Damage], Runs]:
    """Return runs on a new copy of a database, after a damage."""
    original = Path(url.removeprefix("sqlite:///"))
    with closing(sqlite3.connect(original)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def damage(change: Damage) -> Runs:
        path = original.with_name(f"damaged-{os.urandom(4).hex()}.db")
        shutil.copy(original, path)
        change(path)
        return Runs(f"sqlite:///{path}")

    return damage


async def started(runs: Runs) -> None:
    """Start a worker, and stop it."""
    with runs.worker(grace=0):
        pass


async def output_of(runs: Runs, name: str) -> str:
    agent = Agent(ScriptedModel.repeat("x"), name="a")
    runs.add(agent)
    with runs.worker(poll=0.05, grace=0):
        output: str = (await (await agent.start("Hi.", run_id=name)).result(timeout=LONG)).output
    runs.close()
    return output


async def test_a_damaged_database_is_refused_by_name_and_other_databases_continue(
    damaged: Callable[[Damage], Runs], runs: Runs
) -> None:
    problems: dict[str, object] = {}
    for kinds, call in ((REFUSED, "list"), (UNWORKABLE, "worker"), (UNSTARTABLE, "start")):
        for name, damage in kinds.items():
            bad = damaged(damage)
            agent = Agent(ScriptedModel(["x"]), name="a")
            bad.add(agent)
            work: dict[str, Callable[[], Any]] = {
                "list": bad.list_runs,
                "start": partial(agent.start, "Hi."),
                "worker": partial(started, bad),
            }
            try:
                await work[call]()
                problems[name] = "no error"
            except DatabaseDamaged as error:
                if error.path is None or "damaged-" not in error.path:
                    problems[name] = error
            except Exception as error:
                problems[name] = repr(error)
            bad.close()
    for name, damage in READABLE.items():
        if await output_of(damaged(damage), "r") != "x":
            problems[name] = "no output"
    assert problems == {}
    assert await output_of(runs, "r") == "x"


def test_a_damaged_file_of_a_server_is_refused_by_name(url: str, tmp_path: Path) -> None:
    for name, damage in [*REFUSED.items()][:-2]:
        path = tmp_path / f"{name}.db"
        shutil.copy(url.removeprefix("sqlite:///"), path)
        changed("PRAGMA wal_checkpoint(TRUNCATE)")(path)
        damage(path)
        with raises(DatabaseDamaged, path=str(path)):
            RunStore(path)


async def test_a_run_that_loses_its_table_fails_and_its_tool_acts_once(runs: Runs) -> None:
    acts: list[str] = []

    @tool
    def act() -> str:
        """Act, and lose the lines of the journal."""
        acts.append("act")
        with runs.store.engine.begin() as connection:
            connection.execute(sa.text("ALTER TABLE agentkit_journal_lines RENAME TO lost"))
        return "done"

    calls = Message("assistant", tool_calls=(ToolCall("c", "act", "{}"),))
    agent = Agent(ScriptedModel([calls, "Done."]), tools=[act], name="actor")
    runs.add(agent)
    with runs.worker(poll=0.05, grace=0):
        handle = await agent.start("Go.", run_id="r")
        await eventually(lambda: runs.store.rows.get("r").state == "failed")
        with raises(DatabaseDamaged, name="database"):
            await handle.result(timeout=LONG)
        with runs.store.engine.begin() as connection:
            connection.execute(sa.text("ALTER TABLE lost RENAME TO agentkit_journal_lines"))
        with raises(RunFailed, kind="DatabaseDamaged"):
            await handle.result(timeout=LONG)
        assert acts == ["act"]
        other = Agent(ScriptedModel(["x"]), name="other")
    runs.add(other)
    with runs.worker(poll=0.05, grace=0):
        assert (await (await other.start("Hi.")).result(timeout=LONG)).output == "x"


async def test_a_database_of_postgresql_without_a_table_or_a_column_is_refused_by_name(postgres_url: str) -> None:
    server = sa.make_url(postgres_url).set(drivername="postgresql+psycopg")
    engine = sa.create_engine(server, isolation_level="AUTOCOMMIT")
    url = server.set(drivername="postgresql", database="damaged").render_as_string(hide_password=False)

    def change(statement: str) -> None:
        with sa.create_engine(server.set(database="damaged"), poolclass=sa.NullPool).begin() as connection:
            connection.exec_driver_sql(statement)

    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE DATABASE damaged")
    assert await output_of(Runs(url), "r") == "x"
    agent = Agent(ScriptedModel(["x"]), name="a")
    table, column = "ALTER TABLE agentkit_decisions RENAME TO {}", "ALTER TABLE agentkit_runs RENAME {} TO {}"
    for damage, repair in (
        (table.format("x"), "ALTER TABLE x RENAME TO agentkit_decisions"),
        (column.format("usage", "x"), column.format("x", "usage")),
    ):
        change(damage)
        with raises(DatabaseDamaged, name="database"):
            await Runs(url).list_runs()
        change(repair)
    workflows = "ALTER TABLE dbos.{} RENAME TO {}"
    change(workflows.format("workflow_status", "lost"))
    bad = Runs(url)
    bad.add(agent)
    with raises(DatabaseDamaged, name="database"):
        await agent.start("Hi.")
    with raises(DatabaseDamaged, name="database"):
        await asyncio.to_thread(bad.worker(grace=0).start)
    bad.close()
    change(workflows.format("lost", "workflow_status"))
    assert await output_of(Runs(url), "s") == "x"
    engine.dispose()
