"""A row that cannot be read is left out of a recall and reported; all others are found."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentkit.memory import Gate, IngestOptions, InvalidArgument, Memory, RecallFilter, StoreCorrupt
from agentkit.prompts import Message
from agentkit.testing import StoreProbe
from agentkit_memory.store.records import RecallLog
from tests.effort import spread
from tests.memory.embedders.word_embedder import Words
from tests.raising import raises

DEEP = "[" * 330 + "]" * 330


def alter(home: Path, statement: str) -> None:
    with closing(sqlite3.connect(home / "memory.db")) as connection, connection:
        assert connection.execute(statement).rowcount >= 1


def damage(home: Path, column: str, value: object) -> None:
    """Change a column of the chunk, the fact and the turn with this word."""
    turn = "(branch_id, position) IN (SELECT branch_id, seq FROM messages WHERE body LIKE '%poison%')"
    alter(home, f"UPDATE items SET {column} = {value} WHERE text LIKE '%poison%' OR {turn}")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    (folder / "a.jsonl").write_text('{"text": "zebra poison"}\n{"text": "zebra of a file"}\n')
    with Memory.open(folder / "home") as memory:
        memory.ingest(folder / "a.jsonl")
        memory.facts.add("zebra poison fact")
        memory.facts.add("zebra fact")
        memory.session("s").append(Message("user", "zebra turn"), Message("user", "zebra poison turn"))
        memory.worker().drain()
    return folder / "home"


@pytest.fixture
def home(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "home")


@pytest.mark.parametrize(
    ("column", "value"),
    spread(
        [
            ("meta", f"""'{{"a": {DEEP}}}'"""),
            ("meta", f"'{'[' * 200_000}'"),
            ("meta", "'{'"),
            ("meta", "'[1]'"),
            ("meta", "''"),
            ("meta", f"""'{{"a": {"9" * 5000}}}'"""),
            ("meta", "x'ff'"),
            ("meta", "CAST(x'22ff22' AS TEXT)"),
            ("title", "CAST(x'ff' AS TEXT)"),
            ("title", "x'00ff'"),
            ("position", "'first'"),
            ("said_at", "'yesterday'"),
            ("line", "'one'"),
            ("created_at", "x'ff'"),
            ("text", "CAST(x'7a65627261ff' AS TEXT)"),
            ("text", "x'7a65627261'"),
        ],
        2,
    ),
)
def test_a_damaged_row_hurts_no_other(home: Path, column: str, value: str) -> None:
    damage(home, column, value)
    with Memory.open(home) as memory:
        found = memory.recall("zebra", limit=10)
        assert {document.text for document in found} == {"zebra of a file", "zebra turn"}
        assert [fact.text for fact in found.knowledge] == ["zebra fact"]
        (trouble,) = [each for each in found.degraded if "damaged items" in each]
        assert trouble.startswith("3 damaged items were left out, such as ")


@pytest.mark.parametrize("id_", ["'no id'", "'ZEBRA' || id", "x'ff'", "CAST(x'ff' AS TEXT)"])
def test_an_id_that_is_none_keeps_nothing_else_from_a_recall_with_a_filter(home: Path, id_: str) -> None:
    with Memory.open(home) as memory:
        memory.session("many").append(*[Message("user", "zebra")] * 300)
        memory.worker().drain()
    alter(home, f"UPDATE items SET id = {id_} WHERE text = 'zebra poison fact'")
    with Memory.open(home) as memory:
        assert [fact.text for fact in memory.facts.search("zebra")] == ["zebra fact"]
        found = memory.recall("zebra", where=RecallFilter(kinds=["chunk"]))
        assert {document.text for document in found} == {"zebra of a file", "zebra poison"}


@pytest.mark.parametrize(
    "body", ["'{'", "'{}'", "'[1]'", "7", "x'ff'", """'{"content":"' || CAST(x'ff' AS TEXT) || '"}'"""]
)
def test_a_damaged_message_keeps_no_other_turn_from_recall(home: Path, body: str) -> None:
    alter(home, f"UPDATE messages SET body = {body} WHERE body LIKE '%poison%'")
    with Memory.open(home) as memory:
        found = memory.recall("zebra", limit=10)
        assert {"zebra of a file", "zebra turn"} == {each.text for each in found} - {"zebra poison"}
        (trouble,) = [each for each in found.degraded if "damaged items" in each]
        assert trouble.startswith("1 damaged items were left out, such as ")
        assert memory.admin.verify().unfound == 1
        memory.admin.repair()
        memory.admin.rebuild()
        assert memory.admin.usage()[0].turns == 2
        assert "zebra turn" in {each.text for each in memory.recall("zebra", limit=10)}


@pytest.mark.parametrize("meta", [f'{{"a": {DEEP}}}', "{", "[1]"])
def test_a_fact_with_damaged_metadata_is_listed_with_its_problem_and_can_be_removed(home: Path, meta: str) -> None:
    damage(home, "meta", f"'{meta}'")
    with Memory.open(home) as memory:
        bad, good = memory.facts.list()
        assert (bad.metadata, good.problem) == ({}, "")
        assert "its metadata " in bad.problem
        assert memory.facts.remove(bad.id)
        assert [each.id for each in memory.facts.list()] == [good.id]


@pytest.mark.parametrize("meta", [f'{{"a": {DEEP}}}', "{", "[1]"])
def test_a_document_with_damaged_metadata_is_listed_with_its_problem(home: Path, meta: str) -> None:
    with Memory.open(home) as memory:
        memory.documents.add("zebra given", source="good", metadata={"problem": "mine"})
        memory.documents.add("zebra bad", source="bad")
    alter(home, f"UPDATE documents SET meta = '{meta}' WHERE source = 'bad'")
    alter(home, f"UPDATE items SET meta = '{meta}' WHERE text = 'zebra bad'")
    with Memory.open(home) as memory:
        listed = {each.source: each for each in memory.documents.list()}
        assert "its metadata " in listed["bad"].problem and listed["bad"].metadata == {}
        assert (listed["good"].metadata, listed["good"].problem) == ({"problem": "mine"}, "")
        assert [chunk.text for chunk in memory.documents.chunks("bad")] == ["zebra bad"]
        assert memory.documents.forget("bad")


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


def test_metadata_that_is_too_deep_or_too_large_is_not_stored(home: Path) -> None:
    cyclic: dict[str, Any] = {}
    cyclic["a"] = cyclic
    with Memory.open(home) as memory:
        for metadata in (nested(33), nested(330), nested(100_000), cyclic, {"a": "x" * 8192}, {"a": float("nan")}):
            with raises(InvalidArgument, name="metadata"):
                memory.facts.add("zebra again", metadata=metadata)
        kept = memory.facts.add("zebra at the bound", metadata=nested(32))
        assert kept.metadata == nested(32)
        assert "zebra at the bound" in [fact.text for fact in memory.recall("zebra bound").knowledge]


def test_a_record_with_metadata_that_is_too_deep_is_refused_by_itself(tmp_path: Path) -> None:
    lines = [{"text": "zebra", "deep": nested(330)}, {"text": "zebra flat", "deep": nested(3)}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    options = IngestOptions(lenient=True, record_metadata=("deep",))
    with Memory.open(tmp_path / "home") as memory:
        report = memory.ingest(tmp_path / "a.jsonl", options=options)
        assert "line 1 has metadata that nests deeper than 32 levels" in str(report.repaired[0])
        assert [found.text for found in memory.recall("zebra")] == ["zebra flat"]


STRANGE = '"kind": "turn", "score": 1, "used": true, "why": ""'
DAMAGES = [
    *[("candidates", f"'{stored}'") for stored in ("[", "[1]", '[{"shot": 1}]', "7", "[" * 100_000)],
    ("candidates", f"""'[{{"item": 1, {STRANGE}}}]'"""),
    ("candidates", f"""'[{{"item": "1", {STRANGE}, "scores": {{"a": "b"}}}}]'"""),
    ("policy", "'[1]'"),
    ("degraded", "'\"text\"'"),
    ("query", "x'ff'"),
    ("took_us", "'long'"),
    ("at", "'today'"),
]


@pytest.mark.parametrize(("column", "value"), spread(DAMAGES, 3))
def test_a_damaged_recall_log_is_returned_with_its_problem_beside_the_others(
    home: Path, column: str, value: str
) -> None:
    with Memory.open(home) as memory:
        for query in ("heron", "zebra", "eel"):
            memory.recall(query)
        before = memory.recall_logs()
        alter(home, f"UPDATE recall_logs SET {column} = {value} WHERE query = 'zebra'")
        first, damaged, last = memory.recall_logs()
        assert (first, last) == (before[0], before[2])
        empty = type(getattr(before[1], column))()
        assert damaged == replace(before[1], problem=f"damaged: {column}", **{column: empty})
        assert memory.admin.reembed(Words(), gate=Gate(self_retrieval=0.0)).flipped  # its check reads logs


def test_a_recall_log_that_is_not_utf_8_is_named_beside_the_others(home: Path) -> None:
    with Memory.open(home) as memory:
        for query in ("heron", "zebra", "eel"):
            memory.recall(query)
        before = memory.recall_logs()
        alter(home, "UPDATE recall_logs SET query = CAST(x'ff' AS TEXT) WHERE query = 'zebra'")
        bad = RecallLog("", {}, (), 0, id=before[1].id, problem="damaged: it is not UTF-8 text")
        assert memory.recall_logs() == (before[0], bad, before[2])
        assert memory.recall_logs(after=before[0].id, limit=1) == (bad,)


def test_a_conversation_with_a_damaged_row_is_refused_and_others_are_not(home: Path) -> None:
    alter(home, "UPDATE conversations SET expires_at = 'soon'")
    with Memory.open(home) as memory:
        with raises(StoreCorrupt, name="s", value="expires_at"):
            memory.session("s")
        memory.session("other").append(Message("user", "zebra"))


@pytest.mark.parametrize("is_item", [True, False])
def test_an_item_whose_id_is_damaged_is_reported_and_keeps_no_other_from_the_index(home: Path, is_item: bool) -> None:
    if is_item:
        alter(home, "UPDATE items SET id = 'wrong' WHERE text = 'zebra poison fact'")
    alter(
        home,
        "UPDATE vector_state SET have = 0, item_id = 'wrong' WHERE item_id = (SELECT min(item_id) FROM vector_state)",
    )
    with Memory.open(home) as memory:
        memory.facts.add("zebra fact that is new")
        memory.worker().drain()
        for found in (memory.admin.verify(), memory.admin.repair().after, memory.admin.rebuild()):
            assert found.problems == {"wrong": "it is damaged: its id is not a UUID, and no index takes it"}
        texts = {fact.text for fact in memory.recall("zebra", limit=10).knowledge}
        assert {"zebra fact", "zebra fact that is new"} <= texts


@pytest.mark.parametrize(
    "damage", ["head_seq = 2147483647", "itemised_seq = -2147483648", "itemised_seq = 0", "itemised_seq = 1"]
)
def test_a_conversation_whose_numbers_are_damaged_keeps_no_other_from_the_index(home: Path, damage: str) -> None:
    alter(home, f"UPDATE branches SET {damage}")
    with Memory.open(home) as memory:
        memory.session("other").append(Message("user", "zebra of another conversation"))
        memory.worker().drain()
        texts = [item.text for item in StoreProbe(memory).items()]
        assert texts.count("zebra of another conversation") == texts.count("zebra turn") == 1


@pytest.mark.parametrize(("column", "value"), [("scope_id", "x'ff'"), ("text", "x'00fffe'")])
def test_a_damaged_item_is_reported_and_stops_no_repair(home: Path, column: str, value: str) -> None:
    damage(home, column, value)
    with Memory.open(home) as memory:
        assert memory.admin.verify().unfound
        memory.admin.repair()
        memory.admin.rebuild()
        memory.facts.add("zebra fact that is new")
        memory.worker().drain()
        found = memory.recall("zebra", limit=10)
        assert {fact.text for fact in found.knowledge} == {"zebra fact", "zebra fact that is new"}


def test_a_tenant_whose_name_is_damaged_is_counted_with_the_others(home: Path) -> None:
    with Memory.open(home) as memory:
        memory.within("other").facts.add("zebra elsewhere")
    connection = sqlite3.connect(home / "memory.db")
    connection.execute("UPDATE scopes SET tenant = x'ff' WHERE tenant = 'other'")
    connection.commit()
    connection.close()
    with Memory.open(home) as memory:
        assert [one.facts for one in memory.admin.usage()] in ([1, 2], [2, 1])


def test_an_item_that_is_not_utf_8_keeps_no_other_from_the_index(home: Path) -> None:
    with Memory.open(home) as memory:
        memory.facts.add("zebra fact that waits")
        damage(home, "text", "CAST(x'ff' AS TEXT)")
        alter(home, "UPDATE vector_state SET have = 0")
        memory.worker().drain()
        assert "zebra fact that waits" in {fact.text for fact in memory.recall("zebra", limit=10).knowledge}


def test_an_item_that_is_not_utf_8_is_reported_and_the_others_are_repaired(home: Path) -> None:
    damage(home, "text", "CAST(x'ff' AS TEXT)")
    with Memory.open(home) as memory:
        assert not memory.admin.verify().ok
        assert not memory.admin.repair().after.ok
        assert not memory.admin.rebuild().ok
        assert "zebra fact" in {fact.text for fact in memory.recall("zebra", limit=10).knowledge}
