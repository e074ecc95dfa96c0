"""Whether items find themselves: a sample is searched for by its own texts and vectors, in its own scope."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, select

from agentkit_memory.database.engine import Database
from agentkit_memory.database.rows import decode_rows
from agentkit_memory.database.tables import items, vector_state
from agentkit_memory.embedders.contract import Vector
from agentkit_memory.embedders.encoder import kept_vectors
from agentkit_memory.index.vector_index import VectorIndex
from agentkit_memory.store.item_rows import IMAGE, content_hash, in_batches, wanted
from agentkit_memory.store.item_text import ITEM_TEXT
from agentkit_memory.store.spaces import Space
from agentkit_memory.terms.bm25_vectors import indexed_text, query_vector

__all__ = ["unfound_items"]

_LIMITS = (20, 200, 2000)
"""Hits that are looked through: the next number only where the one before returned as many, and not the item."""
_MIN_COSINE = 0.98
"""Of texts that are so near each other that either may be the first."""

_HELD = (
    select(*items.c["id", "scope_id", "kind", "title", "content_hash"], ITEM_TEXT)
    .join(vector_state, vector_state.c.item_id == items.c.id)
    .where(
        vector_state.c.space == bindparam("this"),
        vector_state.c.want == vector_state.c.have,
        wanted(),
    )
    .order_by(items.c.id)
)
_FROM = _HELD.where(items.c.id >= bindparam("at")).limit(bindparam("most"))
_BELOW = _HELD.where(items.c.id < bindparam("at")).limit(bindparam("most"))
_TEXTS = select(items.c.id, items.c.title, ITEM_TEXT).where(items.c.id.in_(bindparam("ids", expanding=True)))
_STILL = select(vector_state.c.item_id).where(
    vector_state.c.space == bindparam("this"),
    vector_state.c.item_id.in_(bindparam("ids", expanding=True)),
    vector_state.c.want == vector_state.c.have,
)


def unfound_items(database: Database, index: VectorIndex, space: Space, sample: int) -> list[str]:
    """Return the ids of those of some items that the index holds and does not find by their own texts or vectors."""
    start = {"this": space.name, "at": str(uuid.uuid4()), "most": sample}
    with database.read() as connection:
        rows = decode_rows(connection, _FROM, start, items.c.id).sound
        if (left := sample - len(rows)) > 0:
            rows += decode_rows(connection, _BELOW, start | {"most": left}, items.c.id).sound
    # The message of an item without a text is damaged.
    whole = [row for row in rows if row.text is not None]
    hashes = {each for row in whole for each in _hashes(row)} if space.model else ()
    vectors = kept_vectors(database, space.model, space.dimensions, hashes)
    missed = [row.id for row in whole if not (_by_words(database, index, row) and _by_vector(index, vectors, row))]
    still: set[str] = set()
    # What was changed or removed meanwhile is queued for a worker.
    with database.read() as connection:
        for some in in_batches(missed):
            still.update(connection.scalars(_STILL, {"this": space.name, "ids": some}))
    return [item for item in missed if item in still]


def _by_words(database: Database, index: VectorIndex, row: Any) -> bool:
    """Search for an item by its text; one without terms cannot be found by them."""
    question = query_vector(indexed_text(row.title, row.text))
    if not question.indices:
        return True
    for limit in _LIMITS:
        found = [hit.id for hit in index.query_sparse(question, [row.scope_id], limit)]
        if row.id in found:
            return True
        if len(found) < limit:
            return False
        if _same_text(database, row, found):
            return True
    return False


def _same_text(database: Database, row: Any, found: Sequence[str]) -> bool:
    """Whether the hits are copies of the item, of which any may be the first."""
    with database.read() as connection:
        return any(
            (row.title, row.text) == (each.title, each.text)
            for some in in_batches(found)
            for each in decode_rows(connection, _TEXTS, {"ids": some}, items.c.id).sound
        )


def _hashes(row: Any) -> list[str]:
    """Return the hashes that the vector of an item may be kept under: an image has its own, or that of its alt text."""
    return [row.content_hash] * (row.kind == IMAGE) + [content_hash(indexed_text(row.title, row.text))]


def _by_vector(index: VectorIndex, vectors: Mapping[str, Vector], row: Any) -> bool:
    """Search for an item by its kept vector, where it has one."""
    vector = next((vectors[each] for each in _hashes(row) if each in vectors), None)
    if vector is None or not any(vector):
        return True
    hits = index.query_dense(vector, [row.scope_id], _LIMITS[1])
    return row.id in {hit.id for hit in hits} or (
        len(hits) == _LIMITS[1] and min(hit.score for hit in hits) >= _MIN_COSINE
    )
