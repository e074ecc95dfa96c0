"""Search for a sample of items by their own texts and vectors, each item in its scope."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, select

from agentkit_memory.database.engine import Database
from agentkit_memory.database.rows import decode_rows
from agentkit_memory.database.tables import items, vector_state
from agentkit_memory.embedders.contract import Vector
from agentkit_memory.embedders.encoder import stored_vectors
from agentkit_memory.index.vector_index import VectorIndex
from agentkit_memory.store.item_rows import IMAGE, content_hash, in_batches, is_current
from agentkit_memory.store.item_text import ITEM_TEXT
from agentkit_memory.store.spaces import Space
from agentkit_memory.terms.bm25_vectors import document_vector, indexed_text, query_vector

_LIMITS = (20, 200, 2000)
"""Numbers of hits to request, in order. The next number is used if a search returns all hits, without the item."""
_MIN_COSINE = 0.98
"""Cosine similarity from which two vectors are near copies, whose order in the hits is arbitrary."""

_INDEXED = (
    select(*items.c["id", "scope_id", "kind", "title", "content_hash"], ITEM_TEXT)
    .join(vector_state, vector_state.c.item_id == items.c.id)
    .where(
        vector_state.c.space == bindparam("this"),
        vector_state.c.want == vector_state.c.have,
        is_current(),
    )
    .order_by(items.c.id)
)
_FROM_ID = _INDEXED.where(items.c.id >= bindparam("at")).limit(bindparam("most"))
_BELOW_ID = _INDEXED.where(items.c.id < bindparam("at")).limit(bindparam("most"))
_TEXTS = select(items.c.id, items.c.title, ITEM_TEXT).where(items.c.id.in_(bindparam("ids", expanding=True)))
_UNCHANGED = select(vector_state.c.item_id).where(
    vector_state.c.space == bindparam("this"),
    vector_state.c.item_id.in_(bindparam("ids", expanding=True)),
    vector_state.c.want == vector_state.c.have,
)


def unfound_items(database: Database, index: VectorIndex, space: Space, sample: int) -> list[str]:
    """Return the ids of indexed items of a sample that the index does not find by their own texts or vectors."""
    rows = _sample(database, space, sample)
    hashes: set[str] = set()
    if space.model:
        hashes = {each for row in rows for each in _hashes(row)}
    vectors = stored_vectors(database, space.model, space.dimensions, hashes)
    missed = [
        row.id
        for row in rows
        if not (_is_found_by_words(database, index, row) and _is_found_by_vector(index, vectors, row))
    ]
    unchanged: set[str] = set()
    # An item that was changed or removed during the search is left out: a worker will update the index.
    with database.read() as connection:
        for batch in in_batches(missed):
            unchanged.update(connection.scalars(_UNCHANGED, {"this": space.name, "ids": batch}))
    return [item for item in missed if item in unchanged]


def _sample(database: Database, space: Space, size: int) -> list[Any]:
    """Return rows of indexed items: the items after a random id, since ids are random too."""
    start = {"this": space.name, "at": str(uuid.uuid4()), "most": size}
    with database.read() as connection:
        rows = decode_rows(connection, _FROM_ID, start, items.c.id).sound
        if (rest := size - len(rows)) > 0:
            rows += decode_rows(connection, _BELOW_ID, start | {"most": rest}, items.c.id).sound
    # An item without a text belongs to a corrupt message, which `corrupt_rows` reports.
    return [row for row in rows if row.text is not None]


def _is_found_by_words(database: Database, index: VectorIndex, row: Any) -> bool:
    """Return True if the index finds an item by its text, or the text has no terms."""
    text = indexed_text(row.title, row.text)
    # A text of stop words has terms as a question only: the index contains none of them.
    if not document_vector(text).indices:
        return True
    question = query_vector(text)
    for limit in _LIMITS:
        ids = [hit.id for hit in index.query_sparse(question, [row.scope_id], limit)]
        if row.id in ids:
            return True
        if len(ids) < limit:
            return False
        if _has_copy(database, row, ids):
            return True
    return False


def _has_copy(database: Database, row: Any, ids: Sequence[str]) -> bool:
    """Return True if an item among the ids has the same text: the order of copies in the hits is arbitrary."""
    with database.read() as connection:
        return any(
            (row.title, row.text) == (each.title, each.text)
            for batch in in_batches(ids)
            for each in decode_rows(connection, _TEXTS, {"ids": batch}, items.c.id).sound
        )


def _hashes(row: Any) -> list[str]:
    """Return the possible hashes of the stored vector of an item: an image may be embedded by its alt text."""
    hashes = [content_hash(indexed_text(row.title, row.text))]
    if row.kind == IMAGE:
        hashes.insert(0, row.content_hash)
    return hashes


def _is_found_by_vector(index: VectorIndex, vectors: Mapping[str, Vector], row: Any) -> bool:
    """Return True if the index finds an item by its stored vector, or the item has no stored vector."""
    vector = next((vectors[each] for each in _hashes(row) if each in vectors), None)
    if vector is None or not any(vector):
        return True
    hits = index.query_dense(vector, [row.scope_id], _LIMITS[1])
    if row.id in {hit.id for hit in hits}:
        return True
    # If every hit is a near copy of the item, the item may be after the last hit.
    return len(hits) == _LIMITS[1] and min(hit.score for hit in hits) >= _MIN_COSINE
