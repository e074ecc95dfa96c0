"""Erasure of a subject: no data of it in tables, in the index or in the bytes of the file, with a proof."""

from __future__ import annotations

import math
import os
import signal
import sqlite3
import struct
import threading
import uuid
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import insert

from agentkit.memory import InvalidArgument, Memory, NotFound, Scope, StoreCorrupt, StoreError
from agentkit.memory.recall import Pool, Question, RecallPolicy
from agentkit.prompts import Message, ToolCall
from agentkit.testing import StoreProbe
from agentkit_memory.database.engine import Database
from agentkit_memory.database.tables import embeddings
from agentkit_memory.index.folder_lock import FolderLock
from agentkit_memory.store.item_rows import content_hash
from agentkit_memory.store.recall_logs import RecallLogs
from agentkit_memory.store.records import RecallLog
from agentkit_memory.terms.bm25_vectors import SPACE
from tests.effort import spread, thinned
from tests.forks import Forks
from tests.memory.embedders.word_embedder import Words
from tests.memory.stored_bytes import files_with
from tests.raising import raises

MARKER = "Xanadu-4929"


def fill(memory: Memory, scope: Scope, docs: Path, marker: str) -> None:
    """Store rows of a scope in each table and in the index."""
    mine = memory.within(scope)
    (docs / "a.md").write_text(f"# {marker}\n\n{marker} likes tea.\n" * 30)
    mine.ingest(docs)
    session = mine.session(f"chat {marker}")
    call = Message("assistant", "", tool_calls=(ToolCall(marker, marker, f'"{marker}"'),))
    session.append(Message("user", f"I am {marker}", name=marker), call, key=marker)
    session.append(Message("tool", marker, tool_call_id=marker))
    session.fork(marker, at=1).append(Message("user", f"{marker} again"))
    memory.worker().drain()
    probe = StoreProbe(memory)
    (turn,) = [item.id for item in probe.items("turn") if item.text == f"I am {marker}"]
    mine.facts.add(f"{marker} is a name.", sources=turn, metadata={"of": marker})
    mine.recall(f"who is {marker}?", session=session)
    mine.recall("tea")
    mine.worker().drain()
    hashes = {content_hash(item.text) for item in probe.items() if marker in item.text}
    kept = {"model": marker, "vector": b"\0", "created_at": 0.0}
    probe.execute(insert(embeddings), *[{**kept, "content_hash": each} for each in hashes])


def all_rows(memory: Memory) -> str:
    memory.recall_logs()  # writes the logs now
    kept = StoreProbe(memory).dump()
    return repr({name: rows for name, rows in kept.items() if name != "vector_spaces"})


def files_with_text(home: Path, marker: str = MARKER) -> list[str]:
    """Return the files that contain a text."""
    return files_with(marker.encode(), home)


def files_with_bytes(home: Path, data: bytes) -> list[str]:
    """Return the files of the index that contain some bytes."""
    return files_with(data, home / "index")


ADA, BOB = Scope("local", user=f"ada {MARKER}"), Scope("local", user="bob")


def test_a_user_is_erased_from_tables_and_index_and_other_users_stay(either: Memory, docs: Path) -> None:
    fill(either, BOB, docs, "Bobby")
    probe = StoreProbe(either)
    before, points = all_rows(either), probe.index.count()
    fill(either, ADA, docs, MARKER)
    fill(either, Scope("local", user=ADA.user, agent="helper"), docs, f"{MARKER} by the helper")
    assert MARKER in all_rows(either)
    proof = either.erase(ADA)
    assert proof.complete and proof.points == 0 and proof.waiting == 0 and not any(proof.found.values())
    assert {name: proof.removed[name] for name in ("scopes", "conversations", "branches", "documents")} == {
        "scopes": 2,
        "conversations": 2,
        "branches": 4,
        "documents": 2,
    }
    assert {"messages", "tool_calls", "items", "recall_logs", "embeddings"} < set(proof.removed)
    assert MARKER not in all_rows(either)
    assert all_rows(either).split("erasures")[0][:200] == before[:200]
    assert probe.index.count() == points
    assert either.within(ADA).recall("tea") == () or not list(either.within(ADA).recall("tea"))
    assert len(list(either.within(BOB).recall("Bobby tea"))) > 0
    assert len(either.within(BOB).session("chat Bobby").conversation) == 3
    verified = either.admin.verify()
    assert (verified.missing, verified.stale, verified.orphans) == (0, 0, 0)


def test_no_byte_of_the_subject_remains_in_the_files(home: Path, docs: Path) -> None:
    with Memory(home) as memory:
        fill(memory, BOB, docs, "Bobby")
        fill(memory, ADA, docs, MARKER)
        (docs / "a.md").write_text("changed")
        memory.within(ADA).ingest(docs)  # the file contains the replaced text
        assert files_with_text(home)
        proof = memory.erase(ADA)
        assert proof.complete and proof.compacted and proof.note == ""
        assert files_with_text(home) == []
        assert files_with_text(home, "Bobby")
    assert files_with_text(home) == []


def test_compacting_removes_redacted_bytes(home: Path) -> None:
    with Memory(home) as memory:
        session = memory.session("s")
        session.append(Message("user", MARKER * 100))
        session.redact(1)
        assert memory.admin.compact() and files_with_text(home) == []


def numbers(text: str) -> bytes:
    """Return the vector of a text as an index writes it to a file."""
    vector = Words().vector(text)
    return struct.pack(f"<{len(vector)}f", *(each / math.hypot(*vector) for each in vector))


@pytest.mark.long
def test_no_vector_of_the_subject_remains_in_the_files_of_the_index(home: Path) -> None:
    with Memory(home, embedder=Words()) as memory:
        others = [memory.facts.add(f"other {number}").id for number in range(30)]
        gone = memory.within(ADA).facts.add("a pavilion in Oslo").id
        memory.worker().drain()
        assert files_with_bytes(home, numbers("a pavilion in Oslo")) and files_with_bytes(home, uuid.UUID(gone).bytes)
        proof = memory.erase(ADA)
        assert proof.complete and proof.compacted and proof.note == ""
        for _ in range(2):
            assert not files_with_bytes(home, numbers("a pavilion in Oslo")) and not files_with_bytes(
                home, uuid.UUID(gone).bytes
            )
            assert files_with_bytes(home, numbers("other 7"))
            assert sorted(name for name, _ in StoreProbe(memory).index.versions()) == sorted(others)
            memory.facts.add("other 7")
            memory.recall("other")
        assert (
            memory.facts.remove(others[7]) and memory.admin.compact() and not files_with_bytes(home, numbers("other 7"))
        )
        assert memory.admin.verify().ok and memory.recall("other 9").knowledge[0].text == "other 9"


def test_a_reader_that_blocks_the_truncation_of_the_log_is_reported(home: Path, docs: Path) -> None:
    with Memory(home, timeout=0.1) as memory:
        fill(memory, ADA, docs, MARKER)
        with closing(sqlite3.connect(home / "memory.db", isolation_level=None)) as other:
            other.execute("BEGIN")
            other.execute("SELECT count(*) FROM items").fetchone()
            proof = memory.erase(ADA)
            assert proof.complete and not proof.compacted and "compact() later" in proof.note
            other.execute("COMMIT")
        assert memory.admin.compact() and files_with_text(home) == []


def test_a_writer_that_blocks_the_rewrite_of_the_file_is_reported(home: Path, docs: Path) -> None:
    with Memory(home, timeout=0.05) as memory:
        with closing(sqlite3.connect(home / "memory.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with raises(StoreError, name="SQLITE_BUSY"):
                memory.admin.compact()
        assert memory.admin.compact()


@pytest.mark.parametrize(
    ("subject", "gone"),
    [
        (Scope("local"), {"shared", "ada", "bob", "agent", "session"}),
        (Scope("local", user="ada"), {"ada", "agent", "session"}),
        (Scope("local", agent="helper"), {"agent"}),
        (Scope("local", session="s1"), {"session"}),
        (Scope("local", user="bob", agent="helper"), set()),
    ],
)
def test_a_subject_owns_the_scopes_with_all_its_names(either: Memory, subject: Scope, gone: set[str]) -> None:
    scopes = {
        "shared": Scope("local"),
        "ada": Scope("local", user="ada"),
        "bob": Scope("local", user="bob"),
        "agent": Scope("local", user="ada", agent="helper"),
        "session": Scope("local", user="ada", session="s1"),
        "elsewhere": Scope("other", user="ada", session="s1", agent="helper"),
    }
    for name, scope in scopes.items():
        either.within(scope).session("talk").append(Message("user", name))
    assert either.erase(subject).complete
    left = {name for name, scope in scopes.items() if len(either.within(scope).session("talk").conversation)}
    assert left == set(scopes) - gone


def test_a_memory_erases_only_within_its_tenant(either: Memory) -> None:
    with raises(InvalidArgument, name="tenant", value="other"):
        either.erase("other")
    either.within("other").session("s").append(Message("user", "x"))
    assert either.within("other").erase("other").removed["messages"] == 1


def test_the_erasure_of_an_unknown_subject_has_a_proof(either: Memory) -> None:
    proof = either.erase(Scope("local", user="nobody"))
    assert proof.complete and dict(proof.removed) == {} and "nobody" not in all_rows(either)


def test_facts_of_other_scopes_with_sources_of_the_subject_are_erased(either: Memory) -> None:
    ada = either.within(Scope("local", user="ada"))
    fact = either.facts.add("shared")
    quoting = ada.facts.add("ada's", sources=fact.id)
    assert either.erase("local").complete
    assert ada.facts.get(quoting.id) is None
    mine = ada.facts.add("Ada likes tea.")
    gathered = either.facts.add("Somebody likes tea.")
    # A shared fact, as a batch job can write it.
    StoreProbe(either).execute(f"INSERT INTO item_sources VALUES ('{gathered.id}', '{mine.id}')")
    assert either.erase(Scope("local", user="ada")).complete
    assert either.facts.get(gathered.id) is None and either.admin.verify().orphans == 0


def test_an_open_session_of_an_erased_subject_is_an_error_and_writes_to_no_other_scope(
    either: Memory, database: Database
) -> None:
    ada = either.within(Scope("local", user="ada"))
    session = ada.session("s")
    session.append(Message("user", "x"))
    number = StoreProbe(ada).scope_number
    either.erase(Scope("local", user="ada"))
    other = either.within(Scope("local", user="eve"))
    other.session("s").append(Message("user", "eve's"))
    assert StoreProbe(other).scope_number != number
    with raises(NotFound, name="s", value="deleted"):
        session.append(Message("user", "y"))
    RecallLogs(database).write(
        ada.scope, number, lambda: RecallLog("q", {}, (), 1)
    )  # of a recall that ended after the erasure
    database.deferred.settle()
    assert either.recall_logs() == ada.recall_logs() == other.recall_logs() == ()
    assert [each.text for each in other.session("s").conversation] == ["eve's"]
    assert len(ada.session("s").append(Message("user", "back"))) == 1 and StoreProbe(ada).scope_number == number


def test_a_recall_during_the_erasure_of_its_reader_leaves_no_log(either: Memory) -> None:
    ada = either.within(Scope("local", user="ada"))
    ada.session("s").append(Message("user", "The heron is at the weir."))

    class Erasing:
        name = "erasing"

        def scores(self, question: Question, pool: Pool) -> list[float]:
            assert either.erase(ada.scope).complete
            return [0.0] * len(pool)

    ada.recall("Where is the heron?", policy=RecallPolicy(scorers=(Erasing(),)))
    assert ada.recall_logs() == () and not any(either.erase(ada.scope).removed.values())
    assert not ada.delete_session("s") and not any(either.erase(ada.scope).removed.values())


def test_an_erasure_during_writes_of_the_subject_ends_and_reports_the_rest(either: Memory) -> None:
    ada = either.within(Scope("local", user="ada"))
    stop = threading.Event()

    def talk() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            try:
                ada.session(f"s{number % 3}").append(Message("user", str(number)))
            except StoreError:
                continue
            stop.wait(0.005)

    writer = threading.Thread(target=talk)
    writer.start()
    try:
        proofs = [either.erase(Scope("local", user="ada")) for _ in range(3)]
    finally:
        stop.set()
        writer.join()
    assert all(proof.complete or "still adds" in proof.note for proof in proofs)
    last = either.erase(Scope("local", user="ada"))
    assert last.complete and not any(last.found.values())


CRASH = """
import sys
from agentkit_memory import Memory, Scope
with Memory(sys.argv[1], index=sys.argv[2]) as memory:
    memory.erase(Scope("local", user=sys.argv[3]))
"""
POINTS = ["erasure.begun", "erasure.step:1", "erasure.step:2", "worker.deleted", "erasure.sealed"]


@pytest.mark.skipif(os.name != "posix", reason="kill -9 is POSIX's")
@pytest.mark.parametrize(
    ("kind", "point"),
    [
        *spread(thinned([("sqlite", point) for point in POINTS]), 2),
        ("postgresql", POINTS[0]),
        *(pytest.param("postgresql", point, marks=pytest.mark.long) for point in thinned(POINTS[1:], 4)),
    ],
)
def test_a_killed_erasure_is_continued_at_the_next_opening(
    kind: str, point: str, request: pytest.FixtureRequest, tmp_path: Path, docs: Path, programs: Forks
) -> None:
    target = str(tmp_path / "store") if kind == "sqlite" else request.getfixturevalue("fresh_postgres")
    index = tmp_path / "index"
    with Memory(target, index=index) as memory:
        fill(memory, BOB, docs, "Bobby")
        fill(memory, ADA, docs, MARKER)
    killed = programs.start("-c", CRASH, target, index, ADA.user, AGENTKIT_FAILPOINT=point)
    assert killed.wait() == -signal.SIGKILL
    with Memory(target, index=index) as memory:  # no second call is necessary
        assert MARKER not in all_rows(memory)
        assert [bool(each) for each in StoreProbe(memory).values("SELECT finished_at IS NULL FROM erasures")] == [False]
        verified = memory.admin.verify()
        assert (verified.missing, verified.stale, verified.orphans) == (0, 0, 0)
        assert len(memory.within(BOB).session("chat Bobby").conversation) == 3
        again = memory.erase(ADA)
        assert again.complete and dict(again.removed) == {}
    if kind == "sqlite":
        assert files_with_text(tmp_path / "store") == []


def test_an_erasure_reports_points_that_wait_for_the_process_that_owns_the_index(home: Path, docs: Path) -> None:
    with Memory(home) as memory:
        fill(memory, ADA, docs, MARKER)
    lock = FolderLock(next(file.parent for file in (home / "index").rglob("lock")))
    try:
        with Memory(home) as memory:
            proof = memory.erase(ADA)
            assert not proof.complete and proof.points is None and proof.waiting > 0 and "in use" in proof.note
            assert not any(proof.found.values())  # SQL contains no rows of it
            assert list(memory.within(ADA).session("x").conversation) == []
    finally:
        lock.release()
    with Memory(home) as memory:
        assert memory.erase(ADA).complete
        assert StoreProbe(memory).index.count() == 0


def test_data_written_after_an_erasure_that_waits_for_the_index_stays(home: Path) -> None:
    with Memory(home, scope=ADA) as owner:
        owner.facts.add(f"{MARKER} likes tea.")
        owner.worker().drain()
        with Memory(home) as other:
            assert not other.erase(ADA).complete  # the owner has the index
        owner.session("back").append(Message("user", "I am here again"))
        owner.facts.add("Ada wants new shoes.")
    with Memory(home, scope=ADA) as memory:
        assert [message.text for message in memory.session("back").conversation] == ["I am here again"]
        assert [fact.text for fact in memory.facts.list()] == ["Ada wants new shoes."]
        assert StoreProbe(memory).values("SELECT id FROM erasures WHERE finished_at IS NULL") == []
        assert memory.erase(ADA).complete and memory.facts.list() == ()  # a second erasure removes all of it


def test_a_repeated_erasure_includes_later_writes(home: Path) -> None:
    with Memory(home, scope=ADA) as owner:
        owner.facts.add(f"{MARKER} likes tea.")
        owner.recall("tea")
        with Memory(home) as other:
            other.erase(ADA)
            owner.facts.add("Ada wants new shoes.")
            proof = other.erase(ADA)
            assert not any(proof.found.values()) and not proof.complete
            assert owner.facts.list() == ()


def test_points_in_a_replaced_index_of_another_process_prevent_the_proof(home: Path) -> None:
    with Memory(home, scope=ADA) as reader, Memory(home) as other:
        reader.facts.add(f"{MARKER} likes tea.")
        reader.worker().drain()
        assert other.admin.reembed(Words(), gate=None).left == (SPACE,)  # the reader has it open
        proof = other.erase(ADA)
        assert not proof.complete and proof.points is None and SPACE in proof.note
        reader.recall("tea")  # and closes it
        assert other.erase(ADA).complete


def test_rows_that_cannot_be_removed_end_an_erasure_with_an_error(home: Path) -> None:
    with Memory(home, scope=ADA) as memory:
        for number in range(3):
            memory.facts.add(f"fact {number}")
        memory.recall("fact")
    with Memory(home) as memory:
        # After the opening, which refuses triggers: the effect of an index with entries of missing rows.
        with closing(sqlite3.connect(home / "memory.db")) as file:
            file.execute("CREATE TRIGGER damage BEFORE DELETE ON items BEGIN SELECT RAISE(IGNORE); END")
        with raises(StoreCorrupt, name="index"):
            memory.erase(ADA)


def test_a_store_without_an_index_can_erase(home: Path) -> None:
    with Memory(home) as memory:
        memory.session("s").append(Message("user", "x"))
        proof = memory.erase("local")
        assert proof.complete and proof.compacted and not list((home / "index").rglob("shard"))


def test_the_record_of_an_erasure_has_only_a_hash_of_the_name(either: Memory) -> None:
    for subject in (ADA, Scope("local", user=ADA.user)):
        either.within(subject).session("s")
        either.erase(subject)
    rows = StoreProbe(either).rows('SELECT tenant, "user", session, agent FROM erasures')
    assert rows[0] == rows[1] and rows[0].tenant == "local" and rows[0].user.startswith("blake2b:")
