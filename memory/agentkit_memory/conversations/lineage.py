"""Branches of a conversation, and the messages that a branch shares with its ancestors."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, select

from agentkit_memory.database.tables import branches

BRANCHES = (
    select(*branches.c["id", "name", "parent_id", "fork_seq", "head_seq"])
    .where(branches.c.conversation_id == bindparam("conversation"))
    .order_by(branches.c.id)
)
"""Branches of a conversation, oldest first."""


def shared(
    connection: Connection, conversation: int, parent: int | None, until: int
) -> tuple[tuple[int, int, int], ...]:
    """Return the ranges of messages that a fork at message `until` of branch `parent` shares, in order."""
    rows = {row.id: row for row in connection.execute(BRANCHES, {"conversation": conversation})}
    ranges: list[tuple[int, int, int]] = []
    while parent is not None and until > 0 and parent in rows:
        start = rows[parent].fork_seq
        if start < until:
            ranges.append((parent, start, until))
        parent, until = rows[parent].parent_id, min(start, until)
    return tuple(reversed(ranges))
