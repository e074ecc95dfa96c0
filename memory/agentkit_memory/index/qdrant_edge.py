"""Qdrant Edge: a vector index in this process, in a folder. Its API, which is beta, is used here and in
`edge_config.py` only.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from threading import RLock

from agentkit_memory.errors import IndexBroken, IndexUnavailable, StoreClosed
from agentkit_memory.index.edge_config import edge, edge_config
from agentkit_memory.index.folder_lock import FolderLock
from agentkit_memory.index.vector_index import DENSE, SCOPE, SPARSE, VERSION, Hit, Point, as_floats
from agentkit_memory.process.failpoints import failpoint
from agentkit_memory.process.forks import keep, track
from agentkit_memory.terms.bm25_vectors import SparseVector
from agentkit_prompts.system.private_files import keep_private, private_file, private_folder

_PAGE = 4096
"""Points that are read at once."""
_BATCH = 256
"""Points that are written at once: Edge holds the interpreter lock meanwhile."""
_ID = slice(len('ScoredPoint(id="'), len('ScoredPoint(id="') + 36)
"""Position of the id in the repr of a hit. The attribute `id` creates a UUID, which takes four times as long."""
_RESCORED = edge.SearchParams(quantization=edge.QuantizationSearchParams(rescore=True, oversampling=4.0))
_PANIC = "PanicException"
"""Name of the class of a panic of Rust, which the binding does not export."""
_SEGMENT = 32 << 20
"""Bytes of vectors after which a segment is closed; until then, the posting lists of the segment are in memory."""
_MAX_SCOPES = 64
"""Maximum number of scopes that the index remembers."""
_MAX_REMOVED = 0.02
"""Maximum share of removed points in the weights of terms; with more, weights are computed without them."""
_MAX_WAIT = 0.5
"""Maximum seconds that a query waits for another use of the shard."""
_MIN_FREE = 64 << 20
"""Bytes that must be free to write. Edge maps sparse files, and a full disk then kills the process."""


class EdgeIndex:
    """A Qdrant Edge shard: BM25 vectors and, with `dimensions`, dense vectors.

    A shard that is unfinished or cannot be loaded is replaced by an empty shard, which is filled again from SQL.

    Only the current segment is in memory. A full segment is closed, which takes half a second, and read from its files
    afterwards, so memory does not grow with the index. `segment` is the maximum size of a segment in bytes.

    Raises:
        IndexUnavailable: Another process owns the folder, or its disk is full, or nearly so.
        IndexBroken: The folder cannot be written.
    """

    shared = False

    def __init__(self, folder: Path, dimensions: int = 0, *, segment: int = _SEGMENT) -> None:
        self.folder = folder
        self.dimensions = dimensions
        self._segment = segment
        self._shard_folder = folder / "shard"
        # The id is written last: a shard without an id is not finished.
        self._id_file = folder / "id"
        self._state_file = folder / "held"
        self._writes_file = folder / "writes"
        self._mutex = RLock()
        self._inherited = ""
        self._lock = FolderLock(folder)
        self._shard: edge.EdgeShard | None = None
        self._scopes: set[int] = set()
        """Scopes of all points since the shard was created or rewritten, including removed points, which Edge counts
        when it weighs terms without a filter. Incomplete with more than `_MAX_SCOPES` scopes."""
        self._removed = 0
        """Number of points that were removed or replaced since the shard was created or rewritten."""
        self._points = 0
        """Points at the last flush."""
        try:
            self._check_room()
            self._shard = self._load()
            if self._shard is None:
                self.clear()
            keep_private(folder)
        except BaseException:
            self._lock.release()
            raise
        finally:
            track(self)

    def _load(self) -> edge.EdgeShard | None:
        """Load the shard and its state; None if the shard is missing, unfinished or corrupt."""
        try:
            with self._reporting():
                self.id = str(uuid.UUID(self._id_file.read_text("ascii").strip()))
                shard = edge.EdgeShard.load(str(self._shard_folder), edge_config(self.dimensions, self._segment))
                state = json.loads(self._state_file.read_text("ascii"))
                self._scopes, self._removed = {int(each) for each in state["scopes"]}, int(state["removed"])
                self._points = shard.info().points_count
                return shard
        except IndexBroken:
            # The id or the shard is missing, or the shard is corrupt or has another configuration.
            return None

    def upsert(self, points: Sequence[Point]) -> None:
        for start in range(0, len(points), _BATCH):
            batch = points[start : start + _BATCH]
            # The mutex prevents other writes between reading versions and writing points.
            with self._mutex:
                newest = self._versions_of([point.id for point in batch])
                stored_count = len(newest)
                records: dict[str, edge.Point] = {}
                with self._reporting():
                    for point in batch:
                        if newest.get(point.id, point.version) <= point.version:
                            newest[point.id] = point.version
                            records[point.id] = _record(point)
                if records:
                    self._add_to_state({point.scope_id for point in batch}, stored_count)
                    self._update(edge.UpdateOperation.upsert_points(list(records.values())))
            failpoint("edge.between")

    def _add_to_state(self, scopes: Set[int], removed: int = 0) -> None:
        """Store the scopes of new points, and the number of removed or replaced points, before points are written."""
        if not removed and (scopes <= self._scopes or len(self._scopes) > _MAX_SCOPES):
            return
        self._store_state(self._scopes | scopes, self._removed + removed)

    def _store_state(self, scopes: Set[int], removed: int = 0) -> None:
        """Store the scopes of all points, and the number of removed points."""
        self._scopes, self._removed = {*scopes}, removed
        with self._reporting():
            draft = self._state_file.with_suffix(".new")
            draft.write_text(json.dumps({"scopes": sorted(scopes), "removed": removed}), "ascii")
            draft.replace(self._state_file)

    def written(self) -> int:
        return self._stored_counts()[0]

    def keep_written(self, writes: int) -> None:
        with self._mutex, self._using() as shard:
            if writes > self.written():
                draft = self._writes_file.with_suffix(".new")
                private_file(draft)
                draft.write_text(f"{writes} {shard.info().points_count}", "ascii")
                draft.replace(self._writes_file)

    def is_as_written(self) -> bool:
        with self._using() as shard:
            return shard.info().points_count == self._stored_counts()[1]

    def _stored_counts(self) -> tuple[int, int]:
        """Return the numbers of acknowledged batches and of points that are stored in the folder."""
        with self._reporting(), suppress(FileNotFoundError, ValueError):
            writes, points = self._writes_file.read_text("ascii").split()
            return int(writes), int(points)
        return 0, 0

    def _versions_of(self, ids: list[edge.PointId]) -> dict[str, int]:
        """Return the versions of existing points. A conditional write of Edge would take three times as long."""
        with self._using() as shard:
            records = shard.retrieve(ids, with_payload=[VERSION], with_vector=False)
        return {str(record.id): int((record.payload or {}).get(VERSION, 0)) for record in records}

    def delete(self, ids: Sequence[str]) -> None:
        if ids:
            # An id is invalid if the database is corrupt.
            with self._reporting():
                operation = edge.UpdateOperation.delete_points(list(ids))
            with self._mutex:
                self._add_to_state(set(), len(ids))
                self._update(operation)

    def query_sparse(
        self, vector: SparseVector, scope_ids: Sequence[int], limit: int, among: Sequence[str] | None = None
    ) -> list[Hit]:
        if not vector.indices or not scope_ids:
            return []
        wanted = edge.SparseVector(indices=vector.indices, values=vector.values)
        return self._query(edge.Query.Nearest(wanted, using=SPARSE), scope_ids, limit, among)

    def query_dense(
        self, vector: Sequence[float], scope_ids: Sequence[int], limit: int, among: Sequence[str] | None = None
    ) -> list[Hit]:
        if not self.dimensions or not scope_ids:
            return []
        return self._query(edge.Query.Nearest(as_floats(vector), using=DENSE), scope_ids, limit, among, _RESCORED)

    def _query(
        self,
        query: edge.Query,
        scope_ids: Sequence[int],
        limit: int,
        among: Sequence[str] | None,
        params: edge.SearchParams | None = None,
    ) -> list[Hit]:
        if among is not None and not among:
            return []
        if not self._mutex.acquire(timeout=_MAX_WAIT):
            raise self._busy()
        # These are the statements of `_using`: its context manager would take as long as the statements.
        try:
            if self._shard is None:
                raise self._closed()
            # Checking the scope of each point takes a third of the time of a dense query. Weighing terms over some
            # scopes takes most of the time of a sparse query. Both are skipped if the index never had points of other
            # scopes. Without this weighing, removed points count too, so that it is only skipped after few removals.
            scopes, over_scopes = _scope_filter(tuple(scope_ids))
            within: edge.Filter | None = scopes
            idf: edge.SearchParams | None = over_scopes
            if len(self._scopes) <= _MAX_SCOPES and self._scopes.issubset(scope_ids):
                within = None
                if self._removed <= _MAX_REMOVED * self._points:
                    idf = None
            if among is not None:
                within = _id_filter(within, among)
            request = edge.QueryRequest(
                limit=limit, query=query, filter=within, params=params or idf, with_payload=False
            )
            try:
                best = self._shard.query(request)
            except BaseException as error:
                self._report(error)
                raise
        finally:
            self._mutex.release()
        return [Hit(repr(hit)[_ID], hit.score) for hit in best]

    def term_weights(self, ids: Sequence[str], terms: Set[int]) -> dict[str, dict[int, float]]:
        if not self._mutex.acquire(timeout=_MAX_WAIT):
            raise self._busy()
        try:
            with self._using() as shard:
                records = shard.retrieve(list(ids), with_payload=False, with_vector=[SPARSE])
        finally:
            self._mutex.release()
        weights: dict[str, dict[int, float]] = {}
        wanted = frozenset(terms)
        # Edge returns records in the order of the request. Reading their ids would double the time.
        names = ids
        if len(records) < len(ids):
            names = [str(record.id) for record in records]
        for name, record in zip(names, records, strict=True):
            vectors = record.vector
            if not isinstance(vectors, dict):
                continue
            vector = vectors.get(SPARSE)
            if isinstance(vector, edge.SparseVector):
                indices = vector.indices
                common_terms = wanted.intersection(indices)
                weights[name] = {}
                if common_terms:
                    # The binding copies the values at each access.
                    values = vector.values
                    weights[name] = {term: values[indices.index(term)] for term in common_terms}
        return weights

    def versions(self) -> Iterator[tuple[str, int]]:
        offset: int | uuid.UUID | str | None = None
        while True:
            request = edge.ScrollRequest(offset=offset, limit=_PAGE, with_payload=[VERSION], with_vector=False)
            with self._using() as shard:
                records, offset = shard.scroll(request)
            for record in records:
                yield str(record.id), int((record.payload or {}).get(VERSION, 0))
            if offset is None:
                return

    def count(self, scope_ids: Sequence[int] | None = None) -> int:
        if scope_ids is not None and not scope_ids:
            return 0
        within = None
        if scope_ids is not None:
            within, _ = _scope_filter(tuple(scope_ids))
        # The count of `info` is not exact: after a kill, a point can be in two segments.
        with self._using() as shard:
            return shard.count(edge.CountRequest(exact=True, filter=within))

    def flush(self) -> None:
        with self._using() as shard:
            shard.flush()
            self._points = shard.info().points_count
            failpoint("edge.flushed")
            # `optimize` closes full segments, which takes the disk space of about two segments.
            if shutil.disk_usage(self.folder).free > _MIN_FREE + 4 * self._segment:
                shard.optimize()
        # Edge creates its files with the permissions that the umask allows.
        keep_private(self.folder)

    def compact(self) -> bool:
        with self._using() as shard:
            self._check_room(2 * sum(file.stat().st_blocks * 512 for file in self._shard_folder.rglob("*")))
            shard.flush()
            self._shard = None
            shard.close()
            try:
                vacuumed = edge.EdgeShard.load(
                    str(self._shard_folder), edge_config(self.dimensions, self._segment, vacuum=True)
                )
                vacuumed.optimize()
                vacuumed.close()
            finally:
                self._shard = self._load()
            if self._shard is None:
                raise OSError("it cannot be loaded after its segments were rewritten")
            request = edge.FacetRequest(key=SCOPE, limit=_MAX_SCOPES + 1, exact=True)
            self._store_state({int(each.value) for each in self._shard.facet(request).hits})
        keep_private(self.folder)
        return True

    def clear(self) -> None:
        if self._inherited:
            raise self._closed()
        with self._mutex, self._reporting():
            self._check_room(-_size(self._shard_folder))
            self._id_file.unlink(missing_ok=True)
            if self._shard is not None:
                self._shard.close()
                self._shard = None
            shutil.rmtree(self._shard_folder, ignore_errors=True)
            self._store_state(set())
            self._points = 0
            self._writes_file.unlink(missing_ok=True)
            private_folder(self._shard_folder)
            shard = edge.EdgeShard.create(str(self._shard_folder), edge_config(self.dimensions, self._segment))
            by_value = edge.IntegerIndexParams(lookup=True, range=False, memory=edge.Memory.Cold)
            shard.update(edge.UpdateOperation.create_field_index(SCOPE, by_value))
            shard.flush()
            self.id = str(uuid.uuid4())
            draft = self._id_file.with_suffix(".new")
            draft.write_text(self.id, "ascii")
            failpoint("edge.unnamed")
            draft.replace(self._id_file)
            self._shard = shard

    def close(self) -> None:
        with self._mutex:
            shard, self._shard = self._shard, None
            try:
                if shard is not None:
                    shard.close()
                    keep_private(self.folder)
            finally:
                self._lock.release()

    def disown(self, why: str) -> None:
        """Leave the shard to the parent process after a fork: closing the shard would write files."""
        keep(self._shard)
        self._shard = None
        self._mutex = RLock()
        self._inherited = why

    def _update(self, operation: edge.UpdateOperation) -> None:
        with self._using() as shard:
            self._check_room()
            shard.update(operation)

    @contextmanager
    def _using(self) -> Iterator[edge.EdgeShard]:
        with self._mutex:
            if self._shard is None:
                raise self._closed()
            with self._reporting():
                yield self._shard

    def _check_room(self, more: int = 0) -> None:
        """Check that the disk has `more` bytes of free space, in addition to `_MIN_FREE`.

        Raises:
            IndexUnavailable: The disk has less free space.
        """
        free, needed = shutil.disk_usage(self.folder).free, _MIN_FREE + more
        if free < needed:
            raise IndexUnavailable(
                f"{self.folder}: {free >> 20} MB are free on its disk, writing the index needs {needed >> 20}; stored "
                "data is intact, and new items are queued in the database: free some space, or move the index to "
                "another disk",
                path=str(self.folder),
                name="disk",
            )

    def _busy(self) -> IndexUnavailable:
        return IndexUnavailable(f"{self.folder}: the index is being rewritten or flushed; try again")

    def _closed(self) -> StoreClosed:
        return StoreClosed(f"{self.folder}: this index {self._inherited or 'was closed; open the memory again'}")

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._report(error)
            raise

    def _report(self, error: BaseException) -> None:
        """Raise `IndexBroken` for an error of the binding: an Exception, or a panic, which is only a BaseException."""
        if isinstance(error, IndexUnavailable):
            raise error
        if isinstance(error, Exception) or type(error).__name__ == _PANIC:
            raise IndexBroken(
                f"{self.folder}: the vector index failed ({error}); stored data is intact: check the disk, or close "
                "the memory and delete this folder, then the index is built again from the database",
                path=str(self.folder),
                name="index",
            ) from error


def _record(point: Point) -> edge.Point:
    vectors: dict[str, list[float] | edge.SparseVector | list[list[float]]] = {
        SPARSE: edge.SparseVector(indices=point.sparse.indices, values=point.sparse.values)
    }
    if point.dense is not None:
        vectors[DENSE] = as_floats(point.dense)
    return edge.Point(point.id, vectors, {SCOPE: point.scope_id, VERSION: point.version})


def _size(folder: Path) -> int:
    """Return the bytes that a folder takes on its disk; 0 if the system does not report them."""
    if os.name != "posix":
        return 0
    return sum(each.lstat().st_blocks * 512 for each in folder.rglob("*"))


def _id_filter(scopes: edge.Filter | None, ids: Sequence[str]) -> edge.Filter:
    """Return the filter of the points with these ids, in some scopes."""
    wanted = edge.HasIdCondition(set(ids))
    if scopes is None:
        return edge.Filter(must=[wanted])
    return edge.Filter(must=[wanted, scopes])


@lru_cache(maxsize=1024)
def _scope_filter(scope_ids: tuple[int, ...]) -> tuple[edge.Filter, edge.SearchParams]:
    """Return the filter of some scopes, and the parameters that weigh terms over these scopes."""
    # One condition per scope is faster than one condition that lists the scopes.
    scopes = edge.Filter(
        should=[edge.FieldCondition(key=SCOPE, match=edge.MatchValue(value=scope)) for scope in scope_ids]
    )
    return scopes, edge.SearchParams(idf=edge.IdfParams(corpus=scopes))
