"""The migrations make the tables the code expects, up and down, on both databases."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from agentkit_memory import Memory
from agentkit_memory.conversations.turns import itemise
from agentkit_memory.store.migrate import MIGRATIONS, REVISION, current_revision, migrate
from agentkit_memory.store.tables import METADATA
from agentkit_prompts.context.messages import Message


def test_the_newest_revision_is_the_one_the_code_asks_for() -> None:
    assert ScriptDirectory(str(MIGRATIONS)).get_heads() == [REVISION]


def test_a_new_store_has_exactly_the_tables_of_the_code(either: Memory) -> None:
    with either._store.database.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, METADATA) == []
        inspector = inspect(connection)
        for table in METADATA.sorted_tables:
            named = {index["name"] for index in inspector.get_indexes(table.name)}
            assert {index.name for index in table.indexes} <= named


def test_down_to_nothing_and_up_again(either: Memory) -> None:
    database = either._store.database
    with database.write() as connection:
        migrate(connection, "test", "base")
        assert set(inspect(connection).get_table_names()) == {"alembic_version"}
        assert current_revision(connection) is None
        migrate(connection, "test")
        assert current_revision(connection) == REVISION
    assert len(either.within("new").session("s").append(Message("user", "hello"))) == 1


def test_a_store_of_the_first_revision_keeps_what_it_holds(either: Memory, docs: Path) -> None:
    (docs / "a.md").write_text("# Zoo\n\nZebras are striped.")
    either.ingest(docs)
    either.session("s").append(Message("user", "hello"), key="k")
    database = either._store.database
    with database.write() as connection:
        migrate(connection, "test", "0001")
        assert current_revision(connection) == "0001"
        columns = {column["name"] for column in inspect(connection).get_columns("messages")}
        assert columns == {"branch_id", "seq", "key", "format", "body", "created_at"}
        # as the first revision wrote it
        body = '{"role":"assistant","content":"hi","tool_calls":[],"tool_call_id":null,"name":null}'
        insert = text("INSERT INTO messages VALUES (1, 2, NULL, 1, :body, 7.0)")
        connection.execute(insert, {"body": body})
        connection.execute(text("UPDATE branches SET head_seq = 2"))
    with database.write() as connection:
        migrate(connection, "test")
    session = either.session("s")
    assert [message.text for message in session.conversation] == ["hello", "hi"]
    assert len(session.append(Message("user", "hello"), key="k")) == 2
    assert either.ingest(docs).unchanged and next(found.text for found in either.recall("zebras")).endswith("striped.")
    while itemise(database, None, 10):
        pass
    with database.read() as connection:
        turns = connection.execute(text("SELECT text FROM items WHERE kind = 'turn' ORDER BY position")).scalars()
        assert list(turns) == ["hello", "hi"]
    verified = either.verify()
    assert (verified.missing, verified.stale, verified.orphans) == (0, 0, 0)


def test_on_the_way_down_forks_become_copies_and_what_has_no_place_any_more_leaves_the_index(either: Memory) -> None:
    main = either.session("s")
    main.append(Message("user", "one"), Message("user", "two"))
    fork = main.fork("f", at=1)
    fork.append(Message("user", "aside"))
    fork.fork("g").append(Message("user", "deeper"))
    main.append(Message("user", "three"))
    while itemise(either._store.database, None, 10):
        pass
    either.facts.add("a fact")
    either._store.catch_up()
    assert either._store.index().count() == 6
    database = either._store.database
    with database.write() as connection:
        migrate(connection, "test", "0001")
        stored = text("SELECT branches.name, messages.seq FROM messages JOIN branches ON branches.id = branch_id")
        shown: dict[str, list[int]] = {}
        for name, seq in connection.execute(stored).all():
            shown.setdefault(name, []).append(seq)
        assert {name: sorted(numbers) for name, numbers in shown.items()} == {
            "main": [1, 2, 3],
            "f": [1, 2],
            "g": [1, 2, 3],
        }
        assert connection.execute(text("SELECT count(*) FROM items")).scalar() == 0
        migrate(connection, "test")
    told = {name: [each.text for each in either.session("s", branch=name).conversation] for name in ("main", "f", "g")}
    assert told == {"main": ["one", "two", "three"], "f": ["one", "aside"], "g": ["one", "aside", "deeper"]}


def test_processes_that_open_a_new_store_at_once_all_get_it(home: Path) -> None:
    code = "import sys; from agentkit_memory import Memory; Memory.open(sys.argv[1], timeout=30).session('s')"
    opening = [subprocess.Popen([sys.executable, "-c", code, str(home)]) for _ in range(3)]
    assert [process.wait() for process in opening] == [0, 0, 0]


@pytest.mark.parametrize("heavy", ["sqlalchemy", "alembic", "qdrant_edge", "psycopg"])
def test_importing_the_package_loads_nothing_heavy(heavy: str) -> None:
    code = f"import agentkit_memory, sys; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_opening_a_current_store_does_not_load_alembic(home: Path) -> None:
    Memory.open(home).close()
    code = (
        "import sys; from agentkit_memory import Memory; Memory.open(sys.argv[1]); sys.exit('alembic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(home)], check=False).returncode == 0
