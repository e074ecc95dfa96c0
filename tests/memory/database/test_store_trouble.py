"""Databases that are locked, read-only, full, damaged, newer or unreachable: typed errors, and no lost data."""

from __future__ import annotations

import math
import os
import re
import sqlite3
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from threading import Timer
from typing import Any

import pytest
from sqlalchemy import text

from agentkit.memory import InvalidArgument, Memory, StoreCorrupt, StoreError, StoreUnavailable
from agentkit.prompts import Message
from agentkit.testing import StoreProbe
from agentkit_memory.errors import StoreVersion
from tests.raising import raises
from tests.waiting import LONG

HELLO = Message("user", "hello")


@contextmanager
def unprivileged() -> Iterator[None]:
    """Run as another user: file permissions do not apply to root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def stored(home: Path) -> list[str]:
    with Memory(home) as memory:
        return [message.text for message in memory.session("s").conversation]


def test_a_database_locked_by_another_process_is_a_typed_error(home: Path, docs: Path) -> None:
    (docs / "a.md").write_text("zebra")
    with Memory(home, timeout=0.05) as memory:
        session = memory.session("s")
        session.append(HELLO)
        with closing(sqlite3.connect(home / "memory.db")) as other:
            other.execute("BEGIN IMMEDIATE")
            for act in (lambda: session.append(HELLO), lambda: memory.ingest(docs)):
                with raises(StoreUnavailable, path=str(home / "memory.db"), name="SQLITE_BUSY"):
                    act()
            assert len(session.conversation) == 1
        session.append(Message("user", "again"))
    assert stored(home) == ["hello", "again"]


def test_a_wait_for_unwritable_logs_is_an_error_and_the_logs_are_written_later(home: Path) -> None:
    with (
        Memory(home, timeout=0.05) as memory,
        ThreadPoolExecutor(1) as threads,
        closing(sqlite3.connect(home / "memory.db")) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        assert memory.recall("zebra") == ()
        reading = threads.submit(memory.recall_logs)
        try:
            with raises(StoreUnavailable, name="SQLITE_BUSY"):
                reading.result(LONG)
        finally:
            other.rollback()
        assert [log.query for log in memory.recall_logs()] == ["zebra"]


def test_a_first_opening_that_another_process_blocks_is_a_typed_error(home: Path) -> None:
    home.mkdir()
    with closing(sqlite3.connect(home / "memory.db")) as other:
        other.execute("PRAGMA journal_mode=WAL")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable):
            Memory(home, timeout=0.05)
    assert stored(home) == []


def test_the_opening_waits_for_another_process_that_creates_the_file(home: Path) -> None:
    home.mkdir()
    with closing(sqlite3.connect(home / "memory.db", check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")  # not yet in WAL mode: SQLite refuses the change of the mode without a wait
        with raises(StoreUnavailable, name="SQLITE_BUSY"):
            Memory(home, timeout=0.05)
        ended = Timer(0.2, other.rollback)
        ended.start()
        Memory(home, timeout=LONG).close()
        ended.join()
    assert stored(home) == []


def test_a_read_only_database_is_a_typed_error(home: Path, docs: Path) -> None:
    (docs / "a.md").write_text("zebra")
    with Memory(home) as memory:
        memory.session("s").append(HELLO)
        StoreProbe(memory).execute("PRAGMA query_only=ON")
        session = memory.session("s")
        for act in (lambda: session.append(HELLO), lambda: memory.ingest(docs)):
            with raises(StoreUnavailable, name="SQLITE_READONLY"):
                act()
    assert stored(home) == ["hello"]


@pytest.mark.skipif(os.name != "posix", reason="file permissions are POSIX's")
def test_a_file_without_write_permission_is_a_typed_error(home: Path) -> None:
    with Memory(home) as memory:
        memory.session("s").append(HELLO)
    for parent in [home, *home.parents]:
        if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o555)
    (home / "memory.db").chmod(0o444)
    home.chmod(0o555)
    try:
        refused = pytest.raises(StoreUnavailable)
        with unprivileged(), refused, Memory(home) as memory:
            memory.session("s").append(HELLO)
        with unprivileged(), raises(StoreUnavailable, name="folder"):
            Memory(home / "deeper")
    finally:
        home.chmod(0o755)
        (home / "memory.db").chmod(0o644)
    assert stored(home) == ["hello"]


def test_an_invalid_path_or_timeout_is_refused(home: Path) -> None:
    with raises(StoreUnavailable, name="folder"):
        Memory(f"{home}\0")
    wrong: Any
    for wrong in (-1.0, "5", math.nan, math.inf, True):
        with raises(InvalidArgument, name="timeout"):
            Memory(home, timeout=wrong)
    assert not home.exists()


def test_a_full_disk_rolls_back_and_keeps_the_stored_messages(home: Path) -> None:
    with Memory(home) as memory:
        session = memory.session("s")
        session.append(HELLO)
        StoreProbe(memory).fill_disk()
        with raises(StoreUnavailable, name="SQLITE_FULL"):
            session.append(Message("user", "x" * 100_000))
        assert len(session.conversation) == 1
    assert stored(home) == ["hello"]


def test_a_file_that_is_not_a_database_is_not_changed(home: Path) -> None:
    home.mkdir()
    (home / "memory.db").write_bytes(b"my shopping list " * 1000)
    with raises(StoreCorrupt, path=str(home / "memory.db"), name="SQLITE_NOTADB"):
        Memory(home)
    assert (home / "memory.db").read_bytes() == b"my shopping list " * 1000


def test_a_damaged_page_is_reported_at_its_read(home: Path) -> None:
    with Memory(home) as memory:
        memory.session("s").append(*[Message("user", "x" * 3000)] * 50)
    path = home / "memory.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(path.read_bytes())
    data[16384:] = Random(1).randbytes(len(data) - 16384)
    path.write_bytes(bytes(data))
    with raises(StoreCorrupt, name="SQLITE_CORRUPT"), Memory(home) as memory:
        memory.session("s")


def damage(home: Path, *statements: str) -> None:
    """Change a database without the rules of its schema, as damage does."""
    with closing(sqlite3.connect(home / "memory.db", isolation_level=None)) as database:
        database.execute("PRAGMA writable_schema=ON")
        for statement in statements:
            database.execute(statement)


def test_a_damaged_text_is_reported_and_not_quoted(home: Path) -> None:
    with Memory(home) as memory:
        memory.session("s").append(Message("user", "my secret " * 500))
        damage(home, "UPDATE messages SET body = CAST(CAST(body AS BLOB) || x'ff' AS TEXT)")
        with raises(StoreCorrupt, table="messages", row="1", name="body", path="conversation 's'") as raised:
            memory.session("s")
    assert "secret" not in str(raised.value) and len(str(raised.value)) < 500 + len(str(home))


def test_a_damaged_schema_is_reported_at_the_opening(home: Path) -> None:
    with Memory(home) as memory:
        memory.facts.add("zebra")
    damage(home, "UPDATE sqlite_schema SET name = CAST(x'66ff66' AS TEXT), sql = 'CREATE' WHERE name = 'items'")
    with raises(StoreCorrupt, path=str(home / "memory.db")):
        Memory(home)


def test_an_inconsistent_table_and_index_are_reported(home: Path, docs: Path) -> None:
    (docs / "a.md").write_text("zebra")
    (docs / "b.md").write_text("heron")
    with Memory(home) as memory:
        damage(home, "CREATE UNIQUE INDEX damaged ON documents (0)")  # its entries are wrong
        report = memory.ingest(docs)
    assert [Path(one).name for one in report.added] == ["a.md"] and len(report.errors) == 1
    assert re.search(r"memory\.db: .*constraint.*do not fit together.*restore a backup", str(report.errors[0]))


def test_a_damaged_id_does_not_prevent_a_repair(home: Path) -> None:
    with Memory(home) as memory:
        memory.facts.add("zebra")
        memory.worker().drain()
        damage(home, "PRAGMA foreign_keys=OFF", "UPDATE vector_state SET item_id = 'zeb\"a', want = -2")
        memory.admin.repair()
        assert memory.admin.verify().ok
        assert len(memory.recall("zebra").knowledge) == 1


@pytest.mark.parametrize(
    "damaged",
    [
        *[f"{column} = x'ff'" for column in ("writes", "model", "dimensions", "index_id", "state")],
        "dimensions = 2147483647",
    ],
)
def test_a_damaged_row_of_a_space_is_reported(home: Path, damaged: str) -> None:
    with Memory(home) as memory:
        memory.facts.add("zebra")
        memory.worker().drain()
    damage(home, f"UPDATE vector_spaces SET {damaged}")
    with raises(StoreCorrupt, name="bm25-4"), Memory(home) as memory:
        memory.worker().drain()


def test_a_database_of_a_newer_version_is_not_changed(home: Path) -> None:
    Memory(home).close()
    with closing(sqlite3.connect(home / "memory.db")) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    with raises(StoreVersion, name="revision", value="9999"):
        Memory(home)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("mysql://root:secret@localhost/x", "got another address"),
        ("postgresql+nosuch://localhost/x", "got another address"),
        ("://", "got another address"),
        ("postgresql://nobody:secret@127.0.0.1:1/x", "check that the server runs"),
    ],
)
def test_an_unreachable_or_unknown_address_is_a_typed_error_without_its_password(
    tmp_path: Path, address: str, said: str
) -> None:
    kind = StoreUnavailable if "127.0.0.1" in address else InvalidArgument
    with raises(kind, name="database") as caught:
        Memory(address, index=tmp_path, timeout=1)
    assert "secret" not in str(caught.value)


def test_the_error_of_a_missing_driver_names_psycopg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with raises(StoreUnavailable, name="psycopg"):
        Memory("postgresql://localhost/x", index=tmp_path)


def test_errors_of_postgresql_are_typed_with_their_codes(fresh_postgres: str, tmp_path: Path) -> None:
    with Memory(fresh_postgres, index=tmp_path / "index") as memory:
        session = memory.session("s")
        session.append(HELLO)
        probe = StoreProbe(memory)
        with Memory(fresh_postgres, index=tmp_path / "other", timeout=2) as hurried:
            waits = hurried.session("s")
            with probe.transaction() as other:
                other.execute(text("LOCK TABLE messages IN ACCESS EXCLUSIVE MODE"))
                with raises(StoreUnavailable, name="55P03"):
                    waits.append(HELLO)
        with raises(StoreUnavailable, name="25006"), probe.transaction() as connection:
            connection.execute(text("SET TRANSACTION READ ONLY"))
            connection.execute(text("DELETE FROM messages"))
        with pytest.raises(StoreError):
            probe.execute("DELETE FROM nowhere")
        assert len(memory.session("s").conversation) == 1
