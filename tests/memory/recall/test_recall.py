"""Recall of chunks for a question: the best first, each once, with their sources."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agentkit.memory import IndexUnavailable, Memory
from agentkit.memory.recall import Hit, VectorIndex
from agentkit.prompts import Document, Message
from agentkit.testing import StoreProbe
from agentkit_memory.index.qdrant_edge import EdgeIndex
from agentkit_memory.process.failpoints import VARIABLE
from tests.forks import Forks


def test_the_chunk_with_the_answer_is_first_with_its_place(either: Memory, docs: Path) -> None:
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


def test_a_chunk_is_found_by_its_headings(memory: Memory, docs: Path) -> None:
    (docs / "a.md").write_text("# Installation\n\n" + "Filler words here. " * 80 + "\n\nThe last paragraph.\n")
    memory.ingest(docs)
    assert len(memory.recall("installing")) == 2


def test_a_question_without_a_match_finds_nothing(either: Memory, docs: Path) -> None:
    assert either.recall("zebra") == ()
    (docs / "a.md").write_text("violin")
    either.ingest(docs)
    assert either.recall("zebra") == either.recall("") == either.recall("who are you") == ()


class Letters:
    """An embedder that counts letters."""

    model = "letters"

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [[1.0 + text.lower().count(letter) for letter in "adefnorz"] for text in texts]


@pytest.mark.parametrize("embedder", [None, Letters()])
def test_expired_items_do_not_displace_valid_items(home: Path, docs: Path, embedder: Letters | None) -> None:
    now = [1000.0]
    (docs / "a.md").write_text("The zebra is fed at noon. " + " ".join(f"word{number}" for number in range(150)))
    with Memory(home, clock=lambda: now[0], embedder=embedder) as memory:
        memory.ingest(docs)
        over = memory.session("over", expires_at=2000.0)
        over.append(*[Message("user", f"zebra fed zebra {number}") for number in range(100)])
        for number in range(100):
            memory.facts.add(f"zebra fed {number}", valid_from=9000.0)
        memory.recall("zebra")
        now[0] = 3000.0
        recall = memory.recall("zebra fed")
        assert [found.source for found in recall] == [str(docs / "a.md")]
        assert recall.degraded == ()


def test_recall_reports_the_extent_of_its_search(memory: Memory, docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (docs / "a.md").write_text("The zebra is fed at noon. " + " ".join(f"word{number}" for number in range(150)))
    memory.ingest(docs)
    for number in range(100):
        memory.facts.add(f"zebra fed {number}", valid_from=1e12)
    memory.worker().drain()
    monkeypatch.setattr("agentkit_memory.recall.recall_round.MAX_CANDIDATES", 90)
    recall = memory.recall("zebra fed")
    assert recall == ()
    assert "of the best 90 hits 0 are valid" in recall.degraded[0]


INGEST = """if True:
    import sys
    from agentkit_memory import Memory
    with Memory(sys.argv[1]) as memory:
        memory.ingest(sys.argv[2])
"""


def test_an_incomplete_file_does_not_displace_complete_files(home: Path, docs: Path, programs: Forks) -> None:
    (docs / "a.md").write_text("The zebra is fed at noon. " + " ".join(f"word{number}" for number in range(150)))
    with Memory(home) as memory:
        memory.ingest(docs)
    (docs / "b.txt").write_text("\n\n".join("zebra fed " * 100 + f"number {number}" for number in range(2100)))
    killed = programs.start("-c", INGEST, home, docs, **{VARIABLE: "worker.acknowledged:1"})
    assert killed.wait() == -signal.SIGKILL
    with Memory(home) as memory:
        assert StoreProbe(memory).index.count() > 500, "invisible chunks are already indexed"
        assert [found.source for found in memory.recall("zebra fed")] == [str(docs / "a.md")]

    def away(space: str, dimensions: int) -> VectorIndex:
        raise IndexUnavailable("the server is away")

    with Memory(home, index=away) as memory:
        recall = memory.recall("zebra fed")
        assert [found.source for found in recall] == [str(docs / "a.md")] and "in SQL" in recall.degraded[0]


def test_equal_scores_are_ordered_by_place(memory: Memory, docs: Path) -> None:
    for number in range(30):
        (docs / f"{number:02}.txt").write_text(f"zebra n{number:02}")
    memory.ingest(docs)
    found = memory.recall("zebra", limit=30)
    assert [document.text for document in found] == [f"zebra n{number:02}" for number in range(30)]


def test_equal_text_of_several_files_is_recalled_once(memory: Memory, docs: Path) -> None:
    for name in ("a", "b", "c"):
        (docs / f"{name}.txt").write_text("zebra")
    (docs / "d.txt").write_text("zebra with stripes")
    memory.ingest(docs)
    assert [Path(found.source).name for found in memory.recall("zebra")] == ["a.txt", "d.txt"]


def test_a_chunk_that_is_deleted_in_sql_is_not_recalled(memory: Memory, docs: Path) -> None:
    (docs / "a.md").write_text("zebra")
    memory.ingest(docs)
    StoreProbe(memory).execute("DELETE FROM items")  # without an entry in the outbox
    assert memory.recall("zebra") == ()


def test_a_question_can_be_long_and_unusual(memory: Memory, docs: Path) -> None:
    (docs / "a.md").write_text("zebra")
    memory.ingest(docs)
    assert len(memory.recall("zebra \0 \ud800 ' OR 1=1 -- " + "word " * 20_000)) == 1


def test_threads_can_recall_during_an_ingestion(either: Memory, docs: Path) -> None:
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


def test_hits_of_an_outdated_index_are_scored_by_their_new_text(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    fact = memory.facts.add("Ada lives in Rome.")
    memory.worker().drain()
    assert len(memory.recall("Rome").knowledge) == 1
    memory.facts.update(fact.id, "Ada lives in Oslo.")
    ask = EdgeIndex.query_sparse

    def slow(*given: Any) -> list[Hit]:
        hits = ask(*given)
        memory.worker().drain()  # all items, between the answer of the index and the next read of SQL
        return hits

    monkeypatch.setattr(EdgeIndex, "query_sparse", slow)
    assert memory.recall("Rome").knowledge == ()
