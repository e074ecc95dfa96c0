"""Rows of a composition: its prompts and stored messages in the order they are sent, with their spans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from agentkit_prompts.composition.sections import SEPARATOR, Section
from agentkit_prompts.composition.stored_text import stored_segments
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.templates.rendered import Rendered
from agentkit_prompts.templates.spans import Span, tile
from agentkit_prompts.tree.prompt import BasePrompt

if TYPE_CHECKING:
    from agentkit_prompts.composition.call_content import CallContent

HistoryName: TypeAlias = Literal["conversation", "intermediate"]


class PromptRow(NamedTuple):
    """A prompt of the system, user or closing message."""

    layer: str
    """Path of the prompt, such as `system[0]`."""
    prompt: BasePrompt
    rendered: Rendered
    section: Section
    """The message of the prompt."""
    message: int | None
    """Index of the message in the composition; None if the message is not sent."""
    offset: int
    """Number of characters of the message before the prompt."""

    @property
    def end(self) -> int:
        """Number of characters of the message up to the end of the prompt."""
        return self.offset + len(self.rendered.text)

    @property
    def spans(self) -> tuple[Span, ...]:
        """Spans of the prompt in the message."""
        spans = tile(self.section.segments(), self.message or 0)
        return tuple([span for span in spans if is_inside(span.prompt, self.layer)])


class HistoryRow(NamedTuple):
    """The stored messages of the conversation, or of the tool traffic."""

    layer: HistoryName
    history: Conversation
    message: int
    """Index of the first message in the composition."""
    indices: Sequence[int]
    """Index of each message in the context."""

    @property
    def numbers(self) -> dict[int, int]:
        """Indices of messages in the composition, by their index in the context."""
        return {index: number for number, index in enumerate(self.indices, self.message)}

    @property
    def spans(self) -> tuple[Span, ...]:
        """Spans of all messages of the row."""
        spans: list[Span] = []
        for (index, number), message in zip(self.numbers.items(), self.history, strict=True):
            spans += tile(stored_segments(message, f"{self.layer}[{index}]"), number)
        return tuple(spans)


Row: TypeAlias = PromptRow | HistoryRow


def rows_of(composition: CallContent) -> Iterator[Row]:
    """Yield the rows in the order they are sent, including prompts without text and histories without messages."""
    system, user, closing = composition.sections
    message = 0
    yield from _prompts(system, message, composition.sends_system)
    message += composition.sends_system
    yield _history(composition, "conversation", message)
    message += len(composition.conversation)
    yield from _prompts(user, message, composition.sends_user)
    message += composition.sends_user
    yield _history(composition, "intermediate", message)
    # The closing message follows tool traffic only.
    if len(composition.intermediate):
        yield from _prompts(closing, message + len(composition.intermediate), bool(closing.text))


def _prompts(section: Section, message: int, is_sent: bool) -> Iterator[PromptRow]:
    index = None
    if is_sent:
        index = message
    offset = 0
    for path, prompt, rendered in section.fragments:
        row = PromptRow(path, prompt, rendered, section, index, offset)
        yield row
        if rendered.text:
            offset = row.end + len(SEPARATOR)


def _history(composition: CallContent, name: HistoryName, message: int) -> HistoryRow:
    history: Conversation = getattr(composition, name)
    indices: Sequence[int] = getattr(composition.context, name).complete_at()
    # A budget drops the first messages, so the last messages are sent.
    return HistoryRow(name, history, message, indices[len(indices) - len(history) :])


def is_inside(path: str, outer: str) -> bool:
    """True if `path` equals `outer`, the path of a prompt or of a place of the layers, or is inside `outer`."""
    return path == outer or path.startswith((f"{outer}.", f"{outer}["))
