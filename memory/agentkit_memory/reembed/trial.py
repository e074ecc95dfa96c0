"""The checks of a new space: it must find its own items, and the items that the active space found until now."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, select

from agentkit_memory.database.engine import Database
from agentkit_memory.database.rows import decode_rows, raw_rows
from agentkit_memory.database.tables import items, recall_logs, scopes, vector_state
from agentkit_memory.embedders.contract import Vector
from agentkit_memory.embedders.store_embedders import Embedders
from agentkit_memory.index.indexes import Indexes
from agentkit_memory.index.vector_index import Hit, VectorIndex
from agentkit_memory.reembed.gate import Gate, GateCheck
from agentkit_memory.scope import NAMES, Scope
from agentkit_memory.store.item_rows import IMAGE, is_current
from agentkit_memory.store.item_text import ITEM_TEXT
from agentkit_memory.store.recall_logs import used_items
from agentkit_memory.store.scope_rows import readable_ids
from agentkit_memory.store.spaces import Space
from agentkit_memory.terms.bm25_vectors import indexed_text, query_vector

_BEST = 10
"""Number of best hits that must contain an item, or that must be found again."""
_HITS = 50
"""Number of hits among which an item must be found again."""
_EXAMPLES = 10
"""Maximum ids of missed items in a check."""
_MIN_WORDS = 8
"""Minimum words of an item that are used as its question."""

_is_indexed = (
    vector_state.c.item_id == items.c.id,
    vector_state.c.space == bindparam("this"),
    vector_state.c.want == vector_state.c.have,
    is_current(),
)
# Ids are hashes of content, so that the first ids are a sample, which is the same in each try.
_SAMPLE = (
    select(items.c.id, items.c.scope_id, items.c.title, ITEM_TEXT)
    .join(vector_state, vector_state.c.item_id == items.c.id)
    # Images are left out, because they may have the vectors of their pixels, not of their texts.
    .where(*_is_indexed, items.c.kind != IMAGE, ITEM_TEXT.element.is_not(None))
    .order_by(items.c.id)
    .limit(bindparam("most"))
)
_INDEXED = (
    select(items.c.id, items.c.scope_id)
    .join(vector_state, vector_state.c.item_id == items.c.id)
    .where(*_is_indexed, items.c.id.in_(bindparam("ids", expanding=True)))
)
_TEXTS = select(ITEM_TEXT).where(items.c.id.in_(bindparam("ids", expanding=True)))
_RECENT = (
    select(*recall_logs.c["id", "query", "candidates"], *scopes.c[NAMES])
    .join(scopes, scopes.c.id == recall_logs.c.scope_id)
    .order_by(recall_logs.c.id.desc())
    .limit(bindparam("most"))
)


def check(
    indexes: Indexes, embedders: Embedders, space: Space, index: VectorIndex, gate: Gate, scope: Scope
) -> tuple[GateCheck, ...]:
    """Run the checks of a gate on a space that was built.

    Raises:
        IndexUnavailable: The gate has questions, and another process owns the active index.
        EmbedderError: A question cannot be embedded.
    """
    database = indexes.database
    searcher = _SpaceSearcher(embedders, space, index)
    checks = [_self_retrieval(database, searcher, gate), _recent_recalls(database, searcher, gate)]
    if gate.questions:
        active = indexes.active()
        before = _SpaceSearcher(embedders, active, indexes.catch_up(active))
        checks.append(_questions(database, before, searcher, gate, scope))
    return tuple(checks)


class _SpaceSearcher:
    """Searches one space, by BM25 and dense vectors."""

    def __init__(self, embedders: Embedders, space: Space, index: VectorIndex) -> None:
        self.space = space
        self._index = index
        self._embedders = embedders

    def vectors(self, questions: Sequence[str]) -> list[Vector | None]:
        """Return the dense vectors of questions, all at once."""
        if not self.space.model or not questions:
            return [None] * len(questions)
        return [*self._embedders.get(self.space.model).questions(questions)]

    def best_ids(
        self, question: str, vector: Vector | None, scope_ids: Sequence[int], most: int, *, both: bool = True
    ) -> set[str]:
        """Return the ids of the best hits by BM25 and by vector; without `both`, by vector or, without one, by BM25."""
        hits: list[Hit] = []
        if both or vector is None:
            hits += self._index.query_sparse(query_vector(question), scope_ids, most)
        if vector is not None:
            hits += self._index.query_dense(vector, scope_ids, most)
        return {hit.id for hit in hits}


def _self_retrieval(database: Database, searcher: _SpaceSearcher, gate: Gate) -> GateCheck:
    """Query items with half of their text."""
    with database.read() as connection:
        rows = decode_rows(connection, _SAMPLE, {"this": searcher.space.name, "most": gate.sample}, items.c.id).sound
    questions = [_half(indexed_text(row.title, row.text)) for row in rows]
    # No connection is open while the model computes, which may take long.
    vectors = searcher.vectors(questions)
    missed = []
    with database.read() as connection:
        for row, question, vector in zip(rows, questions, vectors, strict=True):
            ids = searcher.best_ids(question, vector, [row.scope_id], _BEST, both=False)
            texts = [text for (text,) in raw_rows(connection, _TEXTS, {"ids": sorted(ids)})]
            if row.id not in ids and row.text not in texts:
                missed.append(row.id)
    return _result("self-retrieval", len(rows), missed, gate.self_retrieval)


def _recent_recalls(database: Database, searcher: _SpaceSearcher, gate: Gate) -> GateCheck:
    """Repeat recent questions in their scopes: the new space should find the items that the recalls used."""
    database.deferred.settle()
    with database.read() as connection:
        recent = decode_rows(connection, _RECENT, {"most": gate.sample}, recall_logs.c.id).sound
    vectors = searcher.vectors([row.query for row in recent])
    tried, missed = 0, []
    with database.read() as connection:
        for row, vector in zip(recent, vectors, strict=True):
            used = used_items(row.candidates)
            rows = connection.execute(_INDEXED, {"this": searcher.space.name, "ids": used}).all()
            indexed = {item.id for item in rows}
            readable = readable_ids(connection, Scope(row.tenant, row.user, row.session, row.agent))
            # The scopes of the items are added, because the recall can have read shared documents.
            scope_ids = sorted({*readable, *[item.scope_id for item in rows]})
            tried += len(indexed)
            missed += sorted(indexed - searcher.best_ids(row.query, vector, scope_ids, _HITS))
    return _result("recent recalls", tried, missed, gate.overlap)


def _questions(
    database: Database, before: _SpaceSearcher, searcher: _SpaceSearcher, gate: Gate, scope: Scope
) -> GateCheck:
    """Query both spaces: the new space should find the hits of the active space."""
    vectors = zip(before.vectors(gate.questions), searcher.vectors(gate.questions), strict=True)
    tried, missed = 0, []
    with database.read() as connection:
        scope_ids = readable_ids(connection, scope)
    for question, (old, new) in zip(gate.questions, vectors, strict=True):
        ids = before.best_ids(question, old, scope_ids, _BEST)
        tried += len(ids)
        missed += sorted(ids - searcher.best_ids(question, new, scope_ids, _HITS))
    return _result("questions", tried, missed, gate.overlap)


def _half(text: str) -> str:
    """Return the first half of the words of a text, at least eight words."""
    words = text.split()
    return " ".join(words[: max(_MIN_WORDS, len(words) // 2)])


def _result(name: str, tried: int, missed: Sequence[str], minimum: float) -> GateCheck:
    return GateCheck(name, tried, tried - len(missed), minimum, tuple(missed[:_EXAMPLES]))
