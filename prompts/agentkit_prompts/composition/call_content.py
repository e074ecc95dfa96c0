"""`CallContent`: messages, tools and requested output of one model call, and the origin of each character."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from agentkit_prompts.composition.sections import EMPTY, Section, to_parts
from agentkit_prompts.composition.stored_text import stored_segments, stored_text
from agentkit_prompts.composition.tools_and_output import OutputRequest, ToolsAndOutput
from agentkit_prompts.composition.trims import NO_TRIMS, Trim
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Media
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

_NO_MESSAGES = Conversation()
_FIELDS = (
    *("context", "layers", "sections", "counter", "tools_and_output", "text_tokens", "conversation", "intermediate"),
    *("trims", "budget"),
)


TextTokens: TypeAlias = "Callable[[CallContent], int]"
"""Function that counts the tokens of the text that a chat template writes for a composition."""


class CallContent:
    """Content of one model call. Read-only; `Composition` adds reports and request formats.

    Attributes:
        context: Values that the prompts were rendered with.
        layers: The prompts that were rendered.
        sections: The system message, the user message, and the closing message after tool traffic.
        counter: Token counter.
        conversation: The history messages that are sent.
        intermediate: The tool traffic of this turn that is sent.
        tools_and_output: The tools and the request for the answer, with their cached wire forms and token counts.
        trims: Effects of the budget, by the name of the layer; layers without a cut are missing.
        budget: Budget of the composition; None without a budget.
        text_tokens: Counter of the text that a chat template writes; None without a chat template.
    """

    __slots__ = (*_FIELDS, "_messages", "_texts", "_tokens")

    def __init__(
        self,
        context: PromptContext,
        layers: Layers,
        sections: Sequence[Section],
        counter: TokenCounter,
        tools_and_output: ToolsAndOutput,
        text_tokens: TextTokens | None = None,
        *,
        conversation: Conversation | None = None,
        intermediate: Conversation | None = None,
        trims: Mapping[str, Trim] = NO_TRIMS,
        budget: Budget | None = None,
    ) -> None:
        self.context = context
        self.layers = layers
        self.counter = counter
        self.tools_and_output = tools_and_output
        if conversation is None and layers.conversation:
            conversation = context.conversation.complete()
        if intermediate is None:
            intermediate = context.intermediate.complete()
        if conversation is None:
            conversation = _NO_MESSAGES
        self.conversation: Conversation = conversation
        self.intermediate: Conversation = intermediate
        self.trims = trims
        self.budget = budget
        self.text_tokens = text_tokens
        self.sections = sections
        self._tokens: int | None = None
        self._messages: tuple[Message, ...] | None = None
        self._texts: tuple[str, ...] | None = None

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools the model may call."""
        return self.tools_and_output.tools

    @property
    def output_schema(self) -> JsonSchema | None:
        """JSON Schema of the answer; None if the answer is text, or if its schema is sent in a tool or a prompt."""
        return self.tools_and_output.schema

    @property
    def output(self) -> OutputRequest | None:
        """Request for an answer that follows a schema; None if the answer is text."""
        return self.tools_and_output.output

    @property
    def is_answered_in_json(self) -> bool:
        """True if the text of the reply is JSON: the answer follows a schema, and is not the arguments of a tool."""
        return self.output is not None and self.output.mode != "tool"

    @property
    def system(self) -> Section:
        """The system message; its text can be empty."""
        return self.sections[0]

    @property
    def user(self) -> Section:
        """The user message: the prompts before the input, the input, and the prompts after it."""
        return self.sections[1]

    @property
    def sends_system(self) -> bool:
        """True if the system message is sent: it has text, or the layers allow empty messages."""
        return self._sends(self.sections[0])

    @property
    def sends_user(self) -> bool:
        """True if the user message is sent: it has text, or the layers allow empty messages."""
        return self._sends(self.sections[1])

    def _sends(self, section: Section) -> bool:
        return bool(section.text) or (self.layers.empty_messages and bool(section.fragments))

    @property
    def closing(self) -> Section:
        """The message after the tool traffic; a section without text if the turn has no traffic."""
        if not len(self.intermediate):
            return EMPTY
        return self.sections[2]

    def in_order(self) -> list[Section | Conversation]:
        """Return the sections and histories that are sent, in order; entries without messages are omitted."""
        system, user, closing = self.sections
        conversation, traffic = self.conversation, self.intermediate
        entries: list[Section | Conversation] = []
        if system.text or self._sends(system):
            entries.append(system)
        if conversation.start < conversation.stop:
            entries.append(conversation)
        if user.text or self._sends(user):
            entries.append(user)
        if traffic.start < traffic.stop:
            entries.append(traffic)
            if closing.text:
                entries.append(closing)
        return entries

    def evolve(self, **fields: Any) -> Self:
        """Return a copy in which `fields` replace fields of this object; cached values are not copied."""
        return type(self)(**{**{name: getattr(self, name) for name in _FIELDS}, **fields})

    def without_tools(self) -> Self:
        """Return a copy without declared tools, for a model that reads tools only in the text of a prompt."""
        return self.evolve(tools_and_output=ToolsAndOutput((), self.output))

    def written_by(self, text_tokens: TextTokens) -> Self:
        """Return a copy whose tokens `text_tokens` counts, the counter of the text of a chat template."""
        if self.text_tokens == text_tokens:
            return self
        return self.evolve(text_tokens=text_tokens)

    @property
    def messages(self) -> tuple[Message, ...]:
        """Every message, in the order it is sent."""
        if self._messages is None:
            self._messages = tuple([message for message, _ in self.walk()])
        return self._messages

    @property
    def media(self) -> MediaTable:
        """The payloads of the media of all messages, by kind and then by id."""
        parts = [part for message in self.messages for part in message.parts if isinstance(part, Media)]
        return media_table(parts)

    @property
    def spans(self) -> tuple[Span, ...]:
        """Origins of all characters of all messages; the spans of a message cover its marked text exactly."""
        return tuple(span for index, (_, segments) in enumerate(self.walk()) for span in tile(segments, index))

    def marked_text(self, message: int) -> str:
        """Return the text of the message at an index, with a marker for each use of a media part.

        Offsets of spans refer to this text.
        """
        if self._texts is None:
            index = message - int(self.sends_system)
            # The texts of all messages of a long conversation would be slow.
            if 0 <= index < len(self.conversation):
                return stored_text(self.conversation[index])
            self._texts = tuple(["".join([segment.text for segment in segments]) for _, segments in self.walk()])
        return self._texts[message]

    def walk(self, stored: Container[int] | None = None) -> Iterator[tuple[Message, Sequence[Segment]]]:
        """Yield each message with the segments of its text.

        The segments of a stored message are empty if `stored` does not contain its index; None computes all segments.
        """
        if self.sends_system:
            yield _message("system", self.system), self.system.segments()
        yield from self._stored("conversation", int(self.sends_system), stored)
        user = self.user
        if self.sends_user:
            yield _message("user", user), user.segments()
        before = len(self.conversation) + self.sends_system + self.sends_user
        yield from self._stored("intermediate", before, stored)
        closing = self.closing
        if closing.text:
            yield _message("user", closing), closing.segments()

    def _stored(
        self, name: Literal["conversation", "intermediate"], first: int, shown: Container[int] | None
    ) -> Iterator[tuple[Message, Sequence[Segment]]]:
        for number, (message, index) in enumerate(self.placed(name), first):
            is_shown = shown is None or number in shown
            yield message, stored_segments(message, f"{name}[{index}]") if is_shown else []

    def placed(self, name: Literal["conversation", "intermediate"]) -> Iterator[tuple[Message, int]]:
        """Yield the messages of a history that are sent, each with its index in the same history of the context."""
        sent: Conversation = getattr(self, name)
        source: Conversation = getattr(self.context, name)
        if len(sent):
            indices = source.complete_at()
            # A budget drops the first messages, so the last messages are sent.
            yield from zip(sent, indices[len(indices) - len(sent) :], strict=True)

    @property
    def tokens(self) -> int:
        """Tokens of the model call, counted by `counter`: text, media, tools and message overhead.

        With a chat template, the tokens of its text are counted. If the template fails, the messages are counted.
        """
        if self._tokens is None:
            try:
                count = self.text_tokens or type(self).own_tokens
                self._tokens = count(self)
            except ChatTemplateError:
                # The target raises the same error when it writes the text.
                self._tokens = self.own_tokens()
        return self._tokens

    def own_tokens(self) -> int:
        """Count text, media, tools and message overhead, without the chat template."""
        counter = self.counter
        tools, schema, per_message = self.tools_and_output.tokens(counter)
        total = tools + schema + self.conversation.total(per_message)
        system, user, _ = self.sections
        if system.text or self.sends_system:
            total += MESSAGE_OVERHEAD + system.derive(count_tokens, counter)
        if user.text or self.sends_user:
            # The input differs every turn, so its tokens are not stored with the section.
            total += MESSAGE_OVERHEAD + count_tokens(user, counter)
        traffic = self.intermediate
        if traffic.start < traffic.stop:
            total += traffic.total(per_message)
            if self.closing.text:
                total += MESSAGE_OVERHEAD + self.closing.tokens(counter)
        return total


def _message(role: Literal["system", "user"], rendered: Rendered) -> Message:
    if rendered.media:
        return Message(role, to_parts(rendered))
    return Message(role, rendered.text)
