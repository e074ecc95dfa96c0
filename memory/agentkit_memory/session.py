"""`Session`: one conversation, kept as a view in memory and as rows in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Protocol

from agentkit_memory.errors import HeadMoved, KeyReused, StoreError, WouldWait
from agentkit_memory.scope import check_name
from agentkit_prompts.composer import Memo
from agentkit_prompts.conversation import Conversation
from agentkit_prompts.messages import Message

__all__ = ["Session"]

_SHORT = 65_536
"""Characters that are written as JSON and stored within a fraction of a millisecond."""


class _Branch(Protocol):
    name: str

    def head(self) -> int: ...
    def tail(self, after: int) -> list[Message]: ...
    def seq_of(self, key: str) -> int | None: ...
    def append(self, expected: int, added: Sequence[Message], key: str | None, *, wait: bool = True) -> bool: ...


class Session:
    """One conversation.

    The messages are read once; after that a turn costs what it adds. Several sessions may be open on one
    conversation, in any number of processes: whoever appends to a view that is no longer the whole conversation gets
    `HeadMoved` and an up-to-date view, and nothing is lost or interleaved.
    """

    def __init__(self, branch: _Branch) -> None:
        self._branch = branch
        self._lock = Lock()
        self.memo = Memo()
        """Fragments rendered for earlier turns; they belong to this session alone."""
        self._view = Conversation(branch.tail(0))

    @property
    def id(self) -> str:
        """The name of the conversation within its scope."""
        return self._branch.name

    @property
    def conversation(self) -> Conversation:
        """The messages, as of the last `append` or `refresh`."""
        return self._view

    def refresh(self) -> Conversation:
        """Read what other writers added, if anything, and return the conversation.

        Raises:
            StoreError: The database cannot be read, or the conversation is gone.
        """
        with self._lock:
            if self._branch.head() != len(self._view):
                self._catch_up()
            return self._view

    def append(self, *messages: Message, key: str | None = None) -> Conversation:
        """Add messages in one transaction and return the conversation with them at its end.

        Args:
            messages: What to add, in order.
            key: Idempotency key: the second append under the same key and with the same messages adds nothing.

        Raises:
            HeadMoved: Another writer was first. Nothing was added; `conversation` now holds what they wrote.
            KeyReused: The key was used for other messages.
            ScopeError: The key is too long or holds NUL.
            StoreError: The database is locked, read-only, full or gone. Nothing was added.
        """
        if not messages:
            return self._view
        if key is not None:
            check_name("idempotency key", key)
        with self._lock:
            known = len(self._view)
            if self._branch.append(known, messages, key):
                self._view = self._view.append(*messages)
                return self._view
            self._catch_up()
            used = None if key is None else self._branch.seq_of(key)
            if used is not None:
                if tuple(self._view[used - 1 : used - 1 + len(messages)]) == messages:
                    return self._view
                raise KeyReused(
                    f"conversation {self.id!r}: key {key!r} was used for other messages (message {used} on); "
                    "give every append a key of its own"
                )
            actual = len(self._view)
            if actual == known:
                raise StoreError(f"conversation {self.id!r} was deleted; open it again to begin a new one")
            raise HeadMoved(self.id, known, actual)

    def append_now(self, *messages: Message, key: str | None = None) -> bool:
        """Do what `append` does if that takes no waiting: a few short messages, and nobody else is writing.

        Returns:
            Whether it was done. If not, nothing was: call `append` in a thread, which also says what is wrong.

        Raises:
            ScopeError, StoreError: As `append` does.
        """
        if key is not None:
            check_name("idempotency key", key)
        if not messages or not _short(messages) or not self._lock.acquire(blocking=False):
            return not messages
        try:
            done = self._branch.append(len(self._view), messages, key, wait=False)
            if done:
                self._view = self._view.append(*messages)
            return done
        except WouldWait:
            return False
        finally:
            self._lock.release()

    def _catch_up(self) -> None:
        self._view = self._view.append(*self._branch.tail(len(self._view)))


def _short(messages: Sequence[Message]) -> bool:
    """Whether messages are text, and not much of it."""
    size = 0
    for message in messages:
        if type(message.content) is not str:
            return False
        size += len(message.content) + sum([len(call.arguments) for call in message.tool_calls])
    return size <= _SHORT
