"""`IndexWorker`: writes the items that wait in the outbox of a space to its index. Many workers may run at once.

A worker leases rows of the outbox, computes vectors, writes and flushes the index, and acknowledges the rows. After
a crash, a write may be repeated, but no write is lost. An expired lease may be taken over. A worker that lost its lease
queues the items again, since it may have overwritten a newer version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Row, Select, Update, bindparam, case, delete, false, or_, select, tuple_, update

from agentkit_memory.checks import is_whole
from agentkit_memory.database.engine import Database, upserts
from agentkit_memory.database.rows import is_decoded, is_decoded_text, raw_rows
from agentkit_memory.database.tables import items, vector_spaces, vector_state
from agentkit_memory.embedders.encoder import MAX_IMAGES, vector_name
from agentkit_memory.errors import EmbedderError, IndexUnavailable, StoreClosed
from agentkit_memory.index.vector_index import CountsWrites, Point, VectorIndex, is_point_id
from agentkit_memory.process.failpoints import failpoint
from agentkit_memory.store.image_rows import read_images
from agentkit_memory.store.item_rows import IMAGE, in_batches
from agentkit_memory.store.item_text import ITEM_TEXT
from agentkit_memory.store.outbox import (
    ALL_DONE,
    DONE,
    FAILED,
    HELD,
    MAX_LEASE,
    RELEASE,
    RENEW,
    retry_pause,
    worker_name,
)
from agentkit_memory.terms.bm25_vectors import document_vector, indexed_text

if TYPE_CHECKING:
    from agentkit_memory.embedders.encoder import Encoder
    from agentkit_prompts.context.parts import Image

_state = vector_state.c
_this_space = _state.space == bindparam("this")
_mine = (_this_space, _state.want != _state.have, _state.leased_by == bindparam("me"))
_owner = select(vector_spaces.c.index_id).where(vector_spaces.c.space == bindparam("this")).scalar_subquery()
_free_rows = (
    select(_state.item_id, _state.space)
    .where(
        _this_space,
        _state.want != _state.have,
        or_(
            _state.leased_until.is_(None),
            _state.leased_until <= bindparam("now"),
            _state.leased_until > bindparam("now") + MAX_LEASE,
        ),
    )
    .order_by(_state.item_id)
    .limit(bindparam("most"))
)
_free_removals = _free_rows.where(_state.want < 0)
_free_of_scope = _free_rows.where(_state.scope_id == bindparam("only"))


def _lease(free: Select[str, str]) -> Update:
    """Return the statement that leases the rows of a query."""
    # A table expression is evaluated once; a subquery may be evaluated for each row.
    taken = free.with_for_update(skip_locked=True).cte("taken")
    return (
        update(vector_state)
        .where(tuple_(_state.item_id, _state.space).in_(select(taken)))
        .values(leased_by=bindparam("me"), leased_until=bindparam("until"))
    )


def _statements(free: Select[str, str], held: Select[str]) -> tuple[Select[str | None, bool, bool], Update]:
    """Return the statement that looks for rows to process, and the statement that leases these rows."""
    # If a row is free, leases are not searched: that would read all waiting rows.
    is_free = free.exists()
    return select(_owner, is_free, case((is_free, false()), else_=held.exists())), _lease(free)


_LEASED = (
    select(
        *_state["item_id", "want", "attempts"], items.c.title, ITEM_TEXT, *items.c["scope_id", "kind", "document_id"]
    )
    .outerjoin(items, items.c.id == _state.item_id)
    .where(*_mine)
    .order_by(_state.item_id)
)
_FORGET = delete(vector_state).where(_state.item_id == bindparam("item"), _this_space, _state.want == bindparam("done"))
_COUNT_WRITE = (
    update(vector_spaces)
    .where(vector_spaces.c.space == bindparam("this"), vector_spaces.c.index_id == bindparam("index"))
    .values(writes=vector_spaces.c.writes + 1)
    .returning(vector_spaces.c.writes, vector_spaces.c.state)
)
_STATE = select(vector_spaces.c.state).where(vector_spaces.c.space == bindparam("this")).with_for_update(read=True)
"""State of the space, locked until the transaction ends."""
_REWRITE = {"want": case((_state.want > 0, _state.want + 1), else_=_state.want - 1)}
_QUEUE_AGAIN = upserts(vector_state, _REWRITE)
"""Inserts the removal of an item or, if the row of the item exists, increases its target version."""
_held_rows = select(_state.item_id).where(
    _this_space, _state.want != _state.have, _state.leased_by.is_not(None), _state.leased_until > bindparam("now")
)
_ANY = _statements(_free_rows, _held_rows)
_REMOVALS = _statements(_free_removals, _held_rows.where(_state.want < 0))
_OF_SCOPE = _statements(_free_of_scope, _held_rows.where(_state.scope_id == bindparam("only")))


_NO_VERSION = "it is corrupt: the version in its row of the outbox is not a number"


@dataclass(slots=True)
class _Task:
    """A leased row of the outbox, with the content of its item."""

    item: str
    want: int
    attempts: int
    text: str | None
    """Text to index; None to remove the item."""
    scope_id: int
    image: str = ""
    """Id of the image document if the text is an alt text, else empty."""
    embedded: str = ""
    """Name of the vector of the text or the image; empty until it is requested."""
    dense: Sequence[float] | None = None
    problem: str = ""
    is_point: bool = True
    """False if the id or the version is corrupt, so that no index accepts the item."""


def _task(row: Sequence[Any]) -> _Task | None:
    """Return the task of a leased row; None if the driver cannot decode the id."""
    # Attributes of a row take longer than its columns in order.
    item, want, attempts, title, content, scope_id, kind, document_id = row
    if not is_decoded(item):
        return None
    # A corrupt number of tries is replaced after this try.
    if not is_whole(attempts):
        attempts = 0
    if not is_whole(want):
        return _Task(item, want, attempts, None, scope_id, problem=_NO_VERSION, is_point=False)
    text: str | None = None
    if want > 0 and is_decoded_text(title) and is_decoded_text(content) and isinstance(scope_id, int):
        text = indexed_text(title, content)
    task = _Task(item, want, attempts, text, scope_id, is_point=is_point_id(item))
    if kind == IMAGE:
        task.image = document_id
    if want > 0 and not task.is_point:
        task.problem = "it is corrupt: its id is not a UUID, and no index takes it"
    return task


class IndexWorker:
    """Processes the outbox of one space, at most `batch` items at once, which are leased for `lease` seconds.

    `encoder` returns the encoder of the model, and is required if the index has dimensions. With `removals`, only items
    to remove are processed, so that nothing is embedded; with `scope`, only items of that scope.
    """

    def __init__(
        self,
        database: Database,
        index: VectorIndex,
        space: str,
        *,
        encoder: Callable[[], Encoder] | None = None,
        batch: int = 512,
        lease: float = 60.0,
        removals: bool = False,
        scope: int | None = None,
    ) -> None:
        self.name = worker_name()
        """Name of the worker in its leases."""
        self._database = database
        self.index = index
        self._space = space
        self._encoder = encoder
        self._batch = batch
        self._lease = lease
        self._look, self._lease_rows = _ANY
        self._only: dict[str, int] = {}
        if removals:
            self._look, self._lease_rows = _REMOVALS
        elif scope is not None:
            self._look, self._lease_rows = _OF_SCOPE
            self._only = {"only": scope}
        self._who = {"this": space, "me": self.name}
        self._owner: str | None = index.id
        """Id of the index that the database was bound to at the latest look."""
        self.others = False
        """True if other workers held leases of this space, and no item was free, when `run_once` was called last."""

    def run_once(self) -> int:
        """Lease some items, bring the index to their target state and return their number.

        An item whose text cannot be embedded is indexed for BM25, and is tried again after growing pauses.

        Raises:
            IndexUnavailable: The database refers to another index of this space now.
            IndexBroken: The index failed. The items are free for the next try.
        """
        started, taken = self._take()
        if not taken:
            return 0
        tasks = [task for task in taken if task.is_point]
        corrupt = [task for task in taken if not task.is_point]
        try:
            failpoint("worker.leased")
            self._vectorise(tasks)
            failpoint("worker.embedded")
            # Leases only expire while a model is slow.
            if self._encoder is not None and self._database.clock() - started > self._lease / 3:
                tasks = self._renew(tasks)
            self._write(tasks)
        except BaseException:
            self._database.change(lambda connection: connection.execute(RELEASE, self._who))
            raise
        self._acknowledge(tasks + corrupt)
        failpoint("worker.acknowledged")
        return len(tasks) + len(corrupt)

    def _take(self) -> tuple[float, list[_Task]]:
        """Lease items; return the time of the lease, and the items."""
        now = self._database.clock()
        # The outbox is read first: it is usually empty, and then no write lock is needed.
        look = {"this": self._space, "now": now, "most": self._batch, **self._only}
        with self._database.read() as connection:
            owner, free, self.others = connection.execute(self._look, look).one()
        if owner != self.index.id and owner == self._owner:
            # This process is building the index again: the index is empty, and the database is bound to it next.
            self.others = True
            return now, []
        if owner != self.index.id:
            raise IndexUnavailable(
                f"{self._database.where}: another process built an index of the database elsewhere, so this index is "
                "outdated; use one index per database, and open the memory again",
                path=self._database.where,
                name="index",
            )
        self._owner = owner
        if not free:
            return now, []
        # SQLite stores whole seconds in half of the bytes; see `worker_name`.
        lease = {**look, **self._who, "until": ceil(now + self._lease)}

        def take(connection: Connection) -> Sequence[Row[Any]]:
            connection.execute(self._lease_rows, lease)
            return raw_rows(connection, _LEASED, self._who)

        rows = self._database.change(take)
        # If free rows could not be leased, another worker has leased them.
        self.others = self.others or not rows
        return now, [task for row in rows if (task := _task(row)) is not None]

    def _renew(self, tasks: list[_Task]) -> list[_Task]:
        """Extend the leases that are still held; drop the other tasks."""

        def renew(connection: Connection) -> set[str]:
            connection.execute(RENEW, {**self._who, "until": self._database.clock() + self._lease})
            return {row.item_id for row in connection.execute(HELD, self._who)}

        leased_ids = self._database.change(renew)
        return [task for task in tasks if task.item in leased_ids]

    def _vectorise(self, tasks: Sequence[_Task]) -> None:
        """Set the dense vector of each task, or its problem."""
        waiting = [task for task in tasks if task.text is not None]
        if self._encoder is None or not waiting:
            return
        try:
            self._embed_all(self._encoder(), waiting)
        except StoreClosed:
            raise
        except Exception as error:
            # After a failure of the model, the items are indexed for BM25 only, and tried again.
            for task in waiting:
                if task.dense is None and not task.problem:
                    task.problem = _problem(f"{type(error).__name__}: {error}")

    def _embed_all(self, encoder: Encoder, tasks: Sequence[_Task]) -> None:
        if encoder.takes_images:
            self._embed_images(encoder, [task for task in tasks if task.image])
        rest = [task for task in tasks if not task.embedded]
        _embed(encoder, rest, [task.text or "" for task in rest])

    def _embed_images(self, encoder: Encoder, tasks: Sequence[_Task]) -> None:
        """Set the vectors of images; the alt text of an image that is not stored is embedded later."""
        # Images are large, so that only few are in memory at once.
        for batch in in_batches(tasks, MAX_IMAGES):
            with self._database.read() as connection:
                images = read_images(connection, [task.image for task in batch])
            stored = [task for task in batch if task.image in images]
            _embed(encoder, stored, [images[task.image] for task in stored])

    def _write(self, tasks: Sequence[_Task]) -> None:
        """Write the points of the tasks, remove the points of deleted items, and flush the index."""
        deleted_ids = [task.item for task in tasks if task.text is None]
        points = [
            Point(task.item, task.want, task.scope_id, document_vector(task.text), task.dense)
            for task in tasks
            if task.text is not None
        ]
        self.index.upsert(points)
        failpoint("worker.upserted")
        if deleted_ids:
            self.index.delete(deleted_ids)
            failpoint("worker.deleted")
        self.index.flush()
        failpoint("worker.flushed")

    def _acknowledge(self, tasks: Sequence[_Task]) -> None:
        writes = self._database.change(lambda connection: self._settle(connection, tasks))
        if writes is not None and isinstance(self.index, CountsWrites):
            self.index.keep_written(writes)

    def _settle(self, connection: Connection, tasks: Sequence[_Task]) -> int | None:
        """Acknowledge the tasks; return the number of acknowledged batches, or None if the index was replaced."""
        # The space is locked before the rows of the outbox, as in `Indexes._claim`: another order could deadlock.
        counted = connection.execute(_COUNT_WRITE, {"this": self._space, "index": self.index.id}).first()
        if counted is None:
            # Another process built another index.
            state, writes = connection.scalar(_STATE, {"this": self._space}), None
        else:
            state, writes = counted.state, counted.writes
        versions = {row.item_id: row.want for row in connection.execute(HELD, self._who)}
        leased = [task for task in tasks if task.item in versions]
        lost = [task for task in tasks if task.item not in versions]
        self._mark(connection, leased, versions)
        # A task without a lease may have overwritten a newer version: its item is queued again or, if the item was
        # deleted, its removal. After a change of the model nothing is queued, since the index is dropped.
        if lost and state not in (None, "retired"):
            connection.execute(_QUEUE_AGAIN[connection.dialect.name], [self._rewritten(task) for task in lost])
        failpoint("worker.unacknowledged")
        return writes

    def _mark(self, connection: Connection, tasks: Sequence[_Task], versions: Mapping[str, int]) -> None:
        """Mark leased tasks as done or failed, and store the vectors of texts that did not change."""
        failed = [self._failure(task, versions[task.item]) for task in tasks if task.problem]
        done = [task for task in tasks if not task.problem]
        removed = [self._finished(task) for task in done if task.text is None]
        rows: list[dict[str, object]] = []
        if versions == {task.item: task.want for task in done}:
            # Usually no item was changed meanwhile, and one statement is much faster than a statement per item.
            connection.execute(ALL_DONE, self._who)
        else:
            rows = [self._finished(task) for task in done]
        for statement, values in ((DONE, rows), (_FORGET, removed), (FAILED, failed)):
            if values:
                connection.execute(statement, values)
        if self._encoder is not None:
            self._store_vectors(connection, self._encoder, done, versions)

    @staticmethod
    def _store_vectors(
        connection: Connection, encoder: Callable[[], Encoder], tasks: Sequence[_Task], versions: Mapping[str, int]
    ) -> None:
        # The vector of an item that was erased or changed meanwhile is not stored.
        names = [task.embedded for task in tasks if task.text is not None and versions[task.item] == task.want]
        if names:
            encoder().keep(connection, names)

    def _failure(self, task: _Task, version: int) -> dict[str, object]:
        """Return the parameters of `FAILED`. The next try is after a pause; now, if the target version has changed."""
        row = self._finished(task)
        if version != task.want:
            return row | {"again": None, "times": 0}
        again = self._database.clock() + retry_pause(task.attempts)
        return row | {"error": task.problem[:1000], "again": again, "times": task.attempts + 1}

    def _finished(self, task: _Task) -> dict[str, object]:
        """Return the parameters of `DONE` and `_FORGET`."""
        return {"item": task.item, "this": self._space, "done": task.want, "error": None}

    def _rewritten(self, task: _Task) -> dict[str, object]:
        """Return the row of a removal, for `_QUEUE_AGAIN`, which increases the version of an existing row instead."""
        version = abs(task.want)
        return {
            "item_id": task.item,
            "space": self._space,
            "want": -(version + 1),
            "have": version,
            "scope_id": task.scope_id,
        }


def _embed(encoder: Encoder, tasks: Sequence[_Task], contents: Sequence[str | Image]) -> None:
    """Embed the contents of tasks; set the vector or the problem of each task."""
    if not tasks:
        return
    for task, content, vector in zip(tasks, contents, encoder(contents), strict=True):
        task.embedded = vector_name(content)
        if isinstance(vector, str):
            task.problem = _problem(vector)
        else:
            task.dense = vector


def _problem(reason: str) -> str:
    return f"{EmbedderError.__name__}: {reason}"
