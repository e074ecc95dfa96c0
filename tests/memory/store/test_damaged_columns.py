"""A damaged row of any table keeps nobody from the others: they are listed, indexed, copied and erased as before."""

from __future__ import annotations

import logging
import shutil
import sqlite3
from base64 import b64decode
from contextlib import closing
from pathlib import Path

import pytest

from agentkit.memory import FactDraft, Memory, Scope, StoredFact
from agentkit.prompts import Document, Image, Message
from tests.effort import spread
from tests.memory.embedders.word_embedder import Words

NO_UTF_8 = "CAST(x'ff' AS TEXT)"
BAD, GOOD = Scope("bad"), Scope("good")
PIXEL = b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
MOVED = """INSERT INTO chunk_moves SELECT document_id, id, 0, position, start, "end", line, meta FROM items
    WHERE document_id IS NOT NULL"""


def facts_of(turns, known):  # type: ignore[no-untyped-def]
    return [FactDraft(f"fact of {turn.text}", sources=[turn.id]) for turn in turns if turn.new]


def alter(home: Path, *statements: str) -> None:
    with closing(sqlite3.connect(home / "memory.db")) as connection, connection:
        assert [connection.execute(each).rowcount for each in statements][-1] >= 1


def fill(memory: Memory) -> None:
    memory.session("s").append(Message("user", "zebra turn"))
    memory.session("t").append(Message("user", "zebra of t"))
    memory.facts.add("zebra fact")
    memory.documents.add("zebra document", source="a.md")
    memory.documents.add("zebra document", source="b.md")
    memory.documents.add(Document("zebra image", image=Image(PIXEL)), source="i.gif")
    memory.recall("zebra")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("made") / "home"
    with Memory.open(home, embedder=Words()) as memory:
        for scope in (BAD, GOOD):
            fill(memory.within(scope))
        memory.worker(facts_of).drain()
        for scope in (BAD, GOOD):
            memory.within(scope).session("s").append(Message("user", "zebra that waits"))
            memory.within(scope).recall_logs()
    return home


@pytest.fixture
def home(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "home")


def found(memory: Memory) -> set[str]:
    return {each.text for each in memory.recall("zebra", limit=20)}


ALL = {"zebra turn", "zebra of t", "zebra document", "zebra image", "zebra that waits"}
FACTS = {"zebra fact", "fact of zebra turn", "fact of zebra of t"}
ITS = "(SELECT id FROM scopes WHERE tenant = 'bad')"
TALK = f"(SELECT id FROM conversations WHERE name = 's' AND scope_id = {ITS})"
MAIN = f"(SELECT id FROM branches WHERE conversation_id = {TALK})"
FILE = f"source = 'a.md' AND scope_id = {ITS}"
LONG = pytest.mark.long  # another damage of a table that is among the others, or one with tests of its own
CASES = [
    ("scopes", f"tenant = {NO_UTF_8}", f"id = {ITS}"),
    pytest.param("scopes", "session = x'ff'", f"id = {ITS}", marks=LONG),
    pytest.param("scopes", "id = -1", f"id = {ITS}", marks=LONG),
    ("conversations", f"name = {NO_UTF_8}", f"id = {TALK}"),
    ("branches", "head_seq = 'x'", f"id = {MAIN}"),
    ("messages", f"body = {NO_UTF_8}", f"branch_id = {MAIN} AND seq = 2"),
    pytest.param("messages", "format = 'x'", f"branch_id = {MAIN} AND seq = 2", marks=LONG),
    pytest.param("documents", f"uri = {NO_UTF_8}", FILE, marks=LONG),
    ("images", f"content = {NO_UTF_8}", f"document_id IN (SELECT id FROM documents WHERE scope_id = {ITS})"),
    ("items", f"scope_id = {NO_UTF_8}", f"kind = 'fact' AND scope_id = {ITS}"),
    pytest.param("items", "id = x'ff'", f"kind = 'fact' AND text = 'zebra fact' AND scope_id = {ITS}", marks=LONG),
    ("chunk_moves", f"position = {NO_UTF_8}", "true"),
    pytest.param("recall_logs", f"query = {NO_UTF_8}", f"scope_id = {ITS}", marks=LONG),
    ("embeddings", "vector = 9223372036854775807", "true"),
]


@pytest.mark.parametrize(("table", "damage", "which"), spread(CASES, 2))
def test_a_damaged_row_keeps_nobody_from_the_others(
    home: Path, tmp_path: Path, table: str, damage: str, which: str
) -> None:
    prepared = [MOVED] if table == "chunk_moves" else []
    alter(home, *prepared, f"UPDATE {table} SET {damage} WHERE {which}")
    with Memory.open(home, embedder=Words()) as memory:
        good = memory.within(GOOD)
        assert found(good) == ALL
        memory.worker(facts_of).drain()
        assert {fact.text for fact in good.facts.list()} == FACTS | {"fact of zebra that waits"}
        memory.admin.verify()
        memory.admin.repair()
        memory.admin.rebuild()
        memory.admin.expire()
        assert "good" in [one.tenant for one in memory.admin.usage()]
        assert found(good) == ALL
        bad = memory.within(BAD)
        assert "t" in [one.name for one in bad.sessions()] or table == "scopes"
        assert "b.md" in [one.source for one in bad.documents.list()] or table == "scopes"
        bad.recall("zebra")
        bad.facts.list()
        bad.documents.add("zebra that is new", source="new.md")
        memory.admin.backup(tmp_path / "a.backup")
        memory.admin.export(tmp_path / "a.jsonl")
        copies = [tmp_path / "a.backup", tmp_path / "a.jsonl"]
        assert memory.within(BAD).erase(BAD).complete or table in ("scopes", "items")
    for copy in copies:
        with Memory.open(tmp_path / f"from{copy.suffix}", embedder=Words()) as memory:
            memory.admin.restore(copy)
            memory.worker().drain()
            good = memory.within(GOOD)
            assert found(good) == ALL and len(good.facts.list()) == 4


def test_what_is_damaged_is_left_out_of_an_export_with_what_belongs_to_it_and_logged(
    home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    alter(home, f"UPDATE conversations SET name = x'ff' WHERE id = {TALK}")
    with Memory.open(home) as memory, caplog.at_level(logging.WARNING, "agentkit.memory"):
        memory.admin.export(tmp_path / "a.jsonl")
    (said,) = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert said.startswith(
        "damaged rows were left out: 1 of conversations, 1 of branches, 2 of messages; the first is "
    )
    assert said.endswith("(its name is b'\\xff', expected text)")


@pytest.mark.parametrize("damage", ["counts = '['", "counts = '7'", f"tenant = {NO_UTF_8}"])
def test_a_damaged_erasure_ends_no_other_and_no_opening(home: Path, damage: str) -> None:
    with Memory.open(home) as memory:
        memory.within(BAD).erase(BAD)
    alter(home, f"UPDATE erasures SET finished_at = NULL, {damage}")
    with Memory.open(home) as memory:
        assert memory.within(GOOD).erase(GOOD).complete


@pytest.mark.parametrize(
    "damage",
    spread(
        [
            f"UPDATE branches SET id = 999999 WHERE id = {MAIN}",
            f"UPDATE messages SET branch_id = {NO_UTF_8} WHERE branch_id = {MAIN} AND seq = 2",
            f"DELETE FROM conversations WHERE id = {TALK}",
            "UPDATE chunk_moves SET document_id = 'x'",
            "UPDATE images SET document_id = 'x' WHERE document_id = (SELECT min(document_id) FROM images)",
        ],
        2,
    ),
)
def test_rows_without_an_owner_keep_no_erasure_from_being_complete(home: Path, damage: str) -> None:
    alter(home, MOVED, damage)
    with Memory.open(home, embedder=Words()) as memory:
        good = memory.within(GOOD)
        assert memory.within(BAD).erase(BAD).complete
        assert found(good) >= ALL - {"zebra image"}
        assert good.erase(GOOD).complete


def test_a_damaged_fact_is_listed_with_its_problem_and_can_be_removed(home: Path) -> None:
    alter(home, f"UPDATE items SET text = {NO_UTF_8} WHERE text = 'zebra fact' AND scope_id = {ITS}")
    with Memory.open(home) as memory:
        bad = memory.within(BAD)
        listed: dict[str, StoredFact] = {fact.problem: fact for fact in bad.facts.list()}
        assert set(listed) == {"", "its text is damaged"}
        assert bad.facts.remove(listed["its text is damaged"].id)
        assert {fact.problem for fact in bad.facts.list()} == {""}


def test_a_conversation_with_a_damaged_message_expires_beside_the_others(home: Path) -> None:
    alter(home, "UPDATE conversations SET expires_at = 1 WHERE name = 's'")
    alter(home, f"UPDATE messages SET body = {NO_UTF_8}, seq = 'x' WHERE branch_id = {MAIN} AND seq = 1")
    with Memory.open(home) as memory:
        assert memory.admin.expire()["conversations"] == 2
        assert [one.name for one in memory.within(BAD).sessions()] == ["t"]
