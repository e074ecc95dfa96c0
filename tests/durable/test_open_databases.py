"""Databases of durable runs: how they are opened, and their use of memory."""

from __future__ import annotations

import gc
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from agentkit import Runs
from agentkit.cli.app import app
from agentkit.durable import DurableError
from agentkit.runs.run_database import DBOS_TABLES, runs_table
from agentkit.runs.run_errors import RunStoreError
from agentkit.runs.run_record import RunsWanted
from tests.effort import unless_fresh
from tests.raising import raises


@pytest.mark.long
def test_lists_of_ids_of_every_length_do_not_stay_in_memory(runs: Runs) -> None:
    def compiled() -> int:
        gc.collect()
        return sum(f"{type(each).__module__}.{type(each).__name__}" == "sqlite3.Statement" for each in gc.get_objects())

    assert runs.store.rows.page(RunsWanted(ids=["0"])) == []
    before = compiled()
    assert before > 0
    for length in range(2, 80):
        assert runs.store.rows.page(RunsWanted(ids=[f"{number}" for number in range(length)])) == []
    assert compiled() - before < 40


@pytest.mark.parametrize(
    "rest", [":///runs.db?mode=ro", "://host/runs.db", "://bob:key@/runs.db", "+aiosqlite:///runs.db"]
)
def test_parameters_of_a_sqlite_address_are_an_error(rest: str) -> None:
    with raises(DurableError, name="url.query"):
        assert Runs(f"sqlite{rest}").store.rows


def test_the_sqlite_of_any_python_has_the_time_functions_that_dbos_uses(runs: Runs) -> None:
    asked = sa.text("SELECT typeof(unixepoch('subsec')), unixepoch('subsec') > 1700000000")
    with runs.store.engine.connect() as connection:
        assert connection.execute(asked).one() == ("real", 1)


@pytest.mark.parametrize(
    ("statements", "name"),
    [
        ("CREATE TRIGGER k AFTER UPDATE ON agentkit_decisions BEGIN SELECT 1; END", "k"),
        ("CREATE TRIGGER k AFTER INSERT ON WORKFLOW_STATUS BEGIN SELECT 1; END", "k"),
        ("DROP TABLE agentkit_usage; CREATE VIEW agentkit_usage AS SELECT 1", "agentkit_usage"),
        ("DROP TABLE agentkit_events; CREATE VIRTUAL TABLE agentkit_events USING fts5(run)", "agentkit_events"),
        ("CREATE INDEX i ON agentkit_runs (length(hex(zeroblob(300000000))))", "i"),
        ("ALTER TABLE agentkit_decisions ADD COLUMN x AS ('{}')", "agentkit_decisions"),
        ("CREATE TABLE other (x); CREATE TRIGGER k AFTER INSERT ON other BEGIN SELECT 1; END", None),
    ],
)
def test_a_database_of_another_person_runs_nothing(url: str, statements: str, name: str | None) -> None:
    database = sqlite3.connect(url.removeprefix("sqlite:///"))
    database.executescript(statements)
    database.close()
    opened = Runs(url)
    if name is None:
        assert opened.store.rows
        opened.close()
        return
    with raises(RunStoreError, name=name):
        assert opened.store.rows


def test_the_tables_of_dbos_are_known(empty_database: Path) -> None:
    database = sqlite3.connect(empty_database)
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    database.close()
    assert tables <= {*DBOS_TABLES, *runs_table.metadata.tables, "sqlite_sequence"}


def test_triggers_and_rules_on_tables_of_runs_are_refused_on_postgresql(postgres_url: str) -> None:
    server = sa.make_url(postgres_url).set(drivername="postgresql+psycopg")
    with sa.create_engine(server, isolation_level="AUTOCOMMIT").connect() as connection:
        connection.exec_driver_sql("CREATE DATABASE ruled")
    opened = Runs(server.set(drivername="postgresql", database="ruled").render_as_string(hide_password=False))
    assert opened.store.rows
    with opened.store.engine.begin() as connection:
        connection.exec_driver_sql("CREATE RULE r AS ON UPDATE TO agentkit_decisions DO INSTEAD NOTHING")
    opened.store.close()
    with raises(RunStoreError, name="r"):
        assert opened.store.rows


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_processes_that_open_a_new_database_at_the_same_time_all_succeed(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    count = unless_fresh(2, 10)
    urls = [sa.make_url(f"sqlite:///{tmp_path}/{number}.db") for number in range(count)]
    if kind == "postgresql":
        server = sa.make_url(request.getfixturevalue("postgres_url"))
        urls = [server.set(database=f"opened_at_once_{number}") for number in range(count)]
        engine = sa.create_engine(server.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            for url in urls:
                connection.execute(sa.text(f"CREATE DATABASE {url.database}"))
        engine.dispose()
    together = threading.Barrier(6)

    def make(url: sa.URL) -> None:
        runs = Runs(url.render_as_string(hide_password=False))
        together.wait()
        assert runs.store.workers.all() == []
        runs.close()

    with ThreadPoolExecutor(6) as threads:
        for url in urls:
            assert list(threads.map(make, [url] * 6)) == [None] * 6


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["show", "x"],
        ["workers"],
        ["cost"],
        ["schedules"],
        ["unschedule", "x"],
        ["delete", "--older-than", "1"],
    ],
)
def test_commands_that_read_runs_create_no_database_and_do_not_change_a_file_without_runs(
    words: list[str], tmp_path: Path
) -> None:
    missing, other = tmp_path / "missing.db", tmp_path / "other.db"
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE own (x)")
    database.close()
    before = other.read_bytes()
    for path in (missing, other):
        shown = CliRunner().invoke(app, ["runs", *words, "--url", f"sqlite:///{path}"])
        assert shown.exit_code == 1 and "has no runs: check the address" in shown.stderr
    assert [*tmp_path.iterdir()] == [other] and other.read_bytes() == before


def test_a_database_with_damage_that_sqlite_cannot_name_is_refused(url: str) -> None:
    path = Path(url.removeprefix("sqlite:///"))
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.execute("PRAGMA writable_schema = ON")
        database.execute(
            "UPDATE sqlite_master SET name = CAST(X'a1' AS TEXT), sql = 'nonsense' WHERE name = 'agentkit_decisions'"
        )
    database.close()
    shown = CliRunner().invoke(app, ["runs", "list", "--url", url])
    assert shown.exit_code == 1 and "is damaged" in shown.stderr
