"""Lists of conversations."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import ColumnElement, bindparam, func, literal, select

from agentkit_memory.checks import check_limit
from agentkit_memory.conversations.message_rows import MAIN
from agentkit_memory.database.engine import Database
from agentkit_memory.database.rows import sound_rows
from agentkit_memory.database.tables import branches, conversations, messages, scopes
from agentkit_memory.scope import Scope, check_name
from agentkit_memory.store.records import SessionInfo

_LAST = (
    select(messages.c.created_at)
    .where(messages.c.branch_id == branches.c.id, messages.c.seq == branches.c.head_seq)
    .scalar_subquery()
)
_LIVE = (
    branches.c.name == MAIN,
    conversations.c.expires_at.is_(None) | (conversations.c.expires_at > bindparam("now")),
)
_NAMES = ("tenant", "user", "agent")
_LISTED = (
    select(conversations.c.name, conversations.c.created_at, branches.c.head_seq, _LAST.label("last"))
    .join(branches, branches.c.conversation_id == conversations.c.id)
    .where(conversations.c.scope_id == scopes.c.id, *[scopes.c[name] == bindparam(name) for name in _NAMES], *_LIVE)
)
_NEWEST = (
    select(scopes.c.user, conversations.c.name)
    .join(conversations, conversations.c.scope_id == scopes.c.id)
    .join(branches, branches.c.conversation_id == conversations.c.id)
    .where(scopes.c.tenant == bindparam("tenant"), scopes.c.agent == "", *_LIVE)
    .order_by(func.coalesce(_LAST, conversations.c.created_at).desc(), scopes.c.user, conversations.c.name)
)


def sessions_of(
    database: Database, scope: Scope, *, name: str | None, after: str, limit: int, separate: bool
) -> tuple[SessionInfo, ...]:
    """Return the conversations of a scope, ordered by name; see `Memory.sessions`."""
    for each in (name, after):
        if each is not None:
            check_name("sessions", each)
    check_limit("sessions", limit)
    query = _LISTED.order_by(conversations.c.name).limit(limit)
    session: ColumnElement[str] = literal(scope.session)
    if separate:
        session = conversations.c.name
        scope = replace(scope, user="")
    query = query.where(scopes.c.session == session)
    if name is not None:
        query = query.where(conversations.c.name == name)
    if after:
        query = query.where(conversations.c.name > after)
    with database.read() as connection:
        bound = {**{name: getattr(scope, name) for name in _NAMES}, "now": database.clock()}
        rows = sound_rows(connection, query, bound, conversations.c.name)
    return tuple([SessionInfo(row.name, row.head_seq, row.created_at, row.last) for row in rows])


def newest_sessions(database: Database, scope: Scope, *, limit: int) -> tuple[tuple[str, str], ...]:
    """Return user and name of each conversation of a tenant; see `Memory.newest_sessions`."""
    check_limit("newest_sessions", limit)
    query = _NEWEST.limit(limit)
    if scope.user:
        query = query.where(scopes.c.user == scope.user)
    with database.read() as connection:
        bound = {"tenant": scope.tenant, "now": database.clock()}
        rows = sound_rows(connection, query, bound, conversations.c.name)
    return tuple([(row.user, row.name) for row in rows])
