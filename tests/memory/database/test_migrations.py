"""The migrations make the tables the code expects, on both databases."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from agentkit.memory import Memory
from agentkit.prompts import Message
from agentkit.testing import StoreProbe
from agentkit_memory.database.engine import Database
from agentkit_memory.database.migrate import MIGRATIONS, REVISION, current_revision
from agentkit_memory.database.tables import METADATA
from tests.cases import for_cases
from tests.memory.database.first_revision import migrate_to_first


def test_the_newest_revision_is_the_one_the_code_asks_for() -> None:
    assert ScriptDirectory(str(MIGRATIONS)).get_heads() == [REVISION]


def check_tables(memory: Memory) -> None:
    with StoreProbe(memory).engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, METADATA) == []
        inspector = inspect(connection)
        for table in METADATA.sorted_tables:
            named = {index["name"] for index in inspector.get_indexes(table.name)}
            assert {index.name for index in table.indexes} <= named


def test_a_new_store_has_exactly_the_tables_of_the_code(either: Memory) -> None:
    check_tables(either)


FIRST = """
INSERT INTO scopes VALUES (1, 'local', '', '', '');
INSERT INTO conversations VALUES (1, 1, 's', 5.0);
INSERT INTO branches VALUES (1, 1, 'main', 2);
INSERT INTO messages VALUES (1, 1, 'k', 1, '{"role":"user","content":"hello"}', 6.0);
INSERT INTO messages VALUES (1, 2, NULL, 1,
  '{"role":"assistant","content":"hi","tool_calls":[],"tool_call_id":null,"name":null}', 7.0);
INSERT INTO documents VALUES ('d', 1, 'file:///zoo.md', 'zoo.md', 'x', 1, 8.0);
INSERT INTO items VALUES ('6b1c9d1e-4c63-5d0e-9d0b-3a6b8c2f7e51', 1, 'chunk', 'd', 0, 'Zoo', 'Zebras are striped.', 'y',
  0, 19, 1, 8.0);
"""
"""What the first revision stored: bodies as it wrote them."""


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_store_of_the_first_revision_keeps_what_it_holds(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = str(tmp_path / "store") if kind == "sqlite" else request.getfixturevalue("fresh_postgres")
    with monkeypatch.context() as old:
        old.setattr("agentkit_memory.database.engine.REVISION", "0001")
        old.setattr("agentkit_memory.database.engine.migrate", migrate_to_first)
        first = Database.open(tmp_path / "store" / "memory.db" if kind == "sqlite" else target)
        with first.write() as connection:
            assert current_revision(connection) == "0001"
            for statement in filter(str.strip, FIRST.split(";\n")):
                connection.execute(text(statement.replace('":', '"\\:')))
        first.close()
    with Memory.open(target, index=tmp_path / "index") as memory:
        session = memory.session("s")
        assert [message.text for message in session.conversation] == ["hello", "hi"]
        assert len(session.append(Message("user", "hello"), key="k")) == 2
        assert {found.text for found in memory.recall("zebras striped")} == {"Zebras are striped."}
        memory.worker().drain()
        assert [turn.text for turn in StoreProbe(memory).items("turn")] == ["hello", "hi"]
        assert memory.admin.verify().ok
        check_tables(memory)


def test_turns_that_were_stored_with_their_texts_keep_them(home: Path) -> None:
    with Memory.open(home) as memory:
        memory.session("s").append(Message("user", "a zebra before"))
        memory.worker().drain()
        probe = StoreProbe(memory)
        probe.execute("UPDATE items SET text = 'a zebra before'")
        probe.execute("DROP INDEX ix_items_scope_id_created_at")  # which revision 0010 makes
        probe.execute("UPDATE alembic_version SET version_num = '0008'")
    with Memory.open(home) as memory:
        memory.session("s").append(Message("user", "a zebra after"))
        memory.worker().drain()
        assert {found.text for found in memory.recall("zebra")} == {"a zebra before", "a zebra after"}
        probe = StoreProbe(memory)
        assert probe.values("SELECT version_num FROM alembic_version") == [REVISION]
        assert probe.values("SELECT text FROM items ORDER BY position") == ["a zebra before", ""]


@pytest.mark.long
def test_processes_that_open_a_new_store_at_once_all_get_it(home: Path) -> None:
    code = "import sys; from agentkit_memory import Memory; Memory.open(sys.argv[1], timeout=30).session('s')"
    opening = [subprocess.Popen([sys.executable, "-c", code, str(home)]) for _ in range(3)]
    assert [process.wait() for process in opening] == [0, 0, 0]


@for_cases("heavy", ["sqlalchemy", "alembic", "qdrant_edge", "psycopg"])
def test_importing_the_package_loads_nothing_heavy(heavy: str) -> None:
    code = f"import agentkit_memory, sys; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_making_and_opening_a_current_store_does_not_load_alembic(home: Path) -> None:
    code = (
        "import sys; from agentkit_memory import Memory; Memory.open(sys.argv[1]); sys.exit('alembic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(home)], check=False).returncode == 0
    assert subprocess.run([sys.executable, "-c", code, str(home)], check=False).returncode == 0
