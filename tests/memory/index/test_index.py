"""The index follows the database after crashes, damage, loss and writes of a second process."""

from __future__ import annotations

import json
import math
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import UUID

import pytest
import qdrant_edge
from sqlalchemy import text

from agentkit.memory import IndexBroken, IndexUnavailable, Memory, StoreClosed, StoreUnavailable
from agentkit.memory.recall import Hit, Point
from agentkit.prompts import Message
from agentkit.testing import StoreProbe
from agentkit_memory.index import index_worker as worker
from agentkit_memory.index.qdrant_edge import EdgeIndex
from agentkit_memory.index.vector_index import KeepsTerms
from agentkit_memory.terms.bm25_vectors import SPACE, document_vector, query_vector, weights_of_terms
from agentkit_prompts.extras import install
from tests.effort import thinned, tries
from tests.forks import Forks
from tests.raising import raises
from tests.waiting import until

HOLD = """if True:
    import sys
    from agentkit_memory import Memory
    memory = Memory(sys.argv[1])
    memory.worker().drain()  # opens the index; a recall would index later items in a thread
    print("ready", flush=True)
    input()
"""
INGEST = """if True:
    import sys
    from agentkit_memory import Memory
    from agentkit_memory.index import index_worker as worker
    from agentkit_memory.index import qdrant_edge
    from agentkit_memory.ingest import pipeline
    memory = Memory(sys.argv[1], timeout=30)
    memory.session("s")
    print("ready", flush=True)
    memory.ingest(sys.argv[2])
"""


def segments(folder: Path) -> int:
    """Return the number of segments that an index has on its disk."""
    return len([each for each in (folder / "shard" / "segments").iterdir() if each.is_dir()])


@contextmanager
def other_process(code: str, *arguments: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def check(memory: Memory) -> int:
    """Check that no point is missing, stale or orphaned; return the number of items."""
    memory.worker().drain()
    probe = StoreProbe(memory)
    states = probe.rows("SELECT item_id, want, have FROM vector_state")
    assert sorted(state.item_id for state in states) == sorted(item.id for item in probe.items())
    assert all(want == have > 0 for _, want, have in states)
    assert probe.index.count() == len(states)
    return len(states)


def test_items_are_stored_and_queued_while_another_process_owns_the_index(home: Path, docs: Path) -> None:
    (docs / "a.md").write_text("zebra")
    Memory(home).close()
    with other_process(HOLD, home) as owner, Memory(home) as memory:
        report = memory.ingest(docs)
        assert (len(report.added), report.pending) == (1, 1)
        with raises(IndexUnavailable, name="owner"):
            memory.admin.verify()
        owner.kill()
        owner.wait()
        assert len(memory.recall("zebra")) == 1  # the lock ends with its owner
        assert check(memory) == 1


def test_the_owner_indexes_items_of_other_processes_before_its_recall(home: Path, docs: Path) -> None:
    (docs / "a.md").write_text("zebra")
    with Memory(home) as owner:
        owner.worker().drain()  # opens the index, so that the recall starts no thread
        assert owner.recall("zebra") == ()
        with Memory(home) as second:
            assert second.ingest(docs).pending == 1
        assert len(owner.recall("zebra")) == 1
        assert check(owner) == 1


@pytest.mark.long
def test_the_next_opening_repairs_a_crash_between_any_two_writes(
    home: Path, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Crash(BaseException):
        pass

    def crash(*_: object) -> None:
        raise Crash

    for number, step in enumerate(("upsert", "delete", "flush", "acknowledge") * 2):
        (docs / "a.md").write_text(f"# Always\nquartz\n\n# {number}\nzebra {number}\n")
        with Memory(home) as memory:
            memory.recall("zebra")
            with monkeypatch.context() as patch:
                if step == "acknowledge":
                    patch.setattr(worker, "DONE", text("SELECT nothing"))
                    patch.setattr(worker, "ALL_DONE", text("SELECT nothing"))
                else:
                    patch.setattr(EdgeIndex, step, crash)
                with pytest.raises((Crash, Exception)):
                    memory.ingest(docs)
        with Memory(home) as memory:
            assert check(memory) == 2
            assert [found.text for found in memory.recall("zebra")] == [f"# {number}\nzebra {number}"]


@pytest.mark.long
def test_a_kill_at_any_moment_leaves_no_lost_repeated_or_orphaned_points(
    home: Path, docs: Path, programs: Forks
) -> None:
    moment = random.Random(7)
    last = tries(2, 4) - 1
    for attempt in range(last + 1):
        for number in range(30):
            (docs / f"{number}.md").write_text(f"# {attempt}\nzebra n{number} a{attempt}\n\n# Kept\nquartz n{number}\n")
        process = programs.start("-c", INGEST, home, docs)
        until(process.output)
        time.sleep(moment.random() * 0.3)
        process.kill()
        process.wait()
        with Memory(home) as memory:
            assert check(memory) % 2 == 0  # files are replaced completely
    with Memory(home) as memory:
        report = memory.ingest(docs)
        assert report.files == 30
        assert check(memory) == 60
        assert all(f"a{last}" in found.text for found in memory.recall("zebra", limit=60))


@pytest.mark.parametrize("damage", ["folder", "shard", "name", "nonsense", "points"])
def test_a_lost_or_damaged_index_is_built_again(home: Path, docs: Path, damage: str) -> None:
    (docs / "a.md").write_text("zebra")
    with Memory(home) as memory:
        memory.ingest(docs)
    index = home / "index" / SPACE
    if damage == "folder":
        shutil.rmtree(index)
    elif damage == "shard":
        shutil.rmtree(index / "shard")
    elif damage == "name":
        (index / "id").unlink()
    elif damage == "nonsense":
        for file in (index / "shard").rglob("*.json"):
            file.write_text("nonsense")
    else:
        for file in (index / "shard").rglob("mutable_id_tracker.mappings"):
            file.unlink()
    with Memory(home) as memory:
        assert [found.text for found in memory.recall("zebra")] == ["zebra"]
        assert check(memory) == 1


def test_an_index_of_another_database_is_emptied_before_use(home: Path, docs: Path) -> None:
    (docs / "a.md").write_text("zebra of old")
    with Memory(home) as memory:
        memory.ingest(docs)
    for file in home.glob("memory.db*"):
        file.unlink()
    (docs / "a.md").write_text("zebra of new")
    with Memory(home) as memory:
        assert memory.recall("zebra") == ()
        memory.ingest(docs)
        assert check(memory) == 1
        assert [found.text for found in memory.recall("zebra")] == ["zebra of new"]


def test_the_old_owner_detects_that_a_database_has_another_index(home: Path, docs: Path, tmp_path: Path) -> None:
    (docs / "a.md").write_text("zebra")
    with Memory(home) as old, Memory(home, index=tmp_path / "elsewhere") as new:
        old.ingest(docs)
        assert new.worker().drain() == 1
        with raises(IndexUnavailable, name="index"):
            old.admin.repair()


def test_the_folder_of_an_index_can_be_text_or_a_path(home: Path, docs: Path, tmp_path: Path) -> None:
    (docs / "a.md").write_text("zebra")
    text, path = tmp_path / "text", tmp_path / "path"
    for place, index in ((text, str(text)), (path, path)):
        with Memory(home, index=index) as memory:
            memory.ingest(docs)
            assert len(memory.recall("zebra")) == 1
        assert [*place.iterdir()]
    assert sorted(file.name for file in text.iterdir()) == sorted(file.name for file in path.iterdir())
    assert not (home / "index").exists()


def test_an_index_folder_that_cannot_be_created_is_a_typed_error(home: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with Memory(home, index=tmp_path / "file") as memory, raises(IndexBroken, name="write"):
        memory.admin.verify()


def test_a_shard_of_another_configuration_is_replaced(tmp_path: Path) -> None:
    index = EdgeIndex(tmp_path / "index")
    name = index.id
    index.close()
    shutil.rmtree(tmp_path / "index" / "shard")
    foreign_shard(tmp_path / "index" / "shard").close()
    again = EdgeIndex(tmp_path / "index")
    assert again.id != name
    assert again.count() == 0
    again.close()


def test_an_emptied_index_keeps_its_identity_after_an_opening(tmp_path: Path) -> None:
    index = EdgeIndex(tmp_path / "index")
    made = index.id
    index.clear()
    emptied = index.id
    index.close()
    again = EdgeIndex(tmp_path / "index")
    again.close()
    assert again.id == emptied != made


def foreign_shard(folder: Path) -> qdrant_edge.EdgeShard:
    """Make a shard without the vectors of agentkit."""
    folder.mkdir()
    config = qdrant_edge.EdgeConfig(sparse_vectors={"other": qdrant_edge.EdgeSparseVectorParams()})
    return qdrant_edge.EdgeShard.create(str(folder), config)


def test_a_failing_index_is_a_typed_error_and_can_be_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    EdgeIndex(tmp_path / "index").close()
    foreign = foreign_shard(tmp_path / "foreign")
    monkeypatch.setattr("qdrant_edge.EdgeShard.load", lambda folder, config: foreign)
    index = EdgeIndex(tmp_path / "index")
    point = Point("00000000-0000-0000-0000-000000000001", 1, 1, document_vector("zebra"))
    for act in (lambda: index.query_sparse(query_vector("zebra"), [1], 5), lambda: index.upsert([point])):
        with raises(IndexBroken, name="index"):
            act()
    index.close()
    index.close()
    with pytest.raises(StoreClosed):
        index.query_sparse(query_vector("zebra"), [1], 5)


@pytest.mark.skipif(sys.platform == "win32", reason="limits on file sizes are POSIX's")
def test_a_disk_without_space_for_the_index_loses_no_item(home: Path, docs: Path) -> None:
    (docs / "a.md").write_text("zebra")
    with Memory(home) as memory:
        memory.ingest(docs)
    shutil.rmtree(home / "index")
    code = """if True:
        import resource, sys
        from agentkit_memory import IndexBroken, Memory
        with Memory(sys.argv[1]) as memory:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
            try:
                memory.ingest(sys.argv[2])
            except IndexBroken as error:
                print(error)
            found = memory.recall("zebra")
            print(found[0].text, *found.degraded)
    """
    said = subprocess.check_output([sys.executable, "-c", code, str(home), str(docs)], text=True)
    assert said.count("stored data is intact: check the disk") == 2
    assert "\nzebra searched the newest" in said
    with Memory(home) as memory:
        assert [found.text for found in memory.recall("zebra")] == ["zebra"]
        assert check(memory) == 1


def test_writes_to_the_index_can_be_repeated(tmp_path: Path) -> None:
    index = EdgeIndex(tmp_path / "index")
    point = Point("00000000-0000-0000-0000-000000000001", 1, 1, document_vector("zebra"))
    for _ in range(2):
        index.upsert([point])
        assert index.count() == 1
    assert [hit.id for hit in index.query_sparse(query_vector("zebra"), [1], 5)] == [point.id]
    newer = Point(point.id, 3, 1, document_vector("okapi"))
    for batch in ([newer, point], [point, newer], [point]):
        index.upsert(batch)
        assert list(index.versions()) == [(point.id, 3)]
        assert index.query_sparse(query_vector("zebra"), [1], 5) == []
    index.delete([point.id])
    index.upsert([point, point])
    assert index.query_sparse(query_vector("zebra"), [2], 5) == index.query_sparse(query_vector("zebra"), [], 5) == []
    for _ in range(2):
        index.delete([point.id])
        assert index.count() == 0
    index.upsert([])
    index.delete([])
    index.close()


@pytest.mark.untraced
@pytest.mark.parametrize("dimensions", thinned([0, 64, 8]))
def test_an_index_of_many_segments_answers_as_an_index_of_one_segment(tmp_path: Path, dimensions: int) -> None:
    draw = random.Random(7)
    many, one = (
        EdgeIndex(tmp_path / "many", dimensions, segment=4096),
        EdgeIndex(
            tmp_path / "one", dimensions, segment=1 << 60
        ),  # the disk has no space to close a segment of this size
    )
    words = ["zebra", "okapi", "gnu", "lynx", "ibex", "tapir", "stoat", "civet"]
    held: dict[str, int] = {}
    for _ in range(tries(12, 30)):
        points = []
        for number in draw.sample(range(300), 20):
            id_ = str(UUID(int=number))
            held[id_] = version = held.get(id_, 0) + 1
            text = " ".join(draw.choices(words, k=draw.randrange(1, 30)))
            vector = [draw.gauss(0, 1) for _ in range(dimensions)] or None
            points.append(Point(id_, version, number % 3, document_vector(text), vector))
        gone = draw.sample(sorted(held), 3)
        for index in (many, one):
            index.upsert(points)
            index.delete(gone)
            index.flush()
        for id_ in gone:
            del held[id_]
    assert list(many.versions()) == list(one.versions()) == sorted(held.items())
    older = [Point(id_, version - 1, 0, document_vector("older")) for id_, version in held.items() if version > 1]
    many.upsert(older)
    assert dict(many.versions()) == held
    many.close()
    many = EdgeIndex(tmp_path / "many", dimensions, segment=4096)
    assert segments(tmp_path / "many") > 3
    for scopes in ([0], [1, 2], [0, 1, 2]):
        assert many.count(scopes) == one.count(scopes)
        asked = query_vector(" ".join(draw.sample(words, 3)))
        assert scored(many.query_sparse(asked, scopes, 20)) == scored(one.query_sparse(asked, scopes, 20))
        near = [draw.gauss(0, 1) for _ in range(dimensions)]
        if dimensions:
            assert scored(many.query_dense(near, scopes, 10)) == scored(one.query_dense(near, scopes, 10))
    many.close()
    one.close()


def test_vectors_are_found_with_a_first_comparison_of_few_bits(tmp_path: Path) -> None:
    draw = random.Random(3)

    def some(around: Sequence[float], width: float) -> list[float]:
        return [number + draw.gauss(0, width) for number in around]

    subjects = [some([0.0] * 96, 1.0) for _ in range(20)]
    vectors = [some(draw.choice(subjects), 0.7) for _ in range(1500)]
    index = EdgeIndex(tmp_path, 96, segment=1 << 18)
    terms = document_vector("zebra")
    for start in range(0, 1500, 300):
        some_points = [
            Point(str(UUID(int=number)), 1, number % 2, terms, vectors[number]) for number in range(start, start + 300)
        ]
        index.upsert(some_points)
        index.flush()
    assert segments(tmp_path) > 1
    for subject in subjects:
        near = some(subject, 0.7)
        cosines = {number: cosine(near, vectors[number]) for number in range(1, 1500, 2)}
        best = sorted(cosines, key=lambda number: -cosines[number])[:10]
        hits = index.query_dense(near, [1], 10)
        assert [UUID(hit.id).int for hit in hits] == best
        assert [hit.score for hit in hits] == pytest.approx([cosines[number] for number in best], abs=1e-5)
    index.close()


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True)) / math.hypot(*one) / math.hypot(*other)


WRITER = """if True:
    import json, random, sys
    from pathlib import Path
    from uuid import UUID
    from agentkit_memory.index.vector_index import Point, SparseVector
    from agentkit_memory.index.qdrant_edge import EdgeIndex

    draw, index = random.Random(int(sys.argv[2])), EdgeIndex(Path(sys.argv[1]), 4, segment=4096)
    held = json.loads(sys.argv[3])
    while True:
        written = {str(UUID(int=number)): 0 for number in draw.sample(range(300), 40)}
        for each in written:
            held[each] = abs(held.get(each, 0)) + 1
            written[each] = held[each] if draw.random() < 0.8 else -held[each]
        print(json.dumps(written), flush=True)
        terms = SparseVector(sorted(draw.sample(range(1000), 20)), [1.0] * 20)
        vector = [1.0, 0.0, 0.0, draw.random()]
        index.upsert([Point(each, to, 1, terms, vector) for each, to in written.items() if to > 0])
        index.delete([each for each, to in written.items() if to < 0])
        index.flush()
        print("flushed", flush=True)
"""
"""Program that writes points of growing versions, and removes some (a negative version), until it is killed."""


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
def test_an_index_killed_while_it_closes_segments_has_all_flushed_points(tmp_path: Path, programs: Forks) -> None:
    moment = random.Random(3)
    truth: dict[str, int] = {}
    for attempt in range(tries(3, 5)):
        process = programs.start("-c", WRITER, tmp_path / "index", str(attempt), json.dumps(truth))
        until(process.output)
        time.sleep(0.05 + 0.3 * moment.random())
        process.kill()
        process.wait()
        under_way: dict[str, int] = {}
        for line in process.output().splitlines(keepends=True):
            if line == "flushed\n":
                truth |= under_way
                under_way = {}
            elif line.endswith("}\n"):
                under_way = json.loads(line)
        index = EdgeIndex(tmp_path / "index", 4, segment=4096)
        terms = document_vector("zebra")
        index.upsert([Point(each, to, 1, terms, [1.0] * 4) for each, to in under_way.items() if to > 0])
        index.delete([each for each, to in under_way.items() if to < 0])  # unacknowledged writes are repeated
        index.flush()
        truth |= under_way
        assert list(index.versions()) == sorted((each, to) for each, to in truth.items() if to > 0)
        assert index.count() == sum(to > 0 for to in truth.values())
        index.close()


def scored(hits: list[Hit]) -> list[float]:
    """Return only the scores: equal scores are in any order."""
    return [round(hit.score, 4) for hit in hits]


def test_an_index_that_cannot_be_attached_is_released(home: Path) -> None:
    with Memory(home, timeout=0.05) as memory:
        with closing(sqlite3.connect(home / "memory.db")) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable):
                memory.admin.verify()
        assert memory.recall("zebra").degraded == ()


def test_without_the_extra_conversations_work_and_ingestion_names_the_extra(home: Path, docs: Path) -> None:
    (docs / "a.md").write_text("zebra")
    code = """if True:
        import sys
        sys.modules["qdrant_edge"] = None
        from agentkit_memory import Memory, StoreUnavailable
        with Memory(sys.argv[1]) as memory:
            memory.session("s").refresh()
            for act in (lambda: memory.ingest(sys.argv[2]), lambda: memory.recall("zebra")):
                try:
                    act()
                except StoreUnavailable as error:
                    print(error)
    """
    said = subprocess.check_output([sys.executable, "-c", code, str(home), str(docs)], text=True)
    assert said == f"recall needs Qdrant Edge: {install('vector')}\n" * 2
    with Memory(home) as memory:
        assert check(memory) == 0


def test_the_index_returns_the_weights_of_the_terms_in_the_texts(memory: Memory) -> None:
    texts = ["Ada planted the zebra garden", "zebra zebra", "im Garten", "서울에서 zebra", "nothing of it", "x" * 9000]
    session = memory.session("s")
    session.append(*[Message("user", each) for each in texts])
    memory.worker().drain()
    index = StoreProbe(memory).index
    assert isinstance(index, KeepsTerms)
    stored = {item.id: item.text for item in StoreProbe(memory).items()}
    asked = dict.fromkeys(query_vector("zebra garden Garten 서울").indices, 1.0)
    found = index.term_weights([*stored, str(UUID(int=1))], asked.keys())
    assert found == {each: weights_of_terms(stored[each], asked) for each in stored}
    for order in (sorted(stored), sorted(stored, reverse=True)):  # Edge returns points in the order of the request
        assert index.term_weights(order, asked.keys()) == found
    assert sum(map(bool, found.values())) == 4
