"""`Indexes`: the indexes of one database, each opened at its first use and synchronised with SQL."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING

from sqlalchemy import Connection, bindparam, func, select, update

from agentkit_memory.database.engine import Database
from agentkit_memory.database.tables import vector_state
from agentkit_memory.errors import IndexBroken, IndexUnavailable, StoreClosed, StoreError
from agentkit_memory.index.compare import compare
from agentkit_memory.index.index_worker import IndexWorker
from agentkit_memory.index.vector_index import CountsWrites, IndexOpener, VectorIndex
from agentkit_memory.process.failpoints import failpoint
from agentkit_memory.process.forks import keep, track
from agentkit_memory.store.outbox import WORTH_INDEXING, hold_spaces, requeue, reset
from agentkit_memory.store.records import Verification
from agentkit_memory.store.spaces import (
    Space,
    active_space,
    claim_space,
    find_space,
    forget_space,
    index_writes,
    known_spaces,
    no_longer_read,
)

if TYPE_CHECKING:
    from agentkit_memory.embedders.encoder import Encoder

_LOG = logging.getLogger("agentkit.memory")
_OLDER = "the database is older than its index, as from a backup: the index is built again from the database"

_MAX_WAIT = 0.5
"""Maximum seconds that a reader waits while another thread opens the index."""
_MAX_CLEARING = 60.0
"""Seconds in which a rebuild empties an index: until then, no worker writes items to it."""

_state = vector_state.c
_this_space = _state.space == bindparam("this")
_COUNTS = select(func.count().filter(_state.have > 0), func.count().filter(_state.want != _state.have)).where(
    _this_space
)
_LEASED = select(_state.item_id).where(_this_space, _state.want != _state.have, _state.leased_by.is_not(None)).limit(1)
_FREE_LEASES = (
    update(vector_state).where(_this_space, _state.leased_by.is_not(None)).values(leased_by=None, leased_until=None)
)


class Indexes:
    """Opens, fills, checks and closes the indexes of the spaces of a database. Threads may share the object.

    `encoder` returns the encoder of a model, by the name of the model.
    """

    def __init__(
        self, database: Database, opener: IndexOpener, encoder: Callable[[str], Encoder] | None = None
    ) -> None:
        self.database = database
        self._opener = opener
        self._encoder = encoder
        self._lock = RLock()
        self._open: dict[str, tuple[Space, VectorIndex]] = {}
        self._unchecked: set[str] = set()
        """Spaces whose index may have lost points: they were not counted when it was opened, or items were waiting."""
        self._closed = ""
        track(self)

    def active(self) -> Space:
        """Return the active space, which recalls read."""
        with self.database.read() as connection:
            return active_space(connection)

    def spaces(self, *states: str) -> list[Space]:
        """Return the spaces in these states; items are written to spaces that are `active` or `building`."""
        with self.database.read() as connection:
            return known_spaces(connection, *states)

    def get(self, space: Space | None = None) -> VectorIndex:
        """Return the index of a space (by default the active space), open and bound to this database.

        Raises:
            IndexUnavailable: Another process owns the index.
            IndexBroken: The index cannot be opened, or contains the points of another database.
        """
        return self._get(space)[1]

    def ready(self, space: Space | None = None) -> VectorIndex | None:
        """Return the open index of a space (by default the active space); None if SQL is not bound to this index.

        Nothing is written. If another thread opens the index, the call waits for up to `_MAX_WAIT` seconds.

        Raises:
            IndexUnavailable: Another process owns the index, or another thread takes long to open it.
            IndexBroken: The index cannot be opened.
        """
        if not self._lock.acquire(timeout=_MAX_WAIT):
            raise IndexUnavailable(
                f"{self.database.where}: the index is being opened; try again", path=self.database.where
            )
        try:
            pair = self._find(space, attach=False)
        finally:
            self._lock.release()
        if pair is None:
            return None
        return pair[1]

    def worker(
        self,
        space: Space | None = None,
        *,
        lease: float = 60.0,
        batch: int | None = None,
        removals: bool = False,
        scope: int | None = None,
    ) -> IndexWorker:
        """Return a new worker for the outbox of a space (by default the active space); each thread needs a worker."""
        # With the lock, because a rebuild changes the id of the index before the id in the database.
        with self._lock:
            space, index = self._get(space)
            encoder = None
            if space.model and self._encoder is not None:
                encoder = partial(self._encoder, space.model)
            if batch is None:
                batch = WORTH_INDEXING
                # Embedding takes long: a batch with a model is small enough for the time of a lease.
                if space.model:
                    batch = 512
            return IndexWorker(
                self.database,
                index,
                space.name,
                encoder=encoder,
                batch=batch,
                lease=lease,
                removals=removals,
                scope=scope,
            )

    def opened(self, space: Space) -> VectorIndex | None:
        """Return the index of a space if it is open, without waiting."""
        pair = self._open.get(space.name)
        if pair is None:
            return None
        return pair[1]

    def catch_up(
        self, space: Space | None = None, *, patience: float = 5.0, removals: bool = False, scope: int | None = None
    ) -> VectorIndex:
        """Process the outbox, and return the index.

        With `removals`, only items to remove are processed, so that no text is embedded; with `scope`, only items of
        that scope. The call waits for items that other workers have leased, up to `patience` seconds, but not for
        failed items in a pause.
        """
        # The call has a separate worker, because a lease belongs to one worker.
        worker = self.worker(space, removals=removals, scope=scope)
        deadline = time.monotonic() + patience
        while True:
            while worker.run_once():
                pass
            if not worker.others or time.monotonic() >= deadline:
                return worker.index
            time.sleep(0.005)

    def verify(self, space: Space | None = None) -> Verification:
        """Compare the index of a space with SQL."""
        space, index = self._get(space)
        return compare(self.database, index, space.name, self.database.clock())

    def repair(self) -> None:
        """Repair the differences that `verify` reports."""
        space, index = self._get(None)
        compare(self.database, index, space.name, self.database.clock(), repairing=True)
        self.catch_up(space)

    def rebuild(self) -> None:
        """Empty the index of the active space and fill it again from SQL."""
        with self._lock:
            space, index = self._get(None)
            # Before the index is emptied: recalls search for the words of queued items.
            until = self.database.clock() + _MAX_CLEARING
            self.database.change(lambda connection: requeue(connection, space.name, until))
            failpoint("rebuild.queued")
            try:
                index.clear()
                failpoint("rebuild.cleared")
                with self.database.write() as connection:
                    hold_spaces(connection, change=True)
                    claim_space(connection, space, index.id)
                    reset(connection, space.name, self.database.clock())
            except IndexUnavailable:
                # The index was not changed, or the server can be asked again: the index stays open.
                self.database.change(lambda connection: connection.execute(_FREE_LEASES, {"this": space.name}))
                raise
            except BaseException:
                # The index may be half empty or unbound: the next use opens it again.
                self._open.pop(space.name, None)
                index.close()
                raise
            failpoint("rebuild.claimed")
        self.catch_up(space)

    def close_all(self) -> None:
        """Close the open indexes, for example after a restore. The next use opens them again."""
        with self._lock:
            while self._open:
                self._open.popitem()[1][1].close()

    def compact(self) -> bool:
        """Rewrite the files of the indexes without removed points; return True if no removed point is left."""
        undropped = self.sweep()
        rewritten = [self.catch_up(space, removals=True).compact() for space in self.spaces("active", "building")]
        return all(rewritten) and not undropped

    @property
    def is_open(self) -> bool:
        """True if the index of at least one space is open."""
        return bool(self._open)

    @property
    def closed(self) -> bool:
        """True if `close` was called. After a change of the model, only a single index is closed."""
        return bool(self._closed)

    def check_again(self, space: Space) -> None:
        """Search an index for lost points, if its points were not counted when it was opened."""
        opened = self.opened(space)
        if space.name in self._unchecked and opened is not None:
            self._unchecked.discard(space.name)
            self._check(space, opened, counting=True)

    def sweep(self) -> list[str]:
        """Drop the retired spaces; return the names of the spaces that another process still uses."""
        undropped = []
        for space in self.spaces("retired"):
            try:
                self._drop(space)
            except IndexUnavailable:
                undropped.append(space.name)
        return undropped

    def _drop(self, space: Space) -> None:
        """Empty the index of a retired space, then delete its rows in SQL."""
        with self._lock:
            opened = self._open.pop(space.name, None)
            if opened is None:
                index = self._opener(space.name, space.dimensions)
            else:
                _, index = opened
            try:
                index.clear()
            finally:
                index.close()
        failpoint("spaces.dropped")
        forget_space(self.database, space)

    def close(self) -> None:
        """Close every index. A second call does nothing."""
        with self._lock:
            self._closed = self._closed or "was closed; open it again"
            self.close_all()

    def disown(self, why: str) -> None:
        """Leave every index to the parent process after a fork."""
        keep(self._open)
        self._open = {}
        self._lock = RLock()
        self._closed = self._closed or why

    def _get(self, space: Space | None) -> tuple[Space, VectorIndex]:
        with self._lock:
            pair = self._find(space, attach=True)
        assert pair is not None
        return pair

    def _find(self, space: Space | None, *, attach: bool) -> tuple[Space, VectorIndex] | None:
        """Return the index of a space, which is opened if necessary. The caller holds the lock.

        Without `attach` nothing is written, and None is returned if SQL is not bound to this index.
        """
        if self._closed:
            raise StoreClosed(
                f"{self.database.where}: this memory {self._closed}", path=self.database.where, name="memory"
            )
        if space is None:
            space = self.active()
        pair = self._open.get(space.name)
        if pair is not None:
            return pair
        self._close_retired()
        index = self._opener(space.name, space.dimensions)
        try:
            is_bound = self._is_bound(space, index)
            if not is_bound and not attach:
                index.close()
                return None
            is_bound = is_bound or self._claim(space, index)
            failpoint("index.attached")
            if is_bound and not index.shared:
                self._check(space, index)
        except BaseException:
            index.close()
            raise
        pair = self._open[space.name] = space, index
        if space.state == "active" and attach:
            # If retired spaces cannot be dropped now, the next opening drops them.
            with suppress(StoreError):
                self.sweep()
        return pair

    def _close_retired(self) -> None:
        """Close the indexes of retired spaces, so that the process that changed the model can drop them."""
        written = {each.name for each in self.spaces("active", "building")}
        for name in [name for name in self._open if name not in written]:
            self._open.pop(name)[1].close()

    def _is_bound(self, space: Space, index: VectorIndex) -> bool:
        """Return True if the outbox is bound to this index, both are up to date, and no old lease is to be released."""
        with self.database.read() as connection:
            stored = find_space(connection, space.name)
            if stored is not None and self._ahead(connection, stored, index):
                return False
            is_leased = not index.shared and connection.scalar(_LEASED, {"this": space.name}) is not None
        if stored is None or stored.state == "retired" or is_leased:
            return False
        return stored.index_id == index.id

    def _claim(self, space: Space, index: VectorIndex) -> bool:
        """Bind the outbox to an index; return True if it was bound to it before, else queue all items again."""
        points = index.count()
        with self.database.write() as connection:
            hold_spaces(connection, change=True)
            stored = find_space(connection, space.name)
            # A new store has no spaces. In another store, the missing space was dropped.
            is_dropped = stored is None and bool(known_spaces(connection))
            if is_dropped or (stored is not None and stored.state == "retired"):
                raise no_longer_read(self.database.where, space.name)
            ahead = 0
            if stored is not None:
                ahead = self._ahead(connection, stored, index)
                if stored.index_id == index.id and ahead <= 0:
                    if not index.shared:
                        # This process owns the index alone, so the workers that held leases have ended.
                        connection.execute(_FREE_LEASES, {"this": space.name})
                    return True
            if ahead:
                _LOG.warning("%s: %s", self.database.where, _OLDER)
            if points and index.shared:
                raise IndexBroken(
                    f"{self.database.where}: the index of space {space.name!r} on the server contains {points} points "
                    "of another database; name another collection or database, or delete that index",
                    name=space.name,
                    value=points,
                )
            if points:
                index.clear()
            failpoint("index.cleared")
            claim_space(connection, stored or space, index.id)
            reset(connection, space.name, self.database.clock())
        return False

    @staticmethod
    def _ahead(connection: Connection, space: Space, index: VectorIndex) -> int:
        """Return the number of batches of the index that SQL has not counted; negative for an old copy of the index."""
        if space.index_id != index.id or not isinstance(index, CountsWrites):
            return 0
        return index.written() - index_writes(connection, space.name)

    def _check(self, space: Space, index: VectorIndex, *, counting: bool = False) -> None:
        """Repair an index that has lost or extra points, for example in a corrupt folder or after a restore.

        An index that is as its last batch left it is counted later, by an idle worker: counting reads every row.
        """
        with self.database.read() as connection:
            writes = index_writes(connection, space.name)
        is_doubtful = False
        if isinstance(index, CountsWrites):
            is_doubtful = index.written() != writes
            if not counting and not is_doubtful and index.is_as_written():
                self._unchecked.add(space.name)
                return
        with self.database.read() as connection:
            indexed, waiting = connection.execute(_COUNTS, {"this": space.name}).one()
        if waiting:
            self._unchecked.add(space.name)
        if is_doubtful or abs(index.count() - indexed) > waiting:
            compare(self.database, index, space.name, self.database.clock(), repairing=True)
        if is_doubtful and isinstance(index, CountsWrites):
            index.keep_written(writes)
