"""Staging of long documents: readers see the old version until the new version is complete."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from sqlalchemy import event

from agentkit.memory import IngestError, IngestOptions, Memory
from agentkit.testing import StoreProbe
from agentkit_memory.database.engine import Database
from agentkit_memory.ingest import document_removal, document_writer
from agentkit_memory.ingest.chunks import Chunk, chunk_blocks
from agentkit_memory.ingest.document_writer import DocumentWriter, NewDocument, Version
from agentkit_memory.ingest.readers.text_and_markdown import text_blocks
from agentkit_memory.ingest.report import IngestProgress
from agentkit_memory.process.failpoints import VARIABLE
from tests.effort import thinned, unless_fresh
from tests.forks import Forked, Forks
from tests.raising import raises
from tests.waiting import until

PARTS = 60
Child = Callable[..., Forked]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the batches small, so that a test can write several batches quickly."""
    monkeypatch.setattr(document_writer, "BATCH", 8)
    monkeypatch.setattr(document_removal, "BATCH", 8)


def manual(word: str, parts: int = PARTS, *, changed: int = -1, inserted: str = "") -> str:
    said = [f"# Part {part}\n{word if part != changed else 'horse'} number{part}\n" for part in range(parts)]
    return inserted + "\n".join(said)


def texts(memory: Memory) -> list[str]:
    """Return the last word of each visible chunk, in order."""
    sources = [document.source for document in memory.documents.list()]
    return [each.text.split()[-2] for source in sources for each in memory.documents.chunks(source, limit=1000)]


def counts(memory: Memory) -> tuple[int, int]:
    """Return the number of rows of items, and of the outbox."""
    (row,) = StoreProbe(memory).rows("SELECT (SELECT count(*) FROM items), (SELECT count(*) FROM vector_state)")
    return row[0], row[1]


def check(memory: Memory, shown: int) -> None:
    """Check that no item is lost, orphaned, or indexed twice."""
    memory.worker().drain()
    assert counts(memory) == (shown, shown)
    found = memory.admin.verify()
    assert (found.ok, found.points, found.pending) == (True, shown, 0)


def test_a_long_document_is_stored_found_and_skipped(either: Memory, docs: Path) -> None:
    (docs / "a.md").write_text(manual("zebra"))
    assert either.ingest(docs).chunks == PARTS
    assert len(either.recall("zebra", limit=100)) == PARTS
    assert either.recall("number41")[0].title == "Part 41"
    assert len(either.ingest(docs).unchanged) == 1
    check(either, PARTS)


def test_an_incomplete_document_is_invisible(either: Memory, docs: Path) -> None:
    seen: list[tuple[int, int]] = []

    def look(progress: IngestProgress) -> None:
        seen.append((progress.chunks, len(texts(either))))

    (docs / "a.md").write_text(manual("zebra"))
    either.ingest(docs, on_progress=look)
    assert [chunks for chunks, _ in seen][:3] == [8, 16, 24]
    assert {shown for chunks, shown in seen[:-1]} == {0}
    assert seen[-1] == (PARTS, PARTS)


def test_the_old_version_is_visible_until_the_new_version_is_complete(either: Memory, docs: Path) -> None:
    file = docs / "a.md"
    file.write_text(manual("zebra"))
    either.ingest(docs)
    file.write_text(manual("violin", PARTS + 5))
    seen: list[set[str]] = []
    found: list[tuple[int, int]] = []

    def look(_: IngestProgress) -> None:
        seen.append(set(texts(either)))
        found.append((len(either.recall("zebra", limit=200)), len(either.recall("violin", limit=200))))

    report = either.ingest(docs, on_progress=look)
    assert (len(report.changed), report.chunks) == (1, PARTS + 5)
    assert seen[:-1] == [{"zebra"}] * (len(seen) - 1)
    assert set(found[:-1]) == {(PARTS, 0)}
    assert (seen[-1], found[-1]) == ({"violin"}, (0, PARTS + 5))
    check(either, PARTS + 5)


class Lengths:
    """Embedder with the length of texts, which counts them."""

    model = "lengths"

    def __init__(self) -> None:
        self.texts = 0

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.texts += len(texts)
        return [[1.0, float(len(text))] for text in texts]


def check_places(memory: Memory, file: Path) -> None:
    """Check that each chunk has the place of a new reading of the file."""
    read = [
        (chunk.position, chunk.title, chunk.text, chunk.start, chunk.end, chunk.line)
        for chunk in chunk_blocks(text_blocks([file.read_text()], markdown=True))
    ]
    found = memory.documents.chunks(str(file), limit=1000)
    stored = [
        (each.position, each.title, each.text, *(each.metadata[name] for name in ("start", "end", "line")))
        for each in found
    ]
    assert stored == read


def queued(memory: Memory) -> dict[str, int]:
    """Return the number of queue entries of each item."""
    return {row[0]: row[1] for row in StoreProbe(memory).rows("SELECT item_id, abs(want) FROM vector_state")}


CHANGES: list[tuple[Callable[[list[str]], list[str]], int]] = [
    (lambda parts: ["# Intro\nhorse number100", *parts], 1),  # before the first part
    (lambda parts: [*parts[:7], "# Part 7\nhorse number7", *parts[8:]], 1),
    (lambda parts: parts[9:] + parts[:9], 0),  # the start moved to the end
    (lambda parts: [parts[-1], *parts[:-1]], 0),  # the end moved to the start
    (lambda parts: parts[::-1], 0),
    (lambda parts: parts[5:-5], 0),
    (lambda parts: [each for part in parts for each in (part, parts[3])], PARTS),  # copies of one part
    (lambda parts: [part for number, part in enumerate(parts) if number % 2], 0),
    (lambda parts: [*parts, *["# Part 1\nzebra more"] * 20], 20),
]


def test_only_changed_chunks_of_a_long_document_are_written_indexed_and_embedded(home: Path, docs: Path) -> None:
    file, embedder = docs / "a.md", Lengths()
    parts = [f"# Part {part}\nzebra number{part}" for part in range(PARTS)]
    with Memory(home, embedder=embedder) as memory:
        for change, new in CHANGES:
            file.write_text("\n\n".join(parts))
            memory.ingest(docs)
            before, embedded = queued(memory), embedder.texts
            file.write_text("\n\n".join(change(parts)))
            assert memory.ingest(docs).chunks == len(change(parts))
            after = queued(memory)
            assert len(after.keys() - before.keys()) == new
            assert {item: times for item, times in after.items() if item in before} == {
                item: times for item, times in before.items() if item in after
            }
            assert embedder.texts - embedded <= new  # a copy has the vector of its text
            check_places(memory, file)
        check(memory, len(change(parts)))


def test_a_document_can_become_short_and_long_again(either: Memory, docs: Path) -> None:
    file = docs / "a.md"
    for word, parts in (("zebra", 60), ("violin", 3), ("harbor", 10), ("quartz", 40), ("zebra", 0), ("marmot", 13)):
        file.write_text(manual(word, parts))
        either.ingest(docs)
        assert texts(either) == [word] * parts
        assert len(either.recall(word, limit=100)) == parts
        check(either, parts)


@pytest.mark.parametrize("word", ["zebra", "violin"])
def test_an_interrupted_document_continues_at_its_last_batch(either: Memory, docs: Path, word: str) -> None:
    file = docs / "a.md"
    file.write_text(manual("zebra"))

    def stop(progress: IngestProgress) -> None:
        if progress.chunks == 32:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        either.ingest(docs, on_progress=stop)
    assert texts(either) == []
    assert either.admin.verify().ok  # invisible items are not missing
    written = {item.id for item in StoreProbe(either).items()}
    assert len(written) == 32
    file.write_text(manual(word, changed=5))
    assert either.ingest(docs).added
    kept = written & {item.id for item in StoreProbe(either).items()}
    assert len(kept) == (31 if word == "zebra" else 0)
    assert sorted(texts(either)) == sorted([word] * (PARTS - 1) + ["horse"])
    check(either, PARTS)


def interrupt(memory: Memory, file: Path, word: str) -> None:
    """Interrupt the ingestion of a file with another word after 32 chunks."""

    def stop(progress: IngestProgress) -> None:
        if progress.chunks == 32:
            raise KeyboardInterrupt

    file.write_text(manual(word))
    with pytest.raises(KeyboardInterrupt):
        memory.ingest(file.parent, on_progress=stop)


def test_an_interrupted_document_with_its_old_file_leaves_no_rows(either: Memory, docs: Path) -> None:
    file = docs / "a.md"
    file.write_text(manual("zebra"))
    either.ingest(docs)
    interrupt(either, file, "violin")
    assert len(either.recall("zebra", limit=200)) == PARTS and either.recall("violin") == ()
    file.write_text(manual("zebra"))
    assert either.ingest(docs).errors == ()
    assert texts(either) == ["zebra"] * PARTS
    check(either, PARTS)


def test_an_interrupted_document_without_its_file_leaves_no_rows(either: Memory, docs: Path) -> None:
    interrupt(either, docs / "a.md", "zebra")
    (docs / "a.md").unlink()
    either.ingest(docs)
    check(either, 0)
    assert StoreProbe(either).values("SELECT count(*) FROM documents") == [0]


def test_a_short_document_is_written_and_removed_in_one_transaction_each(either: Memory) -> None:
    probe = StoreProbe(either)
    probe.pause()
    either.documents.add(manual("horse", 3), source="b")
    commits: list[object] = []
    event.listen(probe.engine, "commit", commits.append)
    for word in ("zebra", "violin"):  # new, then changed
        either.documents.add(manual(word, 3), source="a")
        assert len(commits) == 1
        commits.clear()
    assert either.documents.forget("a")
    assert len(commits) == 1


def keeps_the_old_version(memory: Memory, file: Path, bad: bytes) -> None:
    """Check that a document does not change if its file becomes unreadable."""
    file.write_text(manual("zebra"))
    memory.ingest(file.parent)
    file.write_bytes(bad)
    assert memory.ingest(file.parent).errors
    assert texts(memory) == ["zebra"] * PARTS
    check(memory, PARTS)


def test_a_document_that_cannot_be_read_completely_leaves_no_rows(either: Memory, docs: Path) -> None:
    bad = manual("violin").encode() + b"\xff"
    file = docs / "a.md"
    file.write_bytes(bad)
    assert "is not UTF-8" in str(either.ingest(docs).errors[0])
    check(either, 0)
    keeps_the_old_version(either, file, bad)
    assert "became U+FFFD" in str(either.ingest(docs, options=IngestOptions(lenient=True)).repaired[0])
    assert texts(either)[:-1] == ["violin"] * (PARTS - 1)


def test_a_document_that_fails_after_its_first_batches_leaves_no_rows(either: Memory, docs: Path) -> None:
    file = docs / "a.md"
    bad = manual("violin" * 100, 600).encode() + b"\xff"  # long enough to be read in pieces
    stored: list[int] = []
    file.write_bytes(bad)
    assert "is not UTF-8" in str(either.ingest(docs, on_progress=lambda one: stored.append(one.chunks)).errors[0])
    assert stored[0] == 8
    check(either, 0)
    keeps_the_old_version(either, file, bad)


def test_a_missing_document_is_forgotten_in_several_transactions(either: Memory, docs: Path) -> None:
    (docs / "a.md").write_text(manual("zebra"))
    (docs / "b.md").write_text("violin number1")
    either.ingest(docs)
    (docs / "a.md").unlink()
    assert either.ingest(docs).removed == (str(docs / "a.md"),)
    check(either, 1)


def test_a_file_that_changes_during_its_reading_is_reported(memory: Memory, docs: Path) -> None:
    file = docs / "a.md"
    file.write_text(manual("zebra"))

    def touch(progress: IngestProgress) -> None:
        if progress.chunks == 8:
            with file.open("a") as more:
                more.write("zebra late")

    (error,) = memory.ingest(docs, on_progress=touch).errors
    assert "was changed while it was read; ingest it again" in str(error)
    check(memory, 0)
    assert memory.ingest(docs).added


def test_a_file_that_is_replaced_during_its_reading_is_reported(memory: Memory, docs: Path) -> None:
    file = docs / "a.md"
    file.write_text(manual("zebra"))
    (docs / "new").write_text(manual("violin"))

    def swap(progress: IngestProgress) -> None:
        if progress.chunks == 8:
            (docs / "new").replace(file)

    assert "was changed while" in str(memory.ingest(docs, on_progress=swap).errors[0])


def test_the_last_of_two_concurrent_writers_of_a_document_continues(either: Memory, database: Database) -> None:
    writer = DocumentWriter(database, StoreProbe(either).scope_number, either.scope.key)
    document = NewDocument("file:///a", "a", 0.0)

    def chunks(word: str) -> Iterator[Chunk]:
        for number in range(PARTS):
            yield Chunk(number, number, number + 1, 1, "", f"Part {word} number{number}")
            if word == "zebra" and number == 30:
                writer.write(document, chunks("violin"), lambda: Version("2"))

    with raises(IngestError, source="a"):
        writer.write(document, chunks("zebra"), lambda: Version("1"))
    assert texts(either) == ["violin"] * PARTS
    check(either, PARTS)


def test_readers_see_either_version_completely(either: Memory, docs: Path) -> None:
    file = docs / "a.md"
    file.write_text(manual("zebra"))
    either.ingest(docs)
    stop = threading.Event()
    seen: list[tuple[str, ...]] = []

    def watch() -> None:
        while not stop.is_set():
            seen.append(tuple(texts(either)))

    reader = threading.Thread(target=watch)
    reader.start()
    try:
        for word, parts in (("violin", 40), ("zebra", 60), ("violin", 40)):
            file.write_text(manual(word, parts))
            either.ingest(docs)
    finally:
        stop.set()
        reader.join()
    assert set(seen) <= {("zebra",) * 60, ("violin",) * 40}


CHILD = """if True:
    import sys
    from agentkit_memory import Memory
    from agentkit_memory.ingest import document_removal, document_writer, pipeline
    document_removal.BATCH = document_writer.BATCH = 8
    pipeline.WORTH_INDEXING = 1
    with Memory(sys.argv[1], **({"index": sys.argv[3]} if sys.argv[3] else {})) as memory:
        print("open", flush=True)
        memory.ingest(sys.argv[2])
"""


@pytest.fixture
def child(programs: Forks) -> Child:
    """Ingest documents in another process."""

    def start(target: str, docs: Path, index: str, failpoint: str = "") -> Forked:
        return programs.start("-c", CHILD, target, docs, index, **{VARIABLE: failpoint})

    return start


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, home: Path, tmp_path: Path) -> tuple[str, str]:
    if request.param == "sqlite":
        return str(home), ""
    return request.getfixturevalue("fresh_postgres"), str(tmp_path / "index")


def opened(place: tuple[str, str]) -> Memory:
    return Memory(place[0], index=place[1] or None)


def zebra_file(place: tuple[str, str], docs: Path) -> Path:
    file = docs / "a.md"
    file.write_text(manual("zebra"))
    with opened(place) as memory:
        memory.ingest(docs)
    return file


FAILPOINTS = [
    "document.staged",
    "document.staged:4",
    "worker.flushed",
    "items.enqueued:3",
    "items.removed",
    "items.committed",
    "document.swept",
]


@pytest.mark.long
@pytest.mark.skipif(os.name != "posix", reason="kill -9 is POSIX's")
def test_a_document_killed_between_any_two_writes_is_the_old_or_the_new_version(
    place: tuple[str, str], docs: Path, child: Child
) -> None:
    file = zebra_file(place, docs)
    words = ["zebra", "violin"]
    start = int(place[0].startswith("postgresql"))  # CI kills at half of the points in each database
    for number, failpoint in enumerate(thinned(FAILPOINTS[start:])):
        old, new = words[number % 2], words[(number + 1) % 2]
        file.write_text(manual(new))
        assert child(place[0], docs, place[1], failpoint).wait() == -signal.SIGKILL, failpoint
        with opened(place) as memory:
            shown = new if failpoint in ("items.committed", "document.swept") else old
            assert texts(memory) == [shown] * PARTS, failpoint
            assert len(memory.recall(shown, limit=200)) == PARTS, failpoint
            memory.ingest(docs)
            assert texts(memory) == [new] * PARTS
            check(memory, PARTS)


@pytest.mark.long
@pytest.mark.skipif(os.name != "posix", reason="kill -9 is POSIX's")
def test_chunks_killed_while_they_move_get_their_final_places(place: tuple[str, str], docs: Path, child: Child) -> None:
    file = zebra_file(place, docs)
    for number, failpoint in enumerate(("document.staged:3", "items.removed", "items.committed", "document.swept")):
        file.write_text(manual("zebra", inserted=f"violin number{number}\n\n" * (number + 1)))
        assert child(place[0], docs, place[1], failpoint).wait() == -signal.SIGKILL, failpoint
        with opened(place) as memory:
            memory.ingest(docs)
            check_places(memory, file)
            check(memory, PARTS + 1)


@pytest.mark.long
@pytest.mark.skipif(os.name != "posix", reason="kill -9 is POSIX's")
def test_a_document_killed_during_its_removal_is_removed(place: tuple[str, str], docs: Path, child: Child) -> None:
    (docs / "a.md").write_text(manual("zebra"))
    with opened(place) as memory:
        memory.ingest(docs)
    (docs / "a.md").rename(docs / "a.old")
    assert child(place[0], docs, place[1], "document.hidden").wait() == -signal.SIGKILL
    with opened(place) as memory:
        assert memory.recall("zebra") == ()
        memory.ingest(docs)
        check(memory, 0)
    (docs / "a.old").rename(docs / "a.md")
    with opened(place) as memory:
        memory.ingest(docs)
    (docs / "a.md").rename(docs / "a.old")
    assert child(place[0], docs, place[1], "document.hidden").wait() == -signal.SIGKILL
    (docs / "a.old").rename(docs / "a.md")  # the file returns before the removal is complete
    with opened(place) as memory:
        assert memory.ingest(docs).added
        check(memory, PARTS)


@pytest.mark.long
@pytest.mark.skipif(os.name != "posix", reason="kill -9 is POSIX's")
def test_an_ingestion_killed_at_any_moment_continues(home: Path, docs: Path, child: Child) -> None:
    random_ = random.Random(5)
    for number in range(6):
        (docs / f"{number}.md").write_text(manual(f"zebra{number}", 80 if number % 2 else 5))
    kills = 0
    while kills < unless_fresh(3, 5):
        process = child(str(home), docs, "")
        until(process.output)
        time.sleep(random_.uniform(0.0, 0.25))
        process.kill()
        if process.wait() == 0:
            break
        kills += 1
        with Memory(home) as memory:
            assert memory.admin.verify().stale == 0
    assert kills
    with Memory(home) as memory:
        memory.ingest(docs)
        assert sorted(texts(memory)) == sorted(f"zebra{n}" for n in range(6) for _ in range(80 if n % 2 else 5))
        check(memory, 255)


@pytest.mark.skipif(os.name != "posix", reason="kill -9 is POSIX's")
def test_a_document_that_became_short_after_an_interruption_is_complete(home: Path, docs: Path, child: Child) -> None:
    (docs / "a.md").write_text(manual("zebra"))
    assert child(str(home), docs, "", "document.staged").wait() == -signal.SIGKILL
    (docs / "a.md").write_text(manual("zebra", 5))
    with Memory(home) as memory:
        assert memory.ingest(docs).errors == ()
        assert texts(memory) == ["zebra"] * 5
        assert len(memory.recall("zebra", limit=20)) == 5
