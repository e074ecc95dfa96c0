"""Degraded recall: unavailable parts are reported, and the other parts are used."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from sqlite3 import connect

import pytest

from agentkit.memory import IndexBroken, IndexUnavailable, Memory, RecallFilter, Scope, StoreClosed, StoreUnavailable
from agentkit.memory.recall import Hit, SparseVector, VectorIndex
from agentkit.prompts import Message
from agentkit_memory.index.qdrant_edge import EdgeIndex
from agentkit_memory.store.read_view import ReadView, read_view
from tests.memory.embedders.word_embedder import Words
from tests.raising import raises

STEPS = "agentkit_memory.recall.recall_steps"
HOLD = """if True:
    import sys
    from agentkit_memory import Memory
    with Memory(sys.argv[1]) as memory:
        memory.recall("x")
        print("ready", flush=True)
        sys.stdin.read()
"""


@contextmanager
def owner_of(home: Path) -> Iterator[None]:
    command = [sys.executable, "-c", HOLD, str(home)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield
        finally:
            process.communicate("")


class Failing:
    """Index that fails in each query."""

    def __init__(self, index: VectorIndex, error: Exception) -> None:
        self._index = index
        self._error = error

    def __getattr__(self, name: str) -> object:
        return getattr(self._index, name)

    def query_sparse(
        self, vector: SparseVector, scope_ids: Sequence[int], limit: int, among: Sequence[str] | None = None
    ) -> list[Hit]:
        raise self._error

    def query_dense(
        self, vector: Sequence[float], scope_ids: Sequence[int], limit: int, among: Sequence[str] | None = None
    ) -> list[Hit]:
        raise self._error


class Compass:
    """Embedder of two directions that can fail."""

    model = "compass"

    def __init__(self) -> None:
        self.fails = False

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if self.fails:
            raise ConnectionError("the model is away")
        return [[1.0, 0.0] if any(word in text for word in ("boat", "ship")) else [0.0, 1.0] for text in texts]


def fill(memory: Memory, docs: Path) -> None:
    (docs / "a.md").write_text("The heron nests behind the weir.")
    (docs / "b.md").write_text("The weir is old.")
    memory.ingest(docs)
    memory.session("s").append(Message("user", "I like the heron.", name="Ada"))


@pytest.mark.long
def test_sql_is_searched_by_the_same_policy_while_another_process_owns_the_index(home: Path, docs: Path) -> None:
    with Memory(home) as memory:
        fill(memory, docs)
        usual = memory.recall("Where does the heron nest?")
    with owner_of(home), Memory(home) as memory:
        recall = memory.recall("Where does the heron nest?")
        assert [found.text for found in recall] == [found.text for found in usual]
        (problem,) = recall.degraded
        assert "newest 2000 items with BM25 in SQL, without the index" in problem
        assert "in use by process" in problem
        assert recall.degraded in [log.degraded for log in memory.recall_logs()]  # the last log can belong to the owner
        other = memory.within(Scope("another"))
        assert other.recall("heron") == ()


def test_newer_messages_of_another_scope_hide_no_result_without_the_index(tmp_path: Path) -> None:
    def away(space: str, dimensions: int) -> VectorIndex:
        raise IndexUnavailable("the server is away")

    with Memory(tmp_path / "store", index=away) as memory:
        ada, bob = (memory.within(Scope("acme", user=name)) for name in ("ada", "bob"))
        ada.session("s").append(Message("user", "The heron nests behind the weir."))
        assert len(ada.recall("heron")) == 1
        bob.session("s").append(*(Message("user", f"A heron, number {number}.") for number in range(2_800)))
        assert bob.recall("heron")
        assert [found.text for found in ada.recall("heron")] == ["The heron nests behind the weir."]
        assert not memory.recall("heron")


def test_a_filter_applies_without_the_index(tmp_path: Path) -> None:
    def away(space: str, dimensions: int) -> VectorIndex:
        raise IndexUnavailable("the server is away")

    with Memory(tmp_path / "store", index=away) as memory:
        for source in ("zoo", "park"):
            memory.documents.add(f"The heron of the {source}.", source=source)
        memory.session("walk").append(Message("user", "A heron flew by."))
        for sources, texts in ((["zoo"], {"The heron of the zoo."}), (["walk"], {"A heron flew by."}), ([], set())):
            recall = memory.recall("heron", where=RecallFilter(sources=sources))
            assert {found.text for found in recall} == texts
            assert ["without the index" in problem for problem in recall.degraded] == [True]


@pytest.mark.parametrize("error", [IndexUnavailable("the server is away"), IndexBroken("the shard is damaged")])
def test_a_query_that_fails_degrades_the_recall(home: Path, docs: Path, error: Exception) -> None:
    def opener(space: str, dimensions: int) -> VectorIndex:
        return Failing(EdgeIndex(home / space, dimensions), error)  # type: ignore[return-value]

    with Memory(home, index=opener) as memory:
        fill(memory, docs)
        recall = memory.recall("heron")
        assert {found.text for found in recall} == {"The heron nests behind the weir.", "I like the heron."}
        assert str(error) in recall.degraded[0]


@pytest.mark.long
def test_an_index_that_cannot_be_opened_degrades_the_recall(home: Path, docs: Path, tmp_path: Path) -> None:
    with Memory(home) as memory:
        fill(memory, docs)
    (tmp_path / "file").write_text("in the way")
    with Memory(home, index=tmp_path / "file") as memory:
        recall = memory.recall("heron")
        assert len(recall) == 2
        assert "make it writable" in recall.degraded[0]


def test_a_model_that_changes_during_a_recall_does_not_degrade_it(home: Path) -> None:
    changes: list[Callable[[], object]] = []

    class Changing(EdgeIndex):
        def query_sparse(
            self, vector: SparseVector, scope_ids: Sequence[int], limit: int, among: Sequence[str] | None = None
        ) -> list[Hit]:
            if changes:
                changes.pop()()
            return super().query_sparse(vector, scope_ids, limit, among)

    with Memory(home, index=lambda space, dimensions: Changing(home / space, dimensions)) as memory:
        memory.facts.add("The heron eats eels.")
        memory.worker().drain()
        changes.append(lambda: memory.admin.reembed(Words(), gate=None))
        recall = memory.recall("heron")
        assert (memory.model, changes) == ("words-1", [])
        assert [fact.text for fact in recall.knowledge] == ["The heron eats eels."] and recall.degraded == ()


def test_a_locked_database_is_read_without_a_wait_and_logs_are_written_later(home: Path, docs: Path) -> None:
    with Memory(home, timeout=0.05) as memory:
        fill(memory, docs)
        memory.recall("heron")
        memory.session("s").append(Message("user", "The heron flew off.", name="Ada"))
        with closing(connect(home / "memory.db")) as other:
            other.execute("BEGIN IMMEDIATE")
            recall = memory.recall("heron")
            assert len(recall) == 3 and recall.degraded == ()
            with pytest.raises(StoreUnavailable):
                memory.recall_logs()
            assert "recalls cannot be logged now" in memory.recall("heron").degraded[-1]
        assert len(memory.recall("heron")) == 3
        assert [log.query for log in memory.recall_logs()] == ["heron"] * 4


def test_an_index_is_opened_although_the_database_is_locked(home: Path, docs: Path) -> None:
    with Memory(home) as memory:
        fill(memory, docs)
        memory.worker().drain()
    with Memory(home, timeout=0.05) as memory, closing(connect(home / "memory.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        recall = memory.recall("heron")
        assert len(recall) == 2 and recall.degraded == ()  # a search of SQL without the index would be degraded


def test_an_index_on_a_full_disk_is_read_and_not_written(
    home: Path, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Memory(home) as memory:
        fill(memory, docs)
        memory.worker().drain()
        with monkeypatch.context() as full:
            full.setattr("agentkit_memory.index.qdrant_edge._MIN_FREE", 2**62)
            memory.session("s").append(Message("user", "The stork stands there.", name="Ada"))
            recall = memory.recall("heron")
            assert len(recall) == 2
            with raises(IndexUnavailable, name="disk"):
                memory.worker().drain()
            assert [found.text for found in memory.recall("stork")] == ["The stork stands there."]
            (docs / "crane.md").write_text("The crane flies south.")
            report = memory.ingest(docs)
            assert (len(report.added), report.pending) == (1, 2)
            assert [found.text for found in memory.recall("crane", limit=1)] == ["The crane flies south."]
            assert len(memory.recall("heron")) == 2  # each once, from the index or from SQL
            with raises(IndexUnavailable, name="disk"):
                memory.admin.repair()
            erased = memory.erase(Scope("local", user="nobody"))
            assert not erased.compacted and "still in its files" in str(erased)
        assert [found.text for found in memory.recall("crane")] == ["The crane flies south."]
        assert memory.admin.verify().ok
    with monkeypatch.context() as full:
        full.setattr("agentkit_memory.index.qdrant_edge._MIN_FREE", 2**62)
        with Memory(home) as memory:
            recall = memory.recall("heron")  # a closed index is not opened: loading it would write
        assert len(recall) == 2
        assert "without the index" in recall.degraded[-1]
    with Memory(home) as memory:
        assert memory.recall("stork").degraded == ()
        assert memory.admin.verify().ok


def test_the_newest_of_many_new_messages_are_searched_first_and_the_others_later(memory: Memory) -> None:
    session = memory.session("s")
    for start in range(0, 5000, 1000):
        session.append(*[Message("user", f"heron number {start + n}") for n in range(1000)])
    first = memory.recall("heron 4999")
    assert first[0].text == "heron number 4999"
    assert "more than 2000 items are not indexed yet" in first.degraded[0]
    memory.worker().drain()
    assert memory.recall("heron 1")[0].text == "heron number 1" and memory.recall("heron 1").degraded == ()


def test_a_store_is_searched_by_words_without_its_embedder(home: Path) -> None:
    compass = Compass()
    with Memory(home, embedder=compass) as memory:
        memory.session("s").append(Message("user", "A boat lies here."), Message("user", "The meadow is wide."))
        memory.worker().drain()
        assert memory.recall("ship", limit=1)[0].text == "A boat lies here."
        compass.fails = True
        recall = memory.recall("What of the ship on the meadow?")
        assert recall[0].text == "The meadow is wide."
        assert "searched with BM25 only" in recall.degraded[0]
        assert "the model is away" in recall.degraded[0]


def test_a_closed_memory_is_a_typed_error(home: Path) -> None:
    memory = Memory(home)
    memory.recall("x")
    memory.close()
    with pytest.raises(StoreClosed):
        memory.recall("x")


def test_a_rebuild_without_disk_space_does_not_change_the_index(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.facts.add("The heron is a bird.")
    memory.worker().drain()
    with monkeypatch.context() as full:
        full.setattr("agentkit_memory.index.qdrant_edge._MIN_FREE", 2**62)
        with raises(IndexUnavailable, name="disk"):
            memory.admin.rebuild()
        assert memory.recall("heron").degraded == ()
    memory.worker().drain()
    checked = memory.admin.verify()
    assert checked.ok and not checked.pending


def test_recalls_and_workers_continue_during_a_rebuild(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.facts.add("The heron is a bird.")
    memory.worker().drain()
    worker = memory._store.indexes.worker()
    seen: list[tuple[str, int, tuple[str, ...]]] = []

    def look(place: str) -> None:
        recall = memory.recall("heron")
        seen.append((place, len(recall.knowledge), recall.degraded))
        # The index is emptied after the first place, and bound to the database before the last.
        assert place == "rebuild.claimed" or worker.run_once() == 0

    with monkeypatch.context() as watched:
        watched.setattr("agentkit_memory.index.indexes.failpoint", look)
        assert memory.admin.rebuild().ok
    assert seen == [("rebuild.queued", 1, ()), ("rebuild.cleared", 1, ()), ("rebuild.claimed", 1, ())]
    assert [fact.text for fact in memory.recall("heron").knowledge] == ["The heron is a bird."]


def test_a_recall_that_began_before_a_rebuild_finds_items(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.facts.add("The heron is a bird.")
    memory.worker().drain()
    views: list[ReadView] = []
    texts: list[str] = []

    def look(place: str) -> None:
        # The first state is from before the rebuild.
        before = [views[0]]
        monkeypatch.setattr(f"{STEPS}.read_view", lambda *given: before.pop() if before else read_view(*given))
        texts.extend(fact.text for fact in memory.recall("heron").knowledge)

    monkeypatch.setattr(f"{STEPS}.read_view", lambda *given: views.append(read_view(*given)) or views[-1])
    memory.recall("heron")
    monkeypatch.setattr("agentkit_memory.index.indexes.failpoint", look)
    assert memory.admin.rebuild().ok
    assert texts == ["The heron is a bird."] * 3


def test_the_next_use_completes_a_failed_rebuild(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.facts.add("The heron is a bird.")
    memory.worker().drain()
    with monkeypatch.context() as broken:
        broken.setattr("qdrant_edge.EdgeShard.create", None)
        with raises(IndexBroken, name="index"):
            memory.admin.rebuild()
        assert [each.text for each in memory.recall("heron").knowledge] == ["The heron is a bird."]
    memory.worker().drain()
    assert [each.text for each in memory.recall("heron").knowledge] == ["The heron is a bird."]
    assert memory.admin.verify().ok
