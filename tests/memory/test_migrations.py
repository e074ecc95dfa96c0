"""The migrations make the tables the code expects, up and down, on both databases."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect

from agentkit_memory import Memory
from agentkit_memory.store.migrate import MIGRATIONS, REVISION, current_revision, migrate
from agentkit_memory.store.tables import METADATA
from agentkit_prompts.messages import Message


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
