"""Redaction: replacement of the text of a message in all tables, in one transaction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, case, delete, func, select, update

from agentkit_memory.conversations.branch import EDIT, SUMMARY, Branch
from agentkit_memory.conversations.lineage import BRANCHES, shared
from agentkit_memory.conversations.message_rows import dump, load
from agentkit_memory.conversations.turns import stored_fields, turn_fields
from agentkit_memory.database.rows import sound_rows
from agentkit_memory.database.tables import (
    branch_notes,
    branches,
    conversations,
    item_sources,
    items,
    messages,
    recall_logs,
    scopes,
)
from agentkit_memory.database.tables import tool_calls as calls
from agentkit_memory.errors import NotFound
from agentkit_memory.store.item_removal import forget_embeddings, forget_items
from agentkit_memory.store.item_rows import TURN, storable
from agentkit_memory.store.outbox import enqueue, hold_spaces, withdraw
from agentkit_prompts.context.messages import MESSAGE_FORMAT, Message

_MIN_QUOTE = 8
"""Minimum characters of a quote in a question: a question may contain a shorter text by chance."""

_SCRUBBED = '["the errors of this recall were removed: the question was redacted"]'
"""Errors of a recall log with a redacted question, as JSON."""

_this = (messages.c.branch_id == bindparam("branch"), messages.c.seq == bindparam("number"))
_FIND = select(messages.c.seq, messages.c.format, messages.c.body).where(*_this)
_REPLACE = (
    update(messages)
    .where(*_this)
    .values(format=MESSAGE_FORMAT, body=bindparam("new_body"), redacted_at=bindparam("now"))
)
_TURN = (
    select(items.c.id)
    .where(items.c.branch_id == bindparam("branch"), items.c.position == bindparam("number"), items.c.kind == TURN)
    .order_by(items.c.start)
)
_CALLS = (
    update(calls)
    .where(calls.c.branch_id.in_(bindparam("branches", expanding=True)), calls.c.seq == bindparam("number"))
    .values(arguments="{}")
)
_SUMMARIES = delete(branch_notes).where(
    branch_notes.c.branch_id.in_(select(branches.c.id).where(branches.c.conversation_id == bindparam("conversation"))),
    branch_notes.c.name == SUMMARY,
    branch_notes.c.seq >= bindparam("number"),
)
"""Deletes the summaries that include message `number`."""
_TENANT = (
    select(scopes.c.tenant)
    .join(conversations, conversations.c.scope_id == scopes.c.id)
    .where(conversations.c.id == bindparam("conversation"))
)


def redact(branch: Branch, seq: int, replacement: str) -> None:
    """Replace the text of a message of a branch, with the arguments of its tool calls, its item and its vectors.

    A message that a fork shares with its parent is stored once, so it is replaced in both. Facts that were taken from
    the message and summaries that include the message are deleted. Quotes of the message in the questions of the
    tenant's recall logs are replaced.

    Raises:
        NotFound: The message does not exist.
    """
    database = branch.database
    owner = next((ancestor for ancestor, after, last in branch.shared if after < seq <= last), branch.id)
    this_message = {"branch": owner, "number": seq}
    # Logs that quote the message may not be written yet.
    database.deferred.settle()

    def write(connection: Connection) -> None:
        # This lock is acquired before any row lock, as in a change of spaces: another order could deadlock.
        hold_spaces(connection)
        # `EDIT` precedes the other statements: its lock keeps messages from becoming items meanwhile.
        connection.execute(EDIT, {"conversation": branch.conversation_id})
        rows = sound_rows(connection, _FIND, this_message, messages.c.seq, branch.path)
        if not rows:
            raise NotFound(f"conversation {branch.name!r} has no message {seq}", name="seq", value=seq)
        old = load(branch.name, *rows[0])
        new = _redacted(old, replacement)
        body = dump(branch.name, new)
        if old.tool_calls:
            branch_ids = [owner, *_forks_with(connection, branch.conversation_id, owner, seq)]
            connection.execute(_CALLS, {"branches": branch_ids, "number": seq})
        connection.execute(_SUMMARIES, {"conversation": branch.conversation_id, "number": seq})
        turn_ids = connection.scalars(_TURN, this_message).all()
        if turn_ids:
            forget_items(connection, turn_ids[1:])
            _redact_item(connection, branch.scope_id, turn_ids[0], new, body)
        # The message is replaced after its item, because the old text of the item may be read from the message.
        connection.execute(_REPLACE, {**this_message, "new_body": body, "now": database.clock()})
        tenant = connection.scalars(_TENANT, {"conversation": branch.conversation_id}).one()
        scrub_logs(connection, tenant, [old.text, *(call.arguments for call in old.tool_calls)], replacement)

    database.change(write)


def _forks_with(connection: Connection, conversation: int, owner: int, seq: int) -> list[int]:
    """Return the branches of a conversation that share message number `seq` of the branch `owner`."""
    forks = []
    for fork in connection.execute(BRANCHES, {"conversation": conversation}).all():
        ranges = shared(connection, conversation, fork.parent_id, fork.fork_seq)
        forks += [fork.id for ancestor, after, last in ranges if ancestor == owner and after < seq <= last]
    return forks


def _redacted(message: Message, replacement: str) -> Message:
    return replace(
        message,
        content=replacement,
        tool_calls=tuple(replace(call, arguments="{}", opaque={}) for call in message.tool_calls),
        thinking=(),
        opaque={},
    )


def _redact_item(connection: Connection, scope: int, item: str, new: Message, body: str) -> None:
    fields = turn_fields(new)
    if fields is None:
        forget_items(connection, [item])
        return
    # The item is withdrawn first: a worker may be about to store the vector of the old text.
    withdraw(connection, [item])
    forget_embeddings(connection, [item])
    connection.execute(
        update(items).where(items.c.id == item).values(**stored_fields(fields, body), version=items.c.version + 1)
    )
    # Facts are read last: by now, a worker that was extracting a fact from the item has written it.
    derived = connection.scalars(select(item_sources.c.item_id).where(item_sources.c.source_id == item)).all()
    forget_items(connection, derived)
    enqueue(connection, [item], scope, turns=True)


def scrub_logs(connection: Connection, tenant: str, texts: list[str], replacement: str) -> None:
    """Replace texts in the questions of a tenant's recall logs: whole questions, and quotes of 8 or more characters.

    The errors of these recalls, which may quote the question, are removed too.
    """
    find: Any = func.strpos
    if connection.dialect.name == "sqlite":
        find = func.instr
    is_of_tenant = recall_logs.c.scope_id.in_(select(scopes.c.id).where(scopes.c.tenant == tenant))
    for text in {storable(each).strip() for each in texts} - {"", "{}"}:
        quoted: ColumnElement[bool] = func.trim(recall_logs.c.query, " \n\r\t") == text
        if len(text) >= _MIN_QUOTE:
            quoted = find(recall_logs.c.query, text) > 0
        scrubbed = func.replace(recall_logs.c.query, text, storable(replacement))
        errors = case((recall_logs.c.degraded == "[]", "[]"), else_=_SCRUBBED)
        connection.execute(update(recall_logs).where(is_of_tenant, quoted).values(query=scrubbed, degraded=errors))
