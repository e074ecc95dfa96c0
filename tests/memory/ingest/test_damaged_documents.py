"""Damaged rows of documents: ingesting the file repairs them, and other files are ingested."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from agentkit.memory import Memory
from agentkit.testing import StoreProbe
from tests.effort import spread

NO_UTF_8 = "CAST(x'ff' AS TEXT)"
GENERATIONS = ["'x'", "x'ff'", NO_UTF_8, "1.5", "-2", "2147483647", "9223372036854775807"]
CASES = [
    *[f"generation = {value}" for value in GENERATIONS],
    *[f"{name} = {value}" for name in ("content_hash", "stamp", "source") for value in (NO_UTF_8, "x'ff'")],
    *[f"id = {value}" for value in (NO_UTF_8, "x'ff'", "'x'")],
    *[f"meta = {value}" for value in ("'{'", "'[1]'", NO_UTF_8)],
    *["chunks = x'ff'", "ingested_at = 'x'"],
]


def alter(home: Path, *statements: str) -> None:
    with closing(sqlite3.connect(home / "memory.db")) as connection, connection:
        assert [connection.execute(each).rowcount for each in statements][-1] == 1


def recalled_texts(memory: Memory) -> set[str]:
    return {each.text for each in memory.recall("zebra", limit=20)}


@pytest.mark.parametrize(
    ("damage", "is_changed"), spread([(damage, number % 2 == 1) for number, damage in enumerate(CASES)], 2)
)
def test_a_damaged_document_is_written_again_from_its_file(
    home: Path, docs: Path, damage: str, is_changed: bool
) -> None:
    for name in ("a", "b", "c"):
        (docs / f"{name}.md").write_text(f"zebra {name}")
    with Memory(home) as memory:
        memory.ingest(docs)
    alter(home, f"UPDATE documents SET {damage} WHERE source LIKE '%b.md'")
    end = " again" if is_changed else ""
    for name in ("a", "b", "c") if is_changed else ():
        (docs / f"{name}.md").write_text(f"zebra {name}{end}")
    with Memory(home) as memory:
        report = memory.ingest(docs)
        assert report.errors == () and str(docs / "b.md") in report.added + report.changed
        assert recalled_texts(memory) == {f"zebra {name}{end}" for name in ("a", "b", "c")}
        assert len(memory.ingest(docs).unchanged) == 3
        (docs / "b.md").unlink()
        assert memory.ingest(docs).removed == (str(docs / "b.md"),)
        assert recalled_texts(memory) == {f"zebra a{end}", f"zebra c{end}"}


def test_a_long_document_replaces_the_last_possible_generation(home: Path, docs: Path) -> None:
    file = docs / "long.md"
    for last in ("quartz", "harbor"):
        file.write_text("\n\n".join([*(f"# {number}\n{number}" for number in range(2_100)), f"# Last\n{last}"]))
        with Memory(home) as memory:
            report = memory.ingest(docs)
            assert report.errors == () and len(memory.recall(last)) == 1
        alter(home, "UPDATE documents SET generation = 9223372036854775807")


def test_a_damaged_document_without_a_file_can_be_added_again(home: Path) -> None:
    with Memory(home) as memory:
        memory.documents.add("zebra", source="a.md")
    for damage in (*CASES, "source = 'x'"):
        alter(home, f"UPDATE documents SET {damage}")
        with Memory(home) as memory:
            assert memory.documents.add("zebra", source="a.md").chunks == 1
            assert recalled_texts(memory) == {"zebra"}


@pytest.mark.parametrize("damage", [f"id = {NO_UTF_8}", "id = x'ff'"])
def test_a_damaged_chunk_is_at_most_an_error_of_its_file(home: Path, docs: Path, damage: str) -> None:
    for name in ("a", "b", "c"):
        (docs / f"{name}.md").write_text(f"zebra {name}")
    with Memory(home) as memory:
        memory.ingest(docs)
    alter(home, f"UPDATE items SET {damage} WHERE text = 'zebra b'")
    for name in ("a", "b", "c"):
        (docs / f"{name}.md").write_text(f"zebra {name} again")
    with Memory(home) as memory:
        report = memory.ingest(docs)
        assert {error.source for error in report.errors} <= {str(docs / "b.md")}
        assert {"zebra a again", "zebra c again"} <= recalled_texts(memory)
        (docs / "a.md").unlink()
        (docs / "b.md").unlink()
        assert memory.ingest(docs).removed == (str(docs / "a.md"), str(docs / "b.md"))
        assert recalled_texts(memory) == {"zebra c again"}


def test_the_last_possible_generation_is_replaced_in_both_databases(either: Memory, docs: Path) -> None:
    (docs / "a.md").write_text("zebra")
    either.ingest(docs)
    StoreProbe(either).execute("UPDATE documents SET generation = 2147483647")
    report = either.ingest(docs)
    assert report.errors == () and len(report.added + report.changed) == 1
    assert recalled_texts(either) == {"zebra"}
