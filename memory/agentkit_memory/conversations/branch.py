"""`Branch`: a conversation or a fork in SQL. Messages are appended by a compare-and-swap on their number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from agentkit_memory.conversations.lineage import BRANCHES, shared
from agentkit_memory.conversations.message_rows import MAIN, MAX_SEQ, dump, load
from agentkit_memory.conversations.tool_calls import read_calls, record_calls
from agentkit_memory.conversations.turns import itemise_all
from agentkit_memory.database.engine import Database
from agentkit_memory.database.prepared import PreparedWrite
from agentkit_memory.database.rows import column_problem, corrupt_row, sound_rows
from agentkit_memory.database.tables import branch_notes, branches, conversations, items, messages
from agentkit_memory.errors import AlreadyUsed, NotFound, WouldWait
from agentkit_memory.process.failpoints import failpoint
from agentkit_memory.store.item_removal import forget_items
from agentkit_memory.store.records import BranchInfo, StoredCall, StoredMessage
from agentkit_prompts.context.messages import MESSAGE_FORMAT, Message

SUMMARY = "summary"
"""Name of the note with a summary. The redaction of a summarised message deletes the note."""

_MAX_PREFIX = 240
"""Maximum characters of the old name in the new name of a rewound branch; `~` and a number follow."""

_STATE = select(branches.c.head_seq, branches.c.edits).where(branches.c.id == bindparam("branch"))
_UNCHANGED = update(branches).where(
    branches.c.id == bindparam("branch"),
    branches.c.head_seq == bindparam("expected"),
    branches.c.edits == bindparam("seen"),
)
_SWAP = PreparedWrite(_UNCHANGED.values(head_seq=bindparam("head")))
_ADD = PreparedWrite(insert(messages))
_STORED = (
    select(*messages.c["seq", "key", "body", "created_at"])
    .where(messages.c.branch_id == bindparam("branch"), messages.c.seq.between(bindparam("first"), bindparam("last")))
    .order_by(messages.c.seq)
)
_TAIL = (
    select(messages.c.seq, messages.c.format, messages.c.body)
    .where(messages.c.branch_id == bindparam("branch"), messages.c.seq > bindparam("after"))
    .order_by(messages.c.seq)
)
_BETWEEN = (
    select(*messages.c["seq", "format", "body", "created_at", "said_at", "redacted_at"])
    .where(
        messages.c.branch_id == bindparam("branch"),
        messages.c.seq > bindparam("after"),
        messages.c.seq < bindparam("before"),
    )
    .limit(bindparam("most"))
)
_OLDEST_FIRST, _NEWEST_FIRST = _BETWEEN.order_by(messages.c.seq), _BETWEEN.order_by(messages.c.seq.desc())
_NUMBER_OF_KEY = select(messages.c.seq).where(
    messages.c.branch_id == bindparam("branch"),
    messages.c.key == bindparam("used"),
    messages.c.seq <= bindparam("until"),
)
_KEYS = select(messages.c.seq, messages.c.key).where(
    messages.c.branch_id == bindparam("branch"),
    messages.c.key.is_not(None),
    messages.c.seq > bindparam("after"),
    messages.c.seq <= bindparam("until"),
)
_FIND = (
    select(*branches.c["id", "conversation_id", "edits", "parent_id", "fork_seq"], conversations.c.expires_at)
    .join(conversations, conversations.c.id == branches.c.conversation_id)
    .where(
        conversations.c.scope_id == bindparam("scope"),
        conversations.c.name == bindparam("conversation"),
        branches.c.name == bindparam("branch"),
    )
)
EDIT = (
    update(branches).where(branches.c.conversation_id == bindparam("conversation")).values(edits=branches.c.edits + 1)
)
"""Invalidates the views of a conversation, and locks its branches: until the end, no message becomes an item."""
_SET_ASIDE = _UNCHANGED.where(branches.c.name == bindparam("current")).values(
    name=bindparam("new_name"), itemised_seq=branches.c.head_seq, edits=branches.c.edits + 1
)
_NOTES = (
    select(branch_notes)
    .where(branch_notes.c.branch_id == bindparam("branch"), branch_notes.c.seq <= bindparam("until"))
    .order_by(branch_notes.c.seq)
)
_FORGET_NOTE = delete(branch_notes).where(
    branch_notes.c.branch_id == bindparam("branch"),
    branch_notes.c.seq == bindparam("number"),
    branch_notes.c.name == bindparam("named"),
)
_LATER_ITEMS = select(items.c.id).where(
    items.c.branch_id.in_(bindparam("branches", expanding=True)), items.c.position > bindparam("at")
)


class Branch:
    """The stored messages of one conversation, or of one fork of it, numbered 1, 2, 3 without gaps."""

    def __init__(self, database: Database, scope_id: int, name: str, branch: str, row: Sequence[Any]) -> None:
        self.database = database
        self.scope_id = scope_id
        self.name = name
        self.branch = branch
        self.id: int
        self.conversation_id: int
        self.edits: int
        """Number of redactions and rewinds of the conversation when this row was read."""
        self.expires_at: float | None
        self.id, self.conversation_id, self.edits, parent, fork_seq, self.expires_at = row
        if problem := column_problem(conversations.c.expires_at, self.expires_at):
            raise corrupt_row("conversations", self.conversation_id, "expires_at", problem, self.path)
        self.shared: tuple[tuple[int, int, int], ...] = ()
        """Ranges of shared messages: branch id of the ancestor, number before the first message, last number."""
        if parent is not None:
            with database.read() as connection:
                self.shared = shared(connection, self.conversation_id, parent, fork_seq)

    @property
    def path(self) -> str:
        """Name of the conversation for errors."""
        return f"conversation {self.name!r}"

    @classmethod
    def find(cls, database: Database, scope_id: int, name: str, branch: str = MAIN) -> Branch | None:
        """Return a branch, or None if the conversation or the branch does not exist."""
        bound = {"scope": scope_id, "conversation": name, "branch": branch}
        with database.read() as connection:
            row = connection.execute(_FIND, bound).one_or_none()
        if row is None:
            return None
        return cls(database, scope_id, name, branch, row)

    @classmethod
    def _existing(cls, database: Database, scope_id: int, name: str, branch: str = MAIN, when: str = "") -> Branch:
        """Return a branch that existed a moment ago; `when` is added to the error.

        Raises:
            NotFound: The branch was deleted meanwhile.
        """
        existing = cls.find(database, scope_id, name, branch)
        if existing is None:
            raise NotFound(
                f"conversation {name!r} was deleted{when}; open it again to start a new conversation",
                name=name,
                value="deleted",
            )
        return existing

    @classmethod
    def make(cls, database: Database, scope_id: int, name: str) -> Branch:
        """Return the branch `main` of a conversation, which is created if missing."""
        row = {"scope_id": scope_id, "name": name, "created_at": database.clock()}
        owner = select(conversations.c.id).where(conversations.c.scope_id == scope_id, conversations.c.name == name)

        def write(connection: Connection) -> None:
            connection.execute(database.insert(conversations).values(row).on_conflict_do_nothing())
            first = {"conversation_id": connection.scalar(owner), "name": MAIN, "head_seq": 0}
            connection.execute(database.insert(branches).values(first).on_conflict_do_nothing())

        database.change(write)
        return cls._existing(database, scope_id, name, when=" as it was opened")

    def fork(self, name: str, at: int) -> Branch:
        """Create and return a branch that starts with the first `at` messages; see `StoredSession.fork`."""

        def write(connection: Connection) -> None:
            head, _ = self._state(connection)
            if not 0 <= at <= head:
                raise NotFound(
                    f"conversation {self.name!r} has {head} message(s), so it cannot be forked at {at}",
                    name="at",
                    value=at,
                )
            row = {"conversation_id": self.conversation_id, "name": name, "parent_id": self.id}
            new = self.database.insert(branches).values(**row, head_seq=at, fork_seq=at, itemised_seq=at)
            new_id = connection.scalar(new.on_conflict_do_nothing().returning(branches.c.id))
            if new_id is None:
                raise AlreadyUsed(
                    f"conversation {self.name!r} has a branch {name!r} already; "
                    f"open it with session({self.name!r}, branch={name!r}), or choose another name for the fork",
                    name="branch",
                    value=name,
                )
            self._copy_notes(connection, new_id, at)

        self.database.change(write, twice=False)
        return self._existing(self.database, self.scope_id, self.name, name, " as it was forked")

    def rewind(self, at: int, expected: int, edits: int) -> Branch | None:
        """Continue the conversation after its first `at` messages on a new branch; None if another writer was first.

        No message is changed or deleted: this branch gets another name and a higher `edits`, which invalidates its
        views, and the new branch gets the old name. The messages after `at` are no longer recalled.
        """
        # Messages of a renamed branch never become items, so the first messages become items before.
        itemise_all(self.database, self.scope_id)
        this = {"branch": self.id, "expected": expected, "seen": edits}

        def write(connection: Connection) -> int | None:
            rows = connection.execute(BRANCHES, {"conversation": self.conversation_id}).all()
            names, prefix = {row.id: row.name for row in rows}, f"{self.branch[:_MAX_PREFIX]}~"
            new_name = next(name for number in count(1) if (name := f"{prefix}{number}") not in names.values())
            # Messages after `at` may be in branches of earlier rewinds, whose later items are removed too.
            rewound = [branch for branch, _, until in self.shared if until > at and _is_rewound(names[branch], prefix)]
            if connection.execute(_SET_ASIDE, {**this, "current": self.branch, "new_name": new_name}).rowcount != 1:
                return None
            row = {"conversation_id": self.conversation_id, "name": self.branch, "parent_id": self.id, "fork_seq": at}
            new = insert(branches).values(**row, head_seq=at, itemised_seq=at).returning(branches.c.id)
            new_id: int = connection.scalars(new).one()
            self._copy_notes(connection, new_id, at)
            forget_items(
                connection, connection.scalars(_LATER_ITEMS, {"branches": [self.id, *rewound], "at": at}).all()
            )
            return new_id

        new_id = self.database.change(write, twice=False)
        if new_id is None:
            return None
        # The row is not read again: another writer may have rewound the new branch, which has another name then.
        row = (new_id, self.conversation_id, 0, self.id, at, self.expires_at)
        return Branch(self.database, self.scope_id, self.name, self.branch, row)

    def notes(self) -> dict[str, str]:
        """Return the newest note of each name, as JSON text."""
        with self.database.read() as connection:
            rows = sound_rows(connection, _NOTES, {"branch": self.id, "until": MAX_SEQ}, branch_notes.c.name, self.path)
        return {row.name: row.body for row in rows}

    def _copy_notes(self, connection: Connection, branch: int | None, at: int) -> None:
        """Copy the notes about the first `at` messages to a branch that starts with these messages."""
        for row in connection.execute(_NOTES, {"branch": self.id, "until": at}).mappings().all():
            connection.execute(insert(branch_notes).values({**row, "branch_id": branch}))

    def note(self, name: str, seq: int | None, body: str) -> None:
        """Write a note about the first `seq` messages, or about all messages.

        Raises:
            NotFound: The conversation was deleted.
        """
        row = {"branch_id": self.id, "name": name, "body": body, "created_at": self.database.clock()}

        def write(connection: Connection) -> None:
            head, _ = self._state(connection)
            number = head if seq is None else seq
            connection.execute(_FORGET_NOTE, {"branch": self.id, "number": number, "named": name})
            connection.execute(insert(branch_notes).values(**row, seq=number))

        self.database.change(write)

    def current(self) -> Branch:
        """Return the branch that has the name of this branch now: after a rewind, a new branch."""
        return self._existing(self.database, self.scope_id, self.name, self.branch)

    def all(self) -> list[BranchInfo]:
        """Return every branch of the conversation, oldest first."""
        with self.database.read() as connection:
            rows = connection.execute(BRANCHES, {"conversation": self.conversation_id}).all()
        names = {row.id: row.name for row in rows}
        return [BranchInfo(row.name, names.get(row.parent_id), row.fork_seq, row.head_seq) for row in rows]

    def state(self) -> tuple[int, int]:
        """Return the number of messages of the branch, and its `edits` (redactions and rewinds)."""
        with self.database.read() as connection:
            return self._state(connection)

    def _state(self, connection: Connection) -> tuple[int, int]:
        row = connection.execute(_STATE, {"branch": self.id}).one_or_none()
        # The number of messages is negative while the branch is being deleted.
        if row is None or row.head_seq < 0:
            raise NotFound(
                f"conversation {self.name!r} was deleted; open it again to start a new conversation",
                name=self.name,
                value="deleted",
            )
        return row.head_seq, row.edits

    def tail(self, after: int) -> list[Message]:
        """Return the messages after message number `after`."""
        before: list[StoredMessage] = []
        if after < self._forked_at:
            before = self.page(after, self._forked_at + 1)
        bound = {"branch": self.id, "after": after}
        with self.database.read() as connection:
            rows = sound_rows(connection, _TAIL, bound, messages.c.seq, self.path)
        return [*(each.message for each in before), *(load(self.name, *row) for row in rows)]

    @property
    def _forked_at(self) -> int:
        """Number of the last message that is shared with an ancestor; 0 without shared messages."""
        if not self.shared:
            return 0
        return self.shared[-1][2]

    def page(
        self, after: int = 0, before: int = MAX_SEQ, most: int = MAX_SEQ, *, newest: bool = False
    ) -> list[StoredMessage]:
        """Return the first `most` messages between two numbers or, with `newest`, the last `most`, in order."""
        ranges, query = [*self.shared, (self.id, self._forked_at, MAX_SEQ - 1)], _OLDEST_FIRST
        if newest:
            ranges, query = ranges[::-1], _NEWEST_FIRST
        rows: list[Any] = []
        with self.database.read() as connection:
            for branch, start, end in ranges:
                rest = most - len(rows)
                if rest <= 0:
                    break
                bound = {"branch": branch, "after": max(after, start), "before": min(before, end + 1), "most": rest}
                rows += sound_rows(connection, query, bound, messages.c.seq, self.path)
        if newest:
            rows.reverse()
        return [self._message(row) for row in rows]

    def _message(self, row: Any) -> StoredMessage:
        said_at = row.said_at
        if said_at is None:
            said_at = row.created_at
        message = load(self.name, row.seq, row.format, row.body)
        return StoredMessage(row.seq, message, row.created_at, said_at, row.redacted_at is not None)

    def tool_calls(self, after: int) -> list[StoredCall]:
        """Return the tool calls of the messages after message number `after`."""
        with self.database.read() as connection:
            return read_calls(connection, self.id, self.shared, after)

    def seq_of(self, key: str) -> int | None:
        """Return the number of the first message that was appended under `key`, here or before the fork."""
        ranges = [*self.shared, (self.id, 0, MAX_SEQ)]
        with self.database.read() as connection:
            return self._seq_of(connection, key, ranges)

    def keys(self, after: int, until: int) -> list[tuple[int, str]]:
        """Return number and key of each message with a key, after number `after` up to number `until`."""
        keys: list[tuple[int, str]] = []
        with self.database.read() as connection:
            for branch, start, end in (*self.shared, (self.id, 0, MAX_SEQ)):
                bound = {"branch": branch, "after": max(after, start), "until": min(until, end)}
                keys += [(row.seq, row.key) for row in connection.execute(_KEYS, bound)]
        return keys

    @staticmethod
    def _seq_of(connection: Connection, key: str, ranges: Sequence[tuple[int, int, int]]) -> int | None:
        for branch, _, until in ranges:
            seq: int | None = connection.scalar(_NUMBER_OF_KEY, {"branch": branch, "used": key, "until": until})
            if seq is not None:
                return seq
        return None

    def _check_alive(self, now: float) -> None:
        """Read the expiry again, which may have been extended, and check that the conversation has not expired.

        Raises:
            NotFound: The conversation has expired.
        """
        ends = select(conversations.c.expires_at).where(conversations.c.id == self.conversation_id)
        with self.database.read() as connection:
            self.expires_at = connection.scalar(ends)
        if self.expires_at is not None and self.expires_at <= now:
            raise NotFound(
                f"conversation {self.name!r} has expired; open it again to start a new conversation",
                name=self.name,
                value="expired",
            )

    def append(
        self,
        expected: int,
        edits: int,
        added: Sequence[Message],
        key: str | None,
        said_at: float | None = None,
        *,
        wait: bool = True,
    ) -> bool:
        """Add messages if the branch is unchanged and `key` is new; return True if the messages were added.

        The branch is unchanged if it has `expected` messages and the same `edits`. `said_at` is the time of the
        messages, by default now.

        Raises:
            WouldWait: `wait` is False, and the append would wait for a lock or a disk.
            NotFound: The conversation has expired: new messages would be deleted with it.
        """
        now = self.database.clock()
        if self.expires_at is not None and self.expires_at <= now:
            if not wait:
                raise WouldWait
            self._check_alive(now)
        if said_at is not None:
            said_at = float(said_at)  # a whole number can be too large for a database
        rows: list[dict[str, object]] = []
        for seq, message in enumerate(added, expected + 1):
            body = dump(self.name, message)
            row = {"branch_id": self.id, "seq": seq, "key": None, "format": MESSAGE_FORMAT, "body": body}
            rows.append(row | {"created_at": now, "said_at": said_at})
        # Only the first message has the key, by which a repeated append is detected.
        rows[0]["key"] = key
        swap = {"branch": self.id, "expected": expected, "seen": edits, "head": expected + len(rows)}
        tries = count()

        def write(connection: Connection) -> bool:
            # If the connection was lost in the first try, the messages may have been added.
            is_again = next(tries) > 0
            if self.shared and key is not None and self._seq_of(connection, key, self.shared) is not None:
                return False
            if _SWAP.execute(connection, [swap]) != 1:
                return is_again and self._are_stored(connection, rows)
            _ADD.execute(connection, rows)
            record_calls(connection, self.id, self.shared, expected, added)
            failpoint("messages.written")
            return True

        try:
            is_added = self.database.change(write, wait=wait, may_clash=True)
        # The unique index of keys: an earlier append has this key.
        except IntegrityError:
            return False
        if is_added:
            failpoint("messages.committed")
        return is_added

    def _are_stored(self, connection: Connection, rows: Sequence[Mapping[str, object]]) -> bool:
        """Return True if these rows are stored: the rows of another writer differ in the text or in the time."""
        bound = {"branch": self.id, "first": rows[0]["seq"], "last": rows[-1]["seq"]}
        stored = [tuple(row) for row in connection.execute(_STORED, bound)]
        return stored == [(row["seq"], row["key"], row["body"], row["created_at"]) for row in rows]


def _is_rewound(name: str, prefix: str) -> bool:
    """Return True if a branch was renamed by a rewind: its name is `prefix` and a number."""
    return name.startswith(prefix) and name[len(prefix) :].isdigit()
