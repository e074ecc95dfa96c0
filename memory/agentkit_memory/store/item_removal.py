"""Removal of items, with their facts and stored vectors."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from sqlalchemy import Connection, bindparam, delete, func, select

from agentkit_memory.database.rows import is_decoded_text, raw_rows
from agentkit_memory.database.tables import embeddings, item_sources, items
from agentkit_memory.store.item_rows import content_hash, in_batches
from agentkit_memory.store.item_text import ITEM_TEXT
from agentkit_memory.store.outbox import withdraw
from agentkit_memory.terms.bm25_vectors import indexed_text

_WITH_IDS = items.c.id.in_(bindparam("ids", expanding=True))
_DERIVED = select(item_sources.c.item_id).where(item_sources.c.source_id.in_(bindparam("ids", expanding=True)))
_DELETE = delete(items).where(_WITH_IDS)
_TEXTS = select(items.c.title, ITEM_TEXT, items.c.content_hash).where(_WITH_IDS)
# The key of the table starts with the model. Each model is found by one search in the key, from the model before:
# without the models, every deletion would read the whole table.
_first_model = select(func.min(embeddings.c.model).label("model")).cte("models", recursive=True, nesting=True)
_next_model = select(func.min(embeddings.c.model)).where(embeddings.c.model > _first_model.c.model).scalar_subquery()
_MODELS = _first_model.union_all(select(_next_model).where(_first_model.c.model.is_not(None)))
_FORGET = delete(embeddings).where(
    embeddings.c.model.in_(select(_MODELS.c.model)),
    embeddings.c.content_hash.in_(bindparam("hashes", expanding=True)),
)


@dataclass(slots=True)
class Forgotten:
    """Content of deleted rows, for the search of an erasure for remains."""

    texts: list[str] = field(default_factory=list)
    embeddings: int = 0
    """Number of stored vectors that were deleted with the rows."""


def forget_items(connection: Connection, ids: Collection[str], forgotten: Forgotten | None = None) -> int:
    """Delete items, the facts that were taken from them, and the vectors of both; return the number of rows.

    Items are withdrawn from the index first, so that a concurrent worker has either stored a vector, which is deleted,
    or finds no item.
    """
    total, pending = 0, set(ids)
    while pending:
        derived: set[str] = set()
        # Ids are sorted as text, because a corrupt id may be of any type.
        for batch in in_batches(sorted(pending, key=str)):
            withdraw(connection, batch)
            forget_embeddings(connection, batch, forgotten)
            total += connection.execute(_DELETE, {"ids": batch}).rowcount
            # Facts are queried last, to include the facts that a concurrent worker was writing.
            derived.update(connection.scalars(_DERIVED, {"ids": batch}))
        pending = derived - pending
    return total


def forget_embeddings(connection: Connection, ids: Collection[str], forgotten: Forgotten | None = None) -> None:
    """Delete the stored vectors of items. Vectors are cached by text: other items with the text are embedded again."""
    for batch in in_batches(sorted(ids, key=str)):
        hashes: set[str] = set()
        for title, text, image_hash in raw_rows(connection, _TEXTS, {"ids": batch}):
            hashes |= _vector_names(title, text, image_hash)
            if forgotten is not None:
                forgotten.texts += [each for each in (title, text) if isinstance(each, str)]
        if hashes:
            removed = connection.execute(_FORGET, {"hashes": sorted(hashes)}).rowcount
            if forgotten is not None:
                forgotten.embeddings += removed


def _vector_names(title: object, text: object, image_hash: object) -> set[str]:
    """Return the names of the vectors of the text and of the image of an item; none for corrupt columns."""
    names: set[str] = set()
    if is_decoded_text(image_hash):
        names.add(image_hash)
    # A corrupt item, or a turn whose message is corrupt, may have no text.
    if is_decoded_text(title) and is_decoded_text(text):
        names |= {content_hash(text), content_hash(indexed_text(title, text))}
    return names
