"""`Staging`: writes a long document in several transactions, beside its former content, which is shown meanwhile.

Chunks that an interrupted attempt wrote are compared and kept.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from sqlalchemy import Connection, Select, and_, bindparam, delete, insert, select, update

from agentkit_memory.errors import IngestError
from agentkit_memory.ingest.chunks import Chunk
from agentkit_memory.process.failpoints import failpoint
from agentkit_memory.store.engine import Database
from agentkit_memory.store.item_rows import CHUNK, content_hash, forget_items
from agentkit_memory.store.outbox import WORTH_INDEXING, enqueue
from agentkit_memory.store.tables import documents, items, vector_state

__all__ = ["BATCH", "DocumentRow", "Staging", "finish_removals", "forget_document", "item_row"]

BATCH = 512
"""Chunks of one transaction."""

_Row: TypeAlias = Any  # of the columns below, by their names

_this_document = items.c.document_id == bindparam("document")
_of_this = and_(_this_document, items.c.position > bindparam("after"))
_COLUMNS = items.c[
    "id", "position", "title", "content_hash", "start", "end", "line", "meta", "first_generation", "last_generation"
]
_UP_TO = select(*_COLUMNS).where(_of_this, items.c.position <= bindparam("last")).order_by(items.c.position)
_AFTER = select(*_COLUMNS).where(_of_this).order_by(items.c.position).limit(BATCH)
_UNQUEUED = (
    select(items.c.id, items.c.position)
    .where(
        _of_this,
        items.c.first_generation == bindparam("next"),
        ~select(vector_state.c.item_id).where(vector_state.c.item_id == items.c.id, vector_state.c.want > 0).exists(),
    )
    .order_by(items.c.position)
    .limit(BATCH)
)
_LEFT = select(items.c.id).where(_this_document, items.c.last_generation < bindparam("shown")).limit(BATCH)
_LEFT_OVER = (
    select(documents.c.id, documents.c.generation)
    .join(items, items.c.document_id == documents.c.id)
    .where(items.c.last_generation < documents.c.generation, documents.c.scope_id == bindparam("scope"))
    .distinct()
)
_HIDDEN = select(documents.c.id).where(documents.c.generation < 0, documents.c.scope_id == bindparam("scope"))
_AHEAD = select(items.c.id).where(_this_document, items.c.first_generation > bindparam("shown")).limit(BATCH)
_ANY = select(items.c.id).where(_this_document).limit(BATCH)
_STAY = update(items).where(_this_document, items.c.last_generation.is_not(None)).values(last_generation=None)
_LAST = update(items).where(items.c.id == bindparam("item")).values(last_generation=bindparam("generation"))
_ADD = insert(items)
_FIND = select(documents.c.generation, documents.c.content_hash).where(documents.c.id == bindparam("this"))
_CLAIM = update(documents).where(documents.c.id == bindparam("this")).values(stage=bindparam("mine"))
_HOLD = (
    select(documents.c.generation)
    .where(documents.c.id == bindparam("this"), documents.c.stage == bindparam("mine"))
    .with_for_update()
)


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """The key columns of a row of `documents`."""

    id: str
    scope_id: int
    uri: str
    source: str
    meta: str = "{}"

    def values(self, digest: str, stamp: str, chunks: int, now: float) -> dict[str, object]:
        rest = {"content_hash": digest, "stamp": stamp, "chunks": chunks, "ingested_at": now, "stage": ""}
        return asdict(self) | rest


class Staging:
    """The next generation of one document. Of several ingestions of it, only the one that began last can go on.

    `on_queued` is called whenever enough was put into the outbox to be worth indexing.
    """

    def __init__(self, database: Database, document: DocumentRow, on_queued: Callable[[], None] | None = None) -> None:
        self._database = database
        self._document = document
        self._on_queued = on_queued
        self._mine = str(uuid.uuid4())
        self._written = -1  # position of the last chunk
        self._chunks = 0
        self._generation, self._new = self._begin()  # the generation that is shown
        self._next = self._generation + 1

    def add(self, chunks: Sequence[Chunk]) -> None:
        """Write some chunks, in order, at most `BATCH`; they are not shown yet.

        Raises:
            IngestError: Another ingestion of the same document began after this one.
        """
        now = self._database.clock()
        bound = {"document": self._document.id, "after": self._written, "last": chunks[-1].position}
        with self._database.write() as connection:
            self._hold(connection)
            stored: dict[int, list[_Row]] = {}
            for found in connection.execute(_UP_TO, bound):
                stored.setdefault(found.position, []).append(found)
            added: list[dict[str, object]] = []
            kept: set[str] = set()
            back: list[str] = []
            for chunk in chunks:
                digest = content_hash(chunk.text)
                same = [row for row in stored.get(chunk.position, ()) if _is_same(row, chunk, digest)]
                if same:
                    row = min(same, key=lambda row: row.first_generation > self._generation)  # rather one that is shown
                    kept.add(row.id)
                    if row.last_generation is not None:
                        back.append(row.id)
                else:
                    item = self._name(chunk)
                    kept.add(item)
                    added.append(item_row(item, self._document, chunk, now, generation=self._next))
            others = [row for rows in stored.values() for row in rows if row.id not in kept]
            self._take_out(connection, others)
            if back:
                connection.execute(_LAST, [{"item": item, "generation": None} for item in back])
            if added:
                connection.execute(_ADD, added)
        failpoint("document.staged")
        self._written = chunks[-1].position
        self._chunks += len(chunks)

    def publish(self, digest: str, stamp: str) -> bool:
        """Show the new generation instead of the former one; return whether the document is new.

        The index is brought up to date before, so that one of them can be found at any time.
        """
        bound = {"document": self._document.id, "after": self._written}
        while True:
            with self._database.write() as connection:
                self._hold(connection)
                rows = connection.execute(_AFTER, bound).all()
                self._take_out(connection, rows)
            if not rows:
                break
            bound["after"] = rows[-1].position
        self._queue()
        with self._database.write() as connection:
            self._hold(connection)
            values = self._document.values(digest, stamp, self._chunks, self._database.clock())
            connection.execute(
                update(documents).where(documents.c.id == self._document.id).values(**values, generation=self._next)
            )
        failpoint("document.published")
        forget_in_batches(self._database, _LEFT, self._document.id, self._next)
        return self._new

    def discard(self) -> None:
        """Delete the new generation, and keep the former one."""
        forget_in_batches(self._database, _AHEAD, self._document.id, self._generation, self._hold)
        with self._database.write() as connection:
            self._hold(connection)
            connection.execute(_STAY, {"document": self._document.id})
            if self._new:
                connection.execute(delete(documents).where(documents.c.id == self._document.id))

    def _begin(self) -> tuple[int, bool]:
        with self._database.write() as connection:
            new = self._database.insert(documents).on_conflict_do_nothing()
            connection.execute(new, self._document.values("", "", 0, self._database.clock()))
            connection.execute(_CLAIM, {"this": self._document.id, "mine": self._mine})
            generation, digest = connection.execute(_FIND, {"this": self._document.id}).one()
        if generation < 0:  # its removal was interrupted
            forget_in_batches(self._database, _ANY, self._document.id, generation, self._hold)
            with self._database.write() as connection:
                self._hold(connection)
                connection.execute(update(documents).where(documents.c.id == self._document.id).values(generation=0))
            generation = 0
        forget_in_batches(self._database, _LEFT, self._document.id, generation)
        return generation, not digest

    def _name(self, chunk: Chunk) -> str:
        """Return the id of a chunk, a hash of all that `_is_same` compares, so that it is unique."""
        place = f"{self._next}\0{chunk.position}\0{chunk.start}\0{chunk.end}\0{chunk.line}"
        content = f"{place}\0{chunk.title}\0{chunk.meta}\0{chunk.text}"
        return str(uuid.uuid5(uuid.UUID(self._document.id), content))

    def _hold(self, connection: Connection) -> bool:
        if connection.scalar(_HOLD, {"this": self._document.id, "mine": self._mine}) is None:
            raise IngestError(
                self._document.source, "another ingestion of it began after this one; that one goes on, this one ended"
            )
        return True

    def _take_out(self, connection: Connection, rows: Sequence[_Row]) -> None:
        """Mark shown rows as ending with their generation, and delete those that were never shown."""
        leaving = [
            row.id
            for row in rows
            if row.first_generation <= self._generation and row.last_generation != self._generation
        ]
        if leaving:
            connection.execute(_LAST, [{"item": item, "generation": self._generation} for item in leaving])
        never = [row.id for row in rows if row.first_generation > self._generation]
        if never:
            forget_items(connection, never)

    def _queue(self) -> None:
        bound = {"document": self._document.id, "next": self._next, "after": -1}
        queued = 0
        while True:
            with self._database.write() as connection:
                self._hold(connection)
                rows = connection.execute(_UNQUEUED, bound).all()
                enqueue(connection, [row.id for row in rows], self._document.scope_id)
            if not rows:
                return
            failpoint("document.queued")
            bound["after"] = rows[-1].position
            queued += len(rows)
            if self._on_queued is not None and queued >= WORTH_INDEXING:
                queued = 0
                self._on_queued()


def forget_in_batches(
    database: Database,
    which: Select[str],
    document: str,
    shown: int,
    hold: Callable[[Connection], bool] = lambda connection: True,
) -> bool:
    """Delete the items of a SELECT, a batch at a time, until all are gone; return False if `hold` does before."""
    while True:
        with database.write() as connection:
            if not hold(connection):
                return False
            ids: Sequence[str] = connection.scalars(which, {"document": document, "shown": shown}).all()
            forget_items(connection, ids)
        if not ids:
            return True
        failpoint("document.swept")


def forget_document(database: Database, document: str) -> None:
    """Hide a document at once, then delete its items in batches, then itself."""
    this = documents.c.id == document

    def is_hidden(connection: Connection) -> bool:  # otherwise it is there again
        return connection.scalar(select(documents.c.generation).where(this).with_for_update()) == -1

    with database.write() as connection:
        connection.execute(update(documents).where(this).values(generation=-1, content_hash="", stamp="", stage=""))
    failpoint("document.hidden")
    if forget_in_batches(database, _ANY, document, -1, is_hidden):
        with database.write() as connection:
            if is_hidden(connection):
                connection.execute(delete(documents).where(this))


def finish_removals(database: Database, scope_id: int) -> None:
    """Delete what an interrupted process left of a scope: former generations, and removed documents."""
    with database.read() as connection:
        left = connection.execute(_LEFT_OVER, {"scope": scope_id}).all()
        hidden = connection.scalars(_HIDDEN, {"scope": scope_id}).all()
    for document, generation in left:
        forget_in_batches(database, _LEFT, document, generation)
    for document in hidden:
        forget_document(database, document)


def item_row(item: str, document: DocumentRow, chunk: Chunk, now: float, generation: int = 0) -> dict[str, object]:
    """Return the row of a chunk."""
    return {
        "id": item,
        "scope_id": document.scope_id,
        "kind": CHUNK,
        "document_id": document.id,
        "position": chunk.position,
        "title": chunk.title,
        "text": chunk.text,
        "content_hash": content_hash(chunk.text),
        "start": chunk.start,
        "end": chunk.end,
        "line": chunk.line,
        "created_at": now,
        "meta": chunk.meta,
        "first_generation": generation,
    }


def _is_same(row: _Row, chunk: Chunk, digest: str) -> bool:
    return bool(
        row.content_hash == digest
        and row.title == chunk.title
        and row.start == chunk.start
        and row.end == chunk.end
        and row.line == chunk.line
        and row.meta == chunk.meta
    )
