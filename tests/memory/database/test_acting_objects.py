"""Stores of other persons run no code: no trigger, no expression of a table, no view with the name of a table."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa

from agentkit.memory import Memory, Scope, StoreCorrupt, StoreError
from agentkit.prompts import Message

KEEP = "INSERT INTO keep SELECT 1"
TRIGGER = f"CREATE TRIGGER k AFTER INSERT ON messages BEGIN {KEEP}; END;"
FORGE = "PRAGMA writable_schema = ON; UPDATE sqlite_master SET"
SLOW = "length(hex(zeroblob(300000000)))"
REFUSED = {
    # statement: name in the error
    f"CREATE TRIGGER k AFTER INSERT ON messages BEGIN {KEEP}; END": "k",
    f"CREATE TRIGGER k BEFORE DELETE ON MESSAGES WHEN old.number > 0 BEGIN {KEEP}; END": "k",
    f"CREATE TRIGGER \"drop 'x'\" AFTER UPDATE OF body ON [messages] BEGIN {KEEP}; END": "drop 'x'",
    f"CREATE TRIGGER k AFTER UPDATE ON alembic_version BEGIN {KEEP}; END": "k",
    f"CREATE TRIGGER k AFTER INSERT ON vector_state BEGIN {KEEP}; END": "k",
    "DROP TABLE recall_logs; CREATE VIEW recall_logs AS SELECT * FROM keep": "recall_logs",
    'DROP TABLE recall_logs; CREATE VIEW "RECALL_LOGS" AS SELECT 1': "RECALL_LOGS",
    "DROP TABLE recall_logs; CREATE VIRTUAL TABLE recall_logs USING fts5(body)": "recall_logs",
    # A deleted row of a table of agentkit would delete a row of the other table, and run the trigger.
    "CREATE TABLE near (x REFERENCES messages(number) ON DELETE CASCADE);"
    f"CREATE TRIGGER k AFTER DELETE ON near BEGIN {KEEP}; END": "k",
    "CREATE TABLE near (x PRIMARY KEY REFERENCES items(id) ON DELETE CASCADE);"
    "CREATE TABLE far (x REFERENCES near(x) ON DELETE CASCADE);"
    f"CREATE TRIGGER k AFTER DELETE ON far BEGIN {KEEP}; END": "k",
    # SQLite reads these types and names as the normal types and names.
    f"{TRIGGER} {FORGE} type = 'TRIGGER' WHERE name = 'k'": "k",
    f"{TRIGGER} {FORGE} type = CAST('trigger' AS BLOB) WHERE name = 'k'": "k",
    f"{TRIGGER} {FORGE} type = 'Trigger' || char(0) || 'x', tbl_name = CAST('MESSAGES' AS BLOB) WHERE name = 'k'": "k",
    f"{TRIGGER} {FORGE} tbl_name = 'messages' || char(0) || 'x' WHERE name = 'k'": "k",
    f"CREATE TABLE near (x REFERENCES messages(number)); CREATE TRIGGER k AFTER DELETE ON near BEGIN {KEEP}; END;"
    f"{FORGE} type = 'TABLE' WHERE name = 'near'": "k",
    f"DROP TABLE recall_logs; CREATE VIEW recall_logs AS SELECT 1; {FORGE} type = 'VIEW' WHERE type = 'view'": (
        "recall_logs"
    ),
    f"DROP TABLE recall_logs; CREATE VIRTUAL TABLE recall_logs USING fts5(x); {FORGE} type = 'TABLE', rootpage = 2 "
    "WHERE name = 'recall_logs'": "recall_logs",
    # A unique index refuses rows, which would look like a write of another process.
    "CREATE UNIQUE INDEX i ON messages (body)": "i",
    "create  unique index i on messages (branch_id) where body = 'user'": "i",
    "DROP INDEX uq_messages_branch_id_key; CREATE UNIQUE INDEX uq_messages_branch_id_key ON messages (body)": (
        "uq_messages_branch_id_key"
    ),
    # Expressions run with each write, and can take all time and memory.
    f"CREATE INDEX i ON messages ({SLOW})": "i",
    f"CREATE INDEX i ON messages (body) WHERE {SLOW} > 0": "i",
    f"ALTER TABLE messages ADD COLUMN x AS ({SLOW})": "messages",
    f"ALTER TABLE messages ADD COLUMN x GENERATED ALWAYS AS ({SLOW}) VIRTUAL": "messages",
    f"ALTER TABLE messages ADD COLUMN x CHECK ({SLOW} > 0)": "messages",
    f"DROP TABLE recall_logs; CREATE TABLE recall_logs (id, x DEFAULT ({SLOW}))": "recall_logs",
    f"DROP TABLE recall_logs; CREATE TABLE recall_logs (id, x DEFAULT/* 'a' */({SLOW}))": "recall_logs",
    "DROP TABLE recall_logs; CREATE TABLE recall_logs (id, scope_id UNIQUE ON CONFLICT REPLACE)": "recall_logs",
    "DROP TABLE recall_logs; CREATE TABLE recall_logs (id, conversation COLLATE NOCASE UNIQUE)": "recall_logs",
}
LEFT_ALONE = (
    "CREATE TABLE other (x)",
    "CREATE VIEW seen AS SELECT * FROM messages",
    f"CREATE TABLE other (x); CREATE TRIGGER k AFTER INSERT ON other BEGIN {KEEP}; END",
    "CREATE VIRTUAL TABLE found USING fts5(body)",
    "CREATE INDEX mine ON messages (body)",
    "CREATE INDEX mine ON messages (body DESC, seq) WHERE seq > 3",
    f"CREATE TABLE other (x DEFAULT ({SLOW}) CHECK (x > 0)); CREATE INDEX i ON other (abs(x))",
    "ALTER TABLE messages ADD COLUMN note TEXT DEFAULT 'none'",
)


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    with Memory(tmp_path / "empty", scope="t"):
        pass
    return tmp_path / "empty"


def changed(empty: Path, statements: str) -> Path:
    """Return a copy of a store after statements of another person."""
    copy = empty.parent / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(empty, copy)
    connection = sqlite3.connect(copy / "memory.db")
    connection.executescript(f"CREATE TABLE keep (x); {statements}")
    connection.close()
    return copy


def test_the_error_names_objects_that_would_run(empty: Path) -> None:
    failures: list[str] = []
    for statements, name in REFUSED.items():
        store = changed(empty, statements)
        try:
            with Memory(store, scope="t"):
                failures.append(f"opened: {statements}")
        except StoreCorrupt as error:
            removal = str(error).rpartition("first: ")[2]
            connection = sqlite3.connect(store / "memory.db")
            if error.name != name or connection.execute("SELECT count(*) FROM keep").fetchone() != (0,):
                failures.append(f"{error.name}: {statements}")
            if FORGE not in statements:
                connection.execute(removal)
            connection.close()
    assert failures == []


def test_a_store_is_opened_after_its_trigger_is_removed(empty: Path) -> None:
    store = changed(empty, next(iter(REFUSED)))
    with pytest.raises(StoreCorrupt) as error:
        Memory(store, scope="t")
    connection = sqlite3.connect(store / "memory.db")
    connection.execute(str(error.value).rpartition("first: ")[2])
    connection.close()
    with Memory(store, scope="t") as memory:
        memory.session("s").append(Message("user", "hello"))


def test_other_objects_are_ignored_and_an_erasure_names_the_unchecked_tables(empty: Path) -> None:
    for statements in LEFT_ALONE:
        with Memory(changed(empty, statements), scope="t") as memory:
            memory.within(Scope("t", user="ada")).session("s").append(Message("user", "my card is 4000"))
            proof = memory.erase(Scope("t", user="ada"))
        assert proof.complete and "keep" in proof.unchecked and "'keep'" in proof.note, statements
    with Memory(empty, scope="t") as memory:
        proof = memory.erase(Scope("t", user="ada"))
    assert (proof.unchecked, proof.note) == ((), "")


def test_the_schema_of_a_file_calls_no_unsafe_function(empty: Path) -> None:
    store = changed(empty, "CREATE VIEW seen AS SELECT load_extension('x')")
    with Memory(store, scope="t") as memory, memory._store.database.read() as connection:
        assert connection.exec_driver_sql("PRAGMA trusted_schema").scalar() == 0
        with pytest.raises(sa.exc.DBAPIError, match="unsafe use"):
            connection.exec_driver_sql("SELECT * FROM seen")


def test_triggers_and_rules_of_a_postgresql_database_are_refused(fresh_postgres: str, tmp_path: Path) -> None:
    import psycopg

    with Memory(fresh_postgres, index=tmp_path / "index", scope="t"):
        pass
    body = "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END';"
    refused = {
        f"{body} CREATE TRIGGER k AFTER INSERT ON messages FOR EACH ROW EXECUTE FUNCTION f()": "k",
        "CREATE RULE r AS ON DELETE TO messages DO INSTEAD NOTHING": "r",
        "CREATE TABLE other (x int); CREATE RULE x AS ON DELETE TO other DO INSTEAD NOTHING": None,
        # A function of another person would run with the rights of this program.
        "CREATE FUNCTION g() RETURNS int LANGUAGE sql AS 'SELECT 1'; ALTER TABLE messages ALTER seq SET DEFAULT g()": (
            "seq"
        ),
        "ALTER TABLE messages ADD CONSTRAINT c CHECK (g() > 0)": "c",
        "CREATE FUNCTION h(text) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 1';"
        "CREATE INDEX i ON messages (h(body))": "i",
        'CREATE INDEX "I 2" ON messages (seq) WHERE h(body) > 0': "I 2",
        "ALTER TABLE messages ADD COLUMN x int GENERATED ALWAYS AS (h(body)) STORED": "x",
        "CREATE POLICY p ON messages USING (true)": "p",
        "CREATE OPERATOR === (FUNCTION = texteq, LEFTARG = text, RIGHTARG = text);"
        "ALTER TABLE messages ADD CONSTRAINT e CHECK (body === body)": "e",
        "CREATE TABLE near (x int DEFAULT g() CHECK (g() > 0)); CREATE INDEX mine ON messages (lower(body))": None,
        "ALTER TABLE recall_logs RENAME TO logs; CREATE MATERIALIZED VIEW recall_logs AS SELECT 1 AS id": "recall_logs",
    }
    for statements, name in refused.items():
        with psycopg.connect(fresh_postgres, autocommit=True) as connection:
            connection.execute(statements)
        if name is None:
            with Memory(fresh_postgres, index=tmp_path / "index", scope="t"):
                continue
        with pytest.raises(StoreError) as error:
            Memory(fresh_postgres, index=tmp_path / "index", scope="t")
        assert getattr(error.value, "name", None) == name
        with psycopg.connect(fresh_postgres, autocommit=True) as connection:
            connection.execute(str(error.value).rpartition("first: ")[2])
