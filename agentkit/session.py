"""Sessions: where the conversation of an agent is kept between runs."""

from __future__ import annotations

from typing import Protocol

from agentkit_prompts.composer import Memo
from agentkit_prompts.conversation import Conversation
from agentkit_prompts.messages import Message

__all__ = ["InMemorySession", "Session"]


class Session(Protocol):
    """One conversation, and the rendered fragments that go with it. One run at a time uses a session."""

    @property
    def id(self) -> str:
        """Name of the conversation in its store."""
        ...

    @property
    def conversation(self) -> Conversation:
        """The messages so far."""
        ...

    @property
    def memo(self) -> Memo:
        """Fragments rendered for earlier turns."""
        ...

    @property
    def blocking(self) -> bool:
        """Whether `append` waits for a disk or a network, so that async code must call it in a thread."""
        ...

    def append(self, *messages: Message, key: str | None = None) -> Conversation:
        """Add messages at the end, once per key, and return the conversation."""
        ...


class InMemorySession:
    """A session that lives as long as the object."""

    __slots__ = ("_last_key", "conversation", "id", "memo")

    blocking = False

    def __init__(self, conversation: Conversation | None = None, *, id: str = "memory") -> None:
        self.id = id
        self.conversation = conversation if conversation is not None else Conversation()
        self.memo = Memo()
        self._last_key: str | None = None

    def append(self, *messages: Message, key: str | None = None) -> Conversation:
        """Add messages; a second append in a row with the same key does nothing."""
        if key is None or key != self._last_key:
            self._last_key = key
            self.conversation = self.conversation.append(*messages)
        return self.conversation
