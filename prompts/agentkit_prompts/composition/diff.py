"""`diff`: the first layer in which a composition differs from an earlier one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from agentkit_prompts.composition.rows import HistoryRow, rows_of
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Media, Text, neutralise_markers
from agentkit_prompts.context.prompt_context import ToolSpec
from agentkit_prompts.limits import MAX_SHOWN_CHARS
from agentkit_prompts.templates.spans import Segment, tile
from agentkit_prompts.tokens.counter import MESSAGE_OVERHEAD, TokenCounter, media_tokens, tool_tokens

if TYPE_CHECKING:
    from agentkit_prompts.composition.call_content import CallContent


_EXCERPT_CHARS = MAX_SHOWN_CHARS // 2


@dataclass(frozen=True, slots=True)
class Diff:
    """The first difference between a composition and an earlier composition.

    A prompt cache of the provider can reuse everything before the difference.
    """

    layer: str | None
    """The first layer that differs; None if all layers are equal."""
    message: int
    """Index of the message that differs; the number of messages if all are equal, 0 if the tools differ."""
    offset: int
    """Number of equal characters at the start of the message."""
    tokens: int
    """Number of tokens before the difference."""
    before: str
    """Text at the difference in the earlier composition, shortened."""
    after: str
    """Text at the difference in this composition, shortened."""

    def __str__(self) -> str:
        if self.layer is None:
            return f"the same, all {self.tokens} tokens"
        return f"{self.layer} differs after {self.tokens} tokens: {self.before!r} -> {self.after!r}"


def diff(composition: CallContent, previous: CallContent) -> Diff:
    """Return the first difference between `composition` and `previous`; tools are sent before messages."""
    if composition.tools != previous.tools:
        return _tools_diff(composition, previous)
    ours, theirs = composition.messages, previous.messages
    number = _common(ours, theirs)
    tokens = _tokens_before(composition, number)
    if number < min(len(ours), len(theirs)):
        return _message_diff(composition, previous, number, tokens)
    if number < len(ours):
        layer = _layer_at(composition, number, 0)
        return Diff(layer, number, 0, tokens, "", _excerpt(_whole_text(ours[number])))
    if number < len(theirs):
        layer = _layer_at(previous, number, 0)
        return Diff(layer, number, 0, tokens, _excerpt(_whole_text(theirs[number])), "")
    return Diff(None, number, 0, tokens, "", "")


def _tokens_before(composition: CallContent, number: int) -> int:
    """Count the tokens of the tools and of the messages before message `number`."""
    token_counts = composition.tools_and_output.tokens(composition.counter)
    tokens, remaining = token_counts.tools, number
    for item in composition.in_order():
        if isinstance(item, Conversation):
            stored = item.window(0, remaining)
            tokens += stored.total(token_counts.of_message)
            remaining -= len(stored)
        elif remaining > 0:
            tokens += MESSAGE_OVERHEAD + item.tokens(composition.counter)
            remaining -= 1
    return tokens


def _message_diff(composition: CallContent, previous: CallContent, number: int, tokens: int) -> Diff:
    """Return the difference between the messages with a number; `tokens` counts everything before them."""
    message, old_message = composition.messages[number], previous.messages[number]
    now, before = _whole_text(message), _whole_text(old_message)
    if message.role != old_message.role:
        return Diff(_layer_at(composition, number, 0), number, 0, tokens, _excerpt(before), _excerpt(now))
    text, old_text = composition.marked_text(number), previous.marked_text(number)
    same = _common(text, old_text)
    _, segments = next(islice(composition.walk({number}), number, None))
    tokens += MESSAGE_OVERHEAD + tokens_until(segments, same, composition.counter)
    # If the marked texts are equal, the excerpts show the fields after the text, such as calls or the name.
    if text != old_text:
        now, before = text, old_text
    layer = _layer_at(composition, number, same)
    return Diff(layer, number, same, tokens, _excerpt(before[same:]), _excerpt(now[same:]))


def _layer_at(composition: CallContent, number: int, offset: int) -> str:
    """Return the layer of the character at `offset` of a message; at the end of the text, its last layer."""
    layer = ""
    for row in rows_of(composition):
        if isinstance(row, HistoryRow):
            if row.message <= number < row.message + len(row.history):
                return row.layer
        elif row.message == number and row.offset <= offset:
            layer = row.layer
    return layer


def _common(first: Sequence[object], second: Sequence[object]) -> int:
    """Return the number of equal items at the start of two sequences."""
    for index, (first_item, second_item) in enumerate(zip(first, second, strict=False)):
        if first_item != second_item:
            return index
    return min(len(first), len(second))


def _tools_diff(composition: CallContent, previous: CallContent) -> Diff:
    ours, theirs = [tool_text(tool) for tool in composition.tools], [tool_text(tool) for tool in previous.tools]
    first = _common(ours, theirs)
    now, old = "\n".join(ours[first:]), "\n".join(theirs[first:])
    # The excerpts start before the difference, because a specification of a tool can be longer than an excerpt.
    start = max(0, _common(now, old) - _EXCERPT_CHARS // 2)
    tokens = tool_tokens(composition.tools[:first], composition.counter)
    return Diff("tools", 0, 0, tokens, _excerpt(old[start:]), _excerpt(now[start:]))


def tool_text(tool: ToolSpec) -> str:
    """Return one text that differs if any field of a tool that is sent differs."""
    if tool.strict:
        return f"{tool.json} strict"
    return tool.json


def _whole_text(message: Message) -> str:
    """Return the text of all fields of a message except its role: text, calls, call id, name and thinking."""
    texts: list[str] = []
    for part in message.parts:
        if isinstance(part, Text):
            texts.append(neutralise_markers(part.text))
        else:
            texts.append(part.marker)
    texts += [f" [calls {call.name}({call.arguments}) as {call.id}]" for call in message.tool_calls]
    if message.tool_call_id is not None:
        texts.append(f" [answers {message.tool_call_id}]")
    if message.name is not None:
        texts.append(f" [named {message.name}]")
    if message.thinking:
        texts.append(f" [thought {message.reasoning}]")
    return "".join(texts)


def tokens_until(segments: Iterable[Segment], offset: int, counter: TokenCounter) -> int:
    """Count the tokens of the text before `offset`, and of the media whose markers are before `offset`."""
    texts: list[str] = []
    media: list[Media] = []
    for span in tile(segments):
        if span.segment.media is None:
            texts.append(span.text[: max(0, offset - span.start)])
        elif span.end <= offset:
            media.append(span.segment.media)
    return counter.count("".join(texts)) + media_tokens(media)


def _excerpt(text: str) -> str:
    if len(text) <= _EXCERPT_CHARS:
        return text
    return f"{text[: _EXCERPT_CHARS - 1]}\u2026"
