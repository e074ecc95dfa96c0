"""The contract of `VectorIndex`: all indexes find, score, delete and verify in the same way.

AGENTKIT_QDRANT_URL is the address of a Qdrant server for the tests, with the key AGENTKIT_QDRANT_KEY. The tests create
collections and delete them.
"""

from __future__ import annotations

import math
import os
import random
import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import QdrantClient

from agentkit.memory import Memory, StoreClosed, qdrant_indexes
from agentkit.memory.recall import Hit, Point
from agentkit.testing import StoreProbe
from agentkit_memory.index.opening import edge_indexes, index_opener
from agentkit_memory.index.vector_index import IndexOpener
from agentkit_memory.terms.bm25_vectors import SparseVector, document_vector, query_vector
from tests.memory.index.qdrant_rest import Server
from tests.paths import ROOT

ONE = "00000000-0000-4000-8000-000000000001"
QDRANT = os.environ.get("AGENTKIT_QDRANT_URL")


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.http.shutdown()
    running.http.server_close()


@pytest.fixture(params=["edge", "local", "http", "postgresql", "page", *(["server"] if QDRANT else [])])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[IndexOpener]:
    if request.param == "edge":
        yield edge_indexes(tmp_path / "edge")
    elif request.param == "page":
        yield index_of_the_page()
    elif request.param == "local":
        yield qdrant_indexes(str(tmp_path / "local"))
    elif request.param == "postgresql":
        yield index_opener(request.getfixturevalue("fresh_postgres"))
    elif request.param == "http":
        yield qdrant_indexes(request.getfixturevalue("server").address)
    else:
        assert QDRANT is not None
        prefix = f"agentkit-tests-{uuid.uuid4()}"
        yield qdrant_indexes(QDRANT, collection=prefix, api_key=os.environ.get("AGENTKIT_QDRANT_KEY"))
        client = QdrantClient(url=QDRANT, api_key=os.environ.get("AGENTKIT_QDRANT_KEY"))
        for each in client.get_collections().collections:
            if each.name.startswith(prefix):
                client.delete_collection(each.name)
        client.close()


def index_of_the_page() -> IndexOpener:
    """Return the class that the page on custom indexes shows."""
    page = (ROOT / "docs/how-to/use-a-custom-index.md").read_text("utf-8")
    code = page.split("```python\n")[1].partition("Path(")[0]
    names: dict[str, Any] = {}
    exec(code, names)
    shelf: IndexOpener = names["Shelf"]
    return shelf


def test_all_indexes_find_delete_and_verify_in_the_same_way(home: Path, docs: Path, opener: IndexOpener) -> None:
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


def test_an_older_write_does_not_replace_a_newer_write(opener: IndexOpener) -> None:
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


def test_scores_do_not_depend_on_other_scopes(opener: IndexOpener) -> None:
    """The IDF belongs to the scope of the reader: texts of another tenant change no bit of a score."""
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


def test_named_points_have_the_same_scores_as_among_all_points(opener: IndexOpener) -> None:
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


def test_all_indexes_score_by_bm25_and_cosine(opener: IndexOpener) -> None:
    """The test computes the scores of each index again, over scopes with numbers that differ in a few bits."""
    draw = random.Random(1)
    scopes = [5, 5 + (1 << 31), 5 + (1 << 32), (1 << 63) - 1]
    words = [f"word{number}" for number in range(12)]
    points = [
        Point(
            str(uuid.UUID(int=number)),
            1,
            draw.choice(scopes),
            document_vector(" ".join(draw.choices(words, k=draw.randrange(1, 9)))),
            [draw.gauss(0, 1) for _ in range(3)],
        )
        for number in range(80)
    ]
    index = opener("space", 3)
    index.upsert(points)
    for read in ([scopes[0]] * 2, [scopes[3]], [scopes[0], scopes[2]], scopes):
        texts = [" ".join(draw.sample(words, 3)), words[0], f"{words[1]} {words[1]} {words[2]}", "unknown"]
        for asked in map(query_vector, texts):
            differs = differences(index.query_sparse(asked, read, 20), bm25(points, asked, read))
            assert not differs, (read, asked, differs)
        near = [draw.gauss(0, 1) for _ in range(3)]
        differs = differences(index.query_dense(near, read, 20), cosines(points, near, read))
        assert not differs, (read, near, differs)
        assert index.count(read) == sum(point.scope_id in read for point in points)
    index.close()


def bm25(points: Sequence[Point], asked: SparseVector, scopes: Sequence[int]) -> dict[str, float]:
    """Return the scores of the points of some scopes that contain a term."""
    read = [(point.id, dict(zip(point.sparse.indices, point.sparse.values, strict=True))) for point in points]
    read = [each for each, point in zip(read, points, strict=True) if point.scope_id in scopes]
    scores: dict[str, float] = {}
    for term, times in zip(asked.indices, asked.values, strict=True):
        holding = {name: weights[term] for name, weights in read if term in weights}
        rarity = math.log1p((len(read) - len(holding) + 0.5) / (len(holding) + 0.5))
        for name, weight in holding.items():
            scores[name] = scores.get(name, 0.0) + times * weight * rarity
    return scores


def cosines(points: Sequence[Point], near: Sequence[float], scopes: Sequence[int]) -> dict[str, float]:
    scores: dict[str, float] = {}
    for point in points:
        if point.scope_id in scopes and point.dense is not None:
            product = sum(a * b for a, b in zip(near, point.dense, strict=True))
            scores[point.id] = product / math.hypot(*near) / math.hypot(*point.dense)
    return scores


def differences(hits: Sequence[Hit], scores: dict[str, float], limit: int = 20) -> list[object]:
    """Return the hits without the best scores; equal scores can be in any order."""
    best = sorted(scores.values(), reverse=True)[:limit]
    if len(hits) != len(best):
        return [len(hits), len(best)]
    return [
        (hit, scores.get(hit.id), score)
        for hit, score in zip(hits, best, strict=True)
        if not math.isclose(hit.score, score, rel_tol=1e-4, abs_tol=1e-5)
        or not math.isclose(hit.score, scores.get(hit.id, math.nan), rel_tol=1e-4, abs_tol=1e-5)
    ]
