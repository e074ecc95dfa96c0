"""Qdrant Edge: a vector index in this process, in a folder. The only file that knows its API, which is beta."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
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
            self.id = str(uuid.UUID(self._name.read_text("ascii").strip()))
            return edge.EdgeShard.load(str(self._shard_folder))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # no name, no shard, or a damaged one, over which the binding may even panic
            return None

    @property
    def _open(self) -> edge.EdgeShard:
        if self._shard is None:
            raise StoreClosed(f"{self.folder}: this index was closed; open the memory again")
        return self._shard

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
        with self._mutex:
            shard = self._open
            try:
                return [Hit(str(found.id), found.score) for found in shard.query(request)]
            except Exception as error:
                raise self._broken(error) from error

    def count(self) -> int:
        with self._mutex:
            return self._open.count(edge.CountRequest(exact=True))

    def flush(self) -> None:
        with self._mutex:
            shard = self._open
            try:
                shard.flush()
            except Exception as error:
                raise self._broken(error) from error

    def clear(self) -> None:
        with self._mutex:
            try:
                self._name.unlink(missing_ok=True)
                if self._shard is not None:
                    self._shard.close()
                    self._shard = None
                shutil.rmtree(self._shard_folder, ignore_errors=True)
                self._shard_folder.mkdir()
                config = edge.EdgeConfig(
                    sparse_vectors={_VECTOR: edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf)}
                )
                shard = edge.EdgeShard.create(str(self._shard_folder), config)
                integer = edge.PayloadSchemaType.Integer
                shard.update(edge.UpdateOperation.create_field_index(_SCOPE, integer))
                shard.flush()
                self.id = str(uuid.uuid4())
                draft = self._name.with_suffix(".new")
                draft.write_text(self.id, "ascii")
                draft.replace(self._name)
                self._shard = shard
            except Exception as error:
                raise self._broken(error) from error

    def close(self) -> None:
        with self._mutex:
            if self._shard is not None:
                try:
                    self._shard.close()
                finally:
                    self._shard = None
                    self._lock.release()

    def _update(self, operation: edge.UpdateOperation) -> None:
        with self._mutex:
            shard = self._open
            try:
                shard.update(operation)
            except Exception as error:
                raise self._broken(error) from error

    def _broken(self, error: Exception) -> IndexBroken:
        return IndexBroken(
            f"{self.folder}: the vector index failed ({error}); what is stored is intact: check the disk, or close "
            "the memory and delete this folder, then the index is built again from the database"
        )
