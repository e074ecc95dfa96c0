"""What each tenant of a store takes."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, func, literal, select, union_all

from agentkit_memory.database.engine import Database
from agentkit_memory.database.readable_rows import texts_as_they_are
from agentkit_memory.database.tables import (
    branches,
    conversations,
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

_tenant = scopes.c.tenant
_OWNED = select(_tenant).select_from(scopes)


def _kind(kind: str) -> ColumnElement[int]:
    return func.count().filter(items.c.kind == kind)


_COUNTED = (
    select(_tenant, func.count(func.distinct(func.nullif(scopes.c.user, "")))),
    _OWNED.add_columns(func.count()).join(conversations, conversations.c.scope_id == scopes.c.id),
    _OWNED.add_columns(func.count(), func.sum(func.length(messages.c.body)))
    .join(conversations, conversations.c.scope_id == scopes.c.id)
    .join(branches, branches.c.conversation_id == conversations.c.id)
    .join(messages, messages.c.branch_id == branches.c.id),
    _OWNED.add_columns(func.count()).join(documents, documents.c.scope_id == scopes.c.id),
    _OWNED.add_columns(func.sum(func.length(images.c.content)))
    .join(documents, documents.c.scope_id == scopes.c.id)
    .join(images, images.c.document_id == documents.c.id),
    _OWNED.add_columns(
        _kind(CHUNK), _kind(TURN), _kind(FACT), func.sum(func.length(ITEM_TEXT) + func.length(items.c.meta))
    ).join(items, items.c.scope_id == scopes.c.id),
    _OWNED.add_columns(func.count(), func.sum(func.length(recall_logs.c.candidates))).join(
        recall_logs, recall_logs.c.scope_id == scopes.c.id
    ),
)
_COLUMNS = 5
"""Most that one of them has: the tenant and four numbers."""
_ALL = union_all(
    *[
        each.group_by(_tenant).add_columns(*[literal(0)] * (_COLUMNS - len(each.selected_columns)), literal(number))
        for number, each in enumerate(_COUNTED)
    ]
)
"""In one statement, which sees one moment; the last column says which of them a row is of."""


def usage_of(database: Database) -> tuple[Usage, ...]:
    """Return what each tenant stores, by name; see `Admin.usage`."""
    counted: list[dict[Any, tuple[int, ...]]] = [{} for _ in _COUNTED]
    with database.read() as connection, texts_as_they_are(connection):
        for tenant, *numbers, which in connection.execute(_ALL):
            counted[which][tenant] = tuple([int(each or 0) for each in numbers])
    users, talks, texts, files, shown, found, logs = counted
    made = []
    for tenant in sorted(users, key=str):  # also where a row is damaged, and its name is not text
        sent, sent_size, *_ = texts.get(tenant, (0, 0))
        chunks, turns, facts, item_size = found.get(tenant, (0, 0, 0, 0))
        logged, log_size, *_ = logs.get(tenant, (0, 0))
        made.append(
            Usage(
                str(tenant).encode("utf-8", "replace").decode(),
                users=users[tenant][0],
                conversations=talks.get(tenant, (0,))[0],
                messages=sent,
                documents=files.get(tenant, (0,))[0],
                chunks=chunks,
                turns=turns,
                facts=facts,
                recall_logs=logged,
                image_bytes=shown.get(tenant, (0,))[0],
                characters=sent_size + item_size + log_size,
            )
        )
    return tuple(made)
