"""Tables of a store are equal to the code; a later revision changes tables and rows, in both databases."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

from agentkit.memory import Memory
from agentkit.testing import StoreProbe
from agentkit_memory.database import engine, migrate
from agentkit_memory.database.conversions import CONVERSIONS
from agentkit_memory.database.migrate import MIGRATIONS, REVISION
from agentkit_memory.database.tables import METADATA
from agentkit_memory.errors import StoreVersion
from tests.cases import for_cases
from tests.forks import Forks
from tests.raising import raises


def test_the_newest_revision_is_the_revision_of_the_code() -> None:
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


NEXT = """
from alembic import op
from sqlalchemy import Column, Text

revision, down_revision, branch_labels, depends_on = "2026_02", "2026_01", None, None


def upgrade():
    op.add_column("documents", Column("title", Text, nullable=False, server_default=""))
"""
"""Revision of a possible next version."""


@pytest.fixture(params=["sqlite", "postgresql"])
def target(request: pytest.FixtureRequest, home: Path) -> Path | str:
    if request.param == "sqlite":
        return home
    address: str = request.getfixturevalue("fresh_postgres")
    return address


def test_a_next_version_converts_stored_rows_once(
    target: Path | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    converted: list[int] = []

    def add_titles(connection: Connection) -> None:
        converted.append(connection.execute(text("UPDATE documents SET title = 'About ' || source")).rowcount)

    with Memory(target, index=tmp_path / "index") as memory:
        memory.documents.add("Zebras are striped.", source="zebras")
    folder = shutil.copytree(MIGRATIONS, tmp_path / "migrations")
    (folder / "versions" / "2026_02_titles.py").write_text(NEXT)
    monkeypatch.setattr(migrate, "MIGRATIONS", folder)
    monkeypatch.setattr(migrate, "CONVERSIONS", {"2026_02": add_titles})
    monkeypatch.setattr(migrate, "REVISION", "2026_02")
    monkeypatch.setattr(engine, "REVISION", "2026_02")
    for _ in range(2):
        with Memory(target, index=tmp_path / "index") as memory:
            assert [found.text for found in memory.recall("zebras")] == ["Zebras are striped."]
            assert StoreProbe(memory).values("SELECT title FROM documents") == ["About zebras"]
            assert StoreProbe(memory).values("SELECT version_num FROM alembic_version") == ["2026_02"]
    assert converted == [1]


def test_each_conversion_belongs_to_a_revision() -> None:
    revisions = {each.revision for each in ScriptDirectory(str(MIGRATIONS)).walk_revisions()}
    assert revisions >= set(CONVERSIONS)


@pytest.mark.parametrize("revision", ["0010", "2999_01"])
def test_a_store_of_another_revision_is_refused_and_does_not_change(
    target: Path | str, tmp_path: Path, revision: str
) -> None:
    with Memory(target, index=tmp_path / "index") as memory:
        StoreProbe(memory).execute(f"UPDATE alembic_version SET version_num = '{revision}'")
    for _ in range(2):
        with raises(StoreVersion, name="revision", value=revision):
            Memory(target, index=tmp_path / "index")


@pytest.mark.long
def test_processes_can_open_a_new_store_concurrently(home: Path, programs: Forks) -> None:
    code = "import sys; from agentkit_memory import Memory; Memory(sys.argv[1], timeout=30).session('s')"
    opening = [programs.start("-c", code, home) for _ in range(3)]
    assert [process.wait() for process in opening] == [0, 0, 0]


@for_cases("heavy", ["sqlalchemy", "alembic", "qdrant_edge", "psycopg"])
def test_importing_the_package_loads_no_heavy_library(heavy: str) -> None:
    code = f"import agentkit_memory, sys; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_making_and_opening_a_current_store_does_not_load_alembic(home: Path) -> None:
    code = "import sys; from agentkit_memory import Memory; Memory(sys.argv[1]); sys.exit('alembic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code, str(home)], check=False).returncode == 0
    assert subprocess.run([sys.executable, "-c", code, str(home)], check=False).returncode == 0
