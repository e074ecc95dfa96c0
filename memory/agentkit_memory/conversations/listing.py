"""Which conversations a scope has."""

from __future__ import annotations

from sqlalchemy import bindparam, func, select

from agentkit_memory.conversations.message_rows import MAIN
from agentkit_memory.scope import Scope
from agentkit_memory.store.engine import Database
from agentkit_memory.store.records import SessionInfo
from agentkit_memory.store.scope_rows import known_ids
from agentkit_memory.store.tables import branches, conversations, messages

__all__ = ["sessions_of"]

_LAST = select(func.max(messages.c.created_at)).where(messages.c.branch_id == branches.c.id).scalar_subquery()
_LISTED = (
    select(conversations.c.name, conversations.c.created_at, branches.c.head_seq, _LAST.label("last"))
    .join(branches, branches.c.conversation_id == conversations.c.id)
    .where(
        conversations.c.scope_id.in_(bindparam("scopes", expanding=True)),
        branches.c.name == MAIN,
        conversations.c.expires_at.is_(None) | (conversations.c.expires_at > bindparam("now")),
    )
)


def sessions_of(
    database: Database, scope: Scope, *, name: str | None, after: str, limit: int
) -> tuple[SessionInfo, ...]:
    """Return the conversations of exactly this scope, by name.

    Args:
        database: Where they are.
        scope: Whose they are.
        name: Only the one of this name.
        after: Only those whose names come after this one.
        limit: Most to return.
    """
    query = _LISTED.order_by(conversations.c.name).limit(limit)
    query = query.where(conversations.c.name == name) if name is not None else query
    query = query.where(conversations.c.name > after) if after else query
    with database.read() as connection:
        rows = connection.execute(query, {"scopes": known_ids(database, scope), "now": database.clock()}).all()
    return tuple([SessionInfo(row.name, row.head_seq, row.created_at, row.last) for row in rows])
