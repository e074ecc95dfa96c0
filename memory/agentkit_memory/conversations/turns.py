"""Turns as items: what was said in conversations becomes recallable behind a watermark, apart from the append."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from sqlalchemy import bindparam, insert, select, update

from agentkit_memory.conversations.branch import MAIN, load
from agentkit_memory.errors import MessageUnreadable, StoreVersion
from agentkit_memory.store.engine import Database
from agentkit_memory.store.item_rows import NAMESPACE, TURN, content_hash, storable
from agentkit_memory.store.outbox import enqueue
from agentkit_memory.store.scopes import required
from agentkit_memory.store.tables import branches, conversations, items, messages, scopes
from agentkit_prompts.context.messages import Message

__all__ = ["REDACTED", "itemise", "turn_fields", "turn_id"]

REDACTED = "[redacted]"
"""What a redacted message says, unless it is told otherwise. It is nothing to recall."""

_SPEAKERS = ("user", "assistant")

_BEHIND = (
    select(
        branches.c.id,
        branches.c.name,
        branches.c.head_seq,
        branches.c.itemised_seq,
        conversations.c.scope_id,
        conversations.c.name.label("conversation"),
        conversations.c.id.label("conversation_id"),
        scopes.c.tenant,
        scopes.c.user,
        scopes.c.session,
        scopes.c.agent,
    )
    .join(conversations, conversations.c.id == branches.c.conversation_id)
    .join(scopes, scopes.c.id == conversations.c.scope_id)
    .where(branches.c.itemised_seq < branches.c.head_seq)
    .order_by(branches.c.id)
    .limit(bindparam("most"))
)
_BEHIND_IN = _BEHIND.where(conversations.c.scope_id.in_(bindparam("scopes", expanding=True)))
_ADVANCE = (
    update(branches)
    .where(branches.c.id == bindparam("branch"), branches.c.itemised_seq == bindparam("seen"))
    .values(itemised_seq=bindparam("done"))
)
# Shared, so that a new time comes before the items are there, and then is theirs, or after, and then is set.
_EXPIRES = (
    select(conversations.c.expires_at).where(conversations.c.id == bindparam("conversation")).with_for_update(read=True)
)
_SAID = (
    select(messages.c.seq, messages.c.format, messages.c.body, messages.c.created_at, messages.c.said_at)
    .where(
        messages.c.branch_id == bindparam("branch"),
        messages.c.seq > bindparam("after"),
        messages.c.seq <= bindparam("until"),
    )
    .order_by(messages.c.seq)
)
_ADD = insert(items)


def itemise(database: Database, scope_ids: Sequence[int] | None, limit: int) -> int:
    """Make items of messages that are none yet, each branch in a transaction of its own; say how many were seen.

    Call it until it returns 0. Several may call it at once: whoever moves the watermark of a branch makes its items.
    Only what users and assistants say becomes items, not what tools ask and answer.

    Args:
        database: Where the conversations are.
        scope_ids: Scopes whose conversations are meant; None for all, which is for workers and not for readers.
        limit: Most messages to look at.
    """
    query = _BEHIND if scope_ids is None else _BEHIND_IN
    bound = {"most": limit} if scope_ids is None else {"most": limit, "scopes": required(scope_ids)}
    with database.read() as connection:
        behind = connection.execute(query, bound).all()
    looked = 0
    for branch in behind:
        looked += _itemise(database, branch, limit - looked)
        if looked >= limit:
            break
    return looked


def _itemise(database: Database, branch: Any, limit: int) -> int:
    """Make the items of the next messages of one branch."""
    after: int = branch.itemised_seq
    until: int = min(branch.head_seq, after + limit)
    key = "\0".join((branch.tenant, branch.user, branch.session, branch.agent))
    rows: list[dict[str, object]] = []
    with database.write() as connection:
        # First of all, so that a redaction comes either before the messages are read or after the items are there.
        if connection.execute(_ADVANCE, {"branch": branch.id, "seen": after, "done": until}).rowcount != 1:
            return until - after  # somebody else makes them
        now = database.clock()
        expires_at = connection.scalar(_EXPIRES, {"conversation": branch.conversation_id})
        for seq, version, body, stored, said in connection.execute(
            _SAID, {"branch": branch.id, "after": after, "until": until}
        ).all():
            try:
                fields = turn_fields(load(branch.conversation, seq, version, body))
            except StoreVersion:  # left for the newer version that wrote it
                connection.execute(_ADVANCE, {"branch": branch.id, "seen": until, "done": seq - 1})
                until = seq - 1
                break
            except MessageUnreadable:  # whoever opens the conversation is told
                continue
            if fields is not None:
                rows.append(
                    {
                        **fields,
                        "id": turn_id(key, branch.conversation, branch.name, seq),
                        "scope_id": branch.scope_id,
                        "branch_id": branch.id,
                        "position": seq,
                        "created_at": now,
                        "said_at": stored if said is None else said,
                        "valid_to": expires_at,
                    }
                )
        if rows:
            connection.execute(_ADD, rows)
            enqueue(connection, [str(row["id"]) for row in rows], turns=True)
    return until - after


def turn_id(scope_key: str, conversation: str, branch: str, seq: int) -> str:
    """Return the id of the item of a message: the same in every store."""
    return str(uuid.uuid5(NAMESPACE, "\0".join((TURN, scope_key, conversation, branch or MAIN, str(seq)))))


def turn_fields(message: Message) -> dict[str, object] | None:
    """Return the columns that the item of a message takes from it; None if it is nothing to recall."""
    text = storable(message.text)
    if message.role not in _SPEAKERS or not text.strip() or text == REDACTED:
        return None
    return {
        "kind": TURN,
        "title": "",
        "text": text,
        "content_hash": content_hash(text),
        "start": 0,
        "end": len(text),
        "line": 0,
        "speaker": storable(message.name or message.role),
    }
