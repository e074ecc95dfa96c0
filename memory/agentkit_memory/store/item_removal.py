"""Removal of items, with their facts and stored vectors."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from sqlalchemy import Connection, bindparam, delete, select

from agentkit_memory.database.rows import is_name, raw_rows
from agentkit_memory.database.tables import embeddings, item_sources, items
from agentkit_memory.store.item_rows import content_hash, in_batches
from agentkit_memory.store.item_text import ITEM_TEXT
from agentkit_memory.store.outbox import withdraw
from agentkit_memory.terms.bm25_vectors import indexed_text

__all__ = ["Forgotten", "forget_embeddings", "forget_items"]

_THESE = items.c.id.in_(bindparam("ids", expanding=True))
_DERIVED = select(item_sources.c.item_id).where(item_sources.c.source_id.in_(bindparam("ids", expanding=True)))
_DELETE = delete(items).where(_THESE)
_TEXTS = select(items.c.title, ITEM_TEXT, items.c.content_hash).where(_THESE)
_FORGET = delete(embeddings).where(embeddings.c.content_hash.in_(bindparam("hashes", expanding=True)))


@dataclass(slots=True)
class Forgotten:
    """Content of deleted rows, for the proof of an erasure."""

    texts: list[str] = field(default_factory=list)
    embeddings: int = 0
    """Number of stored vectors that were deleted with them."""


def forget_items(connection: Connection, ids: Collection[str], forgotten: Forgotten | None = None) -> int:
    """Delete items, the facts that were taken from them and the stored vectors of both; return the number of items.

    They are withdrawn from the index first: a worker that is about to store a vector of an item has stored it by then,
    or sees that the item is gone.
    """
    total, ahead = 0, set(ids)
    while ahead:
        derived: set[str] = set()
        # A corrupt id may be of any type, so ids are sorted as text.
        for batch in in_batches(sorted(ahead, key=str)):
            withdraw(connection, batch)
            forget_embeddings(connection, batch, forgotten)
            total += connection.execute(_DELETE, {"ids": batch}).rowcount
            # Last: by now, a worker that was taking a fact from one of them has written it.
            derived.update(connection.scalars(_DERIVED, {"ids": batch}))
        ahead = derived - ahead
    return total


def forget_embeddings(connection: Connection, ids: Collection[str], forgotten: Forgotten | None = None) -> None:
    """Delete the stored vectors of the texts of items, a cache: other items with such a text are embedded again."""
    for batch in in_batches(sorted(ids, key=str)):
        hashes: set[str] = set()
        for title, text, image in raw_rows(connection, _TEXTS, {"ids": batch}):
            hashes |= _vector_names(title, text, image)
            if forgotten is not None:
                forgotten.texts += [each for each in (title, text) if isinstance(each, str)]
        if hashes:
            removed = connection.execute(_FORGET, {"hashes": sorted(hashes)}).rowcount
            if forgotten is not None:
                forgotten.embeddings += removed


def _vector_names(title: object, text: object, image: object) -> set[str]:
    """Return the names of the vectors of an item: of its text and its image. SQLite stores any type in any column."""
    names: set[str] = set()
    if is_name(image):
        names.add(image)
    # The text may be missing: of a corrupt item, or of a turn whose message is corrupt.
    if is_name(title) and is_name(text):
        names |= {content_hash(text), content_hash(indexed_text(title, text))}
    return names
