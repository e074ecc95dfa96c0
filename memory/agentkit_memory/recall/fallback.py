"""BM25 over rows of SQL, for when the index is busy, broken or away: slower, and over the newest items only."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sqlalchemy import Connection

from agentkit_memory.index.vector_index import Hit
from agentkit_memory.store.item_rows import recallable
from agentkit_memory.store.scopes import required
from agentkit_memory.store.tables import items
from agentkit_memory.terms.sparse import SparseVector, held_terms, indexed_text

__all__ = ["MAX_ROWS", "search_rows"]

MAX_ROWS = 2_000
"""How many of the newest items are scored."""

_NEWEST = recallable().order_by(items.c.created_at.desc(), items.c.id).limit(MAX_ROWS)


def search_rows(
    connection: Connection, query: SparseVector, scope_ids: Sequence[int], now: float, limit: int
) -> list[Hit]:
    """Return the best items for a query as an index would, with term weights from these rows.

    Raises:
        ScopeError: No scope was given.
    """
    asked = dict(zip(query.indices, query.values, strict=True))
    rows = connection.execute(_NEWEST, {"scopes": required(scope_ids), "now": now}).all()
    held: list[tuple[str, dict[int, float]]] = []
    spread: dict[int, int] = {}
    for item, title, text in rows:
        terms = held_terms(indexed_text(title, text), asked)
        if terms:
            held.append((item, terms))
        for term in terms:
            spread[term] = spread.get(term, 0) + 1
    weight = {term: math.log1p((len(rows) - texts + 0.5) / (texts + 0.5)) for term, texts in spread.items()}
    hits = [Hit(item, sum(weight[term] * value for term, value in terms.items())) for item, terms in held]
    return sorted(hits, key=lambda hit: (-hit.score, hit.id))[:limit]
