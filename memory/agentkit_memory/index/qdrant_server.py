"""A Qdrant server as the index, which many processes write and read. Only this file uses the client of Qdrant."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from threading import RLock
from typing import TYPE_CHECKING, cast

from agentkit_memory.errors import IndexBroken, IndexUnavailable, StoreClosed, StoreUnavailable
from agentkit_memory.index.vector_index import DENSE, SCOPE, SPARSE, VERSION, Hit, Point, as_floats
from agentkit_memory.process.forks import keep, track
from agentkit_memory.terms.bm25_vectors import SparseVector
from agentkit_prompts.extras import install

if TYPE_CHECKING:
    from qdrant_client import QdrantClient, models
    from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse
else:
    try:
        from qdrant_client import QdrantClient, models
        from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse
    except ImportError as missing:
        raise StoreUnavailable(f"a Qdrant server needs its client: {install('vector')}", name="vector") from missing

_ID_KEY = "agentkit_index"
"""Key of the metadata of a collection whose value is the id of the index."""
_PAGE = 1000
"""Points that are read at once."""
_BATCH = 128
"""Points in one request, so that the request does not exceed the size limit of a server."""
_MIN_VERSION = (1, 19)
"""First version that computes term weights per query filter. In older versions, other scopes influence the scores."""


def connect(location: str, api_key: str | None = None, timeout: float = 5.0) -> QdrantClient:
    """Return a client of the server at an address, or of local mode in a folder or `:memory:`.

    Raises:
        IndexUnavailable: Another process uses the folder.
        IndexBroken: The folder cannot be used.
    """
    if location.startswith(("http://", "https://")):
        return QdrantClient(
            url=location, api_key=api_key, timeout=max(1, math.ceil(timeout)), check_compatibility=False
        )
    if location == ":memory:":
        return QdrantClient(location)
    try:
        return QdrantClient(path=location, force_disable_check_same_thread=True)
    except RuntimeError as error:
        raise IndexUnavailable(f"{location}: {error}", path=str(location), name="owner") from error
    except (OSError, ValueError) as error:
        raise IndexBroken(
            f"{location}: the folder cannot be used as an index ({error})", path=str(location), name="folder"
        ) from error


class QdrantIndex:
    """One collection: BM25 vectors and, with `dimensions`, dense vectors.

    A missing collection is created, with one shard, so that term weights are computed over the whole scope. The index
    closes the client. `shared` is True if other processes use the collection too: by default, if it is on a server.

    Raises:
        IndexUnavailable: The server is not available, slow or failing.
        IndexBroken: The server is too old, or the collection was not created by this class.
    """

    def __init__(
        self, client: QdrantClient, collection: str, dimensions: int = 0, *, shared: bool | None = None
    ) -> None:
        self._is_local = type(client._client).__name__ == "QdrantLocal"
        self.collection = collection
        self.dimensions = dimensions
        if shared is None:
            shared = not self._is_local
        self.shared = shared
        # Local mode is not safe for threads.
        self._mutex = RLock() if self._is_local else nullcontext()
        self._client: QdrantClient | None = client
        self._inherited = ""
        track(self)
        try:
            with self._using() as server:
                self._check_version(server.info().version)
                self.id = self._ensure(server)
        except BaseException:
            self.close()
            raise

    def upsert(self, points: Sequence[Point]) -> None:
        by_version: dict[int, list[models.PointStruct]] = {}
        for point in points:
            vectors: dict[str, models.Vector] = {
                SPARSE: models.SparseVector(indices=point.sparse.indices, values=point.sparse.values)
            }
            if point.dense is not None:
                vectors[DENSE] = as_floats(point.dense)
            payload = {SCOPE: point.scope_id, VERSION: point.version}
            record = models.PointStruct(id=point.id, vector=cast("models.VectorStruct", vectors), payload=payload)
            by_version.setdefault(point.version, []).append(record)
        for version, records in by_version.items():
            # A stored point with a newer version stays.
            no_newer = models.Filter(must=[models.FieldCondition(key=VERSION, range=models.Range(lte=version))])
            for start in range(0, len(records), _BATCH):
                batch = records[start : start + _BATCH]
                with self._using() as server:
                    server.upsert(self.collection, batch, wait=True, update_filter=no_newer)

    def delete(self, ids: Sequence[str]) -> None:
        if ids:
            with self._using() as server:
                server.delete(self.collection, models.PointIdsList(points=list(ids)), wait=True)

    def query_sparse(
        self, vector: SparseVector, scope_ids: Sequence[int], limit: int, among: Sequence[str] | None = None
    ) -> list[Hit]:
        if not vector.indices or not scope_ids:
            return []
        scopes = _scope_filter(scope_ids)
        wanted = models.SparseVector(indices=vector.indices, values=vector.values)
        # Term weights are computed over these scopes only, so that other scopes have no influence.
        params = models.SearchParams(idf=models.IdfCorpusParams(corpus=scopes))
        return self._query(wanted, SPARSE, _id_filter(scopes, among), params, limit)

    def query_dense(
        self, vector: Sequence[float], scope_ids: Sequence[int], limit: int, among: Sequence[str] | None = None
    ) -> list[Hit]:
        if not self.dimensions or not scope_ids:
            return []
        return self._query(as_floats(vector), DENSE, _id_filter(_scope_filter(scope_ids), among), None, limit)

    def versions(self) -> Iterator[tuple[str, int]]:
        offset: str | int | uuid.UUID | None = None
        while True:
            with self._using() as server:
                records, following = server.scroll(
                    self.collection, limit=_PAGE, offset=offset, with_payload=[VERSION], with_vectors=False
                )
            for record in records:
                yield str(record.id), int((record.payload or {}).get(VERSION, 0))
            if following is None:
                return
            offset = str(following)

    def count(self, scope_ids: Sequence[int] | None = None) -> int:
        if scope_ids is not None and not scope_ids:
            return 0
        within = None
        if scope_ids is not None:
            within = _scope_filter(scope_ids)
        with self._using() as server:
            return server.count(self.collection, count_filter=within, exact=True).count

    def flush(self) -> None:
        """Do nothing: a confirmed write is already in the log of the server."""

    def compact(self) -> bool:
        # A server compacts its files itself.
        return False

    def clear(self) -> None:
        with self._using() as server:
            server.delete_collection(self.collection)
            self.id = self._ensure(server)

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def disown(self, why: str) -> None:
        """Leave the client to the parent process after a fork: its connections carry responses for the parent."""
        keep(self._client)
        self._client = None
        if self._is_local:
            self._mutex = RLock()
        self._inherited = why

    def _query(
        self,
        vector: models.SparseVector | list[float],
        using: str,
        scopes: models.Filter,
        params: models.SearchParams | None,
        limit: int,
    ) -> list[Hit]:
        with self._using() as server:
            response = server.query_points(
                self.collection,
                query=vector,
                using=using,
                query_filter=scopes,
                search_params=params,
                limit=limit,
                with_payload=False,
            )
        return [Hit(str(each.id), each.score) for each in response.points]

    def _check_version(self, version: str) -> None:
        numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
        if numbers < _MIN_VERSION:
            raise IndexBroken(
                f"the Qdrant server is version {version}; upgrade it to {'.'.join(map(str, _MIN_VERSION))} or newer: "
                "with older servers, other scopes influence the term weights of the scope that is read",
                name="version",
                value=str(version),
            )

    def _ensure(self, server: QdrantClient) -> str:
        """Create the collection if it does not exist, and return the id of its content."""
        if not server.collection_exists(self.collection):
            self._create(server)
        info = server.get_collection(self.collection)
        index_id = (info.config.metadata or {}).get(_ID_KEY)
        dense = info.config.params.vectors
        size = 0
        if isinstance(dense, dict) and DENSE in dense:
            size = dense[DENSE].size
        if not isinstance(index_id, str):
            raise self._foreign("is not an index of agentkit")
        if size != self.dimensions:
            raise self._foreign(f"has {size} dimensions")
        if not self._is_local:
            for field in {SCOPE, VERSION}.difference(info.payload_schema or {}):
                server.create_payload_index(self.collection, field, models.PayloadSchemaType.INTEGER)
        return index_id

    def _create(self, server: QdrantClient) -> None:
        dense: dict[str, models.VectorParams] = {}
        if self.dimensions:
            dense[DENSE] = models.VectorParams(size=self.dimensions, distance=models.Distance.COSINE)
        try:
            server.create_collection(
                self.collection,
                vectors_config=dense,
                sparse_vectors_config={SPARSE: models.SparseVectorParams(modifier=models.Modifier.IDF)},
                shard_number=1,
                metadata={_ID_KEY: str(uuid.uuid4())},
            )
        except (UnexpectedResponse, ValueError):
            # Another process may have created the collection meanwhile.
            if not server.collection_exists(self.collection):
                raise

    def _foreign(self, reason: str) -> IndexBroken:
        return IndexBroken(
            f"collection {self.collection!r} {reason}; expected a collection of agentkit with {self.dimensions} "
            "dimensions: name another collection, or delete it",
            name=self.collection,
            value=self.dimensions,
        )

    @contextmanager
    def _using(self) -> Iterator[QdrantClient]:
        """Yield the client, and convert its errors into `StoreError`s."""
        client = self._client
        if client is None:
            why = self._inherited or "was closed; open the memory again"
            raise StoreClosed(f"collection {self.collection!r}: this index {why}", name=self.collection)
        try:
            with self._mutex:
                yield client
        except ResponseHandlingException as error:
            raise self._unavailable(f"{type(error.source).__name__}: {error.source}") from error
        except UnexpectedResponse as error:
            status = error.status_code or 0
            if status >= 500 or status in (408, 429):
                raise self._unavailable(f"it returned {status} {error.reason_phrase}") from error
            raise self._broken(f"it returned {status}: {error.content[:200].decode('utf-8', 'replace')}") from error
        except AssertionError as error:
            # The client asserts that a response contains a result.
            raise self._unavailable(f"its response is not a response of Qdrant: {error}") from error
        except (ApiException, ValueError, KeyError) as error:
            raise self._broken(f"{type(error).__name__}: {error}") from error

    def _unavailable(self, reason: str) -> IndexUnavailable:
        return IndexUnavailable(
            f"collection {self.collection!r}: the Qdrant server is not available, slow or failing ({reason}); stored "
            "data is intact, and new items are queued in the database: try again later",
            name=self.collection,
            value="away",
        )

    def _broken(self, reason: str) -> IndexBroken:
        return IndexBroken(
            f"collection {self.collection!r}: the Qdrant server refused ({reason}); stored data is intact: if the "
            "collection is missing or corrupt, delete it and open the memory again, then it is built from the database",
            name=self.collection,
            value="refused",
        )


def _scope_filter(scope_ids: Sequence[int]) -> models.Filter:
    return models.Filter(must=[models.FieldCondition(key=SCOPE, match=models.MatchAny(any=list(scope_ids)))])


def _id_filter(scopes: models.Filter, ids: Sequence[str] | None) -> models.Filter:
    if ids is None:
        return scopes
    return models.Filter(must=[models.HasIdCondition(has_id=list(ids)), scopes])
