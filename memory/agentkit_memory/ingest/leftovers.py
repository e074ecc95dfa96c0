"""What is left to do of documents once others are shown: chunks to move, former chunks and documents to delete."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from sqlalchemy import Connection, Select, bindparam, delete, select, update

from agentkit_memory.database.engine import Database
from agentkit_memory.database.rows import decode_rows
from agentkit_memory.database.tables import chunk_moves, documents, items
from agentkit_memory.errors import StoreCorrupt
from agentkit_memory.ingest.chunks import Chunk
from agentkit_memory.process.failpoints import failpoint
from agentkit_memory.store.item_rows import CHANGE, forget_items

__all__ = [
    "AHEAD",
    "ANY",
    "BATCH",
    "LEFT",
    "PLACE",
    "finish_moves",
    "finish_removals",
    "forget_document",
    "forget_in_batches",
    "place_of",
]

_LOG = logging.getLogger("agentkit.memory")

BATCH = 512
"""Chunks of one transaction."""

_Row: TypeAlias = Any  # of the columns below, by their names

_this_document = items.c.document_id == bindparam("document")
_moves_of_this = chunk_moves.c.document_id == bindparam("this")
PLACE = CHANGE.values(
    position=bindparam("at"),
    start=bindparam("first"),
    end=bindparam("last"),
    line=bindparam("row"),
    meta=bindparam("its_meta"),
)
"""Writes the place of a chunk into its row, see `place_of`."""
_MOVES = (
    select(chunk_moves)
    .where(_moves_of_this, chunk_moves.c.generation <= bindparam("shown"))
    .order_by(chunk_moves.c.item_id)
    .limit(BATCH)
)
_DROP_MOVE = delete(chunk_moves).where(_moves_of_this, chunk_moves.c.item_id == bindparam("item"))
_UNMOVED = (
    select(documents.c.id, documents.c.generation)
    .join(chunk_moves, chunk_moves.c.document_id == documents.c.id)
    .where(chunk_moves.c.generation <= documents.c.generation, documents.c.scope_id == bindparam("scope"))
    .distinct()
)
LEFT = select(items.c.id).where(_this_document, items.c.last_generation < bindparam("shown")).limit(BATCH)
_LEFT_OVER = (
    select(documents.c.id, documents.c.generation)
    .join(items, items.c.document_id == documents.c.id)
    .where(items.c.last_generation < documents.c.generation, documents.c.scope_id == bindparam("scope"))
    .distinct()
)
_HIDDEN = select(documents.c.id).where(documents.c.generation < 0, documents.c.scope_id == bindparam("scope"))
AHEAD = select(items.c.id).where(_this_document, items.c.first_generation > bindparam("shown")).limit(BATCH)
ANY = select(items.c.id).where(_this_document).limit(BATCH)
_LOCK = select(documents.c.generation).where(documents.c.id == bindparam("this")).with_for_update()


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


def forget_in_batches(
    database: Database,
    which: Select[str],
    document: str,
    shown: int,
    hold: Callable[[Connection], bool] = lambda connection: True,
) -> bool:
    """Delete the items of a SELECT, a batch at a time, until all are gone; return False if `hold` does before."""

    def write(connection: Connection) -> int | None:
        if not hold(connection):
            return None
        ids = connection.scalars(which, {"document": document, "shown": shown}).all()
        forget_items(connection, ids)
        return len(ids)

    while True:
        removed = database.change(write)
        if not removed:
            return removed is not None
        failpoint("document.swept")


def finish_moves(database: Database, document: str, shown: int) -> None:
    """Write the places of chunks that moved into their rows, a batch at a time, now that these are shown."""

    def write(connection: Connection) -> bool:
        if connection.scalar(_LOCK, {"this": document}) != shown:  # a later ingestion has done it
            return False
        rows = connection.execute(_MOVES, {"this": document, "shown": shown}).all()
        if rows:
            connection.execute(PLACE, [place_of(row.item_id, row) for row in rows])
            connection.execute(_DROP_MOVE, [{"this": document, "item": row.item_id} for row in rows])
        return bool(rows)

    while database.change(write):
        failpoint("document.moved")


def forget_document(database: Database, document: str) -> None:
    """Hide a document at once, then delete its items in batches, then itself."""
    this = documents.c.id == document

    def is_hidden(connection: Connection) -> bool:  # otherwise it is there again
        return connection.scalar(select(documents.c.generation).where(this).with_for_update()) == -1

    def hide(connection: Connection) -> None:
        connection.execute(update(documents).where(this).values(generation=-1, content_hash="", stamp="", stage=""))

    def remove(connection: Connection) -> None:
        if is_hidden(connection):
            connection.execute(delete(documents).where(this))

    database.change(hide)
    failpoint("document.hidden")
    if forget_in_batches(database, ANY, document, -1, is_hidden):
        database.change(remove)


def finish_removals(database: Database, scope_id: int) -> None:
    """Finish what an interrupted process left of a scope: chunks to move, former generations, removed documents."""
    with database.read() as connection:
        bound = {"scope": scope_id}
        left = decode_rows(connection, _LEFT_OVER, bound, documents.c.id).sound
        hidden = decode_rows(connection, _HIDDEN, bound, documents.c.id).sound
        unmoved = decode_rows(connection, _UNMOVED, bound, documents.c.id).sound
    work: list[Callable[[], object]] = [partial(finish_moves, database, *row) for row in unmoved]
    work += [partial(forget_in_batches, database, LEFT, *row) for row in left]
    work += [partial(forget_document, database, document) for (document,) in hidden]
    for each in work:
        try:
            each()
        except StoreCorrupt as error:  # a damaged document keeps nobody from the others
            _LOG.warning("a document could not be finished with: %s", error)
