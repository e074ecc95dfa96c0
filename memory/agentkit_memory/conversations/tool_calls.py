"""Tool calls as rows: the message with the call, and the message with its result."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection, bindparam, func, insert, or_, select, update

from agentkit_memory.checks import MAX_BYTES
from agentkit_memory.conversations.message_rows import MAX_SEQ
from agentkit_memory.database.engine import upserts
from agentkit_memory.database.tables import tool_calls
from agentkit_memory.store.item_rows import storable
from agentkit_memory.store.records import StoredCall
from agentkit_prompts.context.messages import Message

_EARLIER = tool_calls.alias()
_LATEST = (
    select(func.max(_EARLIER.c.seq))
    .where(
        _EARLIER.c.branch_id == bindparam("branch"),
        _EARLIER.c.call_id == bindparam("answered"),
        _EARLIER.c.seq < bindparam("result"),
    )
    .scalar_subquery()
)
_ANSWER = (
    update(tool_calls)
    .where(
        tool_calls.c.branch_id == bindparam("branch"),
        tool_calls.c.call_id == bindparam("answered"),
        tool_calls.c.result_seq.is_(None),
        tool_calls.c.seq == _LATEST,
    )
    .values(result_seq=bindparam("result"))
)
_ADD = insert(tool_calls)
_UNANSWERED = (
    select(*tool_calls.c["seq", "position", "call_id", "name", "arguments"])
    .where(
        tool_calls.c.branch_id == bindparam("branch"),
        tool_calls.c.call_id == bindparam("answered"),
        tool_calls.c.seq > bindparam("after"),
        tool_calls.c.seq <= bindparam("until"),
        or_(tool_calls.c.result_seq.is_(None), tool_calls.c.result_seq > bindparam("forked_at")),
    )
    .order_by(tool_calls.c.seq.desc())
    .limit(1)
)
_ADD_ONCE = upserts(tool_calls)
_READ = (
    select(*tool_calls.c["seq", "position", "call_id", "name", "arguments", "result_seq"])
    .where(
        tool_calls.c.branch_id == bindparam("branch"),
        tool_calls.c.seq > bindparam("after"),
        tool_calls.c.seq <= bindparam("until"),
    )
    .order_by(tool_calls.c.seq, tool_calls.c.position)
)


def _stored_id(call_id: str) -> str:
    """Return the id of a call or, if a database index does not accept its length, the start and a hash of the id.

    Some servers put kilobytes of thinking into an id. The message contains the whole id.
    """
    text = storable(call_id)
    if len(text.encode()) <= MAX_BYTES:
        return text
    return f"{text[:64]}\N{HORIZONTAL ELLIPSIS}{hashlib.blake2b(text.encode(), digest_size=24).hexdigest()}"


def record_calls(
    connection: Connection, branch: int, shared: Sequence[tuple[int, int, int]], expected: int, added: Sequence[Message]
) -> None:
    """Write the tool calls, and the numbers of their results, of messages that follow message number `expected`.

    If a fork adds the result of a call that it shares with its parent, the row of the call is copied to the fork.
    """
    rows: list[dict[str, object]] = []
    results: list[tuple[str, int]] = []
    for seq, message in enumerate(added, expected + 1):
        for position, call in enumerate(message.tool_calls):
            fields = {
                "call_id": _stored_id(call.id),
                "name": storable(call.name),
                "arguments": storable(call.arguments),
            }
            rows.append({"branch_id": branch, "seq": seq, "position": position, "result_seq": None, **fields})
        if message.role == "tool":
            call_id = _stored_id(message.tool_call_id or "")
            if not _add_result(rows, call_id, seq):
                results.append((call_id, seq))
    if rows:
        connection.execute(_ADD, rows)
    for call_id, seq in results:
        bound = {"branch": branch, "answered": call_id, "result": seq}
        if connection.execute(_ANSWER, bound).rowcount == 0 and shared:
            _answer_shared(connection, branch, shared, call_id, seq)


def _add_result(rows: Sequence[dict[str, object]], call_id: str, seq: int) -> bool:
    """Set the result of the last call with an id among new rows; return False if no row has the id."""
    for row in reversed(rows):
        if row["call_id"] == call_id:
            if row["result_seq"] is None:
                row["result_seq"] = seq
            return True
    return False


def _answer_shared(
    connection: Connection, branch: int, shared: Sequence[tuple[int, int, int]], call_id: str, seq: int
) -> None:
    """Copy the row of a shared call without a result to a fork, with the number of the result."""
    forked_at = shared[-1][2]
    for ancestor, after, until in reversed(shared):
        bound = {"branch": ancestor, "answered": call_id, "after": after, "until": until, "forked_at": forked_at}
        row = connection.execute(_UNANSWERED, bound).mappings().one_or_none()
        if row is not None:
            copy = {**row, "branch_id": branch, "result_seq": seq}
            connection.execute(_ADD_ONCE[connection.dialect.name], copy)
            return


def read_calls(
    connection: Connection, branch: int, shared: Sequence[tuple[int, int, int]], after: int = 0
) -> list[StoredCall]:
    """Return the calls of the messages after a number, in order, including calls that a fork shares with its parent."""
    forked_at = 0
    if shared:
        forked_at = shared[-1][2]
    calls: dict[tuple[int, int], StoredCall] = {}
    for owner, start, until in (*shared, (branch, 0, MAX_SEQ)):
        bound = {"branch": owner, "after": max(after, start), "until": until}
        for row in connection.execute(_READ, bound):
            call = StoredCall(*row)
            # A result that was added to the parent after the fork does not belong to this branch.
            if owner != branch and call.result_seq is not None and call.result_seq > forked_at:
                call = replace(call, result_seq=None)
            calls[call.seq, call.position] = call
    return [calls[number] for number in sorted(calls)]
