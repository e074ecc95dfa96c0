"""`ReadView`: the state that a recall reads before it searches: scopes, active space and waiting items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from sqlalchemy import Connection, func, literal_column, select

from agentkit_memory.database.prepared import Prepared
from agentkit_memory.database.tables import branches, conversations, scopes, vector_spaces, vector_state
from agentkit_memory.scope import NAMES, Scope, SharedScope
from agentkit_memory.store.scope_rows import READABLE
from agentkit_memory.store.spaces import Space, active_space
from agentkit_memory.terms.bm25_vectors import SPACE

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
"""Maximum number of conversations, the newest of all scopes, that a recall searches for messages without items."""

QUEUE = (
    select(*branches.c["id", "name", "head_seq", "itemised_seq", "conversation_id"])
    .where(branches.c.itemised_seq < branches.c.head_seq)
    .order_by(branches.c.conversation_id.desc())
    .limit(literal_column(str(MAX_BEHIND)))
    .subquery("queue")
)
"""The branches with messages that are not items yet, newest first."""

_owner = select(conversations.c.scope_id).where(conversations.c.id == QUEUE.c.conversation_id).scalar_subquery()
_behind = select(QUEUE.c.id).where(_owner == scopes.c.id).correlate(scopes).exists()
_queued = select(func.count()).select_from(QUEUE).scalar_subquery()
_VIEW = Prepared(
    select(scopes.c.id, *_NAMES, *_SPACE, _pending, _behind, _queued)
    .select_from(scopes)
    .outerjoin(vector_spaces, vector_spaces.c.state == "active")
    # Rows are sorted in Python, because SQLite would read every scope to sort by the numbers.
    .where(*READABLE)
)


@dataclass(frozen=True, slots=True)
class ReadView:
    """The state of a store for a reader in one scope, at one moment."""

    own: int | None
    """Number of the reader's scope; None if the scope was never written to."""
    scope_ids: tuple[int, ...]
    """Numbers of the readable scopes with rows."""
    space: Space
    """The active space."""
    pending: bool
    """True if items of these scopes wait for the index."""
    behind: bool
    """True if messages of these scopes are not items yet."""
    crowded: bool = False
    """True if `MAX_BEHIND` conversations have messages without items, so that `behind` may be incorrect."""


def read_view(connection: Connection, scope: Scope, shared: Sequence[SharedScope] = ()) -> ReadView:
    """Return the state of the store for a reader in `scope`, who also reads shared documents."""
    own_names, readable = scope.names, scope.readable_names(shared)
    rows = sorted([tuple(row) for row in _VIEW.rows(connection, readable)], key=itemgetter(0))
    if not rows:
        return ReadView(None, (), active_space(connection), pending=False, behind=False)
    own = None
    pending = behind = False
    for row in rows:
        if row[1:5] == own_names:
            own = row[0]
        pending, behind = pending or bool(row[10]), behind or bool(row[11])
    space = Space(SPACE)
    # Before the first indexing no space is active.
    if rows[0][5] is not None:
        space = Space(*rows[0][5:10])
    return ReadView(own, tuple([row[0] for row in rows]), space, pending, behind, rows[0][12] >= MAX_BEHIND)
