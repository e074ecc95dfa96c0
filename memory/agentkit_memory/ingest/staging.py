"""`Staging`: writes a long document in several transactions, beside its former content, which is shown meanwhile.

A chunk of the former content that occurs again keeps its row, wherever it stands now: its new place is noted, and
written into the row once the new content is shown. What an interrupted attempt wrote is kept, too.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeAlias

from sqlalchemy import Connection, bindparam, delete, insert, select, tuple_, update

from agentkit_memory.checks import is_whole
from agentkit_memory.database.engine import Database
from agentkit_memory.database.rows import raw_rows
from agentkit_memory.database.tables import chunk_moves, documents, images, items, vector_state
from agentkit_memory.errors import IngestError
from agentkit_memory.ingest.chunks import Chunk
from agentkit_memory.ingest.leftovers import AHEAD, ANY, BATCH, LEFT, PLACE, finish_moves, forget_in_batches, place_of
from agentkit_memory.process.failpoints import failpoint
from agentkit_memory.store.item_rows import CHANGE, CHUNK, IMAGE, content_hash, forget_items
from agentkit_memory.store.outbox import WORTH_INDEXING, enqueue

__all__ = [
    "DROP_IMAGE",
    "ChunkIds",
    "DocumentRow",
    "Staging",
    "is_generation",
    "item_row",
    "shown_generation",
]

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
_moves_of_this = chunk_moves.c.document_id == bindparam("this")
_ADD_MOVE = insert(chunk_moves)
_DROP_MOVES = delete(chunk_moves).where(_moves_of_this)
DROP_IMAGE = delete(images).where(images.c.document_id == bindparam("this"))
_STAY = update(items).where(_this_document, items.c.last_generation.is_not(None)).values(last_generation=None)
_LAST = CHANGE.values(last_generation=bindparam("generation"))
_ADD = insert(items)
_GENERATION = select(documents.c.generation).where(documents.c.id == bindparam("this"))
_WHOLE = select(documents.c.id).where(documents.c.id == bindparam("this"), documents.c.content_hash != "")
_CLAIM = update(documents).where(documents.c.id == bindparam("this")).values(stage=bindparam("mine"))
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

        def write(connection: Connection) -> None:
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
                if place_of(item, row) != place_of(item, chunk):
                    if row.first_generation > self._generation:  # of an interrupted attempt, never shown
                        placed.append(place_of(item, chunk))
                    else:
                        moved.append(self._move(item, chunk))
            if back:
                connection.execute(_LAST, [{"item": item, "generation": None} for item in back])
            for statement, rows in ((PLACE, placed), (_ADD_MOVE, moved), (_ADD, added)):
                if rows:
                    connection.execute(statement, rows)

        self._database.change(write)
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
                self._database.change(partial(self._take_out, others))
            bound |= {"after": rows[-1].position, "after_id": rows[-1].id}
        self._queue()

        def write(connection: Connection) -> None:
            self._hold(connection)
            values = self._document.values(digest, stamp, self._chunks, self._database.clock())
            connection.execute(
                update(documents).where(documents.c.id == self._document.id).values(**values, generation=self._next)
            )
            connection.execute(DROP_IMAGE, {"this": self._document.id})

        self._database.change(write)
        failpoint("document.published")
        finish_moves(self._database, self._document.id, self._next)
        forget_in_batches(self._database, LEFT, self._document.id, self._next)
        return self._new

    def discard(self) -> None:
        """Delete the new generation, and keep the former one."""
        forget_in_batches(self._database, AHEAD, self._document.id, self._generation, self._hold)

        def write(connection: Connection) -> None:
            self._hold(connection)
            connection.execute(_DROP_MOVES, {"this": self._document.id})
            connection.execute(_STAY, {"document": self._document.id})
            if self._new:
                connection.execute(delete(documents).where(documents.c.id == self._document.id))

        self._database.change(write)

    def _begin(self) -> tuple[int, bool]:

        def claim(connection: Connection) -> tuple[int, bool]:
            new = self._database.insert(documents).on_conflict_do_nothing()
            connection.execute(new, self._document.values("", "", 0, self._database.clock()))
            connection.execute(_CLAIM, {"this": self._document.id, "mine": self._mine})
            is_new = connection.scalar(_WHOLE, {"this": self._document.id}) is None
            return shown_generation(connection, self._document.id), is_new

        def show_none(connection: Connection) -> None:
            self._hold(connection)
            connection.execute(update(documents).where(documents.c.id == self._document.id).values(generation=0))

        def tidy(connection: Connection) -> None:  # what is left is of an interrupted attempt
            self._hold(connection)
            connection.execute(_DROP_MOVES, {"this": self._document.id})

        generation, is_new = self._database.change(claim)
        if generation < 0:  # its removal was interrupted, or nobody can say what is shown
            forget_in_batches(self._database, ANY, self._document.id, generation, self._hold)
            self._database.change(show_none)
            generation = 0
        finish_moves(self._database, self._document.id, generation)
        forget_in_batches(self._database, LEFT, self._document.id, generation)
        self._database.change(tidy)
        return generation, is_new

    def _move(self, item: str, chunk: Chunk) -> dict[str, object]:
        place = {name: getattr(chunk, name) for name in ("position", "start", "end", "line", "meta")}
        return {"document_id": self._document.id, "item_id": item, "generation": self._next, **place}

    def _hold(self, connection: Connection) -> bool:
        if connection.scalar(_HOLD, {"this": self._document.id, "mine": self._mine}) is None:
            raise IngestError(
                self._document.source, "another ingestion of it began after this one; that one goes on, this one ended"
            )
        return True

    def _take_out(self, rows: Sequence[_Row], connection: Connection) -> None:
        """Mark shown rows as ending with their generation, and delete those that were never shown."""
        self._hold(connection)
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

        def write(connection: Connection) -> Sequence[_Row]:
            self._hold(connection)
            rows = connection.execute(_UNQUEUED, bound).all()
            enqueue(connection, [row.id for row in rows], self._document.scope_id)
            return rows

        while True:
            rows = self._database.change(write)
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
    rows = raw_rows(connection, _GENERATION, {"this": document})
    return next((row.generation if is_generation(row.generation) else -1 for row in rows), 0)


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
