"""Qdrant Edge: a vector index in this process, in a folder. The only file that knows its API, which is beta."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, cast

from agentkit_memory.errors import IndexBroken, StoreClosed, StoreUnavailable
from agentkit_memory.index.base import Hit, Point, SparseVector
from agentkit_memory.index.lock import FolderLock

if TYPE_CHECKING:
    import qdrant_edge as edge
else:
    try:
        import qdrant_edge as edge
    except ImportError as missing:
        raise StoreUnavailable("recall needs Qdrant Edge: install the extra `vector`") from missing

__all__ = ["EdgeIndex"]

_SPARSE = "bm25"
_DENSE = "dense"
_SCOPE = "scope"
_VERSION = "version"
_PAGE = 4096
_PANIC = "PanicException"


class EdgeIndex:
    """A Qdrant Edge shard: BM25 vectors and, with `dimensions`, dense ones beside them.

    A shard that was not finished, or that cannot be loaded, is replaced by an empty one: its content can be written
    again from SQL.

    Raises:
        IndexBusy: Another process owns the folder.
        IndexBroken: The folder cannot be written.
    """

    shared = False

    def __init__(self, folder: Path, dimensions: int = 0) -> None:
        self.folder = folder
        self.dimensions = dimensions
        self._shard_folder = folder / "shard"
        self._name = folder / "id"  # written last: without it the shard is not finished
        self._mutex = RLock()
        self._lock = FolderLock(folder)
        self._shard: edge.EdgeShard | None = None
        try:
            self._shard = self._load()
            if self._shard is None:
                self.clear()
        except BaseException:
            self._lock.release()
            raise

    def _load(self) -> edge.EdgeShard | None:
        try:
            with self._reporting():
                self.id = str(uuid.UUID(self._name.read_text("ascii").strip()))
                return edge.EdgeShard.load(str(self._shard_folder), _config(self.dimensions))
        except IndexBroken:  # no name, no shard, a damaged one, or one of another make
            return None

    def upsert(self, points: Sequence[Point]) -> None:
        by_version: dict[int, list[edge.Point]] = {}
        for point in points:
            vectors: dict[str, list[float] | edge.SparseVector | list[list[float]]] = {
                _SPARSE: edge.SparseVector(indices=point.sparse.indices, values=point.sparse.values)
            }
            if point.dense is not None:
                vectors[_DENSE] = _floats(point.dense)
            made = edge.Point(point.id, vectors, {_SCOPE: point.scope_id, _VERSION: point.version})
            by_version.setdefault(point.version, []).append(made)
        for version, some in by_version.items():
            no_newer = edge.Filter(must=[edge.FieldCondition(key=_VERSION, range=edge.RangeFloat(lte=version))])
            self._update(edge.UpdateOperation.upsert_points(some, condition=no_newer))

    def delete(self, ids: Sequence[str]) -> None:
        if ids:
            self._update(edge.UpdateOperation.delete_points(list(ids)))

    def query_sparse(self, vector: SparseVector, scope_ids: Sequence[int], limit: int) -> list[Hit]:
        if not vector.indices or not scope_ids:
            return []
        scopes = _within(scope_ids)
        wanted = edge.SparseVector(indices=vector.indices, values=vector.values)
        # Other scopes cannot show in the scores: terms are weighed over these scopes only.
        return self._query(wanted, _SPARSE, scopes, edge.SearchParams(idf=edge.IdfParams(corpus=scopes)), limit)

    def query_dense(self, vector: Sequence[float], scope_ids: Sequence[int], limit: int) -> list[Hit]:
        if not self.dimensions or not scope_ids:
            return []
        return self._query(_floats(vector), _DENSE, _within(scope_ids), None, limit)

    def _query(
        self,
        vector: edge.SparseVector | list[float],
        using: str,
        scopes: edge.Filter,
        params: edge.SearchParams | None,
        limit: int,
    ) -> list[Hit]:
        with self._using() as shard:
            found = shard.query(
                edge.QueryRequest(
                    limit=limit,
                    query=edge.Query.Nearest(vector, using=using),
                    filter=scopes,
                    params=params,
                    with_payload=False,
                )
            )
        return [Hit(str(each.id), each.score) for each in found]

    def versions(self) -> Iterator[tuple[str, int]]:
        offset: int | uuid.UUID | str | None = None
        while True:
            request = edge.ScrollRequest(offset=offset, limit=_PAGE, with_payload=[_VERSION], with_vector=False)
            with self._using() as shard:
                records, offset = shard.scroll(request)
            for record in records:
                yield str(record.id), int((record.payload or {}).get(_VERSION, 0))
            if offset is None:
                return

    def count(self, scope_ids: Sequence[int] | None = None) -> int:
        within = None if scope_ids is None else _within(scope_ids)
        with self._using() as shard:
            return shard.count(edge.CountRequest(exact=True, filter=within))

    def flush(self) -> None:
        with self._using() as shard:
            shard.flush()

    def clear(self) -> None:
        with self._mutex, self._reporting():
            self._name.unlink(missing_ok=True)
            if self._shard is not None:
                self._shard.close()
                self._shard = None
            shutil.rmtree(self._shard_folder, ignore_errors=True)
            self._shard_folder.mkdir()
            shard = edge.EdgeShard.create(str(self._shard_folder), _config(self.dimensions))
            shard.update(edge.UpdateOperation.create_field_index(_SCOPE, edge.PayloadSchemaType.Integer))
            shard.flush()
            self.id = str(uuid.uuid4())
            draft = self._name.with_suffix(".new")
            draft.write_text(self.id, "ascii")
            draft.replace(self._name)
            self._shard = shard

    def close(self) -> None:
        with self._mutex:
            shard, self._shard = self._shard, None
            try:
                if shard is not None:
                    shard.close()
            finally:
                self._lock.release()

    def _update(self, operation: edge.UpdateOperation) -> None:
        with self._using() as shard:
            shard.update(operation)

    @contextmanager
    def _using(self) -> Iterator[edge.EdgeShard]:
        with self._mutex:
            if self._shard is None:
                raise StoreClosed(f"{self.folder}: this index was closed; open the memory again")
            with self._reporting():
                yield self._shard

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Turn what the binding raises into an error of ours: bare Exceptions, and panics that are not even that."""
        try:
            yield
        except BaseException as error:
            if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
                raise
            raise IndexBroken(
                f"{self.folder}: the vector index failed ({error}); what is stored is intact: check the disk, or close "
                "the memory and delete this folder, then the index is built again from the database"
            ) from error


def _config(dimensions: int) -> edge.EdgeConfig:
    dense = {_DENSE: edge.EdgeVectorParams(dimensions, edge.Distance.Cosine)} if dimensions else None
    sparse = {_SPARSE: edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf)}
    return edge.EdgeConfig(vectors=dense, sparse_vectors=sparse)


def _floats(vector: Sequence[float]) -> list[float]:
    """Return the vector as it is, if the binding takes it so: a list, or an array of numpy."""
    return cast("list[float]", vector) if hasattr(vector, "dtype") else list(vector)


def _within(scope_ids: Sequence[int]) -> edge.Filter:
    match = edge.MatchValue(value=scope_ids[0]) if len(scope_ids) == 1 else edge.MatchAny(any=list(scope_ids))
    return edge.Filter(must=[edge.FieldCondition(key=_SCOPE, match=match)])
