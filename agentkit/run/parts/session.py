"""Sessions: where the conversation of an agent is kept between runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import countOf
from typing import Any, Protocol

from agentkit.errors import AgentDefinitionError
from agentkit.ground.unknown_options import refusing_unknown
from agentkit_prompts.composition.compose import RenderCache
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Part
from agentkit_prompts.context.prompt_context import UserInput
from agentkit_prompts.errors import brief

__all__ = ["Session", "SessionProtocol", "checked_session"]

_KWARGS = "additional_kwargs"
"""Name of the note of a session that holds its additional kwargs."""


class SessionProtocol(Protocol):
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
    def render_cache(self) -> RenderCache:
        """Fragments rendered for earlier turns."""
        ...

    def append(self, *messages: Message | Mapping[str, Any], key: str | None = None) -> Conversation:
        """Add messages at the end, once per key, and return the conversation. May wait for a disk or a network.

        A mapping is a message in the form of a provider.
        """
        ...

    def append_now(self, *messages: Message | Mapping[str, Any], key: str | None = None) -> bool:
        """Do what `append` does if that takes no waiting; return False when it would, with nothing done.

        Async code calls this first, and `append` in a thread after False.
        """
        ...

    def position(self, key: str) -> int | None:
        """Return how many messages stand before those that were appended under a key, or None."""
        ...


@refusing_unknown(
    **dict.fromkeys(("history", "messages", "message_history"), "conversation"),
    **dict.fromkeys(("name", "session_id", "thread_id"), "id"),
)
class Session:
    """A conversation in memory: it is lost with the object. `Memory.session` stores a conversation.

    Args:
        id: Name of the conversation.
        conversation: Messages at the start: our messages, or mappings in the form of a provider.

    Raises:
        AgentDefinitionError: The id is not text.
        MessageError: A value is not a message; the error names all wrong values.
    """

    __slots__ = ("_notes", "_positions", "conversation", "id", "render_cache")

    def __init__(
        self, id: str = "memory", conversation: Conversation | Sequence[Message | Mapping[str, Any]] | None = None
    ) -> None:
        if not isinstance(id, str):
            raise AgentDefinitionError(
                f"Session: id: expected text, got {type(id).__name__}; for messages write "
                "Session('name', conversation=[...])",
                name="id",
            )
        self.id = id
        if conversation is None:
            conversation = Conversation()
        elif not isinstance(conversation, Conversation):
            from agentkit_prompts.context.wire.read_messages import read_messages

            conversation = Conversation(read_messages(conversation, where="Session"))
        self.conversation = conversation
        self.render_cache = RenderCache()
        self._positions: dict[str, int] = {}
        self._notes: dict[str, dict[int, Any]] = {}

    def append(
        self, *messages: Message | Mapping[str, Any], key: str | None = None, allow_media: bool = False
    ) -> Conversation:
        """Add messages, once per key.

        `allow_media`: whether media of mappings may be in a file of this machine, or at an address that is not public.

        Raises:
            AlreadyUsed: The key was used for other messages.
            MessageError: A value is not a message.
        """
        read: Any = messages
        if countOf(map(type, messages), Message) != len(messages):
            from agentkit_prompts.context.wire.read_messages import read_messages

            read = read_messages(messages, where="append", before=self.conversation, allow_media=allow_media)
        if key is not None and (used := self._positions.get(key)) is not None:
            if tuple(self.conversation[used : used + len(read)]) != tuple(read):
                from agentkit_memory.errors import AlreadyUsed

                raise AlreadyUsed.of_key(self.id, key, used + 1)
            return self.conversation
        if not read:
            return self.conversation
        if key is not None:
            self._positions[key] = len(self.conversation)
        self.conversation = self.conversation.append(*read)
        return self.conversation

    def append_now(self, *messages: Message | Mapping[str, Any], key: str | None = None) -> bool:
        """Add messages as `append` does, which never waits."""
        self.append(*messages, key=key)
        return True

    def position(self, key: str) -> int | None:
        """Return how many messages stand before those that were appended under a key, or None."""
        return self._positions.get(key)

    def keys(self, start: int, stop: int) -> Mapping[int, str]:
        """Return the keys under which messages were appended, by index, of those messages from `start` to `stop`."""
        return {at: key for key, at in self._positions.items() if start <= at < stop}

    def note(self, name: str) -> Any:
        """Return what was last noted under a name about these messages; None where nothing was."""
        kept = self._notes.get(name)
        return kept[max(kept)] if kept else None

    def keep_note(self, name: str, value: Any, at: int | None = None) -> None:
        """Note something beside the messages. A rewind to before message `at`, or the last one, leaves it behind."""
        self._notes.setdefault(name, {})[len(self.conversation) if at is None else at] = value

    @property
    def additional_kwargs(self) -> Mapping[str, Any]:
        """What stays in force for every input of this session that does not bring its own; see `keep_kwargs`."""
        return self.note(_KWARGS) or {}

    def keep_kwargs(self, kwargs: Mapping[str, Any]) -> None:
        """Keep additional kwargs in force from now on, in place of those kept before.

        Raises:
            ContextError: It is no mapping of names to values.
        """
        self.keep_note(_KWARGS, dict(UserInput(additional_kwargs=kwargs).additional_kwargs))

    def fork(self, id: str, at: int | None = None) -> Session:
        """Return a session of its own that begins with the first `at` messages; with all when not given.

        Raises:
            MessageError: There are fewer messages, or tool results would be cut from their calls.
        """
        fork = Session(id, self.conversation.until(len(self.conversation) if at is None else at))
        fork._positions, fork._notes = self._until(len(fork.conversation))
        return fork

    def rewind(self, at: int) -> Conversation:
        """Go on behind the first `at` messages, and return these.

        Raises:
            MessageError: There are fewer messages, or tool results would be cut from their calls.
        """
        self.conversation = self.conversation.until(at)
        self._positions, self._notes = self._until(at)
        return self.conversation

    def edit(self, seq: int, content: str | Sequence[str | Part]) -> Conversation:
        """Put another message in the place of message number `seq`, and return the conversation, which ends with it.

        `agent.run(None, session=session)` then answers it.

        Raises:
            MessageError: There is no such message, or it is part of a round of tool calls.
        """
        before, message = self.conversation.edited(seq, content)
        self.rewind(len(before))
        return self.append(message)

    def _until(self, at: int) -> tuple[dict[str, int], dict[str, dict[int, Any]]]:
        """Return the keys and the notes of the first messages."""
        positions = {key: position for key, position in self._positions.items() if position < at}
        notes = {name: {seq: value for seq, value in kept.items() if seq <= at} for name, kept in self._notes.items()}
        return positions, notes


def checked_session(session: Any) -> SessionProtocol | None:
    """Return what a run was given as its session.

    Raises:
        AgentDefinitionError: It is something else, such as the name of a session, or its id is no text.
    """
    if session is None:
        return None
    if callable(getattr(session, "append_now", None)):
        if isinstance(found := getattr(session, "id", None), str):
            known: SessionProtocol = session
            return known
        raise AgentDefinitionError(
            f"session: expected a session whose id is text, got the id {brief(found, 40)}", name="session.id"
        )
    raise AgentDefinitionError(
        f"session: expected a session, such as Session({session!r:.40}) or memory.session({session!r:.40}), "
        f"got {type(session).__name__}",
        name="session",
        value=type(session).__name__,
    )
