"""Opening, deletion and expiry of conversations, with their items and facts."""

from __future__ import annotations

import logging
import math
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from sqlalchemy import Connection, Integer, bindparam, delete, func, select, update

from agentkit_memory.checks import is_time
from agentkit_memory.conversations.branch import EDIT, Branch
from agentkit_memory.conversations.message_rows import MAIN, stored_texts
from agentkit_memory.database.engine import Database
from agentkit_memory.database.rows import is_decoded, raw_rows
from agentkit_memory.database.tables import branches, conversations, items, messages, recall_logs, tool_calls
from agentkit_memory.errors import InvalidArgument, NotFound, StoreCorrupt
from agentkit_memory.process.failpoints import failpoint
from agentkit_memory.scope import Scope
from agentkit_memory.store.item_removal import Forgotten, forget_items
from agentkit_memory.store.scope_rows import known_ids
from agentkit_prompts.errors import brief
from agentkit_prompts.names import nearest

_LOG = logging.getLogger("agentkit.memory")
_BATCH = 500
"""Maximum rows that are deleted in one transaction, so that other writers are not blocked for long."""
_GONE = -1
"""Number of messages of a branch that is being deleted, by which open sessions detect the deletion."""

_BRANCHES = select(branches.c.id).where(branches.c.conversation_id == bindparam("conversation"))
_SOME_ITEMS = select(items.c.id).where(items.c.branch_id.in_(_BRANCHES)).limit(_BATCH)
_ORDERED_BRANCHES = _BRANCHES.order_by(branches.c.id)
_SOME_MESSAGES = (
    select(messages.c.seq, messages.c.body)
    .where(messages.c.branch_id == bindparam("branch"))
    .order_by(messages.c.seq)
    .limit(_BATCH)
)
_upto = bindparam("last", type_=Integer)
_DELETE_ALL_MESSAGES = delete(messages).where(messages.c.branch_id == bindparam("branch"))
_DELETE_ALL_CALLS = delete(tool_calls).where(tool_calls.c.branch_id == bindparam("branch"))
_DELETE_MESSAGES = _DELETE_ALL_MESSAGES.where(messages.c.seq <= _upto)
_DELETE_CALLS = _DELETE_ALL_CALLS.where(tool_calls.c.seq <= _upto)
_OWNER = select(conversations.c.scope_id, conversations.c.name, conversations.c.expires_at).where(
    conversations.c.id == bindparam("conversation")
)
_is_its_log = (recall_logs.c.scope_id == bindparam("scope"), recall_logs.c.conversation == bindparam("named"))
_LOGS = delete(recall_logs).where(*_is_its_log)
_QUERIES = select(recall_logs.c.query).where(*_is_its_log)
_CLOSE = (
    update(branches)
    .where(branches.c.conversation_id == bindparam("conversation"))
    .values(head_seq=_GONE, itemised_seq=_GONE)
)
_HIDE = (
    update(conversations)
    .where(conversations.c.id == bindparam("conversation"))
    .values(name=bindparam("hidden"), expires_at=-math.inf)
)
_HIDDEN = select(conversations.c.id).where(conversations.c.expires_at == -math.inf).order_by(conversations.c.id)
_NAMED = select(conversations.c.id).where(
    conversations.c.scope_id == bindparam("scope"), conversations.c.name == bindparam("named")
)
_DELETE = delete(conversations).where(conversations.c.id == bindparam("conversation"))
_REMAINING = {
    "tool_calls": select(func.count()).select_from(tool_calls).where(tool_calls.c.branch_id.in_(_BRANCHES)),
    "branches": select(func.count()).select_from(_BRANCHES.subquery()),
}
_EXPIRED = (
    select(conversations.c.id)
    .where(conversations.c.expires_at.is_not(None), conversations.c.expires_at <= bindparam("now"))
    .order_by(conversations.c.id)
)
_STILL_EXPIRED = _EXPIRED.where(conversations.c.id == bindparam("conversation"))
_EXPIRES = (
    update(conversations).where(conversations.c.id == bindparam("conversation")).values(expires_at=bindparam("at"))
)
_VALID_TO = update(items).where(items.c.branch_id.in_(_BRANCHES)).values(valid_to=bindparam("at"))

OnDeleted: TypeAlias = Callable[[Connection, Mapping[str, int], Forgotten], None]
"""Function that is called in each transaction with the number of deleted rows, per table, and their content."""


def hide_conversation(connection: Connection, conversation: int, forgotten: Forgotten | None = None) -> dict[str, int]:
    """Hide a conversation, so that it cannot be found or extended, and delete its recall logs.

    If a crash interrupts the deletion of the conversation, the next opening of the store finishes the deletion.

    Returns:
        Number of deleted rows, per table; empty if the conversation was hidden before.
    """
    this = {"conversation": conversation}
    # `EDIT` precedes the other statements: its lock keeps messages from becoming items meanwhile.
    connection.execute(EDIT, this)
    owner = next(iter(raw_rows(connection, _OWNER, this)), None)
    if owner is None or owner.expires_at == -math.inf:
        return {}
    logs = 0
    if is_decoded(owner.name) and is_decoded(owner.scope_id):
        its_logs = {"scope": owner.scope_id, "named": owner.name}
        if forgotten is not None:
            queries = [row.query for row in raw_rows(connection, _QUERIES, its_logs)]
            forgotten.texts += [each for each in queries if isinstance(each, str)]
        logs = connection.execute(_LOGS, its_logs).rowcount
    connection.execute(_CLOSE, this)
    connection.execute(_HIDE, {**this, "hidden": str(uuid.uuid4())})
    return {"recall_logs": logs}


def delete_conversations(
    database: Database, numbers: Sequence[int], on_deleted: OnDeleted | None = None
) -> dict[str, int]:
    """Delete conversations with their forks, tool calls, items, the facts taken from them, and recall logs.

    All conversations are hidden first, and then deleted in small transactions. A transaction deletes several small
    conversations, since a commit takes longer than the deletion of a few rows.

    Returns:
        Number of deleted rows, per table.
    """
    totals: Counter[str] = Counter()
    # Every caller locks conversations in this order, so that no deadlock is possible.
    remaining = sorted(numbers)

    def change(step: Callable[[Connection, Sequence[int], Forgotten], tuple[Counter[str], int]]) -> int:
        """Execute a step; return the number of conversations that it finished."""

        def write(connection: Connection) -> tuple[Counter[str], int]:
            forgotten = Forgotten()
            counts, finished = step(connection, remaining, forgotten)
            if on_deleted is not None:
                on_deleted(connection, counts, forgotten)
            return counts, finished

        counts, finished = database.change(write)
        totals.update(counts)
        failpoint("conversation.step")
        return finished

    change(_hide_all)
    while remaining:
        del remaining[: change(_delete_some)]
    return dict(totals)


def _hide_all(connection: Connection, numbers: Sequence[int], forgotten: Forgotten) -> tuple[Counter[str], int]:
    counts: Counter[str] = Counter()
    for conversation in numbers:
        counts.update(hide_conversation(connection, conversation, forgotten))
    return counts, 0


def _delete_some(connection: Connection, numbers: Sequence[int], forgotten: Forgotten) -> tuple[Counter[str], int]:
    """Delete a batch of rows of conversations; return the number of rows per table, and of finished conversations."""
    counts: Counter[str] = Counter()
    finished = 0
    while finished < len(numbers) and counts.total() < _BATCH:
        step = _delete_step(connection, numbers[finished], forgotten)
        counts.update(step)
        finished += "conversations" in step
    return counts, finished


def _delete_step(connection: Connection, conversation: int, forgotten: Forgotten) -> dict[str, int]:
    """Delete a batch of items or, without items, a batch of messages or, without messages, the conversation.

    Returns:
        Number of deleted rows, per table; only the last step returns the key `conversations`.
    """
    this = {"conversation": conversation}
    removed = forget_items(connection, connection.scalars(_SOME_ITEMS, this).all(), forgotten)
    if removed:
        return {"items": removed, "embeddings": forgotten.embeddings}
    for branch in connection.scalars(_ORDERED_BRANCHES, this).all():
        counts = _delete_messages(connection, branch, forgotten)
        if counts["messages"]:
            return counts
    counts = {table: int(connection.scalar(count, this) or 0) for table, count in _REMAINING.items()}
    removed = connection.execute(_DELETE, this).rowcount
    if not removed:
        # Another caller deleted the conversation.
        return {"conversations": 0}
    return {**counts, "conversations": removed}


def _delete_messages(connection: Connection, branch: int, forgotten: Forgotten) -> dict[str, int]:
    """Delete a batch of messages of a branch with their tool calls; return the number of deleted rows, per table."""
    rows = raw_rows(connection, _SOME_MESSAGES, {"branch": branch})
    forgotten.texts += [text for row in rows for text in stored_texts(row.body)]
    numbers = [row.seq for row in rows if isinstance(row.seq, int)]
    if not rows:
        return {"tool_calls": 0, "messages": 0}
    # Corrupt numbers are sorted last: without a sound number in the batch, all remaining numbers are corrupt.
    bound, delete_calls, delete_messages = {"branch": branch}, _DELETE_ALL_CALLS, _DELETE_ALL_MESSAGES
    if numbers:
        bound, delete_calls, delete_messages = bound | {"last": numbers[-1]}, _DELETE_CALLS, _DELETE_MESSAGES
    calls = connection.execute(delete_calls, bound).rowcount
    return {"tool_calls": calls, "messages": connection.execute(delete_messages, bound).rowcount}


def resume_removals(database: Database) -> None:
    """Finish the deletion of conversations that a crash interrupted."""
    with database.read() as connection:
        hidden = connection.scalars(_HIDDEN).all()
    for conversation in hidden:
        with _logging_corrupt("deleted", conversation):
            delete_conversations(database, [conversation])


@contextmanager
def _logging_corrupt(action: str, conversation: int) -> Iterator[None]:
    """Log the error of a corrupt conversation, so that it does not block other conversations."""
    try:
        yield
    except StoreCorrupt as error:
        _LOG.warning("conversation %s could not be %s: %s", conversation, action, error)


def set_expiry(database: Database, conversation: int, at: float | None) -> None:
    """Set the time when a conversation expires (None: never); from then on, its turns are not recalled."""

    def write(connection: Connection) -> None:
        connection.execute(_EXPIRES, {"conversation": conversation, "at": at})
        connection.execute(_VALID_TO, {"conversation": conversation, "at": at})

    database.change(write)


def expire(database: Database, now: float) -> dict[str, int]:
    """Delete expired conversations, in small transactions; return the number of deleted rows, per table.

    Raises:
        InvalidArgument: The time is invalid.
    """
    _check_time("expire: now", now)
    database.deferred.settle()
    with database.read() as connection:
        expired: Sequence[int] = connection.scalars(_EXPIRED, {"now": now}).all()
    totals: Counter[str] = Counter()
    for conversation in expired:
        with _logging_corrupt("expired", conversation):
            counts = _hide_expired(database, conversation, now)
            if counts is not None:
                totals.update(counts)
                totals.update(delete_conversations(database, [conversation]))
    return dict(totals)


def _hide_expired(database: Database, conversation: int, now: float) -> dict[str, int] | None:
    """Hide an expired conversation; return None if its expiry was extended or it was deleted meanwhile."""

    def hide(connection: Connection) -> dict[str, int] | None:
        if connection.scalar(_STILL_EXPIRED, {"now": now, "conversation": conversation}) is None:
            return None
        return hide_conversation(connection, conversation)

    return database.change(hide)


def _check_time(name: str, at: object) -> None:
    # Minus infinity marks a conversation that is being deleted.
    if not is_time(at, finite=False) or at == -math.inf:
        raise InvalidArgument(f"{name}: expected seconds since 1970, got {brief(at)}", name=name)


def delete_named(database: Database, scope: Scope, name: str) -> bool:
    """Delete a conversation by its name; return True if the conversation existed."""
    return any(_delete_named(database, scope_id, name) for scope_id in known_ids(database, scope))


def _delete_named(database: Database, scope_id: int, name: str) -> bool:
    # Recall logs that wait in memory are written first, so that they are deleted too.
    database.deferred.settle()
    # The ids of all tries are collected: a try whose connection was lost may have hidden the conversation.
    hidden: set[int] = set()

    def hide(connection: Connection) -> None:
        for conversation in connection.scalars(_NAMED, {"scope": scope_id, "named": name}).all():
            hide_conversation(connection, conversation)
            hidden.add(conversation)

    database.change(hide)
    delete_conversations(database, [*hidden])
    return bool(hidden)


def open_branch(
    database: Database, scope_id: int, name: str, branch: str = MAIN, expires_at: float | None = None
) -> Branch:
    """Return a branch of a conversation, creating the conversation if it does not exist or has expired.

    Raises:
        InvalidArgument: The time is invalid.
        NotFound: The conversation has no branch of this name.
    """
    if expires_at is not None:
        _check_time("expires_at", expires_at)
    opened = Branch.find(database, scope_id, name, branch)
    if opened is not None and opened.expires_at is not None and opened.expires_at <= database.clock():
        _delete_named(database, scope_id, name)
        opened = None
    if opened is None:
        opened = main = Branch.make(database, scope_id, name)
        if branch != MAIN:
            opened = Branch.find(database, scope_id, name, branch)
        if opened is None:
            raise NotFound(
                f"conversation {name!r} has no branch {branch!r}: create it with session.fork({branch!r}, at=...)"
                f"{nearest(branch, [each.name for each in main.all()])}",
                name="branch",
                value=branch,
            )
    if expires_at is not None:
        opened.expires_at = expires_at
        if expires_at == math.inf:
            opened.expires_at = None
        set_expiry(database, opened.conversation_id, opened.expires_at)
    return opened
