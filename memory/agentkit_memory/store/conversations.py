"""Conversations in SQL: append-only messages behind a head that is compared and swapped."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sqlalchemy import bindparam, insert, select, update
from sqlalchemy.exc import IntegrityError

from agentkit_memory.errors import MessageUnreadable, StoreError, StoreVersion
from agentkit_memory.store.engine import Database
from agentkit_memory.store.tables import branches, conversations, messages
from agentkit_prompts.messages import MESSAGE_FORMAT, MESSAGES, Message

__all__ = ["Branch"]

MAIN = "main"

_HEAD = select(branches.c.head_seq).where(branches.c.id == bindparam("branch"))
_SWAP = (
    update(branches)
    .where(branches.c.id == bindparam("branch"), branches.c.head_seq == bindparam("expected"))
    .values(head_seq=bindparam("head"))
)
_ADD = insert(messages)
_TAIL = (
    select(messages.c.seq, messages.c.format, messages.c.body)
    .where(messages.c.branch_id == bindparam("branch"), messages.c.seq > bindparam("after"))
    .order_by(messages.c.seq)
)
_KEY = select(messages.c.seq).where(messages.c.branch_id == bindparam("branch"), messages.c.key == bindparam("used"))
_FIND = (
    select(branches.c.id)
    .join(conversations, conversations.c.id == branches.c.conversation_id)
    .where(
        conversations.c.scope_id == bindparam("scope"),
        conversations.c.name == bindparam("conversation"),
        branches.c.name == bindparam("branch"),
    )
)


class Branch:
    """The stored side of one conversation: messages numbered 1, 2, 3 without gaps."""

    def __init__(self, database: Database, scope_id: int, name: str) -> None:
        self.database = database
        self.name = name
        self.id = self._find_or_make(scope_id)

    def _find_or_make(self, scope_id: int) -> int:
        names = {"scope": scope_id, "conversation": self.name, "branch": MAIN}
        with self.database.read() as connection:
            found = connection.scalar(_FIND, names)
        if found is None:
            with self.database.write() as connection:
                connection.execute(
                    self.database.insert(conversations)
                    .values(scope_id=scope_id, name=self.name, created_at=time.time())
                    .on_conflict_do_nothing()
                )
                owner = select(conversations.c.id).where(
                    conversations.c.scope_id == scope_id, conversations.c.name == self.name
                )
                connection.execute(
                    self.database.insert(branches)
                    .values(conversation_id=connection.scalar(owner), name=MAIN, head_seq=0)
                    .on_conflict_do_nothing()
                )
                found = connection.scalar(_FIND, names)
        assert found is not None
        return int(found)

    def head(self) -> int:
        """Return how many messages the conversation holds."""
        with self.database.read() as connection:
            head = connection.scalar(_HEAD, {"branch": self.id})
        if head is None:
            raise StoreError(f"conversation {self.name!r} was deleted; open it again to begin a new one")
        return int(head)

    def tail(self, after: int) -> list[Message]:
        """Return the messages after message number `after`."""
        with self.database.read() as connection:
            rows = connection.execute(_TAIL, {"branch": self.id, "after": after}).all()
        return [self._load(*row) for row in rows]

    def seq_of(self, key: str) -> int | None:
        """Return the number of the first message that was appended under `key`."""
        with self.database.read() as connection:
            found: int | None = connection.scalar(_KEY, {"branch": self.id, "used": key})
        return found

    def append(self, expected: int, added: Sequence[Message], key: str | None, *, wait: bool = True) -> bool:
        """Add messages if the conversation still holds `expected` of them and `key` is new; say whether it was so.

        Raises:
            WouldWait: It was not to wait.
        """
        now = time.time()
        rows = [
            {
                "branch_id": self.id,
                "seq": expected + number,
                "key": None if number > 1 else key,
                "format": MESSAGE_FORMAT,
                "body": self._dump(message),
                "created_at": now,
            }
            for number, message in enumerate(added, 1)
        ]
        swap = {"branch": self.id, "expected": expected, "head": expected + len(rows)}
        try:
            with self.database.write(wait=wait) as connection:
                if connection.execute(_SWAP, swap).rowcount != 1:
                    return False
                connection.execute(_ADD, rows if len(rows) > 1 else rows[0])
        except IntegrityError:
            return False
        return True

    def _dump(self, message: Message) -> str:
        try:
            return MESSAGES.dump_json(message).decode()
        except ValueError as error:  # bytes or text that JSON cannot hold
            raise MessageUnreadable(
                f"conversation {self.name!r}: a {message.role} message cannot be stored ({error}); "
                "replace its unpaired surrogates, or store media as files"
            ) from error

    def _load(self, seq: int, version: int, body: str) -> Message:
        where = f"conversation {self.name!r}, message {seq}"
        if version > MESSAGE_FORMAT:
            raise StoreVersion(f"{where}: in format {version}, this agentkit reads up to {MESSAGE_FORMAT}; upgrade it")
        try:
            return MESSAGES.validate_json(body)
        except ValueError as error:
            raise MessageUnreadable(f"{where}: the stored message is damaged ({error}); restore a backup") from error
