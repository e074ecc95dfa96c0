"""Concurrent workers: each item is indexed once, after stalls, failures and deaths of workers."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from qdrant_client import QdrantClient
from sqlalchemy import delete, insert, select, update

from agentkit.memory import EmbedderError, HeadMoved, IndexBroken, IndexUnavailable, Memory, StoreUnavailable
from agentkit.memory.recall import Point, VectorIndex
from agentkit.prompts import Message
from agentkit_memory.database.engine import Database
from agentkit_memory.database.tables import items, scopes, vector_spaces, vector_state
from agentkit_memory.embedders.encoder import Encoder
from agentkit_memory.embedders.store_embedders import Embedders
from agentkit_memory.index.compare import compare
from agentkit_memory.index.index_worker import IndexWorker
from agentkit_memory.index.indexes import Indexes
from agentkit_memory.index.opening import edge_indexes, index_opener
from agentkit_memory.index.qdrant_server import QdrantIndex
from agentkit_memory.store.outbox import enqueue, pending, withdraw
from agentkit_memory.terms.bm25_vectors import SPACE, query_vector
from tests.raising import raises
from tests.waiting import until

Act = Callable[[], object]
MODEL = "model-of-tests"
DENSE = f"{SPACE}+{MODEL}"
MESSAGES = 16
"""Number of messages of each of two writers."""


class Server(QdrantClient):
    """Local mode instead of a server: it stays open when one of its users closes."""

    def close(self, grpc_grace: float | None = None, **_: Any) -> None:
        pass


@pytest.fixture
def now() -> list[float]:
    """The clock of the database: a list with the time."""
    return [1000.0]


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path, now: list[float]) -> Iterator[Database]:
    target = tmp_path / "memory.db" if request.param == "sqlite" else request.getfixturevalue("fresh_postgres")
    opened = Database.open(target, clock=lambda: now[0])
    yield opened
    opened.close()


@pytest.fixture(params=["edge", "qdrant", "postgresql-index"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str, int], VectorIndex]:
    if request.param == "edge":
        return edge_indexes(tmp_path / "index")
    if request.param == "postgresql-index":
        return index_opener(request.getfixturevalue("fresh_postgres"))
    server = Server(":memory:")
    return lambda space, dimensions: QdrantIndex(server, space, dimensions, shared=True)


@pytest.fixture
def indexes(database: Database, opener: Callable[[str, int], VectorIndex]) -> Iterator[Indexes]:
    opened = Indexes(database, opener)
    yield opened
    opened.close()


def uuid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012x}"


def work_until(stop: threading.Event, worker: IndexWorker) -> None:
    while not stop.is_set():
        try:
            worked = worker.run_once()
        except (StoreUnavailable, IndexUnavailable):
            worked = 0
        if not worked:
            stop.wait(0.01)


class Interrupted:
    """Index that calls functions before a write and before a flush."""

    def __init__(self, index: VectorIndex, before_upsert: Act, before_flush: Act = lambda: None) -> None:
        self.index, self.before_upsert, self.before_flush = index, before_upsert, before_flush

    def __getattr__(self, name: str) -> object:
        return getattr(self.index, name)

    def upsert(self, points: Sequence[Point]) -> None:
        self.before_upsert()
        self.index.upsert(points)

    def flush(self) -> None:
        self.before_flush()
        self.index.flush()


def interrupted(index: VectorIndex, before_upsert: Act, before_flush: Act = lambda: None) -> VectorIndex:
    return cast("VectorIndex", Interrupted(index, before_upsert, before_flush))


def take_leases(database: Database) -> None:
    """Lease all waiting items, as a worker does before it dies."""
    with database.write() as connection:
        connection.execute(update(vector_state).values(leased_by="dead", leased_until=database.clock() + 60))


def write(database: Database, *numbers: int, said: str = "zebra") -> None:
    """Store items of the scope 1 and queue them."""
    with database.write() as connection:
        if connection.scalar(select(scopes.c.id)) is None:
            connection.execute(insert(scopes).values(tenant="t", user="", session="", agent=""))
        scope = connection.scalar(select(scopes.c.id))
        for number in numbers:
            row = {"id": uuid(number), "scope_id": scope, "kind": "fact", "position": 0, "title": "", "start": 0}
            row |= {"text": f"{said} n{number}", "content_hash": str(number), "end": 0, "line": 0, "created_at": 0.0}
            if not connection.execute(update(items).where(items.c.id == uuid(number)).values(row)).rowcount:
                connection.execute(insert(items).values(row))
        enqueue(connection, [uuid(number) for number in numbers], scope or 0)


def remove(database: Database, *numbers: int) -> None:
    with database.write() as connection:
        withdraw(connection, [uuid(number) for number in numbers])
        connection.execute(delete(items).where(items.c.id.in_([uuid(number) for number in numbers])))


def matching_ids(index: VectorIndex, database: Database, query: str, limit: int = 1000) -> set[str]:
    with database.read() as connection:
        return {
            hit.id
            for hit in index.query_sparse(query_vector(query), list(connection.scalars(select(scopes.c.id))), limit)
        }


@pytest.mark.untraced
def test_four_workers_share_the_work_and_index_each_item_once(database: Database, indexes: Indexes) -> None:
    written: Counter[tuple[str, int]] = Counter()
    index = indexes.get()
    upsert = index.upsert

    def counting(points: Sequence[Point]) -> None:
        written.update((point.id, point.version) for point in points)
        upsert(points)

    index.upsert = counting  # type: ignore[method-assign]
    numbers = range(1, 201)
    starts = range(0, 200, 50)
    for start in starts:
        write(database, *numbers[start : start + 50])
    stop = threading.Event()
    workers = [indexes.worker(batch=16) for _ in range(4)]
    with ThreadPoolExecutor(5) as pool:
        running = [pool.submit(work_until, stop, worker) for worker in workers]
        for start in starts:  # some items are changed or removed during the work
            write(database, *numbers[start : start + 10], said="quartz")
            remove(database, *numbers[start + 10 : start + 20])
        until(lambda: not pending(database))
        stop.set()
        for each in running:
            each.result()
    gone = {uuid(number) for start in starts for number in numbers[start + 10 : start + 20]}
    changed = {uuid(number) for start in starts for number in numbers[start : start + 10]}
    everything = {uuid(number) for number in numbers}
    assert max(written.values()) == 1
    assert matching_ids(index, database, "zebra") == everything - gone - changed
    assert matching_ids(index, database, "quartz") == changed
    report = indexes.verify()
    assert (report.ok, report.items, report.points, report.pending) == (True, 160, 160, 0)


def test_two_writers_of_a_conversation_and_four_workers_lose_no_item(
    request: pytest.FixtureRequest, tmp_path: Path, opener: Callable[[str, int], VectorIndex], database: Database
) -> None:
    target = tmp_path if database.is_sqlite else request.getfixturevalue("postgres")
    docs = tmp_path / "docs"
    docs.mkdir()
    with Memory(target, index=opener) as memory:
        stop = threading.Event()

        def talk(name: str) -> None:
            mine = memory.session("s")
            for number in range(MESSAGES):
                message = Message("user", f"{name}{number}")
                while True:
                    try:
                        mine.append(message, key=f"{name}:{number}")
                        break
                    except HeadMoved:
                        continue

        def ingest() -> None:
            for number in range(4):
                for file in range(5):
                    (docs / f"{file}.md").write_text(f"# {file}\nzebra v{number}\n")
                memory.ingest(docs)

        with ThreadPoolExecutor(7) as pool:
            workers = [pool.submit(memory.worker().run, stop, 0.02) for _ in range(4)]
            for each in [pool.submit(talk, "a"), pool.submit(talk, "b"), pool.submit(ingest)]:
                each.result()
            stop.set()
            for each in workers:
                each.result()
        said = [message.text for message in memory.session("s").conversation]
        for name in "ab":
            assert [text for text in said if text[0] == name] == [f"{name}{number}" for number in range(MESSAGES)]
        assert len(said) == 2 * MESSAGES
        assert {text.text.splitlines()[-1] for text in memory.recall("zebra", limit=20)} == {"zebra v3"}
        memory.worker().drain()
        report = memory.admin.verify()
        assert (report.ok, report.points, report.pending) == (True, 5 + 2 * MESSAGES, 0)


def test_the_items_of_a_stalled_worker_are_taken_over_and_its_late_write_is_undone(
    database: Database, indexes: Indexes, now: list[float]
) -> None:
    index = indexes.get()
    other = IndexWorker(database, index, SPACE, lease=60)

    def stall() -> None:
        assert other.run_once() == 0 and other.others
        now[0] += 61
        write(database, 1, said="new")
        remove(database, 2)
        assert other.run_once() == 2
        assert (matching_ids(index, database, "old"), matching_ids(index, database, "new")) == (set(), {uuid(1)})

    def look() -> None:  # an older version does not replace a newer version, but a removed item returns
        assert (matching_ids(index, database, "old"), matching_ids(index, database, "new")) == ({uuid(2)}, {uuid(1)})

    write(database, 1, 2, said="old")
    assert IndexWorker(database, interrupted(index, stall, look), SPACE, lease=60).run_once() == 2
    assert other.run_once() == 2
    assert (matching_ids(index, database, "old"), matching_ids(index, database, "new")) == (set(), {uuid(1)})
    assert (indexes.verify().ok, indexes.verify().pending) == (True, 0)


@pytest.mark.parametrize("gone", [False, True])
def test_a_worker_that_ends_after_a_change_of_its_embedder_queues_nothing(
    database: Database, indexes: Indexes, gone: bool
) -> None:
    def change() -> None:
        with database.write() as connection:
            connection.execute(update(vector_spaces).values(state="retired"))
            connection.execute(delete(vector_state))
            if gone:
                connection.execute(delete(vector_spaces))

    index = indexes.get()
    write(database, 1, 2)
    assert IndexWorker(database, interrupted(index, change), SPACE, lease=60).run_once() == 2
    with database.read() as connection:
        assert connection.execute(select(vector_state)).all() == []


def test_a_point_that_is_removed_during_the_comparison_is_not_a_difference(
    database: Database, indexes: Indexes
) -> None:
    index, worker = indexes.get(), indexes.worker()
    write(database, 1, 2, 3)
    worker.run_once()

    class Read:
        """Index whose points are read directly before another worker removes a point."""

        def __getattr__(self, name: str) -> object:
            return getattr(index, name)

        def versions(self) -> Iterator[tuple[str, int]]:
            read = [*index.versions()]
            remove(database, 2)
            worker.run_once()
            return iter(read)

    found = compare(database, cast("VectorIndex", Read()), SPACE, database.clock())
    assert (found.ok, found.orphans, found.points) == (True, 0, 2)
    index.upsert([Point(uuid(9), 1, 1, query_vector("zebra"))])
    left = indexes.verify()
    assert (left.ok, left.orphans, left.examples) == (False, 1, {"orphan": (uuid(9),)})


def test_a_slow_worker_writes_only_the_items_that_it_still_leases(
    database: Database, indexes: Indexes, now: list[float]
) -> None:
    index = indexes.get()
    other = IndexWorker(database, index, SPACE, lease=60)

    def slow() -> Encoder:
        now[0] += 61
        write(database, 2, said="new")
        assert other.run_once() == 2
        raise EmbedderError("the model is away")

    write(database, 1, 2, said="old")
    assert IndexWorker(database, index, SPACE, lease=60, encoder=slow).run_once() == 0
    assert matching_ids(index, database, "new") == {uuid(2)}
    assert pending(database) == 0


def test_a_clock_that_was_set_back_does_not_block_items(database: Database, indexes: Indexes, now: list[float]) -> None:
    indexes.get()
    write(database, 1)
    now[0] = 9e9
    take_leases(database)
    now[0] = 1e9
    assert IndexWorker(database, indexes.get(), SPACE).run_once() == 1


def test_the_owner_of_a_folder_takes_over_from_a_dead_owner_without_a_wait(database: Database, tmp_path: Path) -> None:
    first = Indexes(database, edge_indexes(tmp_path / "index"))
    first.get()
    write(database, 1)
    take_leases(database)
    first.close()
    second = Indexes(database, edge_indexes(tmp_path / "index"))
    assert matching_ids(second.catch_up(patience=0), database, "zebra") == {uuid(1)}
    second.close()


def test_a_failing_index_releases_the_leased_items(database: Database, indexes: Indexes) -> None:
    index = indexes.get()
    write(database, 1)
    delete_, flush = index.delete, index.flush

    def fail(*_: object) -> None:
        raise IndexBroken("the disk is full")

    index.flush = fail  # type: ignore[method-assign]
    with pytest.raises(IndexBroken):
        indexes.worker().run_once()
    index.flush, index.delete = flush, delete_  # type: ignore[method-assign]
    worker = indexes.worker()
    assert (worker.run_once(), worker.others) == (1, False)


def test_a_space_of_another_index_is_not_changed(database: Database, indexes: Indexes) -> None:
    worker = indexes.worker()
    with database.write() as connection:
        connection.execute(update(vector_spaces).values(index_id="another"))
    with raises(IndexUnavailable, name="index"):
        worker.run_once()


def dense(database: Database) -> None:
    with database.write() as connection:
        row = {"space": DENSE, "index_id": "", "model": MODEL, "dimensions": 2, "state": "active"}
        connection.execute(insert(vector_spaces).values(**row))


class Model:
    """Embedder that calls a function."""

    model = MODEL

    def __init__(self, embed: Callable[[Sequence[str]], list[list[float]]]) -> None:
        self.embed = embed


def encoders(database: Database, embed: Callable[[Sequence[str]], list[list[float]]]) -> Embedders:
    made = Embedders(database)
    made.add(Model(embed))
    return made


def embed(texts: Sequence[str]) -> list[list[float]]:
    """Embed texts in two dimensions; raise for poison."""
    if any("poison" in text for text in texts):
        raise RuntimeError("too bitter")
    return [[1.0, 0.0] if "zebra" in text else [0.0, 1.0] for text in texts]


@pytest.fixture
def dense_indexes(
    database: Database, opener: Callable[[str, int], VectorIndex], now: list[float]
) -> Iterator[tuple[Indexes, list[float]]]:
    """Indexes of a space with a model, and their clock."""
    dense(database)
    opened = Indexes(database, opener, encoders(database, embed).get)
    yield opened, now
    opened.close()


def test_a_failing_item_blocks_no_other_and_is_retried_with_growing_delays(
    database: Database, dense_indexes: tuple[Indexes, list[float]]
) -> None:
    indexes, now = dense_indexes
    write(database, 1, 3)
    write(database, 2, said="poison")
    index = indexes.catch_up()
    (scope,) = _scopes(database)
    assert {hit.id for hit in index.query_dense([1.0, 0.0], [scope], 10)} == {uuid(1), uuid(3)}
    assert matching_ids(index, database, "poison") == {uuid(2)}  # it is found by its words
    report = indexes.verify()
    assert (report.ok, report.pending, report.failing) == (True, 1, 1)
    assert report.problems == {
        uuid(2): f"EmbedderError: model {MODEL!r}: could not embed 1 texts (RuntimeError: too bitter)"
    }
    waits = []
    worker = indexes.worker()
    for _ in range(10):
        start = now[0]
        while not worker.run_once():
            now[0] += 1.0 if len(waits) < 4 else 4.0
        waits.append(now[0] - start)
    assert waits[:4] == [1.0, 2.0, 4.0, 8.0]
    assert waits[-1] == 300.0
    write(database, 2, said="zebra")
    now[0] += 300
    assert matching_ids(indexes.catch_up(), database, "zebra") == {uuid(1), uuid(2), uuid(3)}
    assert (indexes.verify().failing, indexes.verify().pending) == (0, 0)


def test_an_unavailable_model_is_not_called_for_each_item(
    database: Database, dense_indexes: tuple[Indexes, list[float]]
) -> None:
    indexes, now = dense_indexes
    calls = []

    def away(texts: Sequence[str]) -> list[list[float]]:
        calls.append(len(texts))
        raise ConnectionError("nobody answers")

    write(database, *range(1, 101))
    worker = IndexWorker(database, indexes.get(), DENSE, encoder=lambda: encoders(database, away).get(MODEL))
    assert worker.run_once() == 100
    assert calls == [100]
    now[0] += 1.5
    assert len(matching_ids(indexes.catch_up(), database, "zebra")) == 100
    assert indexes.verify().pending == 0


def test_dense_vectors_are_compared_only_within_the_scopes(
    database: Database, dense_indexes: tuple[Indexes, list[float]]
) -> None:
    indexes, _ = dense_indexes
    write(database, 1, 2)
    write(database, 3, said="quartz")
    index = indexes.catch_up()
    (scope,) = _scopes(database)
    hits = index.query_dense([2.0, 0.0], [scope, scope + 1], 2)
    assert ({hit.id for hit in hits}, {round(hit.score, 5) for hit in hits}) == ({uuid(1), uuid(2)}, {1.0})
    assert index.query_dense([1.0, 0.0], [scope + 1], 5) == index.query_dense([1.0, 0.0], [], 5) == []
    assert (index.count(), index.count([scope]), index.count([scope + 1]), index.count([])) == (3, 3, 0, 0)


def test_a_retired_space_is_emptied(database: Database, dense_indexes: tuple[Indexes, list[float]]) -> None:
    indexes, _ = dense_indexes
    write(database, 1)
    space = indexes.active()
    name = indexes.catch_up().id
    with database.write() as connection:
        connection.execute(update(vector_spaces).values(state="retired"))
    assert indexes.sweep() == []
    with database.read() as connection:
        assert connection.execute(select(vector_state)).all() == connection.execute(select(vector_spaces)).all() == []
    assert indexes.get(space).id != name


def _scopes(database: Database) -> list[int]:
    with database.read() as connection:
        return list(connection.scalars(select(scopes.c.id)))


def test_writers_wait_while_the_set_of_spaces_changes(database: Database) -> None:
    """An item written concurrently with a new space is queued for it: by its writer, or with the new space."""
    from agentkit_memory.store.outbox import backfill, hold_spaces

    barrier = threading.Barrier(3)

    def writer(first: int) -> None:
        barrier.wait()
        for number in range(first, first + 30):
            write(database, number)

    write(database, 999)
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(writer, first) for first in (1, 101)]
        barrier.wait()
        with database.write() as connection:
            hold_spaces(connection, change=True)
            connection.execute(insert(vector_spaces).values(space="second", index_id="", state="building"))
            connection.execute(insert(vector_spaces).values(space=SPACE, index_id="", state="active"))
            backfill(connection, "second", 0.0)
        for each in running:
            each.result()
    with database.read() as connection:
        for space in (SPACE, "second"):
            rows = connection.scalars(select(vector_state.c.item_id).where(vector_state.c.space == space)).all()
            assert len(rows) == 61
