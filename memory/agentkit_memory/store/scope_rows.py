"""Rows of scopes. Each scope has a number, and every query lists the numbers of the scopes that it may read."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, bindparam, select

from agentkit_memory.database.engine import Database, upserts
from agentkit_memory.database.tables import scopes
from agentkit_memory.errors import InvalidArgument
from agentkit_memory.scope import NAMES, Scope, SharedScope

_NAMES = scopes.c[NAMES].values()

_FIND = select(scopes.c.id).where(*(column == bindparam(f"its_{column.name}") for column in _NAMES))
READABLE = tuple([column.in_(bindparam(column.name, expanding=True)) for column in _NAMES])
"""Conditions of a readable scope, one per name column, with `Scope.readable_names` as parameters. SQLite uses an index
for these conditions, but not for a condition on tuples of names."""
_READABLE = select(scopes.c.id).where(*READABLE).order_by(scopes.c.id)
_NEW = upserts(scopes)
_HOLD = select(scopes.c.id).where(scopes.c.id == bindparam("scope")).with_for_update()


def find_number(connection: Connection, scope: Scope | SharedScope) -> int | None:
    """Return the number of a scope; None if it is not stored."""
    number: int | None = connection.scalar(
        _FIND, {f"its_{name}": value for name, value in zip(NAMES, scope.names, strict=True)}
    )
    return number


def scope_id(database: Database, scope: Scope | SharedScope) -> int:
    """Return the number of a scope; a new scope is stored.

    The number is a hash of the names, so that the number of an erased scope is never assigned to another scope: an
    index or an open conversation may still refer to the number.
    """
    with database.read() as connection:
        number = find_number(connection, scope)
    if number is None:
        return database.change(lambda connection: number_of(connection, scope))
    return number


def number_of(connection: Connection, scope: Scope | SharedScope) -> int:
    """Return the number of a scope within a transaction; a new scope is stored."""
    candidate = int.from_bytes(hashlib.blake2b(scope.key.encode(), digest_size=8).digest(), "big") >> 1
    while (number := find_number(connection, scope)) is None:
        names = dict(zip(NAMES, scope.names, strict=True))
        connection.execute(_NEW[connection.dialect.name], {"id": candidate, **names})
        # If the hashes of two scopes collide, the next number is tried.
        candidate += 1
    return number


def known_ids(database: Database, scope: Scope | SharedScope) -> list[int]:
    """Return a list with the number of a scope, or an empty list for a scope that is not stored. No row is added."""
    with database.read() as connection:
        own = find_number(connection, scope)
    if own is None:
        return []
    return [own]


def required(scope_ids: Sequence[int] | None) -> list[int]:
    """Return the numbers of the scopes to read. An empty list reads nothing; None is an error.

    Raises:
        InvalidArgument: The scopes are missing.
    """
    if scope_ids is None or isinstance(scope_ids, str) or not all(type(each) is int for each in scope_ids):
        raise InvalidArgument(
            f"reading needs a scope: expected the numbers from `readable_ids`, got {scope_ids!r}", name="scope_ids"
        )
    return list(scope_ids)


def is_readable(column: ColumnElement[int]) -> ColumnElement[bool]:
    """Return the condition that `column` refers to a scope in `Scope.readable_names`."""
    return column.in_(select(scopes.c.id).where(*READABLE))


def readable_ids(connection: Connection, scope: Scope) -> list[int]:
    """Return the numbers of the stored scopes that a reader in `scope` may read.

    Raises:
        InvalidArgument: `scope` is not a scope.
    """
    return list(connection.scalars(_READABLE, Scope.of(scope).readable_names()))


def covered_ids(connection: Connection, scope: Scope) -> list[int]:
    """Return the numbers of the scopes with all names of `scope`, which a subject owns."""
    conditions = [column == name for column, name in zip(_NAMES, Scope.of(scope).names, strict=True) if name]
    return list(connection.scalars(select(scopes.c.id).where(*conditions).order_by(scopes.c.id)))


def hold_scope(connection: Connection, scope_number: int) -> None:
    """Lock a scope, so that only one transaction assigns positions in it; SQLite has one writer anyway."""
    if connection.dialect.name != "sqlite":
        connection.execute(_HOLD, {"scope": scope_number})
