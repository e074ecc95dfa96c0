"""`Composition`: everything one model call would be sent, where each character came from, and all that can be asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from agentkit_prompts.composition.declarations import Declarations
from agentkit_prompts.composition.sections import NOTHING, Section, to_parts
from agentkit_prompts.composition.targets.openai import openai_payload
from agentkit_prompts.composition.targets.text import plain_text
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Media, Text, neutralise_markers
from agentkit_prompts.context.prompt_context import PromptContext, ToolSpec
from agentkit_prompts.errors import BudgetError, ChatTemplateError
from agentkit_prompts.schemas.params import JsonSchema
from agentkit_prompts.templates.rendered import Rendered, count_tokens
from agentkit_prompts.templates.spans import Segment, Span, tile
from agentkit_prompts.templates.template import MediaTable, media_table
from agentkit_prompts.tokens.counter import MESSAGE_OVERHEAD, TokenCounter
from agentkit_prompts.tokens.size import Budget
from agentkit_prompts.tree.layers import Layers

if TYPE_CHECKING:
    from agentkit_prompts.chat_templates.guard.taint import Policy
    from agentkit_prompts.chat_templates.protocol import ChatTemplate
    from agentkit_prompts.composition.explain import Diff, LayerTable, Why
    from agentkit_prompts.composition.fit import Trim
    from agentkit_prompts.composition.prefix import Breakpoint

__all__ = ["Composition"]

_NO_MESSAGES = Conversation()


class Composition:
    """What will be sent, without sending it. Made by `compose`; read-only.

    Attributes:
        context: The context it was rendered from.
        layers: The layers it was rendered with.
        counter: What counted the tokens.
        conversation: The history messages that are sent.
        intermediate: The tool traffic of this turn.
        declarations: The tools and the schema of the answer, with what is derived from them.
        trims: What the budget trimmed or dropped, by layer.
        budget: The budget it was fitted into, when there was one.
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
        "trims",
    )

    # Filled in when somebody asks.
    _messages: tuple[Message, ...]
    _texts: tuple[str, ...]

    def __init__(
        self,
        context: PromptContext,
        layers: Layers,
        sections: Sequence[Section],
        counter: TokenCounter,
        declarations: Declarations,
        *,
        conversation: Conversation | None = None,
        intermediate: Conversation | None = None,
        trims: Mapping[str, Trim] | None = None,
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
        self.trims: Mapping[str, Trim] = trims or {}
        self.budget = budget
        self._tokens: int | None = None
        self.sections = sections

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools the model may call."""
        return self.declarations.tools

    @property
    def output_schema(self) -> JsonSchema | None:
        """JSON Schema the answer must follow; None for text."""
        return self.declarations.schema

    @property
    def system(self) -> Rendered:
        """The system message; empty text when there is none."""
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
            texts = self._texts
        except AttributeError:
            texts = self._texts = tuple("".join(segment.text for segment in segments) for _, segments in self.walk())
        return texts[message]

    def walk(self) -> Iterator[tuple[Message, list[Segment]]]:
        """Yield each message with the segments of its text."""
        if self.sends_system:
            yield _message("system", self.system), list(self.system.segments())
        for message, index in self._placed("conversation"):
            yield message, _message_segments(message, f"conversation[{index}]")
        user = self.user
        if self.sends_user:
            yield _message("user", user), list(user.segments())
        for message, index in self._placed("intermediate"):
            yield message, _message_segments(message, f"intermediate[{index}]")
        closing = self.closing
        if closing.text:
            yield _message("user", closing), list(closing.segments())

    def _placed(self, name: Literal["conversation", "intermediate"]) -> Iterator[tuple[Message, int]]:
        """Yield the messages that are sent, each with its index in the context."""
        sent: Conversation = getattr(self, name)
        given: Conversation = getattr(self.context, name)
        if len(sent):
            at = given.complete_at()
            yield from zip(sent, at[len(at) - len(sent) :], strict=True)  # a budget drops the first ones

    @property
    def tokens(self) -> int:
        """All tokens that would be sent, as counted by `counter`: text, media, tools and message overhead."""
        if self._tokens is None:
            counter = self.counter
            tools, schema, per_message = self.declarations.tokens(counter)
            total = tools + schema + self.conversation.total(per_message)
            system, user, _ = self.sections
            if system.text or self.sends_system:
                total += MESSAGE_OVERHEAD + system.tokens(counter)
            if user.text or self.sends_user:
                total += MESSAGE_OVERHEAD + count_tokens(user, counter)  # the input differs every turn
            if len(self.intermediate):
                total += self.intermediate.total(per_message)
                if self.closing.text:
                    total += MESSAGE_OVERHEAD + self.closing.tokens(counter)
            self._tokens = total
        return self._tokens

    @property
    def text(self) -> str:
        """Everything as one plain string, each message headed by its role."""
        return plain_text(self)

    def explain(self) -> LayerTable:
        """Return the layer table: what each layer costs, where it is from, and what the budget did to it.

        Rows stand in the order they are sent; their tokens add up to `tokens`. `print(...)` draws it.
        """
        from agentkit_prompts.composition.explain import layer_table

        return layer_table(self)

    def why(self, pointer: str) -> Why:
        """Say where a part of the context, such as `documents[3]`, shows up, or why it does not."""
        from agentkit_prompts.composition.explain import why

        return why(self, pointer)

    def diff(self, previous: Composition) -> Diff:
        """Return the first layer in which this differs from an earlier composition, and the tokens before it."""
        from agentkit_prompts.composition.explain import diff

        return diff(self, previous)

    @property
    def breakpoints(self) -> tuple[Breakpoint, ...]:
        """At most four points up to which the payload stays the same for a while."""
        from agentkit_prompts.composition.prefix import breakpoints

        return breakpoints(self)

    @property
    def prefix_hash(self) -> str:
        """Hash of what comes before the first thing that changes every turn: what a provider can keep cached."""
        return self._prefix()[0]

    @property
    def prefix_tokens(self) -> int:
        """Tokens of what `prefix_hash` covers."""
        return self._prefix()[1]

    def _prefix(self) -> tuple[str, int]:
        from agentkit_prompts.composition.prefix import prefix

        return prefix(self)

    @property
    def versions(self) -> dict[str, str]:
        """Content hash of every prompt's template, by prompt path."""
        return {path: prompt.template.version for path, prompt in self.layers.walk()}

    def mapped(self, change: Callable[[str], str]) -> Composition:
        """Return the composition with `change` applied to every text that would be sent, as a redaction does.

        It is given one span at a time, and each message of the conversation whole; tool specs stay as they are.

        Raises:
            BudgetError: What it wrote is longer, and no longer fits the budget.
        """
        sections: list[Section] = []
        for section in self.sections:
            changed = [(path, prompt, rendered.map(change), None) for path, prompt, rendered, _ in section.fragments]
            sections.append(Section(changed, section.label))
        composition = Composition(
            self.context,
            self.layers,
            sections,
            self.counter,
            self.declarations,
            conversation=Conversation(_mapped(message, change) for message in self.conversation),
            intermediate=Conversation(_mapped(message, change) for message in self.intermediate),
            trims=self.trims,
            budget=self.budget,
        )
        if self.budget is not None and composition.tokens > self.budget.tokens:
            raise BudgetError(
                f"the changed text needs {composition.tokens} tokens and the budget is {self.budget.tokens}: "
                "write something shorter in place of what is masked, or leave a reserve for it"
            )
        return composition

    def to_openai(self, provider: str | None = None) -> dict[str, Any]:
        """Return the payload of a chat-completions request: `messages`, and `tools` where there are any.

        `provider` is the endpoint that gets what it wrote itself, such as signatures, back; see `Message`.
        """
        return openai_payload(self, provider)

    def to_anthropic(self) -> dict[str, Any]:
        """Return the payload of an Anthropic messages request: `messages`, and `system` and `tools` where there are."""
        from agentkit_prompts.composition.targets.anthropic import anthropic_payload

        return anthropic_payload(self)

    def to_sample(
        self, reply: Message | Mapping[str, Any] | str, chat_template: ChatTemplate | str | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Return a fine-tuning row: `messages`, `tools`, `text` as the template writes it, and its `loss_spans`."""
        from agentkit_prompts.composition.targets.sample import sample

        return sample(self, reply, chat_template, **kwargs)

    def to_text(
        self,
        chat_template: ChatTemplate | str | None = None,
        *,
        control_tokens: Policy = "escape",
        add_generation_prompt: bool = True,
        **kwargs: Any,
    ) -> str:
        """Return everything as one string: with plain roles, or as the chat template of a local model writes it.

        Args:
            chat_template: How the model wants to hear a conversation, or the name of a registered template. Without
                one the other arguments say nothing. A Jinja template without a `now` has that of the context.
            control_tokens: What happens where untrusted text would form one of the template's control tokens: `escape`
                puts a zero-width space behind its first character, `reject` raises, `allow` lets it through.
            add_generation_prompt: Whether the text ends where the model's reply begins.
            kwargs: Anything else the template reads, such as `enable_thinking`. `documents` are untrusted.

        Raises:
            ChatTemplateError: No template has this name, or the template cannot say this conversation.
            ControlTokenError: What is rejected: names every token, and where it is from.
        """
        if chat_template is None:
            if kwargs:
                raise ChatTemplateError(f"to_text: {', '.join(kwargs)}: only a chat template reads these, pass one")
            return plain_text(self)
        from agentkit_prompts.composition.targets.chat_text import chat_text

        return chat_text(
            self,
            chat_template,
            control_tokens=control_tokens,
            add_generation_prompt=add_generation_prompt,
            **kwargs,
        )

    def __repr__(self) -> str:
        rendered = self.sends_system + self.sends_user + bool(self.closing.text)
        return f"Composition({rendered + len(self.conversation) + len(self.intermediate)} messages)"


def _mapped(message: Message, change: Callable[[str], str]) -> Message:
    content = message.content
    if isinstance(content, str):
        content = change(content)
    else:
        content = tuple(Text(change(part.text), kind=part.kind) if isinstance(part, Text) else part for part in content)
    calls = tuple(replace(call, arguments=change(call.arguments), opaque={}) for call in message.tool_calls)
    name = change(message.name) if message.name else message.name
    # What only a provider can read cannot be changed, so it goes.
    return replace(message, content=content, tool_calls=calls, name=name, thinking=(), opaque={})


def _message(role: Any, rendered: Rendered) -> Message:
    return Message(role, to_parts(rendered) if rendered.media else rendered.text)


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
