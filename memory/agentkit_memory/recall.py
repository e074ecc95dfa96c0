"""From a question to the documents that may answer it."""

from __future__ import annotations

from agentkit_memory.errors import RecallError
from agentkit_memory.index.base import VectorIndex
from agentkit_memory.index.bm25 import query_vector
from agentkit_memory.scope import Scope
from agentkit_memory.store.engine import Database
from agentkit_memory.store.items import StoredItem, read_items
from agentkit_memory.store.scopes import readable_ids
from agentkit_prompts.context import Document

__all__ = ["check_query", "recall_documents"]


def check_query(query: str, limit: int) -> None:
    """Refuse what cannot be asked.

    Raises:
        RecallError: The query is no text, or the limit is less than 1.
    """
    if not isinstance(query, str):
        raise RecallError(f"recall: expected the question as text, got {type(query).__name__}")
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise RecallError(f"recall: expected a limit of 1 or more documents, got {limit!r}")


def recall_documents(
    database: Database, index: VectorIndex, scope: Scope, query: str, limit: int
) -> tuple[Document, ...]:
    """Return the best passages that `scope` may read, best first; equal scores are ordered by place.

    The index only proposes: what is returned is read from SQL, under the same scope, so that a passage that was
    deleted or belongs to somebody else cannot come back.
    """
    vector = query_vector(query)
    if not vector.indices:
        return ()
    with database.read() as connection:
        scope_ids = readable_ids(connection, scope)
        # More than asked for: some may be gone from SQL or say the same, and the order of equal scores is ours.
        hits = index.query_sparse(vector, scope_ids, 2 * limit + 8)
        if not hits:
            return ()
        scores = {hit.id: hit.score for hit in hits}
        found = read_items(connection, list(scores), scope_ids, database.clock())
    found.sort(key=lambda item: (-scores[item.id], item.uri, item.position, item.id))
    unique = {item.content_hash: item for item in reversed(found)}  # the best of those that say the same stays
    best = [item for item in found if unique[item.content_hash] is item]
    return tuple(_document(item, scores[item.id]) for item in best[:limit])


def _document(item: StoredItem, score: float) -> Document:
    return Document(
        item.text,
        id=item.id,
        title=item.title,
        source=item.source,
        score=score,
        position=item.position,
        metadata={"document": item.document_id, "start": item.start, "end": item.end, "line": item.line},
    )
