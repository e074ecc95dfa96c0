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

_owner = scopes.alias("owner")


def _aggregate(number: ColumnElement[Any], *owned: Table) -> ColumnElement[int]:
    """Return an aggregate over the rows of a tenant in the last of `owned`, tables that are joined in order."""
    rows: FromClause = scopes
    for table in owned:
        rows = rows.join(table)
    rows_of_tenant = select(number).select_from(rows).where(scopes.c.tenant == _owner.c.tenant)
    return func.coalesce(rows_of_tenant.scalar_subquery(), 0)


_ALL = select(
    _owner.c.tenant,
    _aggregate(func.count(func.distinct(func.nullif(scopes.c.user, "")))),
    _aggregate(func.count(), conversations),
    _aggregate(func.count(), conversations, branches, messages),
    _aggregate(func.count(), documents),
    *(_aggregate(func.count().filter(items.c.kind == kind), items) for kind in (CHUNK, TURN, FACT)),
    _aggregate(func.count(), recall_logs),
    _aggregate(func.sum(func.length(images.c.content)), documents, images),
    _aggregate(func.sum(func.length(messages.c.body)), conversations, branches, messages)
    + _aggregate(func.sum(func.length(ITEM_TEXT) + func.length(items.c.meta)), items)
    + _aggregate(func.sum(func.length(document_chunks.c.meta)), items, document_chunks)
    + _aggregate(func.sum(func.length(recall_logs.c.candidates)), recall_logs),
).group_by(_owner.c.tenant)
"""The fields of `Usage` in one statement, so that all numbers are of one moment."""


def usage_of(database: Database) -> tuple[Usage, ...]:
    """Return the usage of each tenant, by name; see `Admin.usage`."""
    with database.read() as connection, raw_texts(connection):
        rows = connection.execute(_ALL).all()
    # The name of a tenant may be corrupt: bytes, a number, or text that is not UTF-8.
    named = [(str(tenant).encode("utf-8", "replace").decode(), numbers) for tenant, *numbers in rows]
    return tuple([Usage(name, *numbers) for name, numbers in sorted(named)])
