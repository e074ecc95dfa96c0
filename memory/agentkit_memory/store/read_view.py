"""`ReadView`: what a reader knows before it searches: its scopes, the active space, and whether anything waits."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter

from sqlalchemy import Connection, func, literal_column, select

from agentkit_memory.database.prepared import Prepared
from agentkit_memory.database.tables import branches, conversations, scopes, vector_spaces, vector_state
from agentkit_memory.scope import NAMES, Scope
from agentkit_memory.store.scope_rows import READABLE
from agentkit_memory.store.spaces import Space, active_space
from agentkit_memory.terms.bm25_vectors import SPACE

__all__ = ["MAX_BEHIND", "QUEUE", "ReadView", "read_view"]

_NAMES = scopes.c[NAMES].values()
_SPACE = vector_spaces.c["space", "index_id", "model", "dimensions", "state"]
_state = vector_state.c
_pending = (
    select(_state.item_id)
    .where(
        _state.space == func.coalesce(vector_spaces.c.space, SPACE),
        _state.scope_id == scopes.c.id,
        _state.want != _state.have,
    )
    .correlate(scopes, vector_spaces)
    .exists()
)
MAX_BEHIND = 1_000
"""Conversations with messages that are no items yet, of all scopes: of more, a reader looks at the newest."""

QUEUE = (
    select(*branches.c["id", "name", "head_seq", "itemised_seq", "conversation_id"])
    .where(branches.c.itemised_seq < branches.c.head_seq)
    .order_by(branches.c.conversation_id.desc())
    .limit(literal_column(str(MAX_BEHIND)))
    .subquery("queue")
)
"""The branches that a reader looks at for new messages: the few that are behind, not all of the scope."""

_owner = select(conversations.c.scope_id).where(conversations.c.id == QUEUE.c.conversation_id).scalar_subquery()
_behind = select(QUEUE.c.id).where(_owner == scopes.c.id).correlate(scopes).exists()
_queued = select(func.count()).select_from(QUEUE).scalar_subquery()
_VIEW = Prepared(
    select(scopes.c.id, *_NAMES, *_SPACE, _pending, _behind, _queued)
    .select_from(scopes)
    .outerjoin(vector_spaces, vector_spaces.c.state == "active")
    # In any order: to sort by the numbers, SQLite would read every scope.
    .where(*READABLE)
)


@dataclass(frozen=True, slots=True)
class ReadView:
    """What one reader sees, as of one moment."""

    own: int | None
    """Number of the reader's scope, if anything was ever written to it."""
    scope_ids: tuple[int, ...]
    """Numbers of the scopes that may be read, of those that were ever written to."""
    space: Space
    """The active one."""
    pending: bool
    """Whether items of these scopes wait for the index."""
    behind: bool
    """Whether messages of these scopes are no items yet."""
    crowded: bool = False
    """Whether so many conversations are behind that some of these scopes may be, too."""


def read_view(connection: Connection, scope: Scope) -> ReadView:
    """Return what a reader in `scope` sees."""
    mine, readable = scope.names, scope.readable_names()
    rows = sorted([tuple(row) for row in _VIEW.rows(connection, readable)], key=itemgetter(0))
    if not rows:
        return ReadView(None, (), active_space(connection), pending=False, behind=False)
    own = None
    pending = behind = False
    for row in rows:
        if row[1:5] == mine:
            own = row[0]
        pending, behind = pending or bool(row[10]), behind or bool(row[11])
    space = Space(SPACE)
    # No space is active until something was indexed.
    if rows[0][5] is not None:
        space = Space(*rows[0][5:10])
    return ReadView(own, tuple([row[0] for row in rows]), space, pending, behind, rows[0][12] >= MAX_BEHIND)
