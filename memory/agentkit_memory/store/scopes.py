"""Scopes as rows: each is stored once and known by its number."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, select, tuple_

from agentkit_memory.scope import Scope
from agentkit_memory.store.engine import Database
from agentkit_memory.store.tables import scopes

__all__ = ["readable_ids", "scope_id"]

_NAMES = (scopes.c.tenant, scopes.c.user, scopes.c.session, scopes.c.agent)


_READABLE = select(scopes.c.id).where(tuple_(*_NAMES).in_(bindparam("names", expanding=True))).order_by(scopes.c.id)


def _names(scope: Scope) -> tuple[str, str, str, str]:
    return scope.tenant, scope.user, scope.session, scope.agent


def _find(connection: Connection, scope: Scope) -> int | None:
    tenant, user, session, agent = _names(scope)
    found: int | None = connection.scalar(
        select(scopes.c.id).where(
            scopes.c.tenant == tenant, scopes.c.user == user, scopes.c.session == session, scopes.c.agent == agent
        )
    )
    return found


def scope_id(database: Database, scope: Scope) -> int:
    """Return the number of a scope, giving it one if it has none yet."""
    with database.read() as connection:
        found = _find(connection, scope)
    if found is not None:
        return found
    with database.write() as connection:
        new = database.insert(scopes).values(
            tenant=scope.tenant, user=scope.user, session=scope.session, agent=scope.agent
        )
        connection.execute(new.on_conflict_do_nothing())
        found = _find(connection, scope)
    assert found is not None
    return found


def readable_ids(connection: Connection, scope: Scope) -> list[int]:
    """Return the numbers of the scopes that a reader in `scope` sees; a scope nobody wrote to has none."""
    return list(connection.scalars(_READABLE, {"names": [_names(each) for each in scope.readable()]}))
