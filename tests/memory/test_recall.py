"""From a question to passages: the best first, told once, with where they are from."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from agentkit_memory import Memory, RecallError
from agentkit_prompts.context import Document


def test_the_passage_that_answers_comes_first_with_its_place(either: Memory, docs: Path) -> None:
    (docs / "guide.md").write_text(
        "# Guide\n\nSome words about nothing in particular.\n\n## Locks\n\nThe writer waits for five seconds.\n"
    )
    (docs / "other.md").write_text("A writer of novels, who writes.\n")
    either.ingest(docs)
    first, second = either.recall("How many seconds does a writer wait?")
    assert isinstance(first, Document)
    assert (first.source, first.title, first.position) == (str(docs / "guide.md"), "Guide > Locks", 1)
    assert first.text == "## Locks\n\nThe writer waits for five seconds."
    assert first.trust == "untrusted"
    assert first.metadata["line"] == 5
    assert first.score is not None and second.score is not None and first.score > second.score > 0
    assert [found.id for found in either.recall("How many seconds does a writer wait?", limit=1)] == [first.id]


def test_a_passage_is_found_by_its_headings(memory: Memory, docs: Path) -> None:
    (docs / "a.md").write_text("# Installation\n\n" + "Filler words here. " * 80 + "\n\nThe last paragraph.\n")
    memory.ingest(docs)
    assert len(memory.recall("installing")) == 2


def test_nothing_fits(either: Memory, docs: Path) -> None:
    assert either.recall("zebra") == ()
    (docs / "a.md").write_text("violin")
    either.ingest(docs)
    assert either.recall("zebra") == either.recall("") == either.recall("who are you") == ()


def test_equal_scores_are_ordered_by_place(memory: Memory, docs: Path) -> None:
    for number in range(30):
        (docs / f"{number:02}.txt").write_text(f"zebra n{number:02}")
    memory.ingest(docs)
    found = memory.recall("zebra", limit=30)
    assert [document.text for document in found] == [f"zebra n{number:02}" for number in range(30)]


def test_what_several_files_say_alike_is_told_once(memory: Memory, docs: Path) -> None:
    for name in ("a", "b", "c"):
        (docs / f"{name}.txt").write_text("zebra")
    (docs / "d.txt").write_text("zebra with stripes")
    memory.ingest(docs)
    assert [Path(found.source).name for found in memory.recall("zebra")] == ["a.txt", "d.txt"]


@pytest.mark.parametrize(
    ("query", "limit", "said"),
    [(None, 5, "question as text"), ("x", 0, "1 or more"), ("x", True, "1 or more"), ("x", 2.5, "1 or more")],
)
def test_what_cannot_be_asked(memory: Memory, query: Any, limit: Any, said: str) -> None:
    with pytest.raises(RecallError, match=said):
        memory.recall(query, limit=limit)


def test_a_passage_that_sql_no_longer_holds_is_never_recalled(memory: Memory, docs: Path) -> None:
    (docs / "a.md").write_text("zebra")
    memory.ingest(docs)
    with memory._store.database.write() as connection:
        connection.execute(text("DELETE FROM items"))  # behind the outbox's back
    assert memory.recall("zebra") == ()


def test_a_question_may_be_long_and_strange(memory: Memory, docs: Path) -> None:
    (docs / "a.md").write_text("zebra")
    memory.ingest(docs)
    assert len(memory.recall("zebra \0 \ud800 ' OR 1=1 -- " + "word " * 20_000)) == 1


def test_threads_may_recall_while_another_ingests(either: Memory, docs: Path) -> None:
    (docs / "first.txt").write_text("zebra first")
    either.ingest(docs)
    for number in range(20):
        (docs / f"{number}.txt").write_text(f"zebra {number}")
    with ThreadPoolExecutor(5) as pool:
        ingesting = pool.submit(either.ingest, docs)
        recalling = [pool.submit(either.recall, "zebra", limit=30) for _ in range(20)]
        assert ingesting.result().errors == ()
        for each in recalling:
            assert "zebra first" in {found.text for found in each.result()}
    assert len(either.recall("zebra", limit=30)) == 21
