"""Documents and their chunks in SQL, written together with the outbox of the index."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

from sqlalchemy import bindparam, delete, insert, select, update

from agentkit_memory.failpoints import failpoint
from agentkit_memory.index.outbox import enqueue
from agentkit_memory.ingest.chunks import Chunk
from agentkit_memory.store.engine import Database
from agentkit_memory.store.items import CHUNK, NAMESPACE, forget_items
from agentkit_memory.store.items import content_hash as hash_of
from agentkit_memory.store.scopes import hold_scope
from agentkit_memory.store.tables import documents, items

__all__ = ["DocumentStore"]

_this_item = items.c.id == bindparam("item")
_HASH = select(documents.c.content_hash).where(
    documents.c.scope_id == bindparam("scope"), documents.c.uri == bindparam("uri")
)
_OF_DOCUMENT = select(items.c.id).where(items.c.document_id == bindparam("document"))
_MOVE = (
    update(items)
    .where(_this_item)
    .values(position=bindparam("at"), start=bindparam("first"), end=bindparam("last"), line=bindparam("row"))
)
_ADD = insert(items)


class DocumentStore:
    """The documents of one scope."""

    def __init__(self, database: Database, scope_id: int, scope_key: str) -> None:
        self.database = database
        self.scope_id = scope_id
        self._scope_key = scope_key
        new = database.insert(documents)
        self._put = new.on_conflict_do_update(
            index_elements=["id"],
            set_={name: new.excluded[name] for name in ("source", "content_hash", "chunks", "ingested_at")},
        )

    def content_hash(self, uri: str) -> str | None:
        """Return the hash under which a document was stored, or None."""
        with self.database.read() as connection:
            found: str | None = connection.scalar(_HASH, {"scope": self.scope_id, "uri": uri})
        return found

    def replace(self, uri: str, source: str, content_hash: str, chunks: Sequence[Chunk]) -> bool:
        """Store a document in place of what was stored of it, in one transaction; say whether it is new.

        A chunk whose heading path and text stay keeps its id, and the index does not hear of it.
        """
        document = str(uuid.uuid5(NAMESPACE, f"{self._scope_key}\0{uri}"))
        ids = _chunk_ids(document, chunks)
        now = self.database.clock()
        with self.database.write() as connection:
            hold_scope(connection, self.scope_id)
            old = set(connection.scalars(_OF_DOCUMENT, {"document": document}))
            known = connection.scalar(_HASH, {"scope": self.scope_id, "uri": uri}) is not None
            row = {
                "id": document,
                "scope_id": self.scope_id,
                "uri": uri,
                "source": source,
                "content_hash": content_hash,
                "chunks": len(chunks),
                "ingested_at": now,
            }
            connection.execute(self._put, row)
            forget_items(connection, old.difference(ids))
            failpoint("items.removed")
            moved = [(item, chunk) for item, chunk in zip(ids, chunks, strict=True) if item in old]
            if moved:
                connection.execute(
                    _MOVE,
                    [
                        {"item": item, "at": chunk.position, "first": chunk.start, "last": chunk.end, "row": chunk.line}
                        for item, chunk in moved
                    ],
                )
            added = [(item, chunk) for item, chunk in zip(ids, chunks, strict=True) if item not in old]
            if added:
                connection.execute(_ADD, [self._row(item, document, chunk, now) for item, chunk in added])
                enqueue(connection, [item for item, _ in added])
            failpoint("items.enqueued")
        failpoint("items.committed")
        return not known

    def remove_below(self, folder_uri: str, is_gone: Callable[[str], bool]) -> list[str]:
        """Remove the documents below a folder whose address `is_gone`; return their names."""
        below = folder_uri.rstrip("/") + "/"
        here = documents.c.scope_id == self.scope_id, documents.c.uri.startswith(below, autoescape=True)
        with self.database.read() as connection:
            rows = connection.execute(
                select(documents.c.id, documents.c.uri, documents.c.source).where(*here).order_by(documents.c.uri)
            ).all()
        gone = [row for row in rows if is_gone(row.uri)]
        for row in gone:
            with self.database.write() as connection:
                hold_scope(connection, self.scope_id)
                forget_items(connection, connection.scalars(_OF_DOCUMENT, {"document": row.id}).all())
                connection.execute(delete(documents).where(documents.c.id == row.id))
        return [row.source for row in gone]

    def _row(self, item: str, document: str, chunk: Chunk, now: float) -> dict[str, object]:
        return {
            "id": item,
            "scope_id": self.scope_id,
            "kind": CHUNK,
            "document_id": document,
            "position": chunk.position,
            "title": chunk.title,
            "text": chunk.text,
            "content_hash": hash_of(chunk.text),
            "start": chunk.start,
            "end": chunk.end,
            "line": chunk.line,
            "created_at": now,
        }


def _chunk_ids(document: str, chunks: Sequence[Chunk]) -> list[str]:
    """Name each chunk by what it says, and by how often the document said it before."""
    space = uuid.UUID(document)
    said: dict[tuple[str, str], int] = {}
    ids = []
    for chunk in chunks:
        key = (chunk.title, chunk.text)
        said[key] = said.get(key, 0) + 1
        ids.append(str(uuid.uuid5(space, f"{said[key]}\0{chunk.title}\0{chunk.text}")))
    return ids
