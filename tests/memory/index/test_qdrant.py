"""A Qdrant server as the index: over real HTTP, shared, unreachable, slow, failing, too old or of another program."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from qdrant_client import models

from agentkit.memory import IndexBroken, IndexUnavailable, Memory, StoreUnavailable, qdrant_indexes
from agentkit.memory.recall import Point
from agentkit.testing import StoreProbe
from agentkit_memory.index import qdrant_server
from agentkit_memory.index.qdrant_server import QdrantIndex, connect
from agentkit_memory.terms.bm25_vectors import document_vector, query_vector
from tests.effort import spread
from tests.memory.index.qdrant_rest import Server
from tests.raising import raises
from tests.waiting import LONG, until

ONE = "00000000-0000-4000-8000-000000000001"


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.http.shutdown()
    running.http.server_close()


def test_the_server_weighs_terms_over_the_scopes_of_the_reader(server: Server) -> None:
    index = QdrantIndex(connect(server.address), "c")
    index.query_sparse(query_vector("zebra"), [7, 9], 3)
    asked = server.asked[-1]
    scopes = {"must": [{"key": "scope", "match": {"any": [7, 9]}}]}
    assert asked["filter"] == asked["params"]["idf"]["corpus"] == scopes
    assert asked["limit"] == 3
    index.close()


def test_many_points_are_written_in_small_requests_and_read_in_pages(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setattr(qdrant_server, "_PAGE", 70)
    index = QdrantIndex(connect(server.address), "c", 2)
    ids = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(300)]
    index.upsert([Point(each, 1, 1, document_vector("x"), [0.5, 0.5]) for each in ids])
    assert max(len(body.get("points", ())) for body in server.asked) == 128
    assert [item for item, _ in index.versions()] == ids
    index.close()


def test_two_processes_share_a_server_and_index_the_items_of_each_other(
    either: Memory, docs: Path, tmp_path: Path, server: Server
) -> None:
    place = StoreProbe(either).target
    (docs / "a.txt").write_text("zebra")
    with Memory(place, index=server.address) as one, Memory(place, index=server.address) as two:
        assert one.ingest(docs).pending == 0
        assert [found.text for found in two.recall("zebra")] == ["zebra"]
        (docs / "a.txt").write_text("quagga")
        two.ingest(docs)
        assert (one.recall("zebra"), len(one.recall("quagga"))) == ((), 1)
        assert one.admin.verify().ok


def test_more_recalls_than_connections_do_not_block_each_other(
    either: Memory, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recall has a connection and waits for the index, and another recall waits for a connection."""
    monkeypatch.setattr("agentkit_prompts.system.concurrency_limit._PATIENCE", LONG)
    with Memory(StoreProbe(either).target, index=server.address, keep_recalls=0) as memory:
        memory.facts.add("zebra")
        memory.worker().drain()
        server.delay = 0.01
        with ThreadPoolExecutor(90) as pool:
            recalls = list(pool.map(lambda _: memory.recall("zebra"), range(90)))
    assert [recall.degraded for recall in recalls if recall.degraded or not recall.knowledge] == []


@pytest.mark.parametrize(
    ("status", "kind"),
    spread(
        [
            (500, IndexUnavailable),
            (503, IndexUnavailable),
            (429, IndexUnavailable),
            (403, IndexBroken),
            (404, IndexBroken),
        ],
        2,
    ),
)
def test_a_failing_server_leaves_all_items_stored_and_queued(
    home: Path, docs: Path, server: Server, status: int, kind: type[Exception]
) -> None:
    (docs / "a.txt").write_text("zebra")
    with Memory(home, index=server.address) as memory:
        assert memory.recall("zebra") == ()
        server.status = status
        if kind is IndexUnavailable:
            assert memory.ingest(docs).pending == 1
        else:
            with pytest.raises(kind):
                memory.ingest(docs)
        with raises(kind, value="away" if kind is IndexUnavailable else "refused"):
            memory.worker().drain()
        server.status = 200
        memory.ingest(docs)
        assert [found.text for found in memory.recall("zebra")] == ["zebra"]


def test_an_answer_without_a_result_is_an_error_of_the_server(home: Path, docs: Path, server: Server) -> None:
    for opened_before in (True, False):
        (docs / f"{opened_before}.txt").write_text("zebra")
        with Memory(home, index=server.address) as memory:
            if opened_before:
                memory.worker().drain()
            server.empty = True
            memory.facts.add(f"zebra fact {opened_before}")
            assert memory.ingest(docs).pending == 2
            recall = memory.recall("zebra")
            assert recall.knowledge and "its response is not a response of Qdrant" in recall.degraded[0]
            for act in (memory.admin.verify, memory.admin.repair, memory.worker().drain):
                with raises(IndexUnavailable, name="agentkit-bm25-4", value="away"):
                    act()
            server.empty = False
            assert not memory.recall("zebra").degraded and memory.admin.verify().ok


def test_the_wait_for_a_slow_or_unreachable_server_is_short(home: Path, docs: Path, server: Server) -> None:
    (docs / "a.txt").write_text("zebra")
    with Memory(home, index=server.address) as memory:
        memory.ingest(docs)
    server.delay = 3.0
    with Memory(home, index=qdrant_indexes(server.address, timeout=1)) as memory:
        with raises(IndexUnavailable, name="agentkit-bm25-4", value="away"):
            StoreProbe(memory).index.count()
        server.delay = 0.0
        server.http.shutdown()
        server.http.server_close()
        (docs / "b.txt").write_text("violin")
        assert memory.ingest(docs).pending == 1
        with raises(IndexUnavailable, name="agentkit-bm25-4", value="away"):
            memory.worker().drain()
    with Memory(home, index=server.address) as memory, pytest.raises(IndexUnavailable):
        memory.worker().drain()
    with Memory(home) as memory:  # and another index can be built from it at any time
        assert len(memory.recall("zebra violin")) == 2


def test_a_worker_continues_after_an_outage_of_the_server(
    home: Path, docs: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentkit_memory.background._PAUSE", 0.01)
    (docs / "a.txt").write_text("zebra")
    stop = threading.Event()
    with Memory(home, index=server.address) as memory:
        memory.worker().drain()
        server.status = 500
        memory.ingest(docs)
        thread = threading.Thread(target=memory.worker().run, args=(stop, 0.01))
        thread.start()
        time.sleep(0.1)
        server.status = 200
        until(lambda: StoreProbe(memory).index.count())
        stop.set()
        thread.join()
        assert memory.admin.verify().points == 1


def test_a_server_that_cannot_weigh_terms_within_a_scope_is_refused(home: Path, server: Server) -> None:
    server.version = "1.18.9"
    with (
        Memory(home, index=server.address) as memory,
        raises(IndexBroken, name="version", value="1.18.9"),
    ):
        memory.worker().drain()


def test_two_databases_cannot_share_a_collection(tmp_path: Path, docs: Path, server: Server) -> None:
    (docs / "a.txt").write_text("zebra")
    with Memory(tmp_path / "one", index=server.address) as memory:
        memory.ingest(docs)
    with Memory(tmp_path / "two", index=server.address) as memory, raises(IndexBroken, name="bm25-4", value=1):
        memory.worker().drain()
    with Memory(tmp_path / "two", index=qdrant_indexes(server.address, collection="second")) as memory:
        memory.ingest(docs)
        assert len(memory.recall("zebra")) == 1


def test_a_collection_of_another_program_is_not_changed(server: Server) -> None:
    server.local.create_collection("theirs", {"v": models.VectorParams(size=3, distance=models.Distance.DOT)})
    with raises(IndexBroken, name="theirs", value=0):
        QdrantIndex(connect(server.address), "theirs")
    QdrantIndex(connect(server.address), "ours", 3).close()
    with raises(IndexBroken, name="ours", value=2):
        QdrantIndex(connect(server.address), "ours", 2)


def test_a_deleted_collection_is_built_again(home: Path, docs: Path, server: Server) -> None:
    (docs / "a.txt").write_text("zebra")
    with Memory(home, index=server.address) as memory:
        memory.ingest(docs)
        for collection in server.local.get_collections().collections:
            server.local.delete_collection(collection.name)
        with pytest.raises(IndexBroken):
            StoreProbe(memory).index.count()
    with Memory(home, index=server.address) as memory:
        assert len(memory.recall("zebra")) == 1


def test_local_mode_needs_one_process_and_a_writable_folder(tmp_path: Path) -> None:
    index = qdrant_indexes(str(tmp_path / "local"))("space", 0)
    with raises(IndexUnavailable, name="owner"):
        connect(str(tmp_path / "local"))
    index.close()
    (tmp_path / "file").write_text("")
    with raises(IndexBroken, name="folder"):
        connect(str(tmp_path / "file"))
    assert qdrant_indexes(":memory:")("space", 0).count() == 0


def test_the_error_of_a_missing_client_names_the_extra(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "qdrant_client", None)
    monkeypatch.delitem(sys.modules, "agentkit_memory.index.qdrant_server")
    with Memory(home, index="http://127.0.0.1:1") as memory, raises(StoreUnavailable, name="vector"):
        memory.worker().drain()
