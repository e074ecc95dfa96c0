"""Cost of memory: appending messages, ingesting chunks, recalling chunks.

The limit of `append` is the same statements written by hand in SQLAlchemy Core, with the same pragmas; the limit of
`recall` is the query of the vector index alone.
"""

from __future__ import annotations

import random
import sqlite3
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from harness import Figure, Work, figures, interleave, main

from agentkit.testing import StoreProbe
from agentkit_memory import Memory
from agentkit_memory.database.tables import branches, messages
from agentkit_memory.index.qdrant_edge import EdgeIndex
from agentkit_memory.index.vector_index import Point
from agentkit_memory.terms.bm25_vectors import document_vector, query_vector
from agentkit_prompts.context.messages import MESSAGES, Message

WORDS = [f"{head}{tail}" for head in "bcdfghjklmnprstvwz" for tail in ("ato", "eril", "ingo", "osk", "ulma", "yrra")]
APPENDS = 1000
POINTS = 10_000


def sentence(random_: random.Random, words: int) -> str:
    # A few words are frequent and most words are rare, as in natural language.
    return " ".join(f"{random_.choice(WORDS)}{int(random_.paretovariate(0.7)) % 997}" for _ in range(words))


def by_hand(path: Path) -> sa.Connection:
    engine = sa.create_engine(sa.URL.create("sqlite", database=str(path)), connect_args={"isolation_level": None})

    @sa.event.listens_for(engine, "connect")
    def connect(connection: sqlite3.Connection, _: object) -> None:
        for pragma in (
            "journal_mode=WAL",
            "synchronous=NORMAL",
            "foreign_keys=ON",
            "temp_store=MEMORY",
            "cache_size=-16000",
            "secure_delete=ON",
        ):
            connection.execute(f"PRAGMA {pragma}")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine.connect()


def append(rounds: int) -> Iterator[Figure]:
    """Append messages with idempotency keys to one conversation."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with Memory(home / "ours") as memory, Memory(home / "limit") as limit_memory:
            ours = memory.session("s")
            limit_memory.session("s")
            connection = by_hand(home / "limit" / "memory.db")
            is_head = (branches.c.id == 1, branches.c.head_seq == sa.bindparam("old"))
            swap = sa.update(branches).where(*is_head).values(head_seq=sa.bindparam("new"))
            add = sa.insert(messages)
            head = 0

            def hand(n: int) -> None:
                nonlocal head
                for _ in range(n):
                    message = Message("user", f"message {head} " * 20)
                    row = {
                        "branch_id": 1,
                        "seq": head + 1,
                        "key": f"run:{head}",
                        "format": 1,
                        "body": MESSAGES.dump_json(message).decode(),
                        "created_at": time.time(),
                    }
                    with connection.begin():
                        assert connection.execute(swap, {"old": head, "new": head + 1}).rowcount == 1
                        connection.execute(add, row)
                    head += 1

            def session(n: int) -> None:
                for _ in range(n):
                    number = len(ours.conversation)
                    ours.append(Message("user", f"message {number} " * 20), key=f"run:{number}")

            seconds = interleave({"Core by hand": hand, "Session.append": session}, APPENDS, rounds)
            yield from figures("append", seconds)
            connection.close()


def ingest(rounds: int) -> Iterator[Figure]:
    """Ingest passages of 200 words from Markdown files, including the index."""
    random_ = random.Random(1)
    for files, sections in ((4, 250), (16, 250), (400, 10)):
        rates = []
        for _ in range(max(1, rounds // 3)):
            with tempfile.TemporaryDirectory() as folder:
                docs = Path(folder, "docs")
                docs.mkdir()
                for number in range(files):
                    parts = [f"# Part {part}\n\n{sentence(random_, 170)}\n" for part in range(sections)]
                    (docs / f"{number}.md").write_text("\n".join(parts))
                with Memory(Path(folder, "store")) as memory:
                    memory.recall("x")
                    start = time.process_time()
                    chunks = memory.ingest(docs).chunks
                    rates.append(chunks / (time.process_time() - start))
        rate = sorted(rates)[len(rates) // 2]
        yield Figure("ingest", f"{files} x {sections}", rate, "chunks/s")


def recall(rounds: int) -> Iterator[Figure]:
    """Recall ten of 10,000 chunks in four scopes; one scope is read."""
    random_ = random.Random(2)
    with tempfile.TemporaryDirectory() as folder:
        docs = Path(folder, "docs")
        docs.mkdir()
        with Memory(Path(folder, "store")) as memory:
            for tenant in range(4):
                parts = [f"# Part {part}\n\n{sentence(random_, 120)}\n" for part in range(POINTS // 4)]
                (docs / "a.md").write_text("\n".join(parts))
                memory.within(f"tenant {tenant}").ingest(docs)
            reader = memory.within("tenant 1")
            index, scope = memory._store.indexes.get(), StoreProbe(reader).scope_number

            def bare(n: int) -> None:
                for _ in range(n):
                    index.query_sparse(query_vector(sentence(random_, 6)), [scope], 10)

            def whole(n: int) -> None:
                for _ in range(n):
                    reader.recall(sentence(random_, 6), limit=10)

            yield from figures("recall", interleave({"index alone": bare, "Memory.recall": whole}, 200, rounds))


def sparse(rounds: int) -> Iterator[Figure]:
    """Compute the sparse vector of a chunk, and write the vector to the index."""
    random_ = random.Random(3)
    with tempfile.TemporaryDirectory() as folder:
        index = EdgeIndex(Path(folder))
        texts = [sentence(random_, 170) for _ in range(500)]

        def vectors(n: int) -> None:
            for number in range(n):
                document_vector(texts[number % 500])

        def upsert(n: int) -> None:
            for _ in range(0, n, 250):
                batch = [document_vector(text) for text in random_.sample(texts, 250)]
                ids = [f"00000000-0000-4000-8000-{random_.getrandbits(48):012x}" for _ in batch]
                index.upsert([Point(point_id, 1, 1, vector) for point_id, vector in zip(ids, batch, strict=True)])

        yield from figures("sparse", interleave({"vector": vectors, "vector and upsert": upsert}, 500, rounds))
        index.close()


def retrievers(rounds: int) -> Iterator[Figure]:
    """W6: find ten of 10,000 points of 384 dimensions with one retriever, in one of four scopes."""
    import numpy as np
    import qdrant_edge as edge

    random_ = random.Random(4)
    numbers = np.random.default_rng(4)
    vectors = numbers.standard_normal((POINTS, 384)).astype("float32")
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rows_by_scope = {scope: (np.arange(scope, POINTS, 4), vectors[scope::4].copy()) for scope in range(4)}
    dense = [vector.tolist() for vector in numbers.standard_normal((500, 384)).astype("float32")]
    words = [query_vector(sentence(random_, 6)) for _ in range(500)]
    with tempfile.TemporaryDirectory() as folder:
        index = EdgeIndex(Path(folder), 384)
        for start in range(0, POINTS, 500):
            index.upsert(
                [
                    Point(str(uuid.UUID(int=n + 1)), 1, n % 4 + 1, document_vector(sentence(random_, 120)), vectors[n])
                    for n in range(start, start + 500)
                ]
            )
        index.flush()
        shard = index._shard
        assert shard is not None
        scope = edge.Filter(should=[edge.FieldCondition(key="scope", match=edge.MatchValue(value=2))])
        with_idf = edge.SearchParams(idf=edge.IdfParams(corpus=scope))
        # The same parameters as in the index: without them, vectors quantized to two bits miss some nearest points.
        with_rescore = edge.SearchParams(quantization=edge.QuantizationSearchParams(rescore=True, oversampling=4.0))

        def engine(using: str, vector: list[float] | edge.SparseVector, params: edge.SearchParams) -> None:
            query = edge.Query.Nearest(vector, using=using)
            shard.query(edge.QueryRequest(limit=10, query=query, filter=scope, params=params, with_payload=False))

        def by_numpy(n: int) -> None:
            for number in range(n):
                ids, rows = rows_by_scope[1]
                scores = rows @ np.asarray(dense[number % 500], "float32")
                best = np.argpartition(scores, -10)[-10:]
                ids[best[np.argsort(-scores[best])]].tolist()

        def engine_dense(n: int) -> None:
            for number in range(n):
                engine("dense", dense[number % 500], with_rescore)

        def ours_dense(n: int) -> None:
            for number in range(n):
                index.query_dense(dense[number % 500], [2], 10)

        def engine_sparse(n: int) -> None:
            for number in range(n):
                query = words[number % 500]
                engine("bm25", edge.SparseVector(indices=query.indices, values=query.values), with_idf)

        def ours_sparse(n: int) -> None:
            for number in range(n):
                index.query_sparse(words[number % 500], [2], 10)

        for retriever, works in (
            ("dense", {"engine": engine_dense, "query_dense": ours_dense, "numpy by hand": by_numpy}),
            ("sparse", {"engine": engine_sparse, "query_sparse": ours_sparse}),
        ):
            seconds = interleave(works, 500, rounds)
            yield from figures(f"W6 {retriever}", seconds)
        local = interleave({"engine": engine_dense, "qdrant-client, local mode": local_mode(vectors, dense)}, 5, rounds)
        yield from figures("W6 dense, qdrant-client", local)
        index.close()


def local_mode(vectors: Any, questions: list[list[float]]) -> Work:
    """Return the same dense query by the local mode of qdrant-client."""
    from qdrant_client import QdrantClient, models

    client = QdrantClient(":memory:")
    client.create_collection("p", vectors_config=models.VectorParams(size=384, distance=models.Distance.DOT))
    payloads = [{"scope": number % 4 + 1} for number in range(POINTS)]
    client.upload_collection("p", vectors=vectors, payload=payloads, ids=range(POINTS))
    scope = models.Filter(must=[models.FieldCondition(key="scope", match=models.MatchValue(value=2))])

    def query(n: int) -> None:
        for number in range(n):
            client.query_points("p", query=questions[number], query_filter=scope, limit=10)

    return query


if __name__ == "__main__":
    main(
        __doc__,
        {"append": append, "ingest": ingest, "recall": recall, "sparse": sparse, "W6": retrievers},
    )
