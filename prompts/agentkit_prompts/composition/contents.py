"""`Contents`: the messages and declarations of one model call, and where each character of them came from."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from agentkit_prompts.composition.declarations import Declarations, OutputRequest
from agentkit_prompts.composition.sections import NOTHING, Section, to_parts
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.frozen import ReadOnlyDict
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Media, Text, neutralise_markers
from agentkit_prompts.context.prompt_context import PromptContext, ToolSpec
from agentkit_prompts.errors import ChatTemplateError
from agentkit_prompts.templates.rendered import Rendered, count_tokens
from agentkit_prompts.templates.spans import Segment, Span, tile
from agentkit_prompts.templates.template import MediaTable, media_table
from agentkit_prompts.tokens.budget import Budget
from agentkit_prompts.tokens.counter import MESSAGE_OVERHEAD, TokenCounter
from agentkit_prompts.tree.layers import Layers

if TYPE_CHECKING:
    from agentkit_prompts.schemas.params import JsonSchema

__all__ = ["Contents", "Status", "TextTokens", "Trim", "stored_text"]

Status = Literal["kept", "trimmed", "dropped"]

_NO_MESSAGES = Conversation()


@dataclass(frozen=True, slots=True)
class Trim:
    """What a budget did to one layer."""

    kept: int
    """Units kept: items, steps of the history, or pieces of text."""
    of: int
    """Units there were."""
    why: str

    @property
    def status(self) -> Status:
        """Whether anything is left."""
        return "trimmed" if self.kept else "dropped"


_NO_TRIMS: Mapping[str, Trim] = ReadOnlyDict()
TextTokens: TypeAlias = "Callable[[Contents], int]"
"""Counts the text that is sent, where a chat template writes it."""


class Contents:
    """What one model call sends. Read-only, and the base of `Composition`, which can be asked about it.

    Attributes:
        context: The context it was rendered from.
        layers: The layers it was rendered with.
        counter: What counted the tokens.
        conversation: The history messages that are sent.
        intermediate: The tool traffic of this turn.
        declarations: The tools and the schema of the answer, with what is derived from them.
        trims: What the budget trimmed or dropped, by layer.
        budget: The budget it was fitted into, when there was one.
        text_tokens: Counts the text that is sent, where a chat template writes it.
    """

    __slots__ = (
        "_messages",
        "_texts",
        "_tokens",
        "budget",
        "context",
        "conversation",
        "counter",
        "declarations",
        "intermediate",
        "layers",
        "sections",
        "text_tokens",
        "trims",
    )

    # Computed on first use.
    _messages: tuple[Message, ...]
    _texts: tuple[str, ...]

    def __init__(
        self,
        context: PromptContext,
        layers: Layers,
        sections: Sequence[Section],
        counter: TokenCounter,
        declarations: Declarations,
        text_tokens: TextTokens | None = None,
        *,
        conversation: Conversation | None = None,
        intermediate: Conversation | None = None,
        trims: Mapping[str, Trim] = _NO_TRIMS,
        budget: Budget | None = None,
    ) -> None:
        self.context = context
        self.layers = layers
        self.counter = counter
        self.declarations = declarations
        if conversation is None:
            conversation = context.conversation.complete() if layers.conversation else _NO_MESSAGES
        self.conversation: Conversation = conversation
        self.intermediate: Conversation = context.intermediate.complete() if intermediate is None else intermediate
        self.trims = trims
        self.budget = budget
        self.text_tokens = text_tokens
        self._tokens: int | None = None
        self.sections = sections

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools the model may call."""
        return self.declarations.tools

    @property
    def output_schema(self) -> JsonSchema | None:
        """JSON Schema that is declared to the endpoint: None for text, and where it is asked for in another way."""
        return self.declarations.schema

    @property
    def output(self) -> OutputRequest | None:
        """How an answer of a type is asked for; None for text."""
        return self.declarations.output

    @property
    def system(self) -> Rendered:
        """The system message, or empty text."""
        return self.sections[0]

    @property
    def user(self) -> Rendered:
        """The user message: what stands before the input, the input, and what stands after it."""
        return self.sections[1]

    @property
    def sends_system(self) -> bool:
        """Whether there is a system message: its prompts have text, or it may be empty."""
        return self._sends(self.sections[0])

    @property
    def sends_user(self) -> bool:
        """Whether there is a user message: its prompts have text, or it may be empty."""
        return self._sends(self.sections[1])

    def _sends(self, section: Section) -> bool:
        return bool(section.text) or (self.layers.empty_messages and bool(section.fragments))

    @property
    def closing(self) -> Rendered:
        """The message after the tool traffic; empty when there is no traffic."""
        return self.sections[2] if len(self.intermediate) else NOTHING

    def evolve(self, **fields: Any) -> Self:
        """Return the same with other fields; what was worked out from those it had is not kept."""
        given = {name: getattr(self, name) for name in Contents.__slots__ if name[0] != "_"}
        return type(self)(**{**given, **fields})

    def without_tools(self) -> Self:
        """Return the same with no tools declared, for a model that reads them in the text of a prompt alone."""
        return self.evolve(declarations=Declarations((), self.output))

    def written_by(self, text_tokens: TextTokens) -> Self:
        """Return the same for a chat template that writes it, whose text `text_tokens` counts."""
        return self if self.text_tokens == text_tokens else self.evolve(text_tokens=text_tokens)

    @property
    def messages(self) -> tuple[Message, ...]:
        """Every message, in the order it is sent."""
        try:
            return self._messages
        except AttributeError:
            self._messages = tuple(message for message, _ in self.walk())
            return self._messages

    @property
    def media(self) -> MediaTable:
        """The media of every message: kind -> id -> payload."""
        parts = [part for message in self.messages for part in message.parts if isinstance(part, Media)]
        return media_table(parts)

    @property
    def spans(self) -> tuple[Span, ...]:
        """Where every character of every message came from; the spans of a message tile its marked text exactly."""
        return tuple(span for index, (_, segments) in enumerate(self.walk()) for span in tile(segments, index))

    def marked_text(self, message: int) -> str:
        """Return the text of a message with a marker per media use: the text that spans count in."""
        try:
            return self._texts[message]
        except AttributeError:
            place = message - int(self.sends_system)
            if 0 <= place < len(self.conversation):  # one message of a long conversation
                return stored_text(self.conversation[place])
            self._texts = tuple(_marked(segments) for _, segments in self.walk())
            return self._texts[message]

    def walk(self, stored: Container[int] | None = None) -> Iterator[tuple[Message, list[Segment]]]:
        """Yield each message with the segments of its text; of messages that are stored, only for these numbers."""
        if self.sends_system:
            yield _message("system", self.system), list(self.system.segments())
        yield from self._stored("conversation", int(self.sends_system), stored)
        user = self.user
        if self.sends_user:
            yield _message("user", user), list(user.segments())
        before = len(self.conversation) + self.sends_system + self.sends_user
        yield from self._stored("intermediate", before, stored)
        closing = self.closing
        if closing.text:
            yield _message("user", closing), list(closing.segments())

    def _stored(
        self, name: Literal["conversation", "intermediate"], first: int, shown: Container[int] | None
    ) -> Iterator[tuple[Message, list[Segment]]]:
        for number, (message, index) in enumerate(self.placed(name), first):
            is_shown = shown is None or number in shown
            yield message, _message_segments(message, f"{name}[{index}]") if is_shown else []

    def placed(self, name: Literal["conversation", "intermediate"]) -> Iterator[tuple[Message, int]]:
        """Yield the messages that are sent, each with its index in the context."""
        sent: Conversation = getattr(self, name)
        given: Conversation = getattr(self.context, name)
        if len(sent):
            at = given.complete_at()
            yield from zip(sent, at[len(at) - len(sent) :], strict=True)  # a budget drops the first ones

    @property
    def tokens(self) -> int:
        """All tokens that would be sent, as counted by `counter`: text, media, tools and message overhead.

        Where a chat template writes it, those of the text that is sent; of one that cannot write it, as without it.
        """
        if self._tokens is None:
            try:
                self._tokens = self.own_tokens() if self.text_tokens is None else self.text_tokens(self)
            except ChatTemplateError:  # nothing is sent then; who sends it says why
                self._tokens = self.own_tokens()
        return self._tokens

    def own_tokens(self) -> int:
        """Count text, media, tools and message overhead, whatever chat template writes them."""
        counter = self.counter
        tools, schema, per_message = self.declarations.tokens(counter)
        total = tools + schema + self.conversation.total(per_message)
        system, user, _ = self.sections
        if system.text or self.sends_system:
            total += MESSAGE_OVERHEAD + system.derive(count_tokens, counter)
        if user.text or self.sends_user:
            total += MESSAGE_OVERHEAD + count_tokens(user, counter)  # the input differs every turn
        traffic = self.intermediate
        if traffic.start < traffic.stop:
            total += traffic.total(per_message)
            if self.closing.text:
                total += MESSAGE_OVERHEAD + self.closing.tokens(counter)
        return total


def _message(role: Any, rendered: Rendered) -> Message:
    return Message(role, to_parts(rendered) if rendered.media else rendered.text)


def _marked(segments: Iterable[Segment]) -> str:
    return "".join([segment.text for segment in segments])


def stored_text(message: Message) -> str:
    """Return the text of a message of the conversation, with a marker per media use."""
    return _marked(_message_segments(message, ""))


def _message_segments(message: Message, pointer: str) -> list[Segment]:
    """A stored message is one span per part; the developer did not write it, so it is untrusted."""
    prompt = pointer.split("[")[0]
    if isinstance(message.content, str):
        return [Segment(neutralise_markers(message.content), prompt, None, f"{pointer}.content", "untrusted")]
    return [
        Segment(neutralise_markers(part.text), prompt, None, f"{pointer}.content[{index}]", "untrusted")
        if isinstance(part, Text)
        else Segment(part.marker, prompt, None, f"{pointer}.content[{index}]", "untrusted", part)
        for index, part in enumerate(message.content)
    ]
