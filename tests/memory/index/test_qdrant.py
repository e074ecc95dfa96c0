"""A Qdrant server as the index: over real HTTP, shared, away, slow, failing, too old or somebody else's."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import QdrantClient, models

from agentkit.memory import IndexBroken, IndexUnavailable, Memory, StoreClosed, StoreUnavailable, qdrant_indexes
from agentkit.memory.recall import Point
from agentkit.testing import StoreProbe
from agentkit_memory.index import qdrant_server
from agentkit_memory.index.opening import edge_indexes
from agentkit_memory.index.qdrant_server import QdrantIndex, connect
from agentkit_memory.index.vector_index import IndexOpener
from agentkit_memory.terms.bm25_vectors import document_vector, query_vector
from tests.effort import spread
from tests.raising import raises
from tests.waiting import until

ONE = "00000000-0000-4000-8000-000000000001"


class Server:
    """Speaks the part of Qdrant's REST protocol that is used, out of the client's local mode."""

    def __init__(self) -> None:
        self.local = QdrantClient(":memory:")
        self.version = "1.19.2"
        self.status = 200
        """What every request but the first of an opening is answered with."""
        self.empty = False
        """Whether it answers everything with 200 and no result, as what is no Qdrant server may."""
        self.delay = 0.0
        self.asked: list[dict[str, Any]] = []
        self.lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                body = json.loads(self.rfile.read(length) or b"{}")
                time.sleep(outer.delay)
                with outer.lock:
                    status, result = outer.answer(self.command, self.path.split("?")[0], body)
                data = json.dumps({"status": "ok", "time": 0.0, "result": result}).encode()
                if self.path == "/":
                    data = json.dumps({"title": "qdrant", "version": outer.version}).encode()
                with suppress(OSError):  # who asked may have given up
                    self.send_response(status)
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)

            do_GET = do_PUT = do_POST = do_DELETE = do  # noqa: N815 - the names that http.server calls

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        self.asked.append(body)
        if self.status != 200:
            return self.status, None
        if self.empty:
            return 200, None
        _, _, name, *rest = [*path.split("/"), "", ""]
        what = method, "/".join(part for part in rest if part)
        local = self.local
        if path == "/":
            return 200, None
        if what == ("GET", "exists"):
            return 200, {"exists": local.collection_exists(name)}
        if what == ("PUT", ""):
            made = models.CreateCollection(**body)
            local.create_collection(
                name, made.vectors, made.sparse_vectors, shard_number=made.shard_number, metadata=made.metadata
            )
            return 200, True
        if not local.collection_exists(name):
            return 404, None
        if what == ("GET", ""):
            return 200, json.loads(local.get_collection(name).model_dump_json())
        if what == ("DELETE", ""):
            return 200, local.delete_collection(name)
        done = {"operation_id": 1, "status": "completed"}
        if what == ("PUT", "index"):
            return 200, done
        if what == ("PUT", "points"):
            points = models.PointsList(**body)
            local.upsert(name, points.points, update_filter=points.update_filter)
            return 200, done
        if what == ("POST", "points/delete"):
            local.delete(name, models.PointIdsList(**body))
            return 200, done
        if what == ("POST", "points/count"):
            return 200, {"count": local.count(name, models.CountRequest(**body).filter).count}
        if what == ("POST", "points/query"):
            asked = models.QueryRequest(**body)
            query = asked.query.nearest if isinstance(asked.query, models.NearestQuery) else asked.query
            found = local.query_points(
                name,
                query,
                using=asked.using,
                query_filter=asked.filter,
                search_params=asked.params,
                limit=asked.limit or 10,
            )
            return 200, {"points": [{"id": each.id, "version": 1, "score": each.score} for each in found.points]}
        if what == ("POST", "points/scroll"):
            scroll = models.ScrollRequest(**body)
            records, after = local.scroll(name, limit=scroll.limit or 10, offset=scroll.offset, with_payload=True)
            points = [{"id": each.id, "payload": each.payload} for each in records]
            return 200, {"points": points, "next_page_offset": after}
        raise AssertionError(what)


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.http.shutdown()
    running.http.server_close()


@pytest.fixture(params=["edge", "local", "http"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> IndexOpener:
    if request.param == "edge":
        return edge_indexes(tmp_path / "edge")
    if request.param == "local":
        return qdrant_indexes(str(tmp_path / "local"))
    return qdrant_indexes(request.getfixturevalue("server").address)


def test_every_index_finds_forgets_and_verifies_alike(home: Path, docs: Path, opener: IndexOpener) -> None:
    (docs / "a.txt").write_text("zebra with stripes")
    (docs / "b.txt").write_text("violin with strings")
    with Memory(home, index=opener) as memory:
        memory.ingest(docs)
        assert [found.text for found in memory.recall("zebras")] == ["zebra with stripes"]
        (docs / "a.txt").write_text("quagga with stripes")
        (docs / "b.txt").unlink()
        memory.ingest(docs)
        assert memory.recall("zebra violin") == ()
        StoreProbe(memory).index.upsert([Point(ONE, 4, 1, document_vector("left over"))])
        assert (memory.admin.verify().orphans, memory.admin.verify().points) == (1, 2)
        assert memory.admin.repair().after.points == 1
    with Memory(home, index=opener) as memory:
        assert [found.text for found in memory.recall("quagga")] == ["quagga with stripes"]
        assert memory.admin.verify().ok


def test_an_older_write_never_replaces_a_newer_one(opener: IndexOpener) -> None:
    index = opener("space", 2)
    for version, said in ((1, "one"), (3, "three"), (2, "two"), (3, "three quagga")):
        index.upsert([Point(ONE, version, 1, document_vector(said), [1.0, 0.0])])
    assert list(index.versions()) == [(ONE, 3)]
    assert index.query_sparse(query_vector("two"), [1], 5) == []
    assert [hit.id for hit in index.query_sparse(query_vector("quagga"), [1], 5)] == [ONE]
    name = index.id
    index.clear()
    assert (index.count(), index.id == name, index.dimensions) == (0, False, 2)
    index.close()
    index.close()
    with pytest.raises(StoreClosed):
        index.count()


def test_scores_say_nothing_of_other_scopes(opener: IndexOpener) -> None:
    """The IDF is of the scope that is read: what another tenant holds changes no score, not by a bit."""
    index = opener("space", 0)
    ours = ["zebra stripes", "zebra violin", "quagga", "violin stripes stripes"]
    index.upsert(
        [
            Point(f"{number:08x}-0000-4000-8000-000000000000", 1, 1, document_vector(text))
            for number, text in enumerate(ours)
        ]
    )
    queries = [query_vector("zebra stripes"), query_vector("quagga violin")]
    before = [index.query_sparse(query, [1], 10) for query in queries]
    assert all(before)
    theirs = [
        Point(f"{number:08x}-0000-4000-9000-000000000000", 1, 2, document_vector("zebra " * number + "violin"))
        for number in range(1, 60)
    ]
    index.upsert(theirs)
    assert [index.query_sparse(query, [1], 10) for query in queries] == before
    assert {hit.id[19] for hit in index.query_sparse(queries[0], [1, 2], 100)} == {"8", "9"}
    index.close()


def test_points_that_are_named_have_the_scores_they_have_among_all(opener: IndexOpener) -> None:
    index = opener("space", 2)
    ids = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(40)]
    index.upsert(
        [
            Point(each, 1, 1 + number % 2, document_vector("zebra " * (1 + number % 5)), [1.0, number / 10])
            for number, each in enumerate(ids)
        ]
    )
    named = [ids[number] for number in (3, 4, 8, 30)]
    for scopes in ([1], [1, 2]):
        for ask in (partial(index.query_sparse, query_vector("zebra")), partial(index.query_dense, [1.0, 0.0])):
            among_all = {hit.id: hit.score for hit in ask(scopes, 40)}
            found = ask(scopes, 40, named)
            assert {hit.id for hit in found} == {each for each in named if each in among_all}
            assert [hit.score for hit in found] == pytest.approx([among_all[hit.id] for hit in found])
            assert [hit.id for hit in ask(scopes, 1, named)] == [found[0].id]
            assert ask(scopes, 40, []) == []
    index.close()


def test_the_server_is_asked_to_weigh_terms_over_the_scopes_that_are_read(server: Server) -> None:
    index = QdrantIndex(connect(server.address), "c")
    index.query_sparse(query_vector("zebra"), [7, 9], 3)
    asked = server.asked[-1]
    scopes = {"must": [{"key": "scope", "match": {"any": [7, 9]}}]}
    assert asked["filter"] == asked["params"]["idf"]["corpus"] == scopes
    assert asked["limit"] == 3
    index.close()


def test_many_points_are_written_in_requests_a_server_takes_and_read_in_pages(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setattr(qdrant_server, "_PAGE", 70)
    index = QdrantIndex(connect(server.address), "c", 2)
    ids = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(300)]
    index.upsert([Point(each, 1, 1, document_vector("x"), [0.5, 0.5]) for each in ids])
    assert max(len(body.get("points", ())) for body in server.asked) == 128
    assert [item for item, _ in index.versions()] == ids
    index.close()


def test_two_processes_share_a_server_and_each_indexes_what_the_other_wrote(
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
def test_a_server_that_fails_leaves_everything_stored_and_queued(
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


def test_an_answer_without_a_result_is_that_of_a_server_that_fails(home: Path, docs: Path, server: Server) -> None:
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


def test_a_server_that_is_slow_or_gone_is_not_waited_for_long(home: Path, docs: Path, server: Server) -> None:
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
    with Memory(home) as memory:  # and another index can be made of it at any time
        assert len(memory.recall("zebra violin")) == 2


def test_a_worker_outlives_a_server_that_is_away(
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


def test_a_collection_of_something_else_is_left_alone(server: Server) -> None:
    server.local.create_collection("theirs", {"v": models.VectorParams(size=3, distance=models.Distance.DOT)})
    with raises(IndexBroken, name="theirs", value=0):
        QdrantIndex(connect(server.address), "theirs")
    QdrantIndex(connect(server.address), "ours", 3).close()
    with raises(IndexBroken, name="ours", value=2):
        QdrantIndex(connect(server.address), "ours", 2)


def test_a_collection_that_was_deleted_is_built_again(home: Path, docs: Path, server: Server) -> None:
    (docs / "a.txt").write_text("zebra")
    with Memory(home, index=server.address) as memory:
        memory.ingest(docs)
        for collection in server.local.get_collections().collections:
            server.local.delete_collection(collection.name)
        with pytest.raises(IndexBroken):
            StoreProbe(memory).index.count()
    with Memory(home, index=server.address) as memory:
        assert len(memory.recall("zebra")) == 1


def test_local_mode_belongs_to_one_process_and_to_a_folder_that_can_be_written(tmp_path: Path) -> None:
    index = qdrant_indexes(str(tmp_path / "local"))("space", 0)
    with raises(IndexUnavailable, name="owner"):
        connect(str(tmp_path / "local"))
    index.close()
    (tmp_path / "file").write_text("")
    with raises(IndexBroken, name="folder"):
        connect(str(tmp_path / "file"))
    assert qdrant_indexes(":memory:")("space", 0).count() == 0


def test_without_the_client_the_error_says_what_to_install(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "qdrant_client", None)
    monkeypatch.delitem(sys.modules, "agentkit_memory.index.qdrant_server")
    with Memory(home, index="http://127.0.0.1:1") as memory, raises(StoreUnavailable, name="vector"):
        memory.worker().drain()
