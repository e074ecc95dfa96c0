"""`RunMessages`: messages to stored runs, as rows that a run receives in the transaction that journals them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from pydantic import TypeAdapter

from agentkit.errors import RunEnded
from agentkit.run.parts.run_inbox import SentMessage
from agentkit.runs.run_database import RunDatabase, messages_table, runs_table
from agentkit.runs.run_errors import DurableError, RunNotFound
from agentkit.runs.run_reader import can_be_stored
from agentkit.runs.run_record import ENDED
from agentkit.runs.run_rows import lock_run
from agentkit.runs.stored_values import finite_number, stored_text
from agentkit_prompts.context.messages import Message

_MAX_UNREAD = 100
"""Maximum number of unread messages of a run, which can wait for a decision for weeks."""
_PREFIX = '{"effect":"Receive"'
"""Prefix of the line of a journal with received messages."""
_runs, _messages = runs_table, messages_table


class RunMessages:
    """Messages to the runs of a database. Methods block.

    A message has the lock of its run, as the end of an attempt has: either the run receives the message, or the sender
    receives an error.
    """

    def __init__(self, database: RunDatabase) -> None:
        self._database = database

    def send(self, run_id: str, sent: SentMessage, key: str | None = None) -> SentMessage:
        """Store a message to a run, and return the message with its number.

        Args:
            run_id: The run, which is queued, running or waiting.
            sent: The message.
            key: Idempotency key: a second message with the same key is not stored, and the first message is returned.

        Raises:
            RunEnded: The run has ended.
            RunNotFound: The run is unknown, or is an agent inside of a run.
            DurableError: The key was used for another message, or too many messages are unread; nothing was sent.
        """
        if not can_be_stored(run_id):
            raise RunNotFound(run_id)
        return self._database.work(
            lambda connection: self._send(connection, run_id, sent, key),
            lambda connection, stored: self._is_stored(connection, run_id, stored),
        )

    def _is_stored(self, connection: sa.Connection, run_id: str, sent: SentMessage) -> bool:
        lock_run(connection, run_id)  # waits for a lost transaction that is still in its commit
        column = _messages.c
        query = sa.select(column.number).where(column.number == sent.number, column.sent_at == sent.sent_at)
        return connection.scalar(query.where(column.run == run_id)) is not None

    def _send(self, connection: sa.Connection, run_id: str, sent: SentMessage, key: str | None) -> SentMessage:
        column, stored_key = _runs.c, None
        locked = sa.update(_runs).where(column.run_id == run_id, column.top.is_(None)).values(unread=column.unread)
        run = connection.execute(locked.returning(column.state, column.unread)).first()
        if run is None:
            around = connection.scalar(sa.select(column.top).where(column.run_id == run_id))
            raise RunNotFound(run_id, around)
        if key is not None:
            stored_key = stored_text(key)
            query = sa.select(_messages).where(_messages.c.run == run_id, _messages.c.key == stored_key)
            row = connection.execute(query).first()
            if row is not None:
                return _same(run_id, _sent_of(row), sent, key)
        if run.state in ENDED:
            raise RunEnded(run_id, run.state)
        if run.unread >= _MAX_UNREAD:
            raise DurableError(
                f"run {run_id!r}: {run.unread} messages are unread, the maximum: wait until the run receives them; "
                "nothing was sent",
                name="message",
                value=run.unread,
            )
        now = self._database.time_in(connection)
        values = {
            "run": run_id,
            "key": stored_key,
            "message": json.dumps(_adapter().dump_python(sent.message, mode="json")),
            "moment": sent.when,
            "sender": stored_text(sent.by),
            "sent_at": now,
        }
        number = connection.execute(sa.insert(_messages).values(**values).returning(_messages.c.number)).scalar_one()
        connection.execute(sa.update(_runs).where(column.run_id == run_id).values(unread=column.unread + 1))
        return SentMessage(sent.message, sent.when, sent.by, now, number)

    def unread(self, run_id: str) -> list[SentMessage]:
        """Return the messages that a run has not received, in the order of their numbers."""
        if not can_be_stored(run_id):
            return []
        query = sa.select(_messages).where(_messages.c.run == run_id, _messages.c.received_at.is_(None))
        query = query.order_by(_messages.c.number)
        return self._database.work(lambda connection: [_sent_of(row) for row in connection.execute(query)])


def mark_received(
    connection: sa.Connection, now: Any, run_id: str, lines: Sequence[tuple[str, tuple[str, ...]]]
) -> int:
    """Mark the messages in new lines of a journal as received, and return their number."""
    numbers: list[int] = []
    for line, calls in lines:
        if not calls and line.startswith(_PREFIX):
            numbers += [sent["number"] for sent in json.loads(line)["answer"]]
    if not numbers:
        return 0
    message = _messages.c
    is_received = sa.and_(message.run == run_id, message.number.in_(numbers), message.received_at.is_(None))
    count = connection.execute(sa.update(_messages).where(is_received).values(received_at=now)).rowcount
    run = sa.update(_runs).where(_runs.c.run_id == run_id)
    connection.execute(run.values(unread=_runs.c.unread - count))
    return count


def _same(run_id: str, stored: SentMessage, sent: SentMessage, key: str) -> SentMessage:
    """Return the stored message of a key, if it equals the message that is sent again."""
    if (stored.message, stored.when, stored.by) != (sent.message, sent.when, stored_text(sent.by)):
        raise DurableError(
            f"run {run_id!r}: the key {key!r:.80} was used for another message: use a unique key per message; nothing "
            "was sent",
            name="key",
            value=key,
        )
    return stored


def _sent_of(row: Any) -> SentMessage:
    message = _adapter().validate_python(json.loads(row.message))
    when: Any = row.moment
    return SentMessage(message, when, str(row.sender), finite_number(row.sent_at), row.number)


@lru_cache(maxsize=1)
def _adapter() -> TypeAdapter[Message]:
    return TypeAdapter(Message)
