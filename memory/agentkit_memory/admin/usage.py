"""Usage of a store by tenant."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, FromClause, Table, func, select

from agentkit_memory.database.engine import Database
from agentkit_memory.database.rows import raw_texts
from agentkit_memory.database.tables import (
    branches,
    conversations,
    document_chunks,
    documents,
    images,
    items,
    messages,
    recall_logs,
    scopes,
)
from agentkit_memory.store.item_text import ITEM_TEXT
from agentkit_memory.store.records import CHUNK, FACT, TURN, Usage

__all__ = ["usage_of"]

_owner = scopes.alias("owner")


def _of(number: ColumnElement[Any], *owned: Table) -> ColumnElement[int]:
    """Return an aggregate of the rows that a tenant owns in the last of these tables, joined in order."""
    rows: FromClause = scopes
    for table in owned:
        rows = rows.join(table)
    theirs = select(number).select_from(rows).where(scopes.c.tenant == _owner.c.tenant)
    return func.coalesce(theirs.scalar_subquery(), 0)


_ALL = select(
    _owner.c.tenant,
    _of(func.count(func.distinct(func.nullif(scopes.c.user, "")))),
    _of(func.count(), conversations),
    _of(func.count(), conversations, branches, messages),
    _of(func.count(), documents),
    *(_of(func.count().filter(items.c.kind == kind), items) for kind in (CHUNK, TURN, FACT)),
    _of(func.count(), recall_logs),
    _of(func.sum(func.length(images.c.content)), documents, images),
    _of(func.sum(func.length(messages.c.body)), conversations, branches, messages)
    + _of(func.sum(func.length(ITEM_TEXT) + func.length(items.c.meta)), items)
    + _of(func.sum(func.length(document_chunks.c.meta)), items, document_chunks)
    + _of(func.sum(func.length(recall_logs.c.candidates)), recall_logs),
).group_by(_owner.c.tenant)
"""The fields of `Usage` in one statement, so that they are of one moment."""


def usage_of(database: Database) -> tuple[Usage, ...]:
    """Return the usage of each tenant, by name; see `Admin.usage`."""
    with database.read() as connection, raw_texts(connection):
        rows = connection.execute(_ALL).all()
    # A corrupt name may have another type.
    named = [(str(tenant).encode("utf-8", "replace").decode(), numbers) for tenant, *numbers in rows]
    return tuple([Usage(name, *numbers) for name, numbers in sorted(named)])
