"""Qdrant Edge: a vector index in this process, in a folder. The only file that knows its API, which is beta."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING

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

_VECTOR = "bm25"
_SCOPE = "scope"
_PANIC = "PanicException"


class EdgeIndex:
    """A Qdrant Edge shard of BM25 vectors.

    A shard that was not finished, or that cannot be loaded, is replaced by an empty one: its content can be written
    again from SQL.

    Raises:
        IndexBusy: Another process owns the folder.
        IndexBroken: The folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
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
                return edge.EdgeShard.load(str(self._shard_folder), _config())
        except IndexBroken:  # no name, no shard, a damaged one, or one of another make
            return None

    def upsert(self, points: Sequence[Point]) -> None:
        added = [
            edge.Point(
                uuid.UUID(point.id),
                {_VECTOR: edge.SparseVector(indices=point.vector.indices, values=point.vector.values)},
                {_SCOPE: point.scope_id},
            )
            for point in points
        ]
        if added:
            self._update(edge.UpdateOperation.upsert_points(added))

    def delete(self, ids: Sequence[str]) -> None:
        if ids:
            self._update(edge.UpdateOperation.delete_points([uuid.UUID(each) for each in ids]))

    def query(self, vector: SparseVector, scope_ids: Sequence[int], limit: int) -> list[Hit]:
        if not vector.indices or not scope_ids:
            return []
        scopes = edge.Filter(must=[edge.FieldCondition(key=_SCOPE, match=edge.MatchAny(any=list(scope_ids)))])
        request = edge.QueryRequest(
            limit=limit,
            query=edge.Query.Nearest(edge.SparseVector(indices=vector.indices, values=vector.values), using=_VECTOR),
            filter=scopes,
            params=edge.SearchParams(idf=edge.IdfParams(corpus=scopes)),  # other scopes cannot show in the scores
            with_payload=False,
        )
        with self._using() as shard:
            return [Hit(str(found.id), found.score) for found in shard.query(request)]

    def count(self) -> int:
        with self._using() as shard:
            return shard.count(edge.CountRequest(exact=True))

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
            shard = edge.EdgeShard.create(str(self._shard_folder), _config())
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


def _config() -> edge.EdgeConfig:
    return edge.EdgeConfig(sparse_vectors={_VECTOR: edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf)})
