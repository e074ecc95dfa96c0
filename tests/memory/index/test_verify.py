"""`verify` detects each kind of difference between index and SQL, and `repair` repairs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agentkit.memory import IndexUnavailable, Memory
from agentkit.memory.recall import Point
from agentkit.testing import StoreProbe
from agentkit_memory.terms.bm25_vectors import document_vector

STRANGER = "ffffffff-0000-4000-8000-000000000001"


def fill(memory: Memory, docs: Path, count: int = 3) -> list[str]:
    for number in range(count):
        (docs / f"{number}.txt").write_text(f"zebra {number}")
    memory.ingest(docs)
    return sorted(item.id for item in StoreProbe(memory).items())


def sql(memory: Memory, statement: str, **values: object) -> None:
    StoreProbe(memory).execute(statement, values)


def lose_point(memory: Memory, item: str) -> None:
    StoreProbe(memory).index.delete([item])


def lose_row(memory: Memory, item: str) -> None:
    sql(memory, "DELETE FROM vector_state WHERE item_id = :item", item=item)


def lose_row_and_point(memory: Memory, item: str) -> None:
    lose_row(memory, item)
    lose_point(memory, item)


def old_point(memory: Memory, item: str) -> None:
    sql(memory, "UPDATE vector_state SET want = 5, have = 5 WHERE item_id = :item", item=item)


def newer_point(memory: Memory, item: str) -> None:
    """As after a restore of the database without its index."""
    StoreProbe(memory).index.upsert([Point(item, 7, 1, document_vector("quagga"))])


def strange_point(memory: Memory, _: str) -> None:
    StoreProbe(memory).index.upsert([Point(STRANGER, 3, 1, document_vector("zebra stranger"))])


def lose_item(memory: Memory, item: str) -> None:
    sql(memory, "DELETE FROM items WHERE id = :item", item=item)


@pytest.mark.parametrize(
    ("harm", "kind", "items", "points"),
    [
        (lose_point, "missing", 3, 3),
        (lose_row_and_point, "missing", 3, 3),
        (old_point, "stale", 3, 3),
        (newer_point, "stale", 3, 3),
        (strange_point, "orphan", 3, 3),
        (lose_item, "orphan", 2, 2),
    ],
)
def test_each_kind_of_difference_is_counted_named_and_repaired(
    either: Memory, docs: Path, harm: Callable[[Memory, str], None], kind: str, items: int, points: int
) -> None:
    ids = fill(either, docs)
    assert either.admin.verify().ok
    harm(either, ids[1])
    found = either.admin.verify()
    assert not found.ok
    assert {"missing": found.missing, "stale": found.stale, "orphan": found.orphans} == {
        "missing": 0, "stale": 0, "orphan": 0, kind: 1
    }  # fmt: skip
    assert found.examples == {kind: (STRANGER if harm is strange_point else ids[1],)}
    assert either.admin.verify() == found  # a verification changes nothing
    repaired = either.admin.repair()
    assert repaired.before == found
    assert (repaired.after.ok, repaired.after.pending) == (True, 0)
    assert (repaired.after.items, repaired.after.points) == (items, points)
    assert sorted(document.text for document in either.recall("zebra quagga stranger")) == [
        f"zebra {number}" for number in range(3) if harm is not lose_item or document_of(either, number)
    ]


def document_of(memory: Memory, number: int) -> bool:
    return f"zebra {number}" in [item.text for item in StoreProbe(memory).items()]


@pytest.mark.parametrize("harm", [lambda *_: None, newer_point])
def test_an_unqueued_item_is_repaired_for_any_content_of_the_index(
    either: Memory, docs: Path, harm: Callable[[Memory, str], None]
) -> None:
    ids = fill(either, docs)
    harm(either, ids[0])
    lose_row(either, ids[0])
    found = either.admin.verify()
    assert (found.missing, found.orphans, found.examples) == (1, 0, {"missing": (ids[0],)})
    assert either.admin.repair().after.ok
    assert len(either.recall("zebra")) == 3


def test_all_kinds_of_differences_over_many_pages_are_repaired(
    memory: Memory, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentkit_memory.index.compare._PAGE", 7)
    monkeypatch.setattr("agentkit_memory.index.qdrant_edge._PAGE", 5)
    ids = fill(memory, docs, 60)
    for number, item in enumerate(ids):
        if number % 3 == 0:
            (lose_point, old_point, lose_item, lose_row_and_point)[number // 3 % 4](memory, item)
    for number in range(30):
        stranger = Point(f"{number:08x}-0000-4000-8000-000000000000", 1, 1, document_vector("zebra"))
        StoreProbe(memory).index.upsert([stranger])
    found = memory.admin.verify()
    assert (found.missing, found.stale, found.orphans) == (10, 5, 35)
    assert {kind: len(ids) for kind, ids in found.examples.items()} == {"missing": 10, "stale": 5, "orphan": 10}
    after = memory.admin.repair().after
    assert (after.ok, after.items, after.points) == (True, 55, 55)


def test_items_that_wait_for_a_worker_are_not_a_problem(memory: Memory, docs: Path) -> None:
    ids = fill(memory, docs)
    sql(memory, "UPDATE vector_state SET want = want + 1 WHERE item_id = :item", item=ids[0])
    found = memory.admin.verify()
    assert (found.ok, found.pending, found.failing) == (True, 1, 0)


def test_items_without_recall_are_not_missing(memory: Memory, docs: Path) -> None:
    superseded, expired, valid = fill(memory, docs)
    sql(memory, "UPDATE items SET superseded_by = 'x' WHERE id = :item", item=superseded)
    sql(memory, "UPDATE items SET valid_to = 1.0 WHERE id = :item", item=expired)
    for item in (superseded, expired, valid):
        lose_row_and_point(memory, item)
    found = memory.admin.verify()
    assert (found.missing, found.examples) == (1, {"missing": (valid,)})


def test_the_opening_repairs_an_index_that_lost_points(home: Path, docs: Path) -> None:
    with Memory(home) as memory:
        lost, *_ = fill(memory, docs)
        lose_point(memory, lost)
    with Memory(home) as memory:
        assert len(memory.recall("zebra")) == 3
        assert memory.admin.verify().ok


def test_only_the_owner_of_the_index_can_verify_it(home: Path, docs: Path) -> None:
    with Memory(home) as owner, Memory(home) as other:
        fill(owner, docs)
        for act in (other.admin.verify, other.admin.repair, other.worker().drain):
            with pytest.raises(IndexUnavailable):
                act()
