"""`Staging`: writes a long document in several transactions, beside its former content, which is shown meanwhile.

A chunk of the former content that occurs again keeps its row, wherever it stands now: its new place is noted, and
written into the row once the new content is shown. What an interrupted attempt wrote is kept, too.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeAlias

from sqlalchemy import Connection, Select, bindparam, delete, insert, select, tuple_, update

from agentkit_memory.checks import is_whole
from agentkit_memory.errors import IngestError, StoreCorrupt
from agentkit_memory.ingest.chunks import Chunk
from agentkit_memory.process.failpoints import failpoint
from agentkit_memory.store.engine import Database
from agentkit_memory.store.item_rows import CHANGE, CHUNK, IMAGE, content_hash, forget_items
from agentkit_memory.store.outbox import WORTH_INDEXING, enqueue
from agentkit_memory.store.readable_rows import readable_rows, rows_as_they_are
from agentkit_memory.store.tables import chunk_moves, documents, images, items, vector_state

__all__ = [
    "BATCH",
    "DROP_IMAGE",
    "PLACE",
    "ChunkIds",
    "DocumentRow",
    "Staging",
    "finish_removals",
    "forget_document",
    "is_generation",
    "item_row",
    "place_of",
    "shown_generation",
]

_LOG = logging.getLogger("agentkit.memory")

BATCH = 512
"""Chunks of one transaction."""
_MAX_GENERATION = 2**31 - 2

_Row: TypeAlias = Any  # of the columns below, by their names

_this_document = items.c.document_id == bindparam("document")
_STORED = select(
    *items.c["id", "position", "start", "end", "line", "meta", "first_generation", "last_generation"]
).where(items.c.id.in_(bindparam("ids", expanding=True)))
_ROWS = (
    select(*items.c["id", "position", "first_generation", "last_generation"])
    .where(_this_document, tuple_(items.c.position, items.c.id) > tuple_(bindparam("after"), bindparam("after_id")))
    .order_by(items.c.position, items.c.id)
    .limit(BATCH)
)
_UNQUEUED = (
    select(items.c.id, items.c.position)
    .where(
        _this_document,
        items.c.position > bindparam("after"),
        items.c.first_generation == bindparam("next"),
        ~select(vector_state.c.item_id).where(vector_state.c.item_id == items.c.id, vector_state.c.want > 0).exists(),
    )
    .order_by(items.c.position)
    .limit(BATCH)
)
PLACE = CHANGE.values(
    position=bindparam("at"),
    start=bindparam("first"),
    end=bindparam("last"),
    line=bindparam("row"),
    meta=bindparam("its_meta"),
)
"""Writes the place of a chunk into its row, see `place_of`."""
_moves_of_this = chunk_moves.c.document_id == bindparam("this")
_ADD_MOVE = insert(chunk_moves)
_MOVES = (
    select(chunk_moves)
    .where(_moves_of_this, chunk_moves.c.generation <= bindparam("shown"))
    .order_by(chunk_moves.c.item_id)
    .limit(BATCH)
)
_DROP_MOVES = delete(chunk_moves).where(_moves_of_this)
DROP_IMAGE = delete(images).where(images.c.document_id == bindparam("this"))
_DROP_MOVE = delete(chunk_moves).where(_moves_of_this, chunk_moves.c.item_id == bindparam("item"))
_UNMOVED = (
    select(documents.c.id, documents.c.generation)
    .join(chunk_moves, chunk_moves.c.document_id == documents.c.id)
    .where(chunk_moves.c.generation <= documents.c.generation, documents.c.scope_id == bindparam("scope"))
    .distinct()
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
_LAST = CHANGE.values(last_generation=bindparam("generation"))
_ADD = insert(items)
_GENERATION = select(documents.c.generation).where(documents.c.id == bindparam("this"))
_WHOLE = select(documents.c.id).where(documents.c.id == bindparam("this"), documents.c.content_hash != "")
_CLAIM = update(documents).where(documents.c.id == bindparam("this")).values(stage=bindparam("mine"))
_LOCK = select(documents.c.generation).where(documents.c.id == bindparam("this")).with_for_update()
_HOLD = (
    select(documents.c.id)
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


class ChunkIds:
    """The ids of the chunks of a document, in order: hashes of the text, and of how often the document held it before.

    So a chunk keeps its id wherever the document is changed around it.
    """

    def __init__(self, document: str) -> None:
        self._space = uuid.UUID(document)
        self._made: set[int] = set()
        self._times: dict[int, int] = {}  # of texts that were repeated

    def next(self, chunk: Chunk) -> str:
        """Return the id of the next chunk."""
        made = first = self._id(1, chunk)
        if first.int in self._made:
            times = self._times[first.int] = self._times.get(first.int, 1) + 1
            made = self._id(times, chunk)
        self._made.add(made.int)
        return str(made)

    def __contains__(self, item: str) -> bool:
        return uuid.UUID(item).int in self._made

    def _id(self, times: int, chunk: Chunk) -> uuid.UUID:
        content = f"{chunk.title}\0{chunk.text}" + (chunk.image and f"\0{chunk.image}")
        return uuid.uuid5(self._space, f"{times}\0{content}")


class Staging:
    """The next generation of one document. Of several ingestions of it, only the one that began last can go on.

    `on_queued` is called whenever enough was put into the outbox to be worth indexing.
    """

    def __init__(self, database: Database, document: DocumentRow, on_queued: Callable[[], None] | None = None) -> None:
        self._database = database
        self._document = document
        self._on_queued = on_queued
        self._mine = str(uuid.uuid4())
        self._ids = ChunkIds(document.id)
        self._chunks = 0
        self._generation, self._new = self._begin()  # the generation that is shown
        self._next = self._generation + 1

    def add(self, chunks: Sequence[Chunk]) -> None:
        """Write some chunks, in order, at most `BATCH`; they are not shown yet.

        Raises:
            IngestError: Another ingestion of the same document began after this one.
        """
        now = self._database.clock()
        named = [(self._ids.next(chunk), chunk) for chunk in chunks]
        with self._database.write() as connection:
            self._hold(connection)
            found = connection.execute(_STORED, {"ids": [item for item, _ in named]})
            stored: dict[str, _Row] = {row.id: row for row in found}
            added: list[dict[str, object]] = []
            moved: list[dict[str, object]] = []
            placed: list[dict[str, object]] = []
            back: list[str] = []
            for item, chunk in named:
                row = stored.get(item)
                if row is None:
                    added.append(item_row(item, self._document, chunk, now, generation=self._next))
                    continue
                if row.last_generation is not None:
                    back.append(item)
                if not _is_at(row, chunk):
                    if row.first_generation > self._generation:  # of an interrupted attempt, never shown
                        placed.append(place_of(item, chunk))
                    else:
                        moved.append(self._move(item, chunk))
            if back:
                connection.execute(_LAST, [{"item": item, "generation": None} for item in back])
            for statement, rows in ((PLACE, placed), (_ADD_MOVE, moved), (_ADD, added)):
                if rows:
                    connection.execute(statement, rows)
        failpoint("document.staged")
        self._chunks += len(chunks)

    def publish(self, digest: str, stamp: str) -> bool:
        """Show the new generation instead of the former one; return whether the document is new.

        The index is brought up to date before, so that one of them can be found at any time. Chunks that moved have
        their new places shortly afterwards.
        """
        bound: dict[str, object] = {"document": self._document.id, "after": -1, "after_id": ""}
        while True:
            with self._database.read() as connection:
                rows = connection.execute(_ROWS, bound).all()
            if not rows:
                break
            others = [row for row in rows if row.id not in self._ids]
            if others:
                with self._database.write() as connection:
                    self._hold(connection)
                    self._take_out(connection, others)
            bound |= {"after": rows[-1].position, "after_id": rows[-1].id}
        self._queue()
        with self._database.write() as connection:
            self._hold(connection)
            values = self._document.values(digest, stamp, self._chunks, self._database.clock())
            connection.execute(
                update(documents).where(documents.c.id == self._document.id).values(**values, generation=self._next)
            )
            connection.execute(DROP_IMAGE, {"this": self._document.id})
        failpoint("document.published")
        _finish_moves(self._database, self._document.id, self._next)
        forget_in_batches(self._database, _LEFT, self._document.id, self._next)
        return self._new

    def discard(self) -> None:
        """Delete the new generation, and keep the former one."""
        forget_in_batches(self._database, _AHEAD, self._document.id, self._generation, self._hold)
        with self._database.write() as connection:
            self._hold(connection)
            connection.execute(_DROP_MOVES, {"this": self._document.id})
            connection.execute(_STAY, {"document": self._document.id})
            if self._new:
                connection.execute(delete(documents).where(documents.c.id == self._document.id))

    def _begin(self) -> tuple[int, bool]:
        with self._database.write() as connection:
            new = self._database.insert(documents).on_conflict_do_nothing()
            connection.execute(new, self._document.values("", "", 0, self._database.clock()))
            connection.execute(_CLAIM, {"this": self._document.id, "mine": self._mine})
            generation = shown_generation(connection, self._document.id)
            new_document = connection.scalar(_WHOLE, {"this": self._document.id}) is None
        if generation < 0:  # its removal was interrupted, or nobody can say what is shown
            forget_in_batches(self._database, _ANY, self._document.id, generation, self._hold)
            with self._database.write() as connection:
                self._hold(connection)
                connection.execute(update(documents).where(documents.c.id == self._document.id).values(generation=0))
            generation = 0
        _finish_moves(self._database, self._document.id, generation)
        forget_in_batches(self._database, _LEFT, self._document.id, generation)
        with self._database.write() as connection:  # what is left is of an interrupted attempt
            self._hold(connection)
            connection.execute(_DROP_MOVES, {"this": self._document.id})
        return generation, new_document

    def _move(self, item: str, chunk: Chunk) -> dict[str, object]:
        place = {name: getattr(chunk, name) for name in ("position", "start", "end", "line", "meta")}
        return {"document_id": self._document.id, "item_id": item, "generation": self._next, **place}

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


def is_generation(value: object) -> bool:
    """Whether this may be the generation of a document that is shown; there is room for another one behind it."""
    return is_whole(value, 0, _MAX_GENERATION)


def shown_generation(connection: Connection, document: str) -> int:
    """Return which generation of a document is shown: 0 for a new one, -1 if it is being removed or damaged."""
    rows = rows_as_they_are(connection, _GENERATION, {"this": document})
    return next((row.generation if is_generation(row.generation) else -1 for row in rows), 0)


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


def _finish_moves(database: Database, document: str, shown: int) -> None:
    """Write the places of chunks that moved into their rows, a batch at a time, now that these are shown."""
    while True:
        with database.write() as connection:
            if connection.scalar(_LOCK, {"this": document}) != shown:  # a later ingestion has done it
                return
            rows = connection.execute(_MOVES, {"this": document, "shown": shown}).all()
            if not rows:
                return
            connection.execute(PLACE, [place_of(row.item_id, row) for row in rows])
            connection.execute(_DROP_MOVE, [{"this": document, "item": row.item_id} for row in rows])
        failpoint("document.moved")


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
    """Finish what an interrupted process left of a scope: chunks to move, former generations, removed documents."""
    with database.read() as connection:
        left, _ = readable_rows(connection, _LEFT_OVER, {"scope": scope_id}, "id")
        hidden, _ = readable_rows(connection, _HIDDEN, {"scope": scope_id}, "id")
        unmoved, _ = readable_rows(connection, _UNMOVED, {"scope": scope_id}, "id")
    work: list[Callable[[], object]] = [partial(_finish_moves, database, *row) for row in unmoved]
    work += [partial(forget_in_batches, database, _LEFT, *row) for row in left]
    work += [partial(forget_document, database, document) for (document,) in hidden]
    for each in work:
        try:
            each()
        except StoreCorrupt as error:  # a damaged document keeps nobody from the others
            _LOG.warning("a document could not be finished with: %s", error)


def item_row(item: str, document: DocumentRow, chunk: Chunk, now: float, generation: int = 0) -> dict[str, object]:
    """Return the row of a chunk."""
    return {
        "id": item,
        "scope_id": document.scope_id,
        "kind": IMAGE if chunk.image else CHUNK,
        "document_id": document.id,
        "position": chunk.position,
        "title": chunk.title,
        "text": chunk.text,
        "content_hash": chunk.image or content_hash(chunk.text),
        "start": chunk.start,
        "end": chunk.end,
        "line": chunk.line,
        "created_at": now,
        "meta": chunk.meta,
        "first_generation": generation,
    }


def place_of(item: str, chunk: Chunk | _Row) -> dict[str, object]:
    """Return the parameters of `PLACE`: where a chunk stands, and its metadata."""
    return {
        "item": item,
        "at": chunk.position,
        "first": chunk.start,
        "last": chunk.end,
        "row": chunk.line,
        "its_meta": chunk.meta,
    }


def _is_at(row: _Row, chunk: Chunk) -> bool:
    return bool(
        row.position == chunk.position
        and row.start == chunk.start
        and row.end == chunk.end
        and row.line == chunk.line
        and row.meta == chunk.meta
    )
