"""`StoredSession`: one conversation, as rows in SQL and as a view in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from threading import RLock
from typing import TYPE_CHECKING, Any

from agentkit_memory.checks import check_limit
from agentkit_memory.conversations.message_rows import dump, is_short
from agentkit_memory.conversations.session_arguments import check_append, check_note, check_number
from agentkit_memory.conversations.unread_append import append_unread, check_same, read_appended
from agentkit_memory.database.rows import corrupt_row
from agentkit_memory.errors import HeadMoved, InvalidArgument, StoreCorrupt, WouldWait
from agentkit_memory.process.async_methods import async_method
from agentkit_memory.process.forks import track
from agentkit_memory.scope import Scope, check_name
from agentkit_memory.store.records import BranchInfo, StoredCall, StoredMessage
from agentkit_prompts.composition.compose import RenderCache
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.json_form import from_json, to_json
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Part
from agentkit_prompts.context.prompt_context import UserInput
from agentkit_prompts.errors import brief
from agentkit_prompts.hints import Hinted

if TYPE_CHECKING:
    from agentkit_memory.conversations.branch import Branch
    from agentkit_memory.database.engine import Database
    from agentkit_prompts.context.wire.foreign_messages import AnyMessage
    from agentkit_prompts.system.threads import Threads

_KWARGS = "additional_kwargs"
"""Name of the note with the additional kwargs of the session."""


class StoredSession(metaclass=Hinted):
    """One conversation, or one fork of it. Methods that start with an `a`, as `aappend`, are for async code.

    The messages are read once; after that, the cost of a turn depends on its new messages only. Several sessions may be
    open on one conversation, in any number of processes: an append to an outdated view raises `HeadMoved` and updates
    the view, so that no message is lost or interleaved.
    """

    def __init__(self, branch: Branch, scope: Scope, *, load: bool = True, allow_media: bool = False) -> None:
        self._branch = branch
        self._allow_media = allow_media
        self.scope = scope
        """Scope of the conversation."""
        self._lock = RLock()
        self.render_cache = RenderCache()
        """Fragments rendered for earlier turns of this session."""
        self._edits = branch.edits
        self._view: Conversation | None = None
        self._notes: dict[str, str] | None = None
        track(self)
        if load:
            self._load()

    @property
    def id(self) -> str:
        """The name of the conversation within its scope."""
        return self._branch.name

    @property
    def address(self) -> tuple[str, int, str]:
        """Database, number and branch of the conversation, equal for every session on it."""
        return self._branch.database.where, self._branch.conversation_id, self._branch.branch

    @property
    def branch(self) -> str:
        """The name of the branch: `main`, or the name of a fork."""
        return self._branch.branch

    @property
    def conversation(self) -> Conversation:
        """The messages as of the last `append`, `redact` or `refresh`, which are read at the first use."""
        if self._view is None:
            return self._load()
        return self._view

    def disown(self, why: str) -> None:
        """Replace the lock after a fork: a thread of the parent process may hold it. Other methods raise an error."""
        self._lock = RLock()

    def ranges(self, last: int | None = None) -> tuple[tuple[int, int, int], ...]:
        """Return the ranges of the stored messages: branch id, number before the first message, last number.

        Args:
            last: Number of latest messages to include; None for all.
        """
        first = 0
        if last is not None:
            first = max(0, len(self.conversation) - last)
        ranges = (*self._branch.shared, (self._branch.id, 0, len(self.conversation)))
        return tuple((branch, max(after, first), until) for branch, after, until in ranges if until > first)

    def refresh(self) -> Conversation:
        """Read the changes of other writers, and return the conversation.

        Raises:
            StoreError: The database cannot be read, or the conversation was deleted.
        """
        with self._lock:
            self._catch_up()
            return self.conversation

    def append(
        self,
        *messages: AnyMessage,
        key: str | None = None,
        said_at: float | None = None,
        allow_media: bool = False,
    ) -> Conversation:
        """Add messages in one transaction, and return the conversation with the new messages at its end.

        Args:
            messages: Messages to add, in order: `Message`s, or mappings in the form of a provider.
            key: Idempotency key: a second append with the same key and the same messages adds nothing. The keys of
                messages that a fork shares are keys of the fork too.
            said_at: The time of the messages, in seconds since 1970; by default now.
            allow_media: True to accept media of mappings in files of this machine and at addresses that are not
                public; the option of the session is sufficient too.

        Raises:
            HeadMoved: Another writer was first. Nothing was added; `conversation` now contains its messages too.
            AlreadyUsed: The key was used for other messages.
            InvalidArgument: The key is too long or contains NUL, the time is invalid, or a value is not a message or
                cannot be stored.
            NotFound: The conversation was deleted, or has expired.
            StoreError: The database is locked, read-only, full or not reachable. Nothing was added.
        """
        check_append(key, said_at)
        with self._lock:
            if self._view is None:
                allowed = allow_media or self._allow_media
                self._branch, self._edits, added = append_unread(self._branch, messages, key, said_at, allowed)
                return added
            view = self._view
            messages = read_appended(messages, view, allow_media or self._allow_media)
            if not messages:
                return view
            length = len(view)
            while True:
                if self._branch.append(length, self._edits, messages, key, said_at):
                    self._view = self.conversation.append(*messages)
                    return self._view
                before = self._branch
                is_edited = self._catch_up()
                if key is not None and (seq := self._branch.seq_of(key)) is not None:
                    check_same(self._branch, key, seq, messages)
                    return self.conversation
                actual = len(self.conversation)
                rewound = self._branch is not before
                # After a redaction, the new messages still follow the same message: the append is tried again.
                if actual != length or not is_edited or rewound:
                    raise HeadMoved(self.id, length, actual, rewound)

    def append_now(
        self, *messages: Message | Mapping[str, Any], key: str | None = None, said_at: float | None = None
    ) -> bool:
        """Append without waiting, if possible: a few short messages, while no other writer is active.

        Returns:
            True if the messages were added. Otherwise nothing was done: call `append` in a thread, which raises errors.

        Raises:
            InvalidArgument, StoreError: As `append` does.
        """
        check_append(key, said_at)
        view = self._view
        if view is None:
            return not messages
        messages = read_appended(messages, view, self._allow_media)
        if not messages or not is_short(messages) or not self._lock.acquire(blocking=False):
            return not messages
        try:
            # Another thread may have changed the view.
            if self._view is not view:
                return False
            is_added = self._branch.append(len(view), self._edits, messages, key, said_at, wait=False)
            if is_added:
                self._view = view.append(*messages)
            return is_added
        except WouldWait:
            return False
        finally:
            self._lock.release()

    def position(self, key: str) -> int | None:
        """Return the index (from 0) of the first message of the append with a key; None if the key is unused.

        Raises:
            InvalidArgument: The key is too long or contains NUL.
            StoreError: The database cannot be read.
        """
        check_append(key, None)
        seq = self._branch.seq_of(key)
        if seq is None:
            return None
        if seq > len(self.conversation):
            self.refresh()
        return seq - 1

    def keys(self, start: int, stop: int) -> Mapping[int, str]:
        """Return the idempotency keys of the messages from index `start` up to index `stop`, by index."""
        return {seq - 1: key for seq, key in self._branch.keys(start, stop)}

    def page(
        self, *, after: int | None = None, before: int | None = None, limit: int = 50
    ) -> tuple[StoredMessage, ...]:
        """Return a page of messages, in order, without reading the other messages.

        Pass the number of the first or last message for the next page: `page(before=messages[0].seq)`.

        Args:
            after: Return the first messages after the message with this number.
            before: Return the last messages before the message with this number. By default, return the newest.
            limit: Maximum number of messages.

        Raises:
            InvalidArgument: The limit is less than 1, or a number is invalid.
            StoreError: The database cannot be read, or the conversation was deleted.
        """
        check_limit("page", limit)
        bounds = {name: number for name, number in (("after", after), ("before", before)) if number is not None}
        for name, number in bounds.items():
            check_number(f"page: {name}", number)
        # `state` raises an error for a deleted conversation, whose pages would be empty.
        self._branch.state()
        return tuple(self._branch.page(**bounds, most=limit, newest=after is None))

    def fork(self, id: str, at: int | None = None) -> StoredSession:
        """Create a branch that starts with the first `at` messages. The messages are shared, not copied.

        Args:
            id: Name of the branch: `memory.session(session.id, branch=id)` opens it again.
            at: Number of messages to share; by default all of `conversation`.

        Raises:
            InvalidArgument: The name cannot be stored, or `at` is not a number.
            AlreadyUsed: The conversation has a branch of that name.
            NotFound: The conversation has fewer messages.
            MessageError: Tool results would be cut from their calls.
        """
        check_name("name of a fork", id)
        if not id:
            raise InvalidArgument("the name of a fork cannot be empty: it is needed to open the fork again", name="id")
        if at is None:
            at = len(self.conversation)
        check_number("fork: at", at)
        if any(each.message.role == "tool" for each in self._branch.page(after=at, most=1)):
            self.refresh().until(at)
        return StoredSession(self._branch.fork(id, at), self.scope, allow_media=self._allow_media)

    def note(self, name: str) -> Any:
        """Return the value of `keep_note` about the most messages of this branch, or None if the name is unknown.

        Raises:
            StoreCorrupt: The note is corrupt.
            StoreError: The database cannot be read.
        """
        with self._lock:
            if self._notes is None:
                self._notes = self._branch.notes()
            body = self._notes.get(name)
        if body is None:
            return None
        try:
            return from_json(json.loads(body))
        except (ValueError, TypeError, RecursionError) as error:
            raise self._corrupt(name, error) from error

    def _corrupt(self, name: str, error: object) -> StoreCorrupt:
        return corrupt_row("branch_notes", name, "body", f"is corrupt ({str(error)[:200]})", self._branch.path)

    def keep_note(self, name: str, value: Any, at: int | None = None) -> None:
        """Store a value about the first `at` messages. A rewind to before message `at` drops the value.

        Args:
            name: Name of the value; a new value about the same or more messages replaces the old value.
            value: JSON data, a path, a time, or another value that `to_json` converts.
            at: Number of messages that the value is about; by default all, also after a rewind by another writer.

        Raises:
            InvalidArgument: The name cannot be stored, or `at` is not a number.
            ContextError: The value has no JSON form.
            StoreError: The database cannot be written.
        """
        check_note(name, at)
        with self._lock:
            body = json.dumps(to_json(value))
            if at is None:
                self._branch.current().note(name, None, body)
            else:
                self._branch.note(name, at, body)
            self._notes = None

    @property
    def additional_kwargs(self) -> Mapping[str, Any]:
        """The default additional kwargs of the inputs of this session; see `keep_kwargs`.

        Raises:
            StoreCorrupt: The stored value is corrupt.
            StoreError: The database cannot be read.
        """
        stored = self.note(_KWARGS)
        if stored is None:
            return {}
        if not isinstance(stored, Mapping) or not all(isinstance(key, str) for key in stored):
            raise self._corrupt(_KWARGS, f"expected names and values, got {type(stored).__name__}")
        return stored

    def keep_kwargs(self, kwargs: Mapping[str, Any]) -> None:
        """Replace the default additional kwargs of the inputs of this session.

        Raises:
            ContextError: The value is not a mapping of names to values, or a value has no JSON form.
            StoreError: The database cannot be written.
        """
        self.keep_note(_KWARGS, dict(UserInput(additional_kwargs=kwargs).additional_kwargs))

    def rewind(self, at: int) -> Conversation:
        """Continue the conversation after its first `at` messages, and return these messages.

        No message is deleted: all messages so far stay in a branch with the name of this branch and a number, such as
        `main~1`; see `branches`. The messages after `at` are no longer recalled. The next append of another session on
        this conversation, in any process, raises `HeadMoved`.

        Raises:
            MessageError: The conversation has fewer messages, or tool results would be cut from their calls.
            HeadMoved: Another writer was first. Nothing was changed.
            NotFound: The conversation was deleted.
            StoreError: The database cannot be written.
        """
        with self._lock:
            view = self.conversation.until(at)
            length = len(self.conversation)
            if at == length:
                return view
            successor = self._branch.rewind(at, length, self._edits)
            if successor is None:
                before = self._branch
                self._catch_up()
                raise HeadMoved(self.id, length, len(self.conversation), self._branch is not before)
            self._branch, self._edits, self._view, self._notes = successor, successor.edits, view, None
            return view

    def edit(self, seq: int, content: str | Sequence[str | Part]) -> Conversation:
        """Replace message number `seq`, and return the conversation, which ends with the new message.

        `agent.run(None, session=session)` then answers it. The conversation is rewound to the message before, see
        `rewind`.

        Raises:
            MessageError: The message does not exist, or it is part of a round of tool calls.
            HeadMoved: Another writer was first.
            StoreError: The database cannot be written.
        """
        with self._lock:
            before, message = self.conversation.edited(seq, content)
            # A message that cannot be stored raises an error here, before anything is changed.
            dump(self.id, message)
            self.rewind(len(before))
            return self.append(message)

    def branches(self) -> tuple[BranchInfo, ...]:
        """Return every branch of the conversation, `main` first."""
        return tuple(self._branch.all())

    def tool_calls(self, *, after: int = 0) -> tuple[StoredCall, ...]:
        """Return the tool calls in messages after number `after`, in order, each with the number of its result.

        Raises:
            InvalidArgument: `after` is not a number.
            StoreError: The database cannot be read.
        """
        check_number("tool_calls: after", after)
        return tuple(self._branch.tool_calls(after))

    def redact(self, seq: int, replacement: str = "[redacted]") -> Conversation:
        """Replace the text of message number `seq` wherever it is stored, and return the conversation.

        The number, role, name and tool call ids of the message stay, so that the conversation stays valid; the
        arguments of its tool calls become `{}`. Its item and vectors are replaced, facts that were taken from the
        message are deleted, and quotes of it are removed from recall logs. Other sessions read the change at their next
        append or refresh.

        Raises:
            InvalidArgument: `seq` is not a number, or the replacement is not text, or cannot be stored.
            NotFound: The message does not exist.
        """
        from agentkit_memory.conversations.redaction import redact

        check_number("redact: seq", seq)
        if not isinstance(replacement, str):
            raise InvalidArgument(f"redact: replacement: expected text, got {brief(replacement)}", name="replacement")
        with self._lock:
            redact(self._branch, seq, replacement)
            self._catch_up()
            return self.conversation

    aappend, arefresh, apage = async_method(append), async_method(refresh), async_method(page)
    afork, arewind, aedit, aredact = async_method(fork), async_method(rewind), async_method(edit), async_method(redact)

    @property
    def _threads(self) -> Threads:
        return self._branch.database.threads["sessions"]

    def _load(self) -> Conversation:
        with self._lock:
            if self._view is None:
                self._view = Conversation(self._branch.tail(0))
            return self._view

    def _catch_up(self) -> bool:
        """Read new messages, or all messages after a redaction or rewind; return True after a redaction or rewind."""
        self._notes = None
        # The state is read before the messages: later changes are detected the next time.
        head, edits = self._branch.state()
        is_edited = edits != self._edits
        # A rewound conversation has another branch with this name.
        if is_edited and (current := self._branch.current()).id != self._branch.id:
            self._branch, edits = current, current.edits
        if is_edited:
            # The view and the cache contain the redacted text.
            self._view, self.render_cache = None, RenderCache()
            self._edits = edits
        elif self._view is not None and head != len(self._view):
            self._view = self._view.append(*self._branch.tail(len(self._view)))
        return is_edited


def visible_messages(
    session: object, database: Database, last: int | None
) -> tuple[str, tuple[tuple[int, int, int], ...]]:
    """Return the name of a session, and the ranges of its `last` messages (None: all) in a database, if any.

    Raises:
        InvalidArgument: The value is not a session.
    """
    if not isinstance(session, StoredSession):
        if session is None or hasattr(session, "conversation"):
            return "", ()
        raise InvalidArgument(f"recall: expected a session, as `memory.session(...)` returns it, got {brief(session)}")
    if session._branch.database is not database:
        return session.id, ()
    return session.id, session.ranges(last)
