"""Change of the embedder of a store: a second space is built, checked and activated, with kills at any point."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import QdrantClient

from agentkit.memory import EmbedderError, Gate, IndexUnavailable, InvalidArgument, Memory, StoreClosed
from agentkit.prompts import Message
from agentkit.testing import StoreProbe
from agentkit_memory.database.engine import Database
from agentkit_memory.embedders.encoder import Encoder
from agentkit_memory.index.compare import compare
from agentkit_memory.index.qdrant_edge import EdgeIndex
from agentkit_memory.index.qdrant_server import QdrantIndex
from agentkit_memory.reembed import reembed
from agentkit_memory.reembed.gate import ReembedProgress
from agentkit_memory.reembed.switching import abandon
from agentkit_memory.store.spaces import active_space, forget_space, space_name
from agentkit_memory.terms.bm25_vectors import SPACE
from benchmarks.failpoints import FAILPOINTS
from tests.effort import thinned
from tests.forks import Forks
from tests.memory.embedders.word_embedder import Words
from tests.raising import raises
from tests.waiting import LONG, until

NAMES = "aardvark badger camel dingo eland ferret gnu heron ibis jackal kiwi lynx mole newt otter puma quail"
ANIMALS = NAMES.split(" ")


@pytest.fixture
def filled(either: Memory, docs: Path) -> Memory:
    """Memory with some chunks, found by BM25."""
    write(docs)
    either.ingest(docs)
    return either


def write(docs: Path, names: Sequence[str] = ANIMALS) -> None:
    for number, name in enumerate(names):
        (docs / f"{name}.md").write_text(
            f"# The {name}\n\nA {name} sleeps in burrow {number}. It drinks from pond {number * 7} at {name} time.\n"
        )


def best(memory: Memory, question: str, **options: Any) -> str:
    return Path(memory.recall(question, limit=1, **options)[0].source or "").stem


def spaces(memory: Memory) -> dict[str, tuple[str, str]]:
    rows = StoreProbe(memory).rows("SELECT space, model, state FROM vector_spaces")
    return {space: (model, state) for space, model, state in rows}


def states(memory: Memory) -> set[str]:
    return set(StoreProbe(memory).values("SELECT space FROM vector_state"))


def stored_vectors(memory: Memory) -> dict[str, int]:
    rows = StoreProbe(memory).rows("SELECT model, count(*) FROM embeddings GROUP BY model")
    return {row[0]: row[1] for row in rows}


def check_space(memory: Memory, model: str) -> None:
    """Check that the store uses the model, that its space has each item once, and that no other space remains."""
    memory.recall("x")
    found = memory.admin.verify()
    assert (found.ok, found.pending, found.space) == (True, 0, space_name(model))
    ids = [item.id for item in StoreProbe(memory).items()]
    rows = StoreProbe(memory).rows("SELECT item_id, space FROM vector_state")
    assert sorted(map(tuple, rows)) == [(item, space_name(model)) for item in sorted(ids)]
    assert found.points == len(ids)
    assert spaces(memory) == {space_name(model): (model, "active")}


def test_a_store_searched_by_words_is_searched_by_meaning_after_a_change(filled: Memory) -> None:
    seen: list[ReembedProgress] = []
    done = filled.admin.reembed(Words(), on_progress=seen.append)
    assert (done.flipped, done.why, done.items, done.failing, done.left) == (True, "", 17, 0, ())
    assert [(check.name, check.tried, check.share) for check in done.checks] == [
        ("self-retrieval", 17, 1.0),
        ("recent recalls", 0, 1.0),
    ]
    assert [(each.done, each.total) for each in seen] == [(0, 17), (17, 17)]
    assert filled.model == "words-1"
    assert best(filled, "burrow puma", policy="dense") == "puma"
    assert stored_vectors(filled) == {"words-1": 17}
    check_space(filled, "words-1")


def test_another_model_replaces_the_model_and_all_its_vectors(filled: Memory) -> None:
    filled.admin.reembed(Words("one", 48))
    filled.recall("pond badger")
    done = filled.admin.reembed(Words("two", 96))
    assert (done.flipped, [check.name for check in done.checks if check.tried]) == (
        True,
        ["self-retrieval", "recent recalls"],
    )
    assert best(filled, "burrow puma", policy="dense") == "puma"
    assert stored_vectors(filled) == {"two": 17}
    check_space(filled, "two")


def test_a_store_can_return_to_words_alone(filled: Memory) -> None:
    filled.admin.reembed(Words())
    assert filled.admin.reembed(None).flipped
    assert (filled.model, best(filled, "puma")) == ("", "puma")
    assert stored_vectors(filled) == {}
    check_space(filled, "")
    assert filled.admin.reembed(Words()).flipped  # and again to the model, into a dropped space
    check_space(filled, "words-1")


def test_a_store_without_an_index_can_change_its_model(either: Memory) -> None:
    either.session("s").append(Message("user", "My heron is called Zeppelin."))

    def meanwhile(progress: ReembedProgress) -> None:
        if not progress.done:
            assert "Zeppelin" in either.recall("heron")[0].text

    assert either.admin.reembed(Words(), on_progress=meanwhile).flipped
    until = time.monotonic() + LONG
    while either.admin.reembed(Words()).left and time.monotonic() < until:  # this recall is still opening its index
        time.sleep(0.05)
    either.worker().drain()
    assert "Zeppelin" in either.recall("heron", policy="dense")[0].text
    check_space(either, "words-1")


def test_a_comparison_longer_than_a_change_queues_nothing_for_the_dropped_space(
    filled: Memory, database: Database, tmp_path: Path
) -> None:
    filled.recall("heron")
    assert filled.admin.reembed(Words()).flipped
    until(lambda: not filled.admin.reembed(Words()).left)
    index = EdgeIndex(tmp_path / "old", 0)
    try:
        with raises(StoreClosed, name="bm25-4"):
            compare(database, index, SPACE, database.clock(), repairing=True)
    finally:
        index.close()
    check_space(filled, "words-1")


def test_the_active_space_is_not_dropped(filled: Memory, database: Database) -> None:
    filled.admin.reembed(Words())
    with database.read() as connection:
        active = active_space(connection)
    forget_space(database, active)
    check_space(filled, "words-1")


def test_a_change_to_the_active_model_has_no_effect(filled: Memory) -> None:
    filled.admin.reembed(Words())
    again = Words()
    done = filled.admin.reembed(again)
    assert (done.flipped, done.items, done.checks, again.calls) == (True, 17, (), [])


def test_a_new_store_uses_the_embedder_of_its_opening(home: Path, docs: Path) -> None:
    write(docs)
    embedder = Words()
    with Memory(home, embedder=embedder) as memory:
        memory.ingest(docs)
        assert best(memory, "puma burrow", policy="dense") == "puma"
        session = memory.session("s")
        session.append(Message("user", "My heron is called Zeppelin."))
        memory.worker().drain()
        assert "Zeppelin" in str(memory.recall("heron Zeppelin"))
        check_space(memory, "words-1")
    asked = len(embedder.asked)
    with Memory(home, embedder=embedder) as memory:
        assert len(embedder.asked) == asked  # the length of its vectors is known
        assert best(memory, "puma burrow", policy="dense") == "puma"
    assert asked == 1 + 17 + 1 + 3  # its length, chunks, a turn, questions


def test_an_empty_store_accepts_any_embedder(home: Path) -> None:
    with Memory(home) as memory:
        memory.recall("x")
    for model in ("one", "two"):
        with Memory(home, embedder=Words(model)) as memory:
            check_space(memory, model)


@pytest.mark.parametrize("before", ["", "one"])
def test_an_embedder_that_differs_from_the_active_model_is_refused(filled: Memory, tmp_path: Path, before: str) -> None:
    if before:
        filled.admin.reembed(Words("one"))
    with raises(EmbedderError, name="embedder", value="x"):
        Memory(StoreProbe(filled).target, index=tmp_path / "other", embedder=Words("x"))
    with raises(EmbedderError, name="embedder", value="x"):
        Memory(StoreProbe(filled).target, index=tmp_path / "other", embedder=Words("x"))
    check_space(filled, before)


def test_a_store_without_its_embedder_is_searched_by_words_and_new_items_wait(home: Path, docs: Path) -> None:
    write(docs)
    with Memory(home, embedder=Words()) as memory:
        memory.ingest(docs)
    (docs / "zebra.md").write_text("A zebra has stripes.")
    with Memory(home) as memory:
        assert memory.ingest(docs).pending == 1
        found = memory.recall("zebra stripes", limit=1)
        assert Path(found[0].source or "").stem == "zebra"
        assert any("opened without an embedder of it" in each for each in found.degraded)
        problems = memory.admin.verify().problems
        assert "BM25 still works" in "".join(problems.values())
    with Memory(home, embedder=Words()) as memory:  # immediately, before its next retry is due
        memory.worker().drain()
        check_space(memory, "words-1")


def test_items_written_during_a_build_are_added_to_both_spaces(filled: Memory, docs: Path) -> None:
    def meanwhile(progress: ReembedProgress) -> None:
        if progress.done:
            return
        (docs / "zebra.md").write_text("A zebra has stripes.")
        (docs / "puma.md").unlink()
        (docs / "newt.md").write_text("# The newt\n\nA newt moved to Xanadu.\n")
        filled.ingest(docs)
        assert best(filled, "zebra stripes") == "zebra"
        assert states(filled) == {SPACE, space_name("words-1")}

    assert filled.admin.reembed(Words(), on_progress=meanwhile).flipped
    assert best(filled, "newt Xanadu", policy="dense") == "newt"
    assert best(filled, "stripes zebra", policy="dense") == "zebra"
    check_space(filled, "words-1")


def test_recalls_of_other_threads_continue_during_changes(filled: Memory) -> None:
    stop, wrong, done = threading.Event(), [], []

    def ask() -> None:
        number = 0
        while not stop.is_set():
            name = ANIMALS[number % len(ANIMALS)]
            found = filled.recall(f"{name} burrow", limit=3)
            number += 1
            done.append(name)
            stop.wait(0.01)
            # A recall does not wait for an index that another thread opens: it searches SQL, and reports this.
            degraded = [reason for reason in found.degraded if "the index is being opened" not in reason]
            if name not in [Path(each.source or "").stem for each in found] or degraded:
                wrong.append((name, found, found.degraded))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for model in ("one", "two", "one"):
            assert filled.admin.reembed(Words(model)).flipped
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert len(done) > 10
    check_space(filled, "one")


def test_a_background_worker_follows_the_model(filled: Memory, docs: Path) -> None:
    with filled.worker() as worker:
        assert filled.admin.reembed(Words("one")).flipped
        assert filled.admin.reembed(Words("two")).flipped
        filled.session("s").append(Message("user", "My heron is called Zeppelin."))
        until(lambda: stored_vectors(filled).get("two") == 18)
        assert worker.problems == {}
    assert stored_vectors(filled)["two"] == 18
    check_space(filled, "two")


# The gate.


def constant(text: str) -> list[float]:
    return [1.0] * 64


def test_a_model_that_finds_nothing_is_refused_and_the_old_model_stays_active(filled: Memory) -> None:
    filled.admin.reembed(Words("good"))
    done = filled.admin.reembed(Words("bad", wrong=constant))
    assert not done.flipped
    assert done.why == "self-retrieval: 10 of 17 found, 90% needed"  # 10 are found by chance
    assert len(done.checks[0].examples) == 7
    assert (filled.model, best(filled, "burrow puma", policy="dense")) == ("good", "puma")
    assert spaces(filled) == {f"{SPACE}+good": ("good", "active"), f"{SPACE}+bad": ("bad", "building")}
    with raises(InvalidArgument, name="embedder", value="bad"):
        filled.admin.reembed(Words("other"))
    assert filled.admin.abandon_reembed()
    assert not filled.admin.abandon_reembed()
    check_space(filled, "good")


def test_a_built_space_is_kept_and_checked_again(filled: Memory) -> None:
    assert not filled.admin.reembed(Words("bad", wrong=constant)).flipped
    again = Words("bad", wrong=constant)
    assert filled.admin.reembed(again, gate=None).flipped
    assert again.calls == []
    check_space(filled, "bad")


def test_the_gate_requires_the_used_results_of_recent_recalls(filled: Memory, docs: Path) -> None:
    """The result was found only by meaning, and the new model does not find it."""
    near = Words("near", wrong=lambda said: Words("near").vector("feline") if "puma" in said or said == "cat" else None)
    filled.admin.reembed(near)
    assert best(filled, "cat") == "puma"
    write(docs, [f"{first}{second}" for first in ANIMALS for second in "abcde"])
    filled.ingest(docs)
    filled.recall("cat", limit=1)
    far = Words("far", wrong=lambda said: [-value for value in far.vector("a burrow")] if said == "cat" else None)
    done = filled.admin.reembed(far, gate=Gate(overlap=1.0))
    assert not done.flipped
    recent = done.checks[1]
    assert (recent.name, recent.passed) == ("recent recalls", False)
    assert done.why.startswith("recent recalls: ")
    assert filled.admin.reembed(far, gate=Gate(overlap=0.0)).flipped


def test_custom_questions_are_searched_in_both_spaces(filled: Memory) -> None:
    filled.admin.reembed(Words("one"))
    good = Gate(questions=["where does the puma drink?", "which burrow has the newt?"])
    done = filled.admin.reembed(Words("two"), gate=good)
    assert done.flipped
    assert (done.checks[2].name, done.checks[2].tried > 10, done.checks[2].share) == ("questions", True, 1.0)


def test_questions_are_searched_in_the_scope_of_the_memory(home: Path, docs: Path) -> None:
    write(docs)
    with Memory(home) as memory:
        memory.ingest(docs)
    with Memory(home, scope="other") as other:
        done = other.admin.reembed(Words(), gate=Gate(questions=["puma"]))
    assert (done.flipped, done.checks[0].tried, done.checks[2].tried) == (True, 17, 0)


@pytest.fixture
def hurried(filled: Memory, monkeypatch: pytest.MonkeyPatch) -> Memory:
    """The same memory, with a clock that advances by half a second at each read; no embedder has a pause."""
    seconds = count(2_000_000_000)
    StoreProbe(filled).set_clock(lambda: next(seconds) / 2)
    monkeypatch.setitem(Encoder.__init__.__kwdefaults__ or {}, "pause", 0.0)
    return filled


@pytest.mark.parametrize(("failures", "flipped"), [(2, True), (3, False)])
def test_an_item_is_embedded_three_times_before_the_change_ends(hurried: Memory, failures: int, flipped: bool) -> None:
    words, seen = Words(), [0]

    def poison(text: str) -> list[float] | None:
        seen.append(tries())
        return [float("nan")] * 64 if "puma" in text and max(seen) < failures else None

    def tries() -> int:
        query = "SELECT max(attempts) FROM vector_state WHERE space = :space"
        return StoreProbe(hurried).values(query, space=space_name(words.model))[0] or 0

    words.wrong = poison
    done = hurried.admin.reembed(words)
    assert (done.flipped, done.failing) == (flipped, 0 if flipped else 1)
    assert tries() == (0 if flipped else 3)


def index_of(target: Path | str, tmp_path: Path) -> Path | None:
    """Return the folder of the index of `either`, if it is not in the folder of the store."""
    return tmp_path / "index" if isinstance(target, str) else None


def test_items_that_cannot_be_embedded_prevent_the_activation_of_a_space(hurried: Memory, tmp_path: Path) -> None:
    def poison(said: str) -> list[float] | None:
        return [float("nan")] * 64 if "puma" in said else None

    done = hurried.admin.reembed(Words(wrong=poison))
    assert (done.flipped, done.failing, done.checks) == (False, 1, ())
    assert done.why.startswith("1 of 17 items have no vector yet: EmbedderError: model 'words-1', text ")
    assert "contains NaN or infinity" in done.why
    done = hurried.admin.reembed(Words(wrong=poison), gate=Gate(failing=0.1, self_retrieval=0.9))
    assert (done.flipped, done.failing) == (True, 1)
    assert best(hurried, "puma") == "puma"  # by its words
    target = StoreProbe(hurried).target
    hurried.close()
    with Memory(target, index=index_of(target, tmp_path), embedder=Words()) as memory:
        memory.worker().drain()  # immediately, before its next retry is due
        check_space(memory, "words-1")


@pytest.mark.parametrize(
    ("point", "gate"),
    [
        ("reembed.built", None),
        ("reembed.checked", None),
        ("reembed.checked", Gate(self_retrieval=0.0)),
        ("reembed.flipped", Gate(self_retrieval=0.0)),
    ],
)
def test_waiting_removals_are_not_counted_as_items_without_a_vector(
    filled: Memory, monkeypatch: pytest.MonkeyPatch, point: str, gate: Gate | None
) -> None:
    """Their number can be above the number of remaining items."""
    removed: list[str] = []

    def remove(name: str) -> None:
        if name == point:
            monkeypatch.setattr(filled._store, "catch_up_later", lambda: None)
            removed.extend(each.source for each in filled.documents.list()[:12])
            assert all(map(filled.documents.forget, removed))

    monkeypatch.setattr(reembed, "failpoint", remove)
    done = filled.admin.reembed(Words(), gate=gate)
    left = 17 - len(removed)
    assert (done.flipped, done.why, done.items, done.failing) == (True, "", left, 0)
    assert left == (17 if gate is None and point == "reembed.checked" else 5)


@pytest.mark.parametrize("names", [ANIMALS, ["puma", "quail"]])
def test_a_space_is_activated_without_a_gate_despite_failures(hurried: Memory, names: Sequence[str]) -> None:
    poison = Words(wrong=lambda said: [float("nan")] * 64 if any(name in said for name in names) else None)
    done = hurried.admin.reembed(poison, gate=None)
    assert (done.flipped, done.why, done.failing, done.checks) == (True, "", len(names), ())
    assert best(hurried, "puma") == "puma"  # by its words


def test_an_unavailable_model_changes_nothing(hurried: Memory) -> None:
    class Away(Words):
        here = True

        def embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
            if not self.here:
                raise EmbedderError("model 'words-1': gone fishing")
            return super().embed(texts)

    away = Away()
    away.here = False
    with pytest.raises(EmbedderError):
        hurried.admin.reembed(away)
    assert spaces(hurried) == {SPACE: ("", "active")}
    away.here = True

    def leave(progress: ReembedProgress) -> None:
        away.here = False

    done = hurried.admin.reembed(away, on_progress=leave)
    assert (done.flipped, done.failing) == (False, 17)
    assert "gone fishing" in done.why
    assert best(hurried, "puma") == "puma"
    away.here = True
    assert hurried.admin.reembed(away).flipped
    check_space(hurried, "words-1")


# Crashes, and other processes.

CHANGE = """if True:
    import sys
    from agentkit_memory import Memory
    from tests.memory.embedders.word_embedder import Words
    with Memory(sys.argv[1], index=sys.argv[2], timeout=30) as memory:
        print(memory.admin.reembed(Words(sys.argv[3])).flipped)
"""


POINTS = sorted(name for name in FAILPOINTS if name.split(".")[0] in ("index", "reembed", "spaces", "worker"))


@pytest.mark.long
@pytest.mark.skipif(os.name != "posix", reason="killed by signals")
@pytest.mark.parametrize("kind", thinned(["postgresql", "sqlite"]))
def test_the_next_call_continues_a_change_killed_between_any_two_writes(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, docs: Path, programs: Forks
) -> None:
    target = str(tmp_path / "store") if kind == "sqlite" else request.getfixturevalue("fresh_postgres")
    index = tmp_path / "index"
    write(docs)
    with Memory(target, index=index, embedder=Words("m0")) as memory:
        memory.ingest(docs)
    before, killed = "m0", []
    points = thinned(POINTS[::2] if kind == "sqlite" else POINTS[1::4])
    for number, point in enumerate(points, start=1):
        model = f"m{number}"
        died = programs.start("-c", CHANGE, target, index, model, AGENTKIT_FAILPOINT=point)
        killed += [point] if died.wait() < 0 else []
        with Memory(target, index=index) as memory:
            found = memory.model
            assert found in (before, model)
        with Memory(target, index=index, embedder=Words(found)) as memory:
            assert best(memory, "burrow puma", policy="dense") == "puma"  # the active space is complete
            assert memory.admin.verify().ok
            memory.ingest(docs)
            assert memory.admin.reembed(Words(model)).flipped
            check_space(memory, model)
            assert stored_vectors(memory) == {model: 17}
        before = model
    assert set(points) - set(killed) <= {"worker.deleted"}  # no point is removed from an index here


@pytest.mark.long
def test_a_second_process_uses_the_old_space_until_it_can_open_the_new_space(
    home: Path, docs: Path, programs: Forks
) -> None:
    write(docs)
    with Memory(home, embedder=Words("one")) as owner:
        owner.ingest(docs)
        assert best(owner, "burrow puma", policy="dense") == "puma"
        done = programs.start("-c", CHANGE, home, home / "index", "two")
        assert (done.wait(), done.output(), done.errors()) == (0, "True\n", "")
        assert spaces(owner)[f"{SPACE}+one"] == ("one", "retired")  # its index is open in this process
        found = owner.recall("burrow puma", limit=1)
        assert Path(found[0].source or "").stem == "puma"
        assert any("uses model 'two'" in each for each in found.degraded)
        owner.admin.reembed(Words("two"))  # removes unused spaces
        assert best(owner, "burrow puma", policy="dense") == "puma"
        check_space(owner, "two")


def test_two_processes_do_not_build_the_same_folder(home: Path, docs: Path) -> None:
    write(docs)
    said = []

    def meanwhile(progress: ReembedProgress) -> None:
        if not progress.done:
            with Memory(home) as other, raises(IndexUnavailable, name="owner") as raised:
                other.admin.reembed(Words())
            said.append(raised)

    with Memory(home) as memory:
        memory.ingest(docs)
        assert memory.admin.reembed(Words(), on_progress=meanwhile).flipped
        assert said
        check_space(memory, "words-1")


class Server(QdrantClient):
    """Local mode instead of a server: it stays open when one of its users closes."""

    def close(self, grpc_grace: float | None = None, **_: Any) -> None:
        pass


@pytest.fixture
def opener() -> Iterator[Callable[[str, int], QdrantIndex]]:
    server = Server(":memory:")
    yield lambda space, dimensions: QdrantIndex(server, space.replace("+", "-"), dimensions, shared=True)


def test_two_processes_can_build_on_a_server_during_recalls(
    tmp_path: Path, docs: Path, opener: Callable[[str, int], QdrantIndex]
) -> None:
    write(docs)
    with (
        Memory(tmp_path / "store", index=opener, embedder=Words("one")) as first,
        Memory(tmp_path / "store", index=opener, embedder=Words("one")) as second,
    ):
        first.ingest(docs)
        assert best(second, "burrow puma", policy="dense") == "puma"

        def meanwhile(progress: ReembedProgress) -> None:
            if not progress.done:
                assert second.admin.reembed(Words("two")).flipped

        assert first.admin.reembed(Words("two"), on_progress=meanwhile).flipped
        for each in (first, second):
            assert best(each, "burrow puma", policy="dense") == "puma"
            check_space(each, "two")


def test_a_change_that_is_abandoned_during_its_build_is_not_activated(filled: Memory, database: Database) -> None:
    def meanwhile(progress: ReembedProgress) -> None:
        if progress.done:
            abandon(database)

    done = filled.admin.reembed(Words(), on_progress=meanwhile)
    assert (done.flipped, done.why) == (False, "it was abandoned meanwhile")
    check_space(filled, "")


def test_a_lost_index_is_built_again_without_calls_of_the_model(home: Path, docs: Path) -> None:
    write(docs)
    with Memory(home, embedder=Words()) as memory:
        memory.ingest(docs)
    shutil.rmtree(home / "index")
    embedder = Words()
    with Memory(home, embedder=embedder) as memory:
        memory.worker().drain()
        check_space(memory, "words-1")
    assert "puma" not in json.dumps(embedder.calls)


def test_vectors_are_removed_with_their_texts(home: Path, docs: Path) -> None:
    write(docs)
    with Memory(home, embedder=Words()) as memory:
        memory.ingest(docs)
        (docs / "puma.md").unlink()
        (docs / "newt.md").write_text("# The newt\n\nA newt moved to Xanadu.\n")
        memory.ingest(docs)
        assert stored_vectors(memory) == {"words-1": 16}
        said = memory.session("s")
        said.append(Message("user", "My heron is called Zeppelin."))
        memory.worker().drain()
        assert stored_vectors(memory) == {"words-1": 17}
        said.redact(1)
        memory.worker().drain()
        assert stored_vectors(memory) == {"words-1": 16}
        assert memory.erase("local").removed["embeddings"] == 16
        assert stored_vectors(memory) == {}


def test_a_text_that_is_erased_during_its_embedding_leaves_no_vector(home: Path, docs: Path) -> None:
    write(docs, ["puma", "newt"])

    def erase(said: str) -> None:
        if "puma" in said and (docs / "puma.md").exists():
            (docs / "puma.md").unlink()
            assert memory.documents.forget(str(docs / "puma.md"))

    with Memory(home, embedder=Words(wrong=erase)) as memory:
        StoreProbe(memory).pause()
        memory.ingest(docs)
        assert stored_vectors(memory) == {"words-1": 1}
        memory.ingest(docs)
        check_space(memory, "words-1")


def test_an_embedder_without_a_model_name_is_refused_before_any_effect(home: Path) -> None:
    class Nameless:
        def embed(self, texts: Sequence[str]) -> list[list[float]]:
            raise AssertionError

    with raises(EmbedderError, name="model", value="Nameless"):
        Memory(home, embedder=Nameless())
    with raises(EmbedderError, name="embedder", value="bge-small"):
        Memory(home, embedder="bge-small")
    Memory(home).close()


def test_names_of_spaces_are_short_distinct_and_valid_file_names() -> None:
    models = [
        "",
        "minilm",
        "MiniLM",
        "a/b",
        "a-b",
        "A/b",
        "é",
        "x" * 200,
        "x" * 199,
        "openai:text-embedding-3-small@256",
    ]
    names = [space_name(model) for model in models]
    assert len({name.lower() for name in names}) == len(models)
    assert all(len(name) <= 64 and name.isascii() and "/" not in name for name in names)
    assert names[:2] == [SPACE, f"{SPACE}+minilm"]


@pytest.mark.parametrize("model", ["", "words-1"])
def test_a_store_with_an_older_analysis_of_texts_is_indexed_again(home: Path, docs: Path, model: str) -> None:
    embedder = Words() if model else None
    write(docs)
    with Memory(home, embedder=embedder) as memory:
        memory.ingest(docs)
        for table in ("vector_spaces", "vector_state"):
            StoreProbe(memory).execute(f"UPDATE {table} SET space = replace(space, '{SPACE}', 'bm25-0')")
    (folder,) = (home / "index").iterdir()
    folder.rename(folder.with_name(folder.name.replace(SPACE, "bm25-0")))
    with Memory(home, embedder=embedder) as memory:
        assert best(memory, "puma pond") == "puma", "without an index"
        memory.worker().drain()
        assert best(memory, "puma pond") == "puma"
        assert not memory.admin.abandon_reembed()  # removes unused spaces
        check_space(memory, model)
        assert stored_vectors(memory) == ({model: 17} if model else {})
