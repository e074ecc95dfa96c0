"""Redaction: what a message said is replaced wherever it was kept, in one transaction."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import ColumnElement, Connection, bindparam, case, func, select, update

from agentkit_memory.conversations.branch import Branch, dump, load, shared
from agentkit_memory.conversations.turns import turn_fields
from agentkit_memory.errors import NotFound
from agentkit_memory.store.item_rows import TURN, forget_embeddings, forget_items, storable
from agentkit_memory.store.outbox import enqueue, withdraw
from agentkit_memory.store.tables import branches, conversations, item_sources, items, messages, recall_logs, scopes
from agentkit_memory.store.tables import tool_calls as calls
from agentkit_prompts.context.messages import MESSAGE_FORMAT, Message

__all__ = ["redact", "scrub_logs"]

_SHORT = 8
"""Characters of a text that may stand in somebody's question by chance."""

_NOT_TOLD = '["what did not work is not told any more: the question was redacted"]'

_EDIT = (
    update(branches).where(branches.c.conversation_id == bindparam("conversation")).values(edits=branches.c.edits + 1)
)
_LINEAGE = select(branches.c.id, branches.c.parent_id, branches.c.fork_seq).where(
    branches.c.conversation_id == bindparam("conversation")
)
_this = (messages.c.branch_id == bindparam("branch"), messages.c.seq == bindparam("number"))
_FIND = select(messages.c.format, messages.c.body).where(*_this)
_REPLACE = (
    update(messages)
    .where(*_this)
    .values(format=MESSAGE_FORMAT, body=bindparam("now_says"), redacted_at=bindparam("now"))
)
_TURN = select(items.c.id).where(
    items.c.branch_id == bindparam("branch"), items.c.position == bindparam("number"), items.c.kind == TURN
)
_CALLS = (
    update(calls)
    .where(calls.c.branch_id.in_(bindparam("branches", expanding=True)), calls.c.seq == bindparam("number"))
    .values(arguments="{}")
)
_TENANT = (
    select(scopes.c.tenant)
    .join(conversations, conversations.c.scope_id == scopes.c.id)
    .where(conversations.c.id == bindparam("conversation"))
)


def redact(branch: Branch, seq: int, replacement: str) -> None:
    """Replace what a message of a branch says, with the arguments of its tool calls, its item and its vectors.

    A message that a fork shares with its parent is the parent's: both show the replacement. Facts that were taken
    from it go; questions in the recall logs of the tenant that quote it are changed.

    Raises:
        NotFound: The branch has no such message.
    """
    database = branch.database
    owner = next((part for part, begin, end in branch.shared if begin < seq <= end), branch.id)
    place = {"branch": owner, "number": seq}
    with database.write() as connection:
        # First of all: views become outdated, and no message of the conversation becomes an item meanwhile.
        connection.execute(_EDIT, {"conversation": branch.conversation_id})
        row = connection.execute(_FIND, place).one_or_none()
        if row is None:
            raise NotFound(f"conversation {branch.name!r} has no message {seq}: there is nothing to redact")
        old = load(branch.name, seq, *row)
        new = _redacted(old, replacement)
        says = dump(branch.name, new)
        connection.execute(_REPLACE, {**place, "now_says": says, "now": database.clock()})
        if old.tool_calls:
            lineage = connection.execute(_LINEAGE, {"conversation": branch.conversation_id}).all()
            family = [each.id for each in lineage if _owns(connection, branch.conversation_id, each.id, owner, seq)]
            connection.execute(_CALLS, {"branches": family, "number": seq})
        item = connection.scalar(_TURN, place)
        if item is not None:
            _redact_item(connection, item, new)
        tenant = connection.scalar(_TENANT, {"conversation": branch.conversation_id})
        assert tenant is not None
        scrub_logs(connection, tenant, [old.text, *(call.arguments for call in old.tool_calls)], replacement)


def _redacted(message: Message, replacement: str) -> Message:
    return replace(
        message,
        content=replacement,
        tool_calls=tuple(replace(call, arguments="{}") for call in message.tool_calls),
    )


def _owns(connection: Connection, conversation: int, branch: int, owner: int, seq: int) -> bool:
    """Whether message `seq` of a branch is the one of `owner`: its own, or one that the fork shares."""
    if branch == owner:
        return True
    row = connection.execute(select(branches.c.parent_id, branches.c.fork_seq).where(branches.c.id == branch)).one()
    parts = shared(connection, conversation, row.parent_id, row.fork_seq)
    return any(part == owner and begin < seq <= end for part, begin, end in parts)


def _redact_item(connection: Connection, item: str, new: Message) -> None:
    fields = turn_fields(new)
    if fields is None:
        forget_items(connection, [item])
        return
    withdraw(connection, [item])  # first: a worker may be about to keep the vector of what it said
    forget_embeddings(connection, [item])
    connection.execute(update(items).where(items.c.id == item).values(**fields, version=items.c.version + 1))
    # After that: by now, whoever was taking a fact from it has written it.
    derived = connection.scalars(select(item_sources.c.item_id).where(item_sources.c.source_id == item)).all()
    forget_items(connection, derived)
    enqueue(connection, [item], turns=True)


def scrub_logs(connection: Connection, tenant: str, texts: list[str], replacement: str) -> None:
    """Take texts out of the questions in a tenant's recall logs: all of a question, or a longer quote in it.

    What did not work in these recalls is not told any more either.
    """
    find = func.instr if connection.dialect.name == "sqlite" else func.strpos
    theirs = recall_logs.c.scope_id.in_(select(scopes.c.id).where(scopes.c.tenant == tenant))
    for text in {storable(each).strip() for each in texts} - {"", "{}"}:
        quoted: ColumnElement[bool] = func.trim(recall_logs.c.query, " \n\r\t") == text
        if len(text) >= _SHORT:
            quoted = find(recall_logs.c.query, text) > 0
        said = func.replace(recall_logs.c.query, text, storable(replacement))
        # What failed may have quoted the question, too.
        failed = case((recall_logs.c.degraded == "[]", "[]"), else_=_NOT_TOLD)
        connection.execute(update(recall_logs).where(theirs, quoted).values(query=said, degraded=failed))
