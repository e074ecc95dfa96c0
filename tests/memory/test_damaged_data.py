"""Damaged rows: `verify` names them, recall and indexing skip them, `repair` moves them to a file."""

from __future__ import annotations

import json
import logging
import shutil
import sqlite3
from base64 import b64decode
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from agentkit.memory import FactDraft, Memory, RecallFilter, Scope, StoreCorrupt, StoreUnavailable
from agentkit.prompts import Document, Image, Message
from agentkit.testing import StoreProbe
from tests.effort import spread, thinned, unless_fresh
from tests.memory.embedders.word_embedder import Words
from tests.memory.stored_bytes import files_with
from tests.raising import raises

NO_UTF_8 = "CAST(x'ff' AS TEXT)"
BAD, GOOD = Scope("bad", user="local"), Scope("good", user="local")
PIXEL = b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
DEEP = "[" * 330 + "]" * 330
ALL = {"zebra turn", "zebra of t", "zebra document", "zebra image", "zebra that waits"}
FACTS = {"zebra fact", "fact of zebra turn", "fact of zebra of t"}


def facts_of(turns, known):  # type: ignore[no-untyped-def]
    return [FactDraft(f"fact of {turn.text}", sources=[turn.id]) for turn in turns if turn.new]


@pytest.fixture(scope="module")
def prepared_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("prepared") / "home"
    with Memory(home, embedder=Words()) as memory:
        for one in (memory.within(BAD), memory.within(GOOD)):
            one.session("s").append(Message("user", "zebra turn"))
            one.session("t").append(Message("user", "zebra of t"))
            one.facts.add("zebra fact", metadata={"a": 1})
            for source in ("a.md", "b.md"):
                one.documents.add("zebra document", source=source, metadata={"of": f"zebra herd of {one.scope.tenant}"})
            one.documents.add(Document("zebra image", image=Image(PIXEL)), source="i.gif")
            one.session("s").keep_note("note", 1)
            one.recall("zebra")
        memory.worker(facts_of).drain()
        for scope in (BAD, GOOD):
            memory.within(scope).session("s").append(Message("user", "zebra that waits"))
            memory.within(scope).recall_logs()
    return home


@pytest.fixture
def home(prepared_home: Path, tmp_path: Path) -> Path:
    return shutil.copytree(prepared_home, tmp_path / "home")


def damage(memory: Memory, table: str, change: str, which: str) -> None:
    with StoreProbe(memory).engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA foreign_keys=OFF")  # a damaged key can have dependent rows
        assert connection.exec_driver_sql(f"UPDATE {table} SET {change} WHERE {which}").rowcount >= 1
        connection.exec_driver_sql("PRAGMA foreign_keys=ON")


def recalled_texts(memory: Memory) -> set[str]:
    return {each.text for each in memory.recall("zebra", limit=20)}


ITS = "(SELECT id FROM scopes WHERE tenant = 'bad')"
TALK = f"(SELECT id FROM conversations WHERE name = 's' AND scope_id = {ITS})"
MAIN = f"(SELECT id FROM branches WHERE conversation_id = {TALK})"
FILE = f"source = 'a.md' AND scope_id = {ITS}"
DOCUMENTS = f"document_id IN (SELECT id FROM documents WHERE scope_id = {ITS})"
FACT = f"kind = 'fact' AND scope_id = {ITS} AND text = 'zebra fact'"
CASES = [
    ("scopes", f"tenant = {NO_UTF_8}", f"id = {ITS}"),
    ("scopes", "session = x'ff'", f"id = {ITS}"),
    ("conversations", f"name = {NO_UTF_8}", f"id = {TALK}"),
    ("conversations", "expires_at = 'soon'", f"id = {TALK}"),
    ("branches", "head_seq = 'x'", f"id = {MAIN}"),
    ("messages", f"body = {NO_UTF_8}", f"branch_id = {MAIN} AND seq = 2"),
    ("messages", "body = '{'", f"branch_id = {MAIN} AND seq = 1"),
    ("messages", "format = 'x'", f"branch_id = {MAIN} AND seq = 2"),
    ("messages", "seq = 'x'", f"branch_id = {MAIN} AND seq = 1"),
    ("branch_notes", f"name = {NO_UTF_8}", f"branch_id = {MAIN}"),
    ("branch_notes", "body = '{'", f"branch_id = {MAIN}"),
    ("documents", f"uri = {NO_UTF_8}", FILE),
    ("documents", "meta = '[1]'", FILE),
    ("documents", "chunks = x'ff'", FILE),
    ("images", f"name = {NO_UTF_8}", DOCUMENTS),
    ("images", "content = 7", DOCUMENTS),
    ("items", "scope_id = 'x'", FACT),
    ("items", f"text = {NO_UTF_8}", FACT),
    ("items", "id = x'ff'", FACT),
    ("items", "meta = '{'", FACT),
    ("items", "role = 'x'", f"kind = 'turn' AND branch_id = {MAIN}"),
    ("document_chunks", f"position = {NO_UTF_8}", DOCUMENTS),
    ("recall_logs", f"query = {NO_UTF_8}", f"scope_id = {ITS}"),
    ("recall_logs", "candidates = '[1]'", f"scope_id = {ITS}"),
    ("recall_logs", "took_us = 'long'", f"scope_id = {ITS}"),
    ("embeddings", "vector = 9223372036854775807", "true"),
    ("vector_state", "attempts = 'x'", f"scope_id = {ITS}"),
]


@pytest.mark.parametrize(("table", "change", "which"), spread(thinned(CASES, 6), 2))
def test_a_corrupt_row_is_named_and_moved_and_other_scopes_work(
    home: Path, tmp_path: Path, table: str, change: str, which: str
) -> None:
    with Memory(home, embedder=Words()) as memory:
        damage(memory, table, change, which)
        good, moved = memory.within(GOOD), tmp_path / "moved.jsonl"
        assert recalled_texts(good) == ALL
        memory.worker(facts_of).drain()
        checked = memory.admin.verify()
        assert table in {row.table for row in checked.corrupt_rows} and not checked.ok
        assert checked.corrupt == len(checked.corrupt_rows) == memory.admin.repair().after.corrupt
        memory.admin.expire()
        assert "good" in [one.tenant for one in memory.admin.usage()]
        memory.admin.export(tmp_path / "a.jsonl")
        repaired = memory.admin.repair(removed_to=moved)
        assert (repaired.after.ok, repaired.after.corrupt) == (True, 0)
        lines = [json.loads(line) for line in moved.read_text("utf-8").splitlines()]
        assert table in {line["table"] for line in lines} and len(lines) == repaired.removed >= checked.corrupt
        assert moved.stat().st_mode & 0o77 == 0
        assert recalled_texts(good) == ALL
        assert {fact.text for fact in good.facts.list()} == FACTS | {"fact of zebra that waits"}
        bad = memory.within(BAD)
        for read in (bad.facts.list, bad.documents.list, bad.sessions, bad.recall_logs):
            read()
        bad.session("s").append(Message("user", "zebra that is new"))
        bad.documents.add("zebra document", source="a.md")
        assert {"zebra that is new", "zebra document"} <= recalled_texts(bad)
        assert bad.erase(BAD).complete
    with Memory(tmp_path / "copy", embedder=Words()) as memory:
        memory.admin.restore(tmp_path / "a.jsonl")
        assert recalled_texts(memory.within(GOOD)) == ALL


@pytest.mark.parametrize(("table", "change", "which"), spread(thinned(CASES[1:], 6), 2))
def test_a_scope_with_a_corrupt_row_is_erased_without_a_repair(home: Path, table: str, change: str, which: str) -> None:
    with Memory(home, embedder=Words()) as memory:
        damage(memory, table, change, which)
        assert memory.within(BAD).erase(BAD).complete or table in ("scopes", "items")
        assert recalled_texts(memory.within(GOOD)) == ALL


MINE = "kind = 'fact' AND text = 'zebra fact' AND scope_id = (SELECT id FROM scopes WHERE tenant = 'bad')"
VALUES = [
    ("meta", f"""'{{"a": {DEEP}}}'"""),
    ("meta", f"'{'[' * 200_000}'"),
    ("meta", f"""'{{"a": {"9" * 5000}}}'"""),
    *[("meta", value) for value in ("'{'", "'[1]'", "''", "x'ff'", "CAST(x'22ff22' AS TEXT)")],
    *[("title", value) for value in (NO_UTF_8, "x'00ff'")],
    *[("text", value) for value in ("CAST(x'7a65627261ff' AS TEXT)", "x'7a65627261'", "x'00fffe'")],
    *[(name, "'one'") for name in ("position", "said_at", "line", "valid_from")],
    ("created_at", "x'ff'"),
]


@pytest.mark.parametrize(("column", "value"), spread(thinned(VALUES), 2))
def test_a_corrupt_item_is_omitted_from_recall_and_refused_by_the_list(home: Path, column: str, value: str) -> None:
    with Memory(home, embedder=Words()) as memory:
        bad = memory.within(BAD)
        (item,) = [fact.id for fact in bad.facts.list() if fact.text == "zebra fact"]
        damage(memory, "items", f"{column} = {value}", MINE)
        recalled = bad.recall("zebra fact", limit=20)
        assert item not in {fact.id for fact in recalled.knowledge} and len(recalled.knowledge) >= 2
        if column != "valid_from":  # such a fact is invalid
            (report,) = [each for each in recalled.degraded if "corrupt items" in each]
            assert report.startswith("1 corrupt items were left out, such as ")
        if column not in ("title", "said_at", "line"):  # facts do not have it
            with raises(StoreCorrupt, table="items", row=item, name=column):
                bad.facts.list()
        assert bad.facts.remove(item)
        assert len(bad.facts.list()) >= 2


LISTS: dict[str, Callable[[Memory], object]] = {
    "documents": lambda memory: memory.documents.list(),
    "recall_logs": lambda memory: memory.recall_logs(),
    "conversations": lambda memory: memory.sessions(),
}


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("documents", "meta", "'{'"),
        ("documents", "ingested_at", "'x'"),
        ("recall_logs", "degraded", "'7'"),
        ("recall_logs", "policy", f"'{'[' * 100_000}'"),
        ("recall_logs", "at", "'today'"),
        ("conversations", "name", NO_UTF_8),
        ("conversations", "created_at", "x'ff'"),
    ],
)
def test_the_error_of_a_list_with_a_corrupt_row_names_the_row(home: Path, table: str, column: str, value: str) -> None:
    with Memory(home, embedder=Words()) as memory:
        which = TALK if table == "conversations" else f"(SELECT min(id) FROM {table} WHERE scope_id = {ITS})"
        damage(memory, table, f"{column} = {value}", f"id = {which}")
        with raises(StoreCorrupt, table=table, name=column) as caught:
            LISTS[table](memory.within(BAD))
        assert caught.value.row
        LISTS[table](memory.within(GOOD))
        if table == "documents":
            assert all(memory.within(BAD).documents.forget(source) for source in ("a.md", "b.md", "i.gif"))


def test_facts_of_moved_turns_are_moved_and_no_gap_remains(home: Path, tmp_path: Path) -> None:
    with Memory(home, embedder=Words()) as memory:
        damage(memory, "messages", "body = '[]'", f"branch_id = {MAIN} AND seq = 1")
        damage(memory, "items", "meta = '{'", f"branch_id = {MAIN} AND position = 1")
        repaired = memory.admin.repair(removed_to=tmp_path / "moved.jsonl")
        assert (repaired.before.corrupt, repaired.removed, repaired.after.ok) == (2, 3, True)
        assert "fact of zebra turn" in (tmp_path / "moved.jsonl").read_text("utf-8")
        bad = memory.within(BAD)
        assert "fact of zebra turn" not in {fact.text for fact in bad.facts.list()}
        assert [message.text for message in bad.session("s").conversation] == ["[redacted]", "zebra that waits"]
        damage(memory, "items", "meta = '{'", MINE)
        with raises(StoreUnavailable, name="exists"):
            memory.admin.repair(removed_to=tmp_path / "moved.jsonl")
        assert memory.admin.verify().corrupt == 1


def test_many_messages_with_damaged_numbers_leave_no_gap(home: Path, tmp_path: Path) -> None:
    """Their number is above the number of rows that a repair removes in a transaction."""
    with Memory(home) as memory:
        session = memory.within(BAD).session("s")
        before = len(session.append(*[Message("user", f"heron {number}") for number in range(620)]))
        damage(memory, "messages", "seq = 'z' || seq", f"branch_id = {MAIN} AND seq > 10 AND seq % 80 != 7")
        damage(memory, "messages", "body = '{'", f"branch_id = {MAIN} AND typeof(seq) = 'integer' AND seq % 160 = 7")
        assert memory.admin.repair(removed_to=tmp_path / "rows").after.corrupt == 0
        after = memory.within(BAD).session("s").page(limit=1000)
    assert [each.seq for each in after] == list(range(1, before + 1))
    assert {each.seq for each in after if not each.redacted} == {*range(1, 11), 87, 247, 407, 567} - {7}


def test_the_turn_and_the_facts_of_a_damaged_message_are_in_the_file(home: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved.jsonl"
    with Memory(home, embedder=Words()) as memory:
        damage(memory, "messages", "body = '[]'", f"branch_id = {MAIN} AND seq = 1")
        repaired = memory.admin.repair(removed_to=moved)
        assert (repaired.before.corrupt, repaired.after.ok) == (1, True)
        lines = [json.loads(line) for line in moved.read_text("utf-8").splitlines()]
        assert sorted((line["table"], line["row"].get("kind")) for line in lines) == [
            ("items", "fact"),
            ("items", "turn"),
            ("messages", None),
        ]
        assert "fact of zebra turn" in [line["row"].get("text") for line in lines]
        assert "fact of zebra turn" not in {fact.text for fact in memory.within(BAD).facts.list()}


class Stopped(Exception):
    """End of a repair, as if its process was killed."""


def stop_at(engine: Engine, number: int) -> Callable[..., None]:
    """Return a listener that raises at the writing statement with this number, counted from 0."""
    writes = count()

    def stop(connection: object, cursor: object, statement: str, *_: object) -> None:
        if statement.startswith(("DELETE", "INSERT", "UPDATE")) and next(writes) == number:
            raise Stopped

    event.listen(engine, "before_cursor_execute", stop)
    return stop


def test_another_repair_continues_a_repair_that_ends_at_any_write(home: Path, tmp_path: Path) -> None:
    for number in count(step=unless_fresh(8, 1)):
        place = shutil.copytree(home, tmp_path / f"{number}")
        with Memory(place, embedder=Words()) as memory:
            engine = StoreProbe(memory).engine
            damage(memory, "messages", "body = '[]'", f"branch_id = {MAIN} AND seq = 1")
            damage(memory, "items", "meta = '{'", f"document_id IN (SELECT id FROM documents WHERE {FILE})")
            stop = stop_at(engine, number)
            was_stopped = False
            try:
                memory.admin.repair(removed_to=place / "first.jsonl")
            except Stopped:
                was_stopped = True
            event.remove(engine, "before_cursor_execute", stop)
            memory.admin.repair(removed_to=place / "second.jsonl")
            assert memory.admin.verify().corrupt == 0
            bad = memory.within(BAD)
            assert [message.text for message in bad.session("s").conversation] == ["[redacted]", "zebra that waits"]
            bad.documents.add("zebra document", source="a.md")
            assert "zebra document" in {each.text for each in bad.recall("zebra", limit=20)}
        if not was_stopped:
            break
    assert number > 3


def test_the_error_names_a_damaged_file(home: Path) -> None:
    with closing(sqlite3.connect(home / "memory.db")) as connection, connection:
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute("UPDATE sqlite_master SET sql = replace(sql, 'said_at FLOAT', 'said_at FLOAT NOT NULL')")
    with Memory(home, embedder=Words()) as memory:
        checked = memory.admin.verify()
        assert not checked.ok and "NULL value in" in checked.file_problems[0]


@pytest.mark.parametrize("body", ["'{}'", "7", """'{"content":"' || CAST(x'ff' AS TEXT) || '"}'"""])
def test_a_damaged_message_does_not_affect_the_recall_of_other_turns(home: Path, body: str) -> None:
    with Memory(home, embedder=Words()) as memory:
        damage(memory, "messages", f"body = {body}", f"branch_id = {MAIN} AND seq = 1")
        bad = memory.within(BAD)
        recalled = bad.recall("zebra", limit=20)
        assert {"zebra that waits", "zebra document"} <= {each.text for each in recalled}
        assert [each for each in recalled.degraded if "1 corrupt items were left out, such as " in each]
        with raises(StoreCorrupt):
            bad.session("s").append(Message("user", "zebra"))
        assert [row.table for row in memory.admin.verify().corrupt_rows] == ["messages"]


@pytest.mark.parametrize("id_", ["'no id'", "'ZEBRA' || id", "x'ff'", NO_UTF_8])
def test_an_invalid_id_does_not_affect_a_recall_with_a_filter(home: Path, id_: str) -> None:
    with Memory(home, embedder=Words()) as memory:
        bad = memory.within(BAD)
        bad.session("many").append(*[Message("user", "zebra")] * 300)
        memory.worker().drain()
        damage(memory, "items", f"id = {id_}", MINE)
        documents = bad.recall("zebra", where=RecallFilter(kinds=["chunk"]))
        assert {document.text for document in documents} == {"zebra document"}


def test_an_item_without_a_uuid_is_reported_and_other_items_are_indexed(home: Path) -> None:
    with Memory(home, embedder=Words()) as memory:
        damage(memory, "items", "id = 'wrong'", MINE)
        first = f"(SELECT min(item_id) FROM vector_state WHERE scope_id = {ITS})"
        damage(memory, "vector_state", "have = 0, item_id = 'wrong'", f"item_id = {first}")
        memory.within(GOOD).facts.add("zebra fact that is new")
        memory.worker().drain()
        for checked in (memory.admin.verify(), memory.admin.repair().after, memory.admin.rebuild()):
            assert checked.problems == {"wrong": "it is corrupt: its id is not a UUID, and no index takes it"}
        texts = {fact.text for fact in memory.within(GOOD).recall("zebra", limit=20).knowledge}
        assert {"zebra fact", "zebra fact that is new"} <= texts


@pytest.mark.parametrize("change", ["head_seq = 2147483647", "itemised_seq = -2147483648", "itemised_seq = 1"])
def test_damaged_numbers_of_a_conversation_do_not_affect_the_index_of_others(home: Path, change: str) -> None:
    with Memory(home, embedder=Words()) as memory:
        damage(memory, "branches", change, f"id = {MAIN}")
        memory.within(GOOD).session("new").append(Message("user", "zebra of a new conversation"))
        memory.worker().drain()
        texts = [item.text for item in StoreProbe(memory).items()]
        assert (texts.count("zebra of a new conversation"), texts.count("zebra turn")) == (1, 2)


def test_corrupt_rows_are_omitted_from_an_export_and_logged(
    home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Memory(home, embedder=Words()) as memory, caplog.at_level(logging.WARNING, "agentkit.memory"):
        damage(memory, "conversations", "name = x'ff'", f"id = {TALK}")
        memory.admin.export(tmp_path / "a.jsonl")
    (log,) = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert log.startswith("corrupt rows were left out: 1 of conversations, 1 of branches, 1 of items, ")
    assert log.endswith("(its name is b'\\xff', expected text)")


@pytest.mark.parametrize("change", ["counts = '['", "counts = '7'", f"tenant = {NO_UTF_8}"])
def test_a_damaged_erasure_affects_neither_other_erasures_nor_the_opening(home: Path, change: str) -> None:
    with Memory(home, embedder=Words()) as memory:
        memory.within(BAD).erase(BAD)
        damage(memory, "erasures", f"finished_at = NULL, {change}", "true")
    with Memory(home, embedder=Words()) as memory:
        assert memory.within(GOOD).erase(GOOD).complete


OWNERLESS = [
    f"UPDATE branches SET id = 999999 WHERE id = {MAIN}",
    f"UPDATE messages SET branch_id = {NO_UTF_8} WHERE branch_id = {MAIN} AND seq = 2",
    f"DELETE FROM conversations WHERE id = {TALK}",
    "UPDATE document_chunks SET document_id = 'x'",
    f"UPDATE document_chunks SET item_id = 'x' || item_id WHERE {DOCUMENTS}",
    f"UPDATE document_chunks SET item_id = 'x' || item_id, document_id = 'x' WHERE {DOCUMENTS}",
    "UPDATE images SET document_id = 'x' WHERE document_id = (SELECT min(document_id) FROM images)",
]


@pytest.mark.parametrize("statement", spread(thinned(OWNERLESS, 3), 2))
def test_an_erasure_is_complete_despite_rows_without_an_owner(home: Path, statement: str) -> None:
    with closing(sqlite3.connect(home / "memory.db")) as connection, connection:
        assert connection.execute(statement).rowcount >= 1
    with Memory(home, embedder=Words()) as memory:
        good = memory.within(GOOD)
        assert memory.within(BAD).erase(BAD).complete
        assert files_with(b"herd of bad", home) == [] != files_with(b"herd of good", home)
        assert recalled_texts(good) >= ALL - {"zebra image"}
        assert good.erase(GOOD).complete
    assert files_with(b"zebra", home) == []


def test_a_conversation_with_a_damaged_message_expires(home: Path) -> None:
    with Memory(home, embedder=Words()) as memory:
        damage(memory, "conversations", "expires_at = 1", "name = 's'")
        damage(memory, "messages", f"body = {NO_UTF_8}, seq = 'x'", f"branch_id = {MAIN} AND seq = 1")
        assert memory.admin.expire()["conversations"] == 2
        assert [one.name for one in memory.within(BAD).sessions()] == ["t"]


def test_only_the_conversation_with_a_damaged_row_is_refused(home: Path) -> None:
    with Memory(home, embedder=Words()) as memory:
        damage(memory, "conversations", "expires_at = 'soon'", f"id = {TALK}")
        with raises(StoreCorrupt, table="conversations", name="expires_at", path="conversation 's'") as caught:
            memory.within(BAD).session("s")
        assert [row.row for row in memory.admin.verify().corrupt_rows if row.column == "expires_at"] == [
            caught.value.row
        ]
        memory.within(BAD).session("t").append(Message("user", "zebra"))


@pytest.mark.parametrize("change", ["body = '{'", "body = 7", f"body = {NO_UTF_8}", "format = 'x'"])
def test_the_error_of_a_conversation_names_its_damaged_message(home: Path, change: str) -> None:
    with Memory(home, embedder=Words()) as memory:
        damage(memory, "messages", change, f"branch_id = {MAIN} AND seq = 2")
        bad = memory.within(BAD)
        session = bad.session("s", load=False)
        name = change.split()[0]
        for read in (lambda: bad.session("s"), session.page, lambda: session.redact(2)):
            with raises(StoreCorrupt, table="messages", row="2", name=name, path="conversation 's'"):
                read()


@pytest.mark.parametrize(("column", "value"), [("body", "'{'"), ("name", NO_UTF_8)])
def test_the_error_of_a_damaged_note_names_the_row(home: Path, column: str, value: str) -> None:
    with Memory(home, embedder=Words()) as memory:
        damage(memory, "branch_notes", f"{column} = {value}", f"branch_id = {MAIN}")
        with raises(StoreCorrupt, table="branch_notes", name=column, path="conversation 's'") as caught:
            memory.within(BAD).session("s").note("note")
        assert caught.value.row


@pytest.mark.parametrize("change", [f"query = {NO_UTF_8}", "query = 7", "candidates = '[1]'", "candidates = x'ff'"])
def test_a_damaged_log_does_not_prevent_a_change_of_the_embedder(home: Path, change: str) -> None:
    with Memory(home, embedder=Words()) as memory:
        damage(memory, "recall_logs", change, f"scope_id = {ITS}")
        done = memory.admin.reembed(Words("two"))
        assert done.flipped and {check.name: check.passed for check in done.checks} == {
            "self-retrieval": True,
            "recent recalls": True,
        }


@pytest.mark.parametrize("column", ["title", "text"])
def test_a_damaged_item_does_not_prevent_a_change_of_the_embedder(home: Path, column: str) -> None:
    with Memory(home, embedder=Words()) as memory:
        damage(memory, "items", f"{column} = {NO_UTF_8}", MINE)
        assert memory.admin.reembed(Words("two")).flipped


@pytest.mark.parametrize("value", ["x'ff'", NO_UTF_8, "'no id'"])
def test_a_fact_with_a_damaged_id_does_not_affect_a_search_of_facts(home: Path, value: str) -> None:
    with Memory(home, embedder=Words()) as memory:
        damage(memory, "items", f"id = {value}", MINE)
        assert "fact of zebra turn" in {fact.text for fact in memory.within(BAD).facts.search("zebra", limit=20)}


def test_a_corrupt_number_in_the_outbox_does_not_affect_the_index_of_other_items(tmp_path: Path) -> None:
    refused = ["otter"]

    def wrong(text: str) -> None:
        if any(word in text for word in refused):
            raise ValueError(text)

    embedder = Words(wrong=wrong)
    with Memory(tmp_path / "new", embedder=embedder) as memory:
        memory.facts.add("an otter swims")
        memory.facts.add("a newt dives")
        memory.worker().drain()
        first, second = StoreProbe(memory).values("SELECT id FROM items ORDER BY text DESC")
        damage(memory, "vector_state", "attempts = 'x', leased_until = NULL", f"item_id = '{first}'")
        damage(memory, "vector_state", "want = 'x'", f"item_id = '{second}'")
        memory.facts.add("a heron waits")
        memory.worker().drain()
        assert [fact.text for fact in memory.recall("heron").knowledge][:1] == ["a heron waits"]
        checked = memory.admin.verify()
        assert checked.problems.keys() == {first, second}
        assert {row.table for row in checked.corrupt_rows} == {"vector_state"}
        assert memory.admin.repair(removed_to=tmp_path / "moved.jsonl").after.corrupt == 0
        refused.clear()
        memory.worker().drain()
        assert {"an otter swims", "a newt dives"} <= {fact.text for fact in memory.recall("otter newt").knowledge}
