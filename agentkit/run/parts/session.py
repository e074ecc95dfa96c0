"""Sessions: storage of a conversation between runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import countOf
from typing import TYPE_CHECKING, Any, Protocol

from agentkit.errors import AgentDefinitionError
from agentkit.ground.unknown_options import refusing_unknown
from agentkit_prompts.composition.compose import RenderCache
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Part
from agentkit_prompts.context.prompt_context import UserInput
from agentkit_prompts.errors import brief
from agentkit_prompts.hints import Hinted

if TYPE_CHECKING:
    from agentkit_prompts.context.wire.foreign_messages import AnyMessage

_KWARGS = "additional_kwargs"
"""Name of the session note with the additional kwargs."""


class SessionProtocol(Protocol):
    """One conversation with its cache of renderings. Only one run at a time can use a session."""

    @property
    def id(self) -> str:
        """Id of the conversation in its store."""
        ...

    @property
    def conversation(self) -> Conversation:
        """The messages so far."""
        ...

    @property
    def render_cache(self) -> RenderCache:
        """Renderings of earlier turns."""
        ...

    def append(self, *messages: Message | Mapping[str, Any], key: str | None = None) -> Conversation:
        """Append messages, once per key, and return the conversation. Can wait for a disk or a network.

        A mapping is a message in the JSON form of a provider.
        """
        ...

    def append_now(self, *messages: Message | Mapping[str, Any], key: str | None = None) -> bool:
        """Append messages and return True; return False without a change if appending would wait.

        Async code calls this method first, and after False calls `append` in a thread.
        """
        ...

    def position(self, key: str) -> int | None:
        """Return the index of the first message that was appended under a key, or None."""
        ...


@refusing_unknown(
    **dict.fromkeys(("history", "messages", "message_history"), "conversation"),
    **dict.fromkeys(("name", "session_id", "thread_id"), "id"),
)
class Session(metaclass=Hinted):
    """A conversation in memory: it is lost with the object. `Memory.session` stores a conversation.

    Args:
        id: Id of the conversation.
        conversation: Initial messages: `Message` objects, mappings in the JSON form of a provider, or messages of
            LangChain, LlamaIndex or pydantic-ai.

    Raises:
        AgentDefinitionError: The id is not text.
        MessageError: A value is not a message. The error lists all such values.
    """

    __slots__ = ("_notes", "_positions", "conversation", "id", "render_cache")

    def __init__(self, id: str = "memory", conversation: Conversation | Sequence[AnyMessage] | None = None) -> None:
        if not isinstance(id, str):
            raise AgentDefinitionError(
                f"Session: id: expected text, got {type(id).__name__}; for messages write "
                "Session('name', conversation=[...])",
                name="session.id",
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

    def append(self, *messages: AnyMessage, key: str | None = None, allow_media: bool = False) -> Conversation:
        """Append messages, once per key.

        `allow_media`: True if media of mappings can be local files or have addresses that are not public.

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
        """Append messages and return True: a session in memory never waits."""
        self.append(*messages, key=key)
        return True

    def position(self, key: str) -> int | None:
        """Return the index of the first message that was appended under a key, or None."""
        return self._positions.get(key)

    def keys(self, start: int, stop: int) -> Mapping[int, str]:
        """Return the keys under which the messages from `start` to `stop` were appended, by index."""
        return {at: key for key, at in self._positions.items() if start <= at < stop}

    def note(self, name: str) -> Any:
        """Return the latest note with a name, or None."""
        notes = self._notes.get(name)
        if not notes:
            return None
        return notes[max(notes)]

    def keep_note(self, name: str, value: Any, at: int | None = None) -> None:
        """Store a note about the first `at` messages, or all messages. A rewind to fewer messages removes the note."""
        if at is None:
            at = len(self.conversation)
        self._notes.setdefault(name, {})[at] = value

    @property
    def additional_kwargs(self) -> Mapping[str, Any]:
        """Default additional kwargs of the inputs of this session; see `keep_kwargs`."""
        return self.note(_KWARGS) or {}

    def keep_kwargs(self, kwargs: Mapping[str, Any]) -> None:
        """Replace the default additional kwargs of the next inputs.

        Raises:
            ContextError: The value is not a mapping of names to values.
        """
        self.keep_note(_KWARGS, dict(UserInput(additional_kwargs=kwargs).additional_kwargs))

    def fork(self, id: str, at: int | None = None) -> Session:
        """Return a separate session with the first `at` messages, or with all messages.

        Raises:
            MessageError: The session has fewer messages, or the cut would separate tool results from their calls.
        """
        if at is None:
            at = len(self.conversation)
        fork = Session(id, self.conversation.until(at))
        fork._positions, fork._notes = self._until(len(fork.conversation))
        return fork

    def rewind(self, at: int) -> Conversation:
        """Remove all messages after the first `at` messages, and return the conversation.

        Raises:
            MessageError: The session has fewer messages, or the cut would separate tool results from their calls.
        """
        self.conversation = self.conversation.until(at)
        self._positions, self._notes = self._until(at)
        return self.conversation

    def edit(self, seq: int, content: str | Sequence[str | Part]) -> Conversation:
        """Replace message number `seq`, remove the messages after it, and return the conversation.

        `agent.run(None, session=session)` then answers the new message.

        Raises:
            MessageError: The message is missing, or is part of a round of tool calls.
        """
        before, message = self.conversation.edited(seq, content)
        self.rewind(len(before))
        return self.append(message)

    def _until(self, at: int) -> tuple[dict[str, int], dict[str, dict[int, Any]]]:
        """Return the keys and the notes of the first `at` messages."""
        positions = {key: position for key, position in self._positions.items() if position < at}
        notes = {name: {seq: value for seq, value in rows.items() if seq <= at} for name, rows in self._notes.items()}
        return positions, notes


def checked_session(session: Any) -> SessionProtocol | None:
    """Return the argument `session` of a run.

    Raises:
        AgentDefinitionError: The value is not a session, such as the id of a session, or its id is not text.
    """
    if session is None:
        return None
    if not callable(getattr(session, "append_now", None)):
        raise AgentDefinitionError(
            f"session: expected a session, such as Session({session!r:.40}) or memory.session({session!r:.40}), "
            f"got {type(session).__name__}",
            name="session",
            value=type(session).__name__,
        )
    session_id = getattr(session, "id", None)
    if not isinstance(session_id, str):
        raise AgentDefinitionError(
            f"session: expected a session whose id is text, got the id {brief(session_id, 40)}", name="session.id"
        )
    checked: SessionProtocol = session
    return checked
