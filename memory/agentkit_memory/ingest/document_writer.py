"""`DocumentWriter`: stages the chunks of a document in batches, and publishes all of them with one statement.

The old content is recalled until the publication. A chunk that occurs in both versions, or in an interrupted attempt,
is the same item, and is not indexed again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from agentkit_memory.checks import is_whole
from agentkit_memory.database.engine import Database, upserts
from agentkit_memory.database.rows import column_problem, raw_rows
from agentkit_memory.database.tables import document_chunks, documents, images, items
from agentkit_memory.errors import IngestError
from agentkit_memory.ingest.chunks import Chunk
from agentkit_memory.ingest.document_removal import BATCH, forget_document, forget_generations, settle
from agentkit_memory.process.failpoints import failpoint
from agentkit_memory.store.image_rows import image_row
from agentkit_memory.store.item_rows import CHUNK, IMAGE, NAMESPACE
from agentkit_memory.store.metadata import is_metadata
from agentkit_memory.store.outbox import enqueue
from agentkit_prompts.context.parts import Image

_MAX_GENERATION = 2**31 - 2
"""Maximum number of a generation: the next number must fit into a column too."""

_this = documents.c.id == bindparam("this")
_newest = (
    select(func.max(document_chunks.c.generation))
    .where(document_chunks.c.document_id == documents.c.id)
    .scalar_subquery()
)
_CONTENT = documents.c["content_hash", "stamp", "source", "chunks", "ingested_at", "meta"]
_FIND = select(*documents.c["id", "generation"], _newest.label("newest"), *_CONTENT).where(
    documents.c.scope_id == bindparam("scope"), documents.c.uri == bindparam("named")
)
_DROP_OTHER_ID = delete(documents).where(
    documents.c.scope_id == bindparam("scope"),
    documents.c.uri == bindparam("named"),
    documents.c.id != bindparam("document"),
)
_STAMP = update(documents).where(_this).values(stamp=bindparam("new_stamp"))
_ADD = upserts(documents, {"stage": bindparam("mine")})
_CLAIMED = select(documents.c.generation, documents.c.content_hash != "", _newest).where(_this)
_CANCEL_REMOVAL = update(documents).where(_this, documents.c.generation < 0).values(generation=0)
_LOCK = select(documents.c.generation).where(_this, documents.c.stage == bindparam("mine")).with_for_update()
_UNCLAIM = update(documents).where(_this).values(stage="")
_FORGET = delete(documents).where(_this, documents.c.content_hash == "")
_STORED_ITEMS = select(items.c.id).where(items.c.id.in_(bindparam("ids", expanding=True)))
_ADD_ITEMS = insert(items)
_ADD_CHUNKS = upserts(document_chunks)
_PUBLISH = update(documents).where(_this)
_ADD_IMAGE = insert(images)
_DROP_IMAGE = delete(images).where(images.c.document_id == bindparam("this"))


@dataclass(frozen=True, slots=True)
class NewDocument:
    """A document to write."""

    uri: str
    source: str
    ingested_at: float
    """Seconds since 1970."""
    meta: str = "{}"
    """JSON."""
    image: Image | None = None
    """The image, if the document is an image; its alt text is the only chunk."""


class Version(NamedTuple):
    """The version of a document: the hash of its content, and the stamp of its file (empty for other documents)."""

    content_hash: str = ""
    stamp: str = ""


class Written(NamedTuple):
    """The result of writing a document."""

    is_new: bool
    chunks: int


class DocumentWriter:
    """Writes the documents of one scope."""

    def __init__(self, database: Database, scope_id: int, scope_key: str) -> None:
        self.database = database
        self.scope_id = scope_id
        self._scope_key = scope_key

    def id_of(self, uri: str) -> str:
        """Return the id of the document with an address, which is the same in every store."""
        return str(uuid.uuid5(NAMESPACE, f"{self._scope_key}\0{uri}"))

    def find(self, uri: str) -> Version:
        """Return the stored version of a document; an empty version if the document is missing, incomplete or corrupt.

        A corrupt document that `write` could not replace is removed.
        """
        address, document = {"scope": self.scope_id, "named": uri}, self.id_of(uri)
        with self.database.read() as connection:
            rows = raw_rows(connection, _FIND, address)
        if not rows:
            return Version()
        (row,) = rows
        newest = row.newest or 0
        if row.id != document:
            address["document"] = document
            self.database.change(lambda connection: connection.execute(_DROP_OTHER_ID, address))
        elif not is_whole(row.generation, -1, _MAX_GENERATION) or not is_whole(newest, 0, _MAX_GENERATION):
            forget_document(self.database, document)
        elif row.generation < newest:
            # An attempt to replace the document was interrupted.
            return Version()
        elif is_metadata(row.meta) and not any(column_problem(each, getattr(row, each.name)) for each in _CONTENT):
            return Version(row.content_hash, row.stamp)
        return Version()

    def put_stamp(self, uri: str, stamp: str) -> None:
        """Store the new stamp of a file whose content is unchanged."""
        bound = {"this": self.id_of(uri), "new_stamp": stamp}
        self.database.change(lambda connection: connection.execute(_STAMP, bound))

    def write(
        self,
        document: NewDocument,
        chunks: Iterable[Chunk],
        seal: Callable[[], Version],
        on_staged: Callable[[int], None] | None = None,
    ) -> Written:
        """Store a document and replace its old content. Call `find` first.

        A document of up to `BATCH` chunks is written in one transaction, a longer document in several. After an
        interruption, the next call writes the whole document again, but no chunk is indexed twice.

        Args:
            document: The document without its chunks.
            chunks: Chunks in order. If the iterator raises an `IngestError`, the old content stays.
            seal: Called after the last chunk; returns the version to store.
            on_staged: Called with the number of chunks after every batch except the last.

        Raises:
            IngestError: Another attempt to write the same document started after this attempt.
        """
        attempt = _Attempt(self, document)
        rest = iter(chunks)
        try:
            batch = list(islice(rest, BATCH))
            while following := list(islice(rest, BATCH)):
                attempt.stage(batch)
                if on_staged is not None:
                    on_staged(len(batch))
                batch = following
            version = seal()
        except IngestError:
            with suppress(IngestError):
                # If another attempt started, the staged chunks belong to it.
                attempt.discard()
            raise
        return attempt.publish(batch, version)


class _Attempt:
    """One attempt to write a document. Of several concurrent attempts, only the attempt that started last continues."""

    def __init__(self, writer: DocumentWriter, document: NewDocument) -> None:
        self._database = writer.database
        self._document = document
        self._id = writer.id_of(document.uri)
        self._scope_id = writer.scope_id
        self._this = {"this": self._id, "mine": str(uuid.uuid4())}
        self._ids = _ChunkIds(self._id)
        self._generation = 0
        """The generation to write; 0 before the first batch."""
        self._is_new: bool | None = None
        self._has_generations = False
        self._chunks = 0

    def stage(self, chunks: Sequence[Chunk]) -> None:
        """Write a batch of chunks, except the last batch."""
        identified = self._with_ids(chunks)
        is_first = not self._generation

        def write(connection: Connection) -> None:
            self._claim(connection, is_first=is_first)
            self._add(connection, identified)

        self._database.change(write)
        failpoint("document.staged")

    def publish(self, chunks: Sequence[Chunk], version: Version) -> Written:
        """Write the last batch, and publish the new content."""
        identified = self._with_ids(chunks)
        row, image = self._row(version, self._chunks), self._document.image
        is_only = not self._generation

        def write(connection: Connection) -> bool:
            self._claim(connection, is_first=is_only)
            self._add(connection, identified)
            is_settled = is_only
            if self._has_generations:
                is_settled = forget_generations(connection, self._id, self._generation) and is_only
                failpoint("items.removed")
            # If this process is killed now, `finish_removals` finds the document by a stage that is not empty.
            stage = self._this["mine"]
            if is_settled:
                stage = ""
            state = {"generation": self._generation, "stage": stage}
            connection.execute(_PUBLISH.values(**row, **state), self._this)
            if not self._is_new:
                connection.execute(_DROP_IMAGE, self._this)
            if image is not None:
                connection.execute(_ADD_IMAGE, image_row(self._id, image))
            return is_settled

        is_settled = self._database.change(write)
        failpoint("items.committed")
        if not is_settled:
            settle(self._database, self._id)
        return Written(bool(self._is_new), self._chunks)

    def discard(self) -> None:
        """Remove the staged chunks; the old content stays."""

        def write(connection: Connection) -> bool:
            generation = self._lock(connection)
            is_done = forget_generations(connection, self._id, generation, staged=True)
            if is_done:
                connection.execute(_UNCLAIM, self._this)
                connection.execute(_FORGET, self._this)
            return is_done

        while self._generation and not self._database.change(write):
            failpoint("document.swept")

    def _with_ids(self, chunks: Sequence[Chunk]) -> list[tuple[str, Chunk]]:
        self._chunks += len(chunks)
        return [(self._ids.next(chunk), chunk) for chunk in chunks]

    def _claim(self, connection: Connection, *, is_first: bool) -> None:
        """Lock the document; in the first transaction, also add a new document, and choose the next generation.

        Raises:
            IngestError: Another attempt started.
        """
        if not is_first:
            self._lock(connection)
            return
        row = {"id": self._id, "stage": self._this["mine"], **self._row(Version(), 0)}
        connection.execute(_ADD[connection.dialect.name], row | self._this)
        generation, is_stored, newest = connection.execute(_CLAIMED, self._this).one()
        if generation < 0:
            # The document is being removed: this write stops the removal.
            connection.execute(_CANCEL_REMOVAL, self._this)
        self._generation = max(generation, newest or 0, 0) + 1
        self._has_generations = newest is not None
        if self._is_new is None:
            # Only the first call decides: a transaction that is repeated may find the row of its first try.
            self._is_new = not is_stored

    def _lock(self, connection: Connection) -> int:
        """Lock the document, and return its published generation.

        Raises:
            IngestError: Another attempt started.
        """
        generation: int | None = connection.scalar(_LOCK, self._this)
        if generation is None:
            raise IngestError(
                self._document.source,
                "another ingestion of it started later and continues; this ingestion stopped",
            )
        return generation

    def _add(self, connection: Connection, identified: Sequence[tuple[str, Chunk]]) -> None:
        """Write the chunks of a batch, and put new items into the outbox."""
        if not identified:
            return
        stored_ids = {*connection.scalars(_STORED_ITEMS, {"ids": [item for item, _ in identified]})}
        new = [self._item_row(item, chunk) for item, chunk in identified if item not in stored_ids]
        if new:
            connection.execute(_ADD_ITEMS, new)
        rows = [self._chunk_row(item, chunk) for item, chunk in identified]
        connection.execute(_ADD_CHUNKS[connection.dialect.name], rows)
        enqueue(connection, [row["id"] for row in new], self._scope_id)
        failpoint("items.enqueued")

    def _row(self, version: Version, chunks: int) -> dict[str, object]:
        """Return the columns of the document."""
        return {
            "scope_id": self._scope_id,
            "uri": self._document.uri,
            "source": self._document.source,
            "ingested_at": self._document.ingested_at,
            "meta": self._document.meta,
            "chunks": chunks,
            **version._asdict(),
        }

    def _item_row(self, item: str, chunk: Chunk) -> dict[str, Any]:
        return {
            "id": item,
            "scope_id": self._scope_id,
            "kind": IMAGE if chunk.image else CHUNK,
            "document_id": self._id,
            "title": chunk.title,
            "text": chunk.text,
            "content_hash": chunk.image,
            "created_at": self._document.ingested_at,
            **dict.fromkeys(("position", "start", "end", "line"), 0),
        }

    def _chunk_row(self, item: str, chunk: Chunk) -> dict[str, object]:
        columns = {name: getattr(chunk, name) for name in ("position", "start", "end", "line", "meta")}
        return {"item_id": item, "generation": self._generation, "document_id": self._id, **columns}


class _ChunkIds:
    """The ids of the chunks of a document: hashes of the content, and of a number that distinguishes equal contents.

    Therefore a chunk keeps its id if other parts of the document are changed.
    """

    def __init__(self, document: str) -> None:
        self._space = uuid.UUID(document)
        self._ids: set[int] = set()
        # Number of occurrences of repeated contents, by the id of the first occurrence.
        self._times: dict[int, int] = {}

    def next(self, chunk: Chunk) -> str:
        """Return the id of the next chunk."""
        identifier = first = self._id(1, chunk)
        if first.int in self._ids:
            times = self._times[first.int] = self._times.get(first.int, 1) + 1
            identifier = self._id(times, chunk)
        self._ids.add(identifier.int)
        return str(identifier)

    def _id(self, times: int, chunk: Chunk) -> uuid.UUID:
        content = f"{chunk.title}\0{chunk.text}" + (chunk.image and f"\0{chunk.image}")
        digest = blake2b(f"{times}\0{content}".encode("utf-8", "surrogatepass"), key=self._space.bytes, digest_size=10)
        # The chunks of a document are together in every table, because their ids have the same start.
        return uuid.UUID(bytes=self._space.bytes[:6] + digest.digest())
