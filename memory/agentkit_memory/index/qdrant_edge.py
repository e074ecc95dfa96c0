"""Qdrant Edge: a vector index in this process, in a folder. The only file that knows its API, which is beta."""

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
from typing import TYPE_CHECKING

from agentkit_memory.errors import IndexBroken, IndexUnavailable, StoreClosed, StoreUnavailable
from agentkit_memory.index.folder_lock import FolderLock
from agentkit_memory.index.vector_index import DENSE, SCOPE, SPARSE, VERSION, Hit, Point, as_floats
from agentkit_memory.process.failpoints import failpoint
from agentkit_memory.process.forks import keep, track
from agentkit_memory.terms.bm25_vectors import SparseVector
from agentkit_prompts.system.private_files import keep_private, private_file, private_folder

if TYPE_CHECKING:
    import qdrant_edge as edge
else:
    try:
        import qdrant_edge as edge
    except ImportError as missing:
        raise StoreUnavailable("recall needs Qdrant Edge: install the extra `vector`", name="vector") from missing

__all__ = ["EdgeIndex"]

_PAGE = 4096
_BATCH = 256
_MAX_SCANNED = 1000
"""Points of a scope up to which all of them are scored; for more, posting lists are faster."""
_ID = slice(len('ScoredPoint(id="'), len('ScoredPoint(id="') + 36)
"""Where the repr of a hit has its id: its attribute, which makes a UUID of it, takes four times as long."""
_RESCORED = edge.SearchParams(quantization=edge.QuantizationSearchParams(rescore=True, oversampling=4.0))
_MIN_QUANTIZED = 64
"""Dimensions from which on two bits each distinguish vectors."""
_PANIC = "PanicException"
_SEGMENT = 32 << 20
"""Bytes of vectors after which a segment is closed; until then its posting lists are in memory."""
_MAX_SEGMENTS = 100
"""With more segments, the smallest are merged."""
_MAX_SCOPES = 64
"""Up to so many, the scopes of an index are kept in memory."""
_MAX_REMOVED = 0.02
"""Share of the points up to which removed ones are left in the weights of terms."""
_MIN_DELETED = 1e-9
"""Share of deleted points from which on a segment is rewritten: any at all."""
_MAX_WAIT = 0.5
"""Seconds that a query waits for what else is done with the shard."""
_MIN_FREE = 64 << 20
"""Bytes that must be free to write. Edge maps sparse files, and filling one on a full disk kills the process."""


class EdgeIndex:
    """A Qdrant Edge shard: BM25 vectors and, with `dimensions`, dense ones beside them.

    A shard that is unfinished or cannot be loaded is replaced by an empty one, to be filled again from SQL.

    Only the segment that is written to is held in memory; when it is full it is closed, which takes half a second,
    and read from its files from then on. So memory does not grow with what is indexed. `segment` is its size in bytes.

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
        self._name = folder / "id"  # written last: without it the shard is not finished
        self._held = folder / "held"
        self._writes = folder / "writes"
        self._mutex = RLock()
        self._inherited = ""
        self._lock = FolderLock(folder)
        self._shard: edge.EdgeShard | None = None
        self._scopes: set[int] = set()
        """Every scope that points were of since the shard was made or rewritten: removed points still count where terms
        are weighed without a filter. Incomplete once there are more than `_MAX_SCOPES`."""
        self._removed = 0
        """Points that were removed or replaced since then."""
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
        try:
            with self._reporting():
                self.id = str(uuid.UUID(self._name.read_text("ascii").strip()))
                shard = edge.EdgeShard.load(str(self._shard_folder), self._config())
                held = json.loads(self._held.read_text("ascii"))
                self._scopes, self._removed = {int(each) for each in held["scopes"]}, int(held["removed"])
                self._points = shard.info().points_count
                return shard
        except IndexBroken:
            # No name, no shard, a damaged one, or one of another configuration.
            return None

    def upsert(self, points: Sequence[Point]) -> None:
        # In small batches, as Edge holds the interpreter lock meanwhile.
        for start in range(0, len(points), _BATCH):
            some = points[start : start + _BATCH]
            # No other write may come between reading versions and writing.
            with self._mutex:
                newest = self._versions_of([point.id for point in some])
                known = len(newest)
                made: dict[str, edge.Point] = {}
                for point in some:
                    if newest.get(point.id, point.version) <= point.version:
                        newest[point.id] = point.version
                        with self._reporting():
                            made[point.id] = self._made(point)
                if made:
                    self._note({point.scope_id for point in some}, known)
                    self._update(edge.UpdateOperation.upsert_points(list(made.values())))
            failpoint("edge.between")

    def _note(self, scopes: Set[int], removed: int = 0) -> None:
        """Write down what the shard is about to hold, and how many points of it are about to be removed or replaced."""
        if not removed and (scopes <= self._scopes or len(self._scopes) > _MAX_SCOPES):
            return
        self._holds(self._scopes | scopes, self._removed + removed)

    def _holds(self, scopes: Set[int], removed: int = 0) -> None:
        """Write down what the shard holds."""
        self._scopes, self._removed = {*scopes}, removed
        with self._reporting():
            draft = self._held.with_suffix(".new")
            draft.write_text(json.dumps({"scopes": sorted(scopes), "removed": removed}), "ascii")
            draft.replace(self._held)

    def written(self) -> int:
        with self._reporting(), suppress(FileNotFoundError, ValueError):
            return int(self._writes.read_text("ascii"))
        return 0

    def keep_written(self, writes: int) -> None:
        with self._mutex, self._reporting():
            if writes > self.written():
                draft = self._writes.with_suffix(".new")
                private_file(draft)
                draft.write_text(str(writes), "ascii")
                draft.replace(self._writes)

    def _versions_of(self, ids: list[edge.PointId]) -> dict[str, int]:
        """Return the versions of existing points. Edge's own condition takes three times as long."""
        with self._using() as shard:
            records = shard.retrieve(ids, with_payload=[VERSION], with_vector=False)
        return {str(record.id): int((record.payload or {}).get(VERSION, 0)) for record in records}

    def _made(self, point: Point) -> edge.Point:
        vectors: dict[str, list[float] | edge.SparseVector | list[list[float]]] = {
            SPARSE: edge.SparseVector(indices=point.sparse.indices, values=point.sparse.values)
        }
        if point.dense is not None:
            vectors[DENSE] = as_floats(point.dense)
        return edge.Point(point.id, vectors, {SCOPE: point.scope_id, VERSION: point.version})

    def delete(self, ids: Sequence[str]) -> None:
        if ids:
            with self._reporting():  # an id may be invalid if the database is damaged
                operation = edge.UpdateOperation.delete_points(list(ids))
            with self._mutex:
                self._note(set(), len(ids))
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
        try:  # as `_using` does, in half the time
            if self._shard is None:
                raise self._closed()
            # Checking the scope of each point takes a third of a dense query, and weighing terms over these scopes only
            # most of a sparse one: skipped where no point was ever of another scope, which could have an influence. Nor
            # may many have been removed, which still count.
            scopes, over_scopes = _within(tuple(scope_ids))
            within: edge.Filter | None = scopes
            over_them: edge.SearchParams | None = over_scopes
            if len(self._scopes) <= _MAX_SCOPES and self._scopes.issubset(scope_ids):
                within = None
                if self._removed <= _MAX_REMOVED * self._points:
                    over_them = None
            if among is not None:
                named = edge.HasIdCondition(set(among))
                within = edge.Filter(must=[named] if within is None else [named, within])
            request = edge.QueryRequest(
                limit=limit, query=query, filter=within, params=params or over_them, with_payload=False
            )
            try:
                best = self._shard.query(request)
            except BaseException as error:
                self._report(error)
                raise
        finally:
            self._mutex.release()
        return [Hit(repr(found)[_ID], found.score) for found in best]

    def term_weights(self, ids: Sequence[str], terms: Set[int]) -> dict[str, dict[int, float]]:
        if not self._mutex.acquire(timeout=_MAX_WAIT):
            raise self._busy()
        try:
            with self._using() as shard:
                records = shard.retrieve(list(ids), with_payload=False, with_vector=[SPARSE])
        finally:
            self._mutex.release()
        found: dict[str, dict[int, float]] = {}
        wanted = frozenset(terms)
        # They come in the order asked for; reading the id of each takes as long as the rest.
        names = ids if len(records) == len(ids) else [str(record.id) for record in records]
        for name, record in zip(names, records, strict=True):
            held = record.vector
            vector = held.get(SPARSE) if isinstance(held, dict) else None
            if isinstance(vector, edge.SparseVector):
                indices = vector.indices
                shared = wanted.intersection(indices)
                if shared:
                    values = vector.values
                    found[name] = {term: values[indices.index(term)] for term in shared}
                else:
                    found[name] = {}
        return found

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
        within = None if scope_ids is None else _within(tuple(scope_ids))[0]
        with self._using() as shard:
            return shard.count(edge.CountRequest(exact=True, filter=within))

    def flush(self) -> None:
        with self._using() as shard:
            shard.flush()
            self._points = shard.info().points_count
            failpoint("edge.flushed")
            # Closing a segment takes about two of them; mostly there is nothing to do.
            if shutil.disk_usage(self.folder).free > _MIN_FREE + 4 * self._segment:
                shard.optimize()
        # Edge makes its files with the rights that the umask leaves.
        keep_private(self.folder)

    def compact(self) -> bool:
        with self._using() as shard:
            self._check_room(2 * sum(file.stat().st_blocks * 512 for file in self._shard_folder.rglob("*")))
            shard.flush()
            self._shard = None
            shard.close()
            try:
                once = edge.EdgeShard.load(str(self._shard_folder), self._config(vacuum=True))
                once.optimize()
                once.close()
            finally:
                self._shard = self._load()
            if self._shard is None:
                raise OSError("it cannot be loaded after its segments were rewritten")
            few = edge.FacetRequest(key=SCOPE, limit=_MAX_SCOPES + 1, exact=True)
            self._holds({int(each.value) for each in self._shard.facet(few).hits})
        keep_private(self.folder)
        return True

    def clear(self) -> None:
        if self._inherited:
            raise self._closed()
        with self._mutex, self._reporting():
            self._check_room(-_size(self._shard_folder))
            self._name.unlink(missing_ok=True)
            if self._shard is not None:
                self._shard.close()
                self._shard = None
            shutil.rmtree(self._shard_folder, ignore_errors=True)
            self._holds(set())
            self._points = 0
            self._writes.unlink(missing_ok=True)
            private_folder(self._shard_folder)
            shard = edge.EdgeShard.create(str(self._shard_folder), self._config())
            by_value = edge.IntegerIndexParams(lookup=True, range=False, memory=edge.Memory.Cold)
            shard.update(edge.UpdateOperation.create_field_index(SCOPE, by_value))
            shard.flush()
            self.id = str(uuid.uuid4())
            draft = self._name.with_suffix(".new")
            draft.write_text(self.id, "ascii")
            failpoint("edge.unnamed")
            draft.replace(self._name)
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
        """Leave the shard to the parent of this process: closing it writes files."""
        keep(self._shard)
        self._shard = None
        self._mutex = RLock()
        self._inherited = why

    def _config(self, *, vacuum: bool = False) -> edge.EdgeConfig:
        dense = None
        if self.dimensions:
            # Each number is quantized to two bits; four times as many hits as wanted are rescored with the full
            # numbers. That takes three fifths of the memory of bytes, and finds the same texts. No graph: building one
            # takes minutes, in which Edge holds the interpreter lock.
            two_bits = edge.TurboQuantQuantizationConfig(bits=edge.TurboQuantBitSize.Bits2, memory=edge.Memory.Cached)
            dense = edge.EdgeVectorParams(
                self.dimensions,
                edge.Distance.Cosine,
                quantization_config=two_bits if self.dimensions >= _MIN_QUANTIZED else None,
                hnsw_config=edge.HnswIndexConfig(m=0, ef_construct=1, full_scan_threshold=_MAX_SCANNED),
            )
        sparse = edge.EdgeSparseVectorParams(
            full_scan_threshold=_MAX_SCANNED, modifier=edge.Modifier.Idf, memory=edge.Memory.Cold
        )
        return edge.EdgeConfig(
            vectors=None if dense is None else {DENSE: dense},
            sparse_vectors={SPARSE: sparse},
            optimizers=edge.EdgeOptimizersConfig(
                deleted_threshold=_MIN_DELETED if vacuum else None,
                vacuum_min_vector_number=1 if vacuum else None,
                indexing_threshold=self._segment >> 10,
                default_segment_number=_MAX_SEGMENTS,
            ),
            max_search_threads=1,  # a query takes a millisecond or two: less than handing it to threads
            id_tracker_memory=edge.Memory.Cold,
            wal_enabled=False,  # what was not flushed is written again from the outbox
        )

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
        free, needed = shutil.disk_usage(self.folder).free, _MIN_FREE + more
        if free < needed:
            raise IndexUnavailable(
                f"{self.folder}: {free >> 20} MB are free on its disk, an index is written while there are "
                f"{needed >> 20}; what is stored is intact, what is to be indexed is queued in the database: free some "
                "space, or give the index a folder on another disk",
                path=str(self.folder),
                name="disk",
            )

    def _busy(self) -> IndexUnavailable:
        return IndexUnavailable(f"{self.folder}: the index is being rewritten or flushed; ask again")

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
        """Raise `IndexBroken` for what the binding raises: bare Exceptions, and panics, which are BaseExceptions."""
        if isinstance(error, IndexUnavailable):
            raise error
        if isinstance(error, Exception) or type(error).__name__ == _PANIC:
            raise IndexBroken(
                f"{self.folder}: the vector index failed ({error}); what is stored is intact: check the disk, or close "
                "the memory and delete this folder, then the index is built again from the database",
                path=str(self.folder),
                name="index",
            ) from error


def _size(folder: Path) -> int:
    """Return how many bytes a folder takes on its disk."""
    return sum(each.lstat().st_blocks * 512 for each in folder.rglob("*")) if os.name == "posix" else 0


@lru_cache(maxsize=1024)
def _within(scope_ids: tuple[int, ...]) -> tuple[edge.Filter, edge.SearchParams]:
    """Return the filter of some scopes, and the parameters that weigh terms over them."""
    # Alternatives are faster than one condition that lists them.
    scopes = edge.Filter(
        should=[edge.FieldCondition(key=SCOPE, match=edge.MatchValue(value=scope)) for scope in scope_ids]
    )
    return scopes, edge.SearchParams(idf=edge.IdfParams(corpus=scopes))
