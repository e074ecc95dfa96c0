"""Documents and their chunks in SQL, written together with the outbox of the index."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain, islice

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from agentkit_memory.checks import is_whole
from agentkit_memory.database.engine import Database
from agentkit_memory.database.rows import decode_rows, is_name, raw_rows
from agentkit_memory.database.tables import chunk_moves, documents, images, items
from agentkit_memory.errors import IngestError, StoreCorrupt
from agentkit_memory.ingest.chunks import Chunk
from agentkit_memory.ingest.images import image_chunk
from agentkit_memory.ingest.leftovers import BATCH, PLACE, forget_document, place_of
from agentkit_memory.ingest.staging import (
    DROP_IMAGE,
    ChunkIds,
    DocumentRow,
    Staging,
    is_generation,
    item_row,
    shown_generation,
)
from agentkit_memory.process.failpoints import failpoint
from agentkit_memory.store.image_rows import image_row
from agentkit_memory.store.item_rows import NAMESPACE, forget_items, in_batches
from agentkit_memory.store.metadata import is_metadata
from agentkit_memory.store.outbox import enqueue
from agentkit_memory.store.scope_rows import hold_scope
from agentkit_prompts.context.parts import Image

__all__ = ["MAX_WHOLE", "DocumentStore"]

_LOG = logging.getLogger("agentkit.memory")

MAX_WHOLE = 2000
"""Chunks of a document that is held in memory and written in one transaction; a longer one is staged."""

_PAGE = 1000

_FIND = select(
    *documents.c["id", "content_hash", "stamp", "source", "generation", "chunks", "ingested_at", "meta"]
).where(documents.c.scope_id == bindparam("scope"), documents.c.uri == bindparam("uri"), documents.c.content_hash != "")
_IN_ITS_PLACE = (
    documents.c.scope_id == bindparam("scope"),
    documents.c.uri == bindparam("named"),
    documents.c.id != bindparam("document"),
)
_OF_DOCUMENT = select(items.c.id, items.c.first_generation).where(items.c.document_id == bindparam("document"))
_SETTLE = PLACE.values(last_generation=None)
_DROP_MOVES = delete(chunk_moves).where(chunk_moves.c.document_id == bindparam("document"))
_ADD = insert(items)
_KNOWN = select(documents.c.content_hash).where(documents.c.id == bindparam("document"))
_SOURCE = select(documents.c.source).where(documents.c.id == bindparam("document"), documents.c.generation >= 0)
_STAMP = update(documents).where(documents.c.scope_id == bindparam("scope"), documents.c.uri == bindparam("named"))


class DocumentStore:
    """The documents of one scope."""

    def __init__(self, database: Database, scope_id: int, scope_key: str) -> None:
        self.database = database
        self.scope_id = scope_id
        self._scope_key = scope_key
        new = database.insert(documents)
        names = ("scope_id", "uri", "source", "content_hash", "stamp", "chunks", "ingested_at", "stage", "meta")
        self._put = new.on_conflict_do_update(index_elements=["id"], set_={name: new.excluded[name] for name in names})

    def id_of(self, uri: str) -> str:
        """Return the id of the document with an address: the same in every store."""
        return str(uuid.uuid5(NAMESPACE, f"{self._scope_key}\0{uri}"))

    def find(self, uri: str) -> tuple[str, str]:
        """Return the hash and the stamp of a document; empty if it was never stored as a whole, or is damaged."""
        with self.database.read() as connection:
            rows = decode_rows(connection, _FIND, {"scope": self.scope_id, "uri": uri}, documents.c.id).sound
        for row in rows:
            if row.id == self.id_of(uri) and is_generation(row.generation) and is_metadata(row.meta):
                return row.content_hash, row.stamp
        return "", ""

    def put_stamp(self, uri: str, stamp: str) -> None:
        """Store the stamp of a file that was found unchanged."""
        bound = {"scope": self.scope_id, "named": uri}
        self.database.change(lambda connection: connection.execute(_STAMP.values(stamp=stamp), bound))

    def write(
        self,
        uri: str,
        source: str,
        chunks: Iterable[Chunk],
        seal: Callable[[], tuple[str, str]],
        on_queued: Callable[[], None] | None = None,
        on_staged: Callable[[int], None] | None = None,
        meta: str = "{}",
    ) -> tuple[bool, int]:
        """Store a document, replacing its former content; return whether it is new, and how many chunks it has.

        Its former content is recalled until all of it is stored. A long one takes several transactions; after an
        interruption, the next call goes on. Where its row is damaged, it is written anew.

        If the chunks raise, everything stays as it was. `seal` is called after the last one, and returns the hash and
        the stamp to store it under. Of a long one, `on_queued` is called whenever enough was put into the outbox to be
        worth indexing, and `on_staged` with the number of chunks after every batch.
        """
        document = self._row(uri, source, meta)
        rest = iter(chunks)
        head = list(islice(rest, MAX_WHOLE + 1))
        if len(head) <= MAX_WHOLE and not self._is_long(document.id):
            digest, stamp = seal()
            return self._replace(document, digest, stamp, head), len(head)
        staging = Staging(self.database, document, on_queued)
        count = 0
        try:
            for batch in in_batches(chain(head, rest), BATCH):
                staging.add(batch)
                count += len(batch)
                if on_staged is not None:
                    on_staged(count)
            digest, stamp = seal()
        except IngestError:
            with suppress(IngestError):  # another ingestion of it began and owns the written chunks
                staging.discard()
            raise
        return staging.publish(digest, stamp), count

    def write_image(
        self, uri: str, source: str, image: Image, alt: str, sealed: tuple[str, str], title: str = "", meta: str = "{}"
    ) -> bool:
        """Store a document that is an image, found by its alt text; return whether it is new. See `write`.

        `sealed` is the hash and the stamp to store it under.
        """
        document = self._row(uri, source, meta)
        if self._is_long(document.id):
            forget_document(self.database, document.id)
        return self._replace(document, *sealed, [image_chunk(image, alt, title, meta)], image)

    def remove_below(
        self, folder_uri: str, is_gone: Callable[[str], bool], is_same_folder: Callable[[str, str], bool]
    ) -> list[str]:
        """Remove the documents below a folder whose address `is_gone`; return their names.

        Folders whose addresses differ in case only are asked about: in some file systems they are one.
        """
        below = folder_uri.rstrip("/") + "/"
        here = documents.c.scope_id == self.scope_id, documents.c.uri.istartswith(below, autoescape=True)
        same: dict[str, bool] = {}
        page = select(documents.c.id, documents.c.uri, documents.c.source).where(*here).order_by(documents.c.uri)
        removed: list[str] = []
        last = ""
        while True:
            with self.database.read() as connection:
                rows = raw_rows(connection, page.where(documents.c.uri > last).limit(_PAGE), {})
            sound = [row for row in rows if is_name(row.uri)]
            for row in sound:
                folder = row.uri[: len(below)]
                if folder not in same:
                    same[folder] = is_same_folder(folder, below)
                if is_name(row.id) and same[folder] and is_gone(row.uri):
                    try:
                        forget_document(self.database, row.id)
                    except StoreCorrupt as error:  # it is hidden, and keeps nobody from the others
                        _LOG.warning("a document could not be removed: %s", error)
                    removed.append(row.source if is_name(row.source) else row.uri)
            if len(rows) < _PAGE or not sound:
                return removed
            last = sound[-1].uri

    def remove_at(self, uri: str, is_gone: Callable[[str], bool]) -> list[str]:
        """Remove the document with an address if it `is_gone`; return its name."""
        document = self.id_of(uri)
        with self.database.read() as connection:
            rows = raw_rows(connection, _SOURCE, {"document": document})
        if not rows or not is_gone(uri):
            return []
        forget_document(self.database, document)
        return [row.source if is_name(row.source) else uri for row in rows]

    def _row(self, uri: str, source: str, meta: str) -> DocumentRow:
        """Return the row of a document; one in its place whose id is damaged is removed."""
        row = DocumentRow(self.id_of(uri), self.scope_id, uri, source, meta)
        bound = {"scope": self.scope_id, "named": uri, "document": row.id}
        with self.database.read() as connection:
            damaged = connection.scalar(select(documents.c.scope_id).where(*_IN_ITS_PLACE), bound) is not None
        if damaged:
            self.database.change(lambda connection: connection.execute(delete(documents).where(*_IN_ITS_PLACE), bound))
        return row

    def _is_long(self, document: str) -> bool:
        """Return whether too much is stored of it to be replaced in one transaction."""
        with self.database.read() as connection:
            stored = connection.scalars(_OF_DOCUMENT.limit(MAX_WHOLE + 1), {"document": document}).all()
            return len(stored) > MAX_WHOLE or shown_generation(connection, document) < 0

    def _replace(
        self, document: DocumentRow, digest: str, stamp: str, chunks: Sequence[Chunk], image: Image | None = None
    ) -> bool:
        """Store a document in one transaction; return whether it is new.

        A chunk whose heading path and text are unchanged keeps its id, and is not indexed again.
        """
        named = ChunkIds(document.id)
        ids = [named.next(chunk) for chunk in chunks]
        now = self.database.clock()
        found: list[bool] = []  # whether it was known, in a try whose connection was lost, too

        def write(connection: Connection) -> None:
            hold_scope(connection, self.scope_id)
            shown = shown_generation(connection, document.id)
            rows = connection.execute(_OF_DOCUMENT, {"document": document.id}).all()
            old = {row.id for row in rows if is_whole(row.first_generation, 0, shown)}
            known = raw_rows(connection, _KNOWN, {"document": document.id})
            connection.execute(self._put, document.values(digest, stamp, len(chunks), now))
            kept = old.intersection(ids)
            forget_items(connection, [row.id for row in rows if row.id not in kept])
            if known:  # an interrupted attempt to store a long version may have left some, as it may chunks
                connection.execute(_DROP_MOVES, {"document": document.id})
                connection.execute(DROP_IMAGE, {"this": document.id})
            if image is not None:
                connection.execute(insert(images), image_row(document.id, image))
            failpoint("items.removed")
            moved = [(item, chunk) for item, chunk in zip(ids, chunks, strict=True) if item in old]
            if moved:
                connection.execute(_SETTLE, [place_of(item, chunk) for item, chunk in moved])
            added = [(item, chunk) for item, chunk in zip(ids, chunks, strict=True) if item not in old]
            if added:
                connection.execute(_ADD, [item_row(item, document, chunk, now) for item, chunk in added])
                enqueue(connection, [item for item, _ in added], self.scope_id)
            failpoint("items.enqueued")
            found.append(bool(known) and bool(known[0].content_hash))

        self.database.change(write)
        failpoint("items.committed")
        return not found[0]
