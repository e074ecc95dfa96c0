"""`StoredSession`: one conversation, as rows in SQL and as a view in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from threading import RLock
from typing import TYPE_CHECKING, Any

from agentkit_memory.checks import is_time, is_whole
from agentkit_memory.conversations.message_rows import dump, is_short
from agentkit_memory.conversations.unread_append import append_unread, check_same, given_messages
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

if TYPE_CHECKING:
    from agentkit_memory.conversations.branch import Branch
    from agentkit_memory.database.engine import Database
    from agentkit_prompts.system.threads import Threads

__all__ = ["StoredSession", "shown"]

_KWARGS = "additional_kwargs"
"""Name of the note that holds what stays in force."""
_MAX_SEQ = 2**31 - 1
"""Greatest number of a message in a database."""


class StoredSession:
    """One conversation, or one fork of it. Methods that begin with an `a`, as `aappend`, are for async code.

    The messages are read once; after that a turn costs what it adds. Several sessions may be open on one
    conversation, in any number of processes: an append to an outdated view raises `HeadMoved` and brings the view up to
    date, so that nothing is lost or interleaved.
    """

    def __init__(self, branch: Branch, scope: Scope, *, load: bool = True, allow_media: bool = False) -> None:
        self._branch = branch
        self._allow_media = allow_media
        self.scope = scope
        """Whose conversation it is."""
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
        """Where the conversation is: the same for every session on it."""
        return self._branch.database.where, self._branch.conversation_id, self._branch.branch

    @property
    def branch(self) -> str:
        """The name of the branch: `main`, or that of a fork."""
        return self._branch.branch

    @property
    def conversation(self) -> Conversation:
        """The messages, as of the last `append`, `redact` or `refresh`; read at the first use."""
        return self._load() if self._view is None else self._view

    def disown(self, why: str) -> None:
        """Replace the lock, which a thread of the parent may hold; the memory refuses everything else."""
        self._lock = RLock()

    def places(self, last: int | None = None) -> tuple[tuple[int, int, int], ...]:
        """Return where its messages are stored: branch ids, each with a message before the first and the last one.

        Args:
            last: How many of the latest messages; None for all.
        """
        first = 0 if last is None else max(0, len(self.conversation) - last)
        parts = (*self._branch.shared, (self._branch.id, 0, len(self.conversation)))
        return tuple((branch, max(after, first), until) for branch, after, until in parts if until > first)

    def refresh(self) -> Conversation:
        """Read what other writers added or redacted, if anything, and return the conversation.

        Raises:
            StoreError: The database cannot be read, or the conversation is gone.
        """
        with self._lock:
            self._catch_up()
            return self.conversation

    def append(
        self,
        *messages: Message | Mapping[str, Any],
        key: str | None = None,
        said_at: float | None = None,
        allow_media: bool = False,
    ) -> Conversation:
        """Add messages in one transaction and return the conversation with them at its end.

        Args:
            messages: What to add, in order: messages of ours, or mappings in the form of a provider.
            key: Idempotency key: the second append under the same key and with the same messages adds nothing. A
                fork knows the keys of the messages that it shares.
            said_at: The time of the messages, in seconds since 1970, if not now.
            allow_media: Whether media of mappings may be in a file of this machine, or at an address that is not
                public. So for each append where the session was opened so.

        Raises:
            HeadMoved: Another writer was first. Nothing was added; `conversation` now holds its messages.
            AlreadyUsed: The key was used for other messages.
            InvalidArgument: The key is too long or holds NUL, the time is invalid, or a value is not a message or
                cannot be stored.
            NotFound: The conversation was deleted, or has expired.
            StoreError: The database is locked, read-only, full or gone. Nothing was added.
        """
        _check(key, said_at)
        with self._lock:
            if self._view is None:
                allowed = allow_media or self._allow_media
                self._branch, self._edits, added = append_unread(self._branch, messages, key, said_at, allowed)
                return added
            view = self._view
            messages = given_messages(messages, view, allow_media or self._allow_media)
            if not messages:
                return view
            known = len(view)
            while True:
                if self._branch.append(known, self._edits, messages, key, said_at):
                    self._view = self.conversation.append(*messages)
                    return self._view
                before = self._branch
                redacted = self._catch_up()
                used = None if key is None else self._branch.seq_of(key)
                if used is not None:
                    check_same(self._branch, str(key), used, messages)
                    return self.conversation
                actual = len(self.conversation)
                rewound = self._branch is not before
                if actual != known or not redacted or rewound:
                    raise HeadMoved(self.id, known, actual, rewound)

    def append_now(
        self, *messages: Message | Mapping[str, Any], key: str | None = None, said_at: float | None = None
    ) -> bool:
        """Append without waiting, if possible: a few short messages, while no one else is writing.

        Returns:
            Whether it was done. If not, nothing was: call `append` in a thread, which also raises the right error.

        Raises:
            InvalidArgument, StoreError: As `append` does.
        """
        _check(key, said_at)
        view = self._view
        if view is None:
            return not messages
        messages = given_messages(messages, view, self._allow_media)
        if not messages or not is_short(messages) or not self._lock.acquire(blocking=False):
            return not messages
        try:
            if self._view is not view:  # another thread was first
                return False
            done = self._branch.append(len(view), self._edits, messages, key, said_at, wait=False)
            if done:
                self._view = view.append(*messages)
            return done
        except WouldWait:
            return False
        finally:
            self._lock.release()

    def position(self, key: str) -> int | None:
        """Return how many messages stand before those that were appended under a key, or None.

        Raises:
            InvalidArgument: The key is too long or holds NUL.
            StoreError: The database cannot be read.
        """
        _check(key, None)
        found = self._branch.seq_of(key)
        if found is not None and found > len(self.conversation):
            self.refresh()
        return None if found is None else found - 1

    def keys(self, start: int, stop: int) -> Mapping[int, str]:
        """Return the keys under which messages were appended, by index, of those messages from `start` to `stop`.

        Raises:
            StoreError: The database cannot be read.
        """
        return {seq - 1: key for seq, key in self._branch.keys(start, stop)}

    def page(
        self, *, after: int | None = None, before: int | None = None, limit: int = 50
    ) -> tuple[StoredMessage, ...]:
        """Return some messages in order, without reading the others.

        The next page begins at the number of the first or last of them: `page(before=found[0].seq)`.

        Args:
            after: Return the first messages after this number.
            before: Return the last messages before this number. With neither, the newest are returned.
            limit: Most messages to return.

        Raises:
            InvalidArgument: The limit is less than 1, or a number is invalid.
            StoreError: The database cannot be read, or the conversation is gone.
        """
        if not is_whole(limit, 1):
            raise InvalidArgument(f"page: expected a limit of 1 or more messages, got {limit!r}", name="limit")
        bounds = {name: number for name, number in (("after", after), ("before", before)) if number is not None}
        for name, number in bounds.items():
            _check_number(f"page: {name}", number)
        # Raises for a deleted conversation, which would have empty pages.
        self._branch.state()
        return tuple(self._branch.page(**bounds, most=limit, newest=after is None))

    def fork(self, id: str, at: int | None = None) -> StoredSession:
        """Create a branch that begins with the first `at` messages; it takes one row.

        Args:
            id: Its name: `memory.session(session.id, branch=id)` opens it again.
            at: How many messages to share; all of `conversation` by default.

        Raises:
            InvalidArgument: The name cannot be stored, or `at` is not a number.
            AlreadyUsed: The conversation has a branch of that name.
            NotFound: There are fewer messages.
        """
        check_name("name of a fork", id)
        if not id:
            raise InvalidArgument("a fork needs a name to open it by again", name="id")
        if at is None:
            at = len(self.conversation)
        _check_number("fork: at", at)
        return StoredSession(self._branch.fork(id, at), self.scope, allow_media=self._allow_media)

    def note(self, name: str) -> Any:
        """Return what was last noted under a name about these messages; None where nothing was.

        Raises:
            StoreCorrupt: The note is damaged.
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
            raise self._damaged(name, error) from error

    def _damaged(self, name: str, error: object) -> StoreCorrupt:
        return corrupt_row("branch_notes", name, "body", f"is damaged ({str(error)[:200]})", self._branch.path)

    def keep_note(self, name: str, value: Any, at: int | None = None) -> None:
        """Note something beside the messages, which stay as they are. A rewind to before `at` leaves it behind.

        Args:
            name: Under which it is found again; the newest of a name holds.
            value: JSON data, paths, times and the like.
            at: How many messages it is about; all of `conversation` by default.

        Raises:
            InvalidArgument: The name cannot be stored.
            ContextError: The value has no JSON form.
            StoreError: The database cannot be written.
        """
        check_name("name of a note", name)
        with self._lock:
            body = json.dumps(to_json(value))
            self._branch.note(name, len(self.conversation) if at is None else at, body)
            self._notes = None

    @property
    def additional_kwargs(self) -> Mapping[str, Any]:
        """What stays in force for every input of this session that does not bring its own; see `keep_kwargs`.

        Raises:
            StoreCorrupt: What is stored is damaged.
            StoreError: The database cannot be read.
        """
        kept = self.note(_KWARGS)
        if kept is None:
            return {}
        if not isinstance(kept, Mapping) or not all(isinstance(key, str) for key in kept):
            raise self._damaged(_KWARGS, f"expected names and values, got {type(kept).__name__}")
        return kept

    def keep_kwargs(self, kwargs: Mapping[str, Any]) -> None:
        """Keep additional kwargs in force from now on, in place of those kept before.

        Raises:
            ContextError: It is no mapping of names to values, or one of them has no JSON form.
            StoreError: The database cannot be written.
        """
        self.keep_note(_KWARGS, dict(UserInput(additional_kwargs=kwargs).additional_kwargs))

    def rewind(self, at: int) -> Conversation:
        """Go on behind the first `at` messages, and return these.

        What is stored stays as it is: the messages until now are a branch of their own from now on, named after this
        one with a number, `main~1`; see `branches`. Those behind `at` are no longer recalled. Other sessions on this
        conversation, in any process, get `HeadMoved` when they next append.

        Raises:
            MessageError: There are fewer messages, or tool results would be cut from their calls.
            HeadMoved: Another writer was first. Nothing was changed.
            NotFound: The conversation was deleted.
            StoreError: The database cannot be written.
        """
        with self._lock:
            view = self.conversation.until(at)
            known = len(self.conversation)
            if at == known:
                return view
            made = self._branch.rewind(at, known, self._edits)
            if made is None:
                before = self._branch
                self._catch_up()
                raise HeadMoved(self.id, known, len(self.conversation), self._branch is not before)
            self._branch, self._edits, self._view, self._notes = made, made.edits, view, None
            return view

    def edit(self, seq: int, content: str | Sequence[str | Part]) -> Conversation:
        """Put another message in the place of message number `seq`, and return the conversation, which ends with it.

        `agent.run(None, session=session)` then answers it. The conversation is rewound to the message before, see
        `rewind`.

        Raises:
            MessageError: There is no such message, or it is part of a round of tool calls.
            HeadMoved: Another writer was first.
            StoreError: The database cannot be written.
        """
        with self._lock:
            before, message = self.conversation.edited(seq, content)
            # Refuse a message that cannot be stored before anything is changed.
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
        _check_number("tool_calls: after", after)
        return tuple(self._branch.tool_calls(after))

    def redact(self, seq: int, replacement: str = "[redacted]") -> Conversation:
        """Replace the text of message number `seq` wherever it is kept, and return the conversation.

        Its place, role, name and the ids of its tool calls stay, so that the conversation stays valid; the arguments
        of its tool calls become `{}`. Its item and vectors are replaced, facts that were taken from it are deleted, and
        recall logs no longer quote it. Other sessions see the change when they next append or refresh.

        Raises:
            InvalidArgument: `seq` is not a number, or the replacement is not text, or cannot be stored.
            NotFound: There is no such message.
        """
        from agentkit_memory.conversations.redaction import redact

        _check_number("redact: seq", seq)
        if not isinstance(replacement, str):
            raise InvalidArgument(f"redact: expected text as the replacement, got {replacement!r}", name="replacement")
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
        """Read new messages, or all again if messages were redacted or it was rewound; return whether they were."""
        self._notes = None
        # First: later changes are noticed the next time.
        head, edits = self._branch.state()
        redacted = edits != self._edits
        # A rewound conversation has another branch by this name.
        if redacted and (current := self._branch.current()).id != self._branch.id:
            self._branch, edits = current, current.edits
        if redacted:
            self._view, self.render_cache = None, RenderCache()  # both contain the redacted text
            self._edits = edits
        elif self._view is not None and head != len(self._view):
            self._view = self._view.append(*self._branch.tail(len(self._view)))
        return redacted


def shown(session: object, database: Database, last: int | None) -> tuple[str, tuple[tuple[int, int, int], ...]]:
    """Return the name of a session, and where its `last` messages (None: all) are stored, if in this database.

    Raises:
        InvalidArgument: It is not a session.
    """
    if not isinstance(session, StoredSession):
        if session is None or hasattr(session, "conversation"):
            # None of the messages of a session of another kind is stored here.
            return "", ()
        raise InvalidArgument(f"recall: expected a session, as `memory.session(...)` returns it, got {session!r}")
    return session.id, session.places(last) if session._branch.database is database else ()


def _check(key: str | None, said_at: float | None) -> None:
    if key is not None:
        check_name("idempotency key", key)
    if said_at is not None and not is_time(said_at):
        raise InvalidArgument(f"said_at: expected seconds since 1970, got {brief(said_at)}", name="said_at")


def _check_number(what: str, number: object) -> None:
    if not is_whole(number, -_MAX_SEQ, _MAX_SEQ):
        raise InvalidArgument(f"{what}: expected the number of a message, got {brief(number)}", name=what)
