"""`queue_facts`: facts that wait for the index without a notification of the memory."""

from __future__ import annotations

from sqlalchemy import insert

from agentkit.memory import Memory
from agentkit.testing import StoreProbe
from agentkit_memory.database.tables import items, vector_state


def queue_facts(memory: Memory, bird: str, count: int, first: int = 0) -> None:
    """Store `count` facts of a bird in the scope of a memory, numbered from `first`, and queue them for the index."""
    probe = StoreProbe(memory)
    (space,), scope = probe.values("SELECT space FROM vector_spaces WHERE state = 'active'"), probe.scope_number
    rows = [
        {
            "id": f"{number:08x}-0000-4000-8000-000000000000",
            "scope_id": scope,
            "kind": "fact",
            "position": number,
            "title": "",
            "text": f"A {bird} is bird {number}.",
            "content_hash": "",
            "start": 0,
            "end": 9,
            "line": 0,
            "created_at": float(number),
        }
        for number in range(first, first + count)
    ]
    probe.execute(insert(items), *rows)
    queued = [{"item_id": row["id"], "space": space, "want": 1, "have": 0, "scope_id": scope} for row in rows]
    probe.execute(insert(vector_state), *queued)
