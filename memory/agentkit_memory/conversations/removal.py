"""Opening, deleting and expiring conversations, with all that was made of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, delete, func, select, update

from agentkit_memory.checks import is_time
from agentkit_memory.conversations.branch import EDIT, Branch
from agentkit_memory.conversations.message_rows import MAIN
from agentkit_memory.errors import NotFound, ScopeError
from agentkit_memory.scope import Scope
from agentkit_memory.store.engine import Database
from agentkit_memory.store.item_rows import forget_items, in_batches
from agentkit_memory.store.scope_rows import known_ids
from agentkit_memory.store.tables import branches, conversations, items, messages, recall_logs, tool_calls
from agentkit_prompts.errors import nearest

__all__ = ["delete_conversation", "delete_named", "expire", "open_branch", "set_expiry"]

_BRANCHES = select(branches.c.id).where(branches.c.conversation_id == bindparam("conversation"))
_ITEMS = select(items.c.id).where(items.c.branch_id.in_(_BRANCHES))
_COUNTS = {
    "messages": select(func.count()).select_from(messages).where(messages.c.branch_id.in_(_BRANCHES)),
    "tool_calls": select(func.count()).select_from(tool_calls).where(tool_calls.c.branch_id.in_(_BRANCHES)),
    "branches": select(func.count()).select_from(_BRANCHES.subquery()),
}
_OWNER = select(conversations.c.scope_id, conversations.c.name).where(conversations.c.id == bindparam("conversation"))
_LOGS = delete(recall_logs).where(
    recall_logs.c.scope_id == bindparam("scope"), recall_logs.c.conversation == bindparam("named")
)
_NAMED = select(conversations.c.id).where(
    conversations.c.scope_id == bindparam("scope"), conversations.c.name == bindparam("named")
)
_DELETE = delete(conversations).where(conversations.c.id == bindparam("conversation"))
_PAST = (
    select(conversations.c.id)
    .where(conversations.c.expires_at.is_not(None), conversations.c.expires_at <= bindparam("now"))
    .order_by(conversations.c.id)
)
_STILL_PAST = _PAST.where(conversations.c.id == bindparam("conversation"))
_EXPIRES = (
    update(conversations).where(conversations.c.id == bindparam("conversation")).values(expires_at=bindparam("at"))
)
_VALID_TO = update(items).where(items.c.branch_id.in_(_BRANCHES)).values(valid_to=bindparam("at"))


def delete_conversation(connection: Connection, conversation: int) -> dict[str, int]:
    """Delete a conversation with its forks, tool calls, items, the facts taken from them, and recall logs.

    Returns:
        How many rows were deleted, per table.
    """
    this = {"conversation": conversation}
    connection.execute(EDIT, this)  # first: no message becomes an item meanwhile
    counts = {table: int(connection.scalar(count, this) or 0) for table, count in _COUNTS.items()} | {"items": 0}
    for batch in in_batches(connection.scalars(_ITEMS, this).all()):
        counts["items"] += forget_items(connection, batch)
    owner = connection.execute(_OWNER, this).one_or_none()
    if owner is not None:
        logs = connection.execute(_LOGS, {"scope": owner.scope_id, "named": owner.name})
        counts["recall_logs"] = logs.rowcount
        counts["conversations"] = connection.execute(_DELETE, this).rowcount
    return counts


def set_expiry(database: Database, conversation: int, at: float | None) -> None:
    """Set when a conversation expires; from then on its turns are not recalled."""
    with database.write() as connection:
        connection.execute(_EXPIRES, {"conversation": conversation, "at": at})
        connection.execute(_VALID_TO, {"conversation": conversation, "at": at})


def expire(database: Database, now: float) -> dict[str, int]:
    """Delete expired conversations, each in a transaction of its own; return how many rows were deleted, per table.

    Raises:
        ScopeError: The time is invalid.
    """
    _check_time("expire: now", now)
    database.deferred.settle()
    with database.read() as connection:
        past: Sequence[int] = connection.scalars(_PAST, {"now": now}).all()
    totals: dict[str, int] = {}
    for conversation in past:
        with database.write() as connection:
            if connection.scalar(_STILL_PAST, {"now": now, "conversation": conversation}) is None:
                continue  # its time was extended, or it was deleted
            for table, count in delete_conversation(connection, conversation).items():
                totals[table] = totals.get(table, 0) + count
    return totals


def _check_time(what: str, at: object) -> None:
    if not is_time(at, finite=False):
        raise ScopeError(f"{what}: expected seconds since 1970, got {at!r}")


def delete_named(database: Database, scope: Scope, name: str) -> bool:
    """Delete the conversation of that name; return whether there was one."""
    return any(_delete_named(database, known, name) for known in known_ids(database, scope))


def _delete_named(database: Database, scope_id: int, name: str) -> bool:
    database.deferred.settle()  # its logs too are deleted
    with database.write() as connection:
        found = connection.scalar(_NAMED, {"scope": scope_id, "named": name})
        if found is not None:
            delete_conversation(connection, found)
    return found is not None


def open_branch(
    database: Database, scope_id: int, name: str, branch: str = MAIN, expires_at: float | None = None
) -> Branch:
    """Return a branch of a conversation, creating the conversation if it does not exist or has expired.

    Raises:
        ScopeError: The time is invalid.
        NotFound: The conversation has no such branch.
    """
    if expires_at is not None:
        _check_time("expires_at", expires_at)
    found = Branch.find(database, scope_id, name, branch)
    if found is not None and found.expires_at is not None and found.expires_at <= database.clock():
        _delete_named(database, scope_id, name)
        found = None
    if found is None:
        main = Branch.make(database, scope_id, name)
        found = main if branch == MAIN else Branch.find(database, scope_id, name, branch)
        if found is None:
            raise NotFound(
                f"conversation {name!r} has no branch {branch!r}: begin it with session.fork({branch!r}, at=...)"
                f"{nearest(branch, [each.name for each in main.all()])}"
            )
    if expires_at is not None:
        found.expires_at = None if expires_at == math.inf else expires_at
        set_expiry(database, found.conversation_id, found.expires_at)
    return found
