"""`Session`: one conversation, kept as a view in memory and as rows in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Protocol

from agentkit_memory.errors import HeadMoved, KeyReused, StoreError
from agentkit_memory.scope import check_name
from agentkit_prompts.composer import Memo
from agentkit_prompts.conversation import Conversation
from agentkit_prompts.messages import Message

__all__ = ["Session"]


class _Branch(Protocol):
    name: str

    def head(self) -> int: ...
    def tail(self, after: int) -> list[Message]: ...
    def seq_of(self, key: str) -> int | None: ...
    def append(self, expected: int, added: Sequence[Message], key: str | None) -> bool: ...


class Session:
    """One conversation.

    The messages are read once; after that a turn costs what it adds. Several sessions may be open on one
    conversation, in any number of processes: whoever appends to a view that is no longer the whole conversation gets
    `HeadMoved` and an up-to-date view, and nothing is lost or interleaved.
    """

    blocking = True
    """`append` waits for a disk or a network: async code calls it in a thread."""

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

    def _catch_up(self) -> None:
        self._view = self._view.append(*self._branch.tail(len(self._view)))
