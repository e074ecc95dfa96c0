"""`diff`: the first layer in which a composition differs from an earlier one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Media, Text, neutralise_markers
from agentkit_prompts.context.prompt_context import ToolSpec
from agentkit_prompts.templates.spans import Segment
from agentkit_prompts.tokens.counter import MESSAGE_OVERHEAD, TokenCounter, media_tokens, message_tokens, tool_tokens

if TYPE_CHECKING:
    from agentkit_prompts.composition.contents import Contents

__all__ = ["Diff", "diff", "tokens_until", "tool_text"]


@dataclass(frozen=True, slots=True)
class Diff:
    """Where a composition first differs from an earlier one. What comes before can come from a prompt cache."""

    layer: str | None
    """The first layer that differs; None when nothing does."""
    message: int
    """Index of the message in which it differs."""
    offset: int
    """Characters of that message that are the same."""
    tokens: int
    """Tokens before the difference: the part that stays the same."""
    before: str
    """What stood there, cut short."""
    after: str
    """What stands there now, cut short."""

    def __str__(self) -> str:
        if self.layer is None:
            return f"the same, all {self.tokens} tokens"
        return f"{self.layer} differs after {self.tokens} tokens: {self.before!r} -> {self.after!r}"


_EXCERPT = 40


def diff(composition: Contents, previous: Contents) -> Diff:
    """Return where `composition` first differs from `previous`, tools before messages, as they are sent."""
    counter = composition.counter
    if composition.tools != previous.tools:
        return _tools_diff(composition, previous)
    per_message = message_tokens(counter)
    tokens = composition.declarations.tokens(counter)[0]
    ours, theirs = list(composition.walk()), list(previous.walk())
    for number, (message, segments) in enumerate(ours):
        if number >= len(theirs):
            return Diff(_layer_at(composition, number, segments), number, 0, tokens, "", _excerpt(_whole_text(message)))
        other = theirs[number][0]
        if message == other:
            stored = not segments or segments[0].prompt in ("conversation", "intermediate")
            tokens += per_message(message) if stored else MESSAGE_OVERHEAD + tokens_until(segments, None, counter)
            continue
        if message.role != other.role:
            layer = _layer_at(composition, number, segments)
            return Diff(layer, number, 0, tokens, _excerpt(_whole_text(other)), _excerpt(_whole_text(message)))
        text, old = "".join(part.text for part in segments), "".join(part.text for part in theirs[number][1])
        same = _same(text, old)
        tokens += MESSAGE_OVERHEAD + tokens_until(segments, same, counter)
        layer = _layer_at(composition, number, segments, same)
        if text == old:  # the calls or the name
            text, old, same = _whole_text(message), _whole_text(other), len(text)
        return Diff(layer, number, same, tokens, _excerpt(old[same:]), _excerpt(text[same:]))
    if len(theirs) > len(ours):
        message, segments = theirs[len(ours)]
        return Diff(_layer_at(previous, len(ours), segments), len(ours), 0, tokens, _excerpt(_whole_text(message)), "")
    return Diff(None, len(ours), 0, tokens, "", "")


def _same(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how long the beginning is that both have."""
    differing = (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differing, min(len(one), len(other)))


def _tools_diff(composition: Contents, previous: Contents) -> Diff:
    ours, theirs = ([tool_text(tool) for tool in one.tools] for one in (composition, previous))
    first = _same(ours, theirs)
    now, old = "\n".join(ours[first:]), "\n".join(theirs[first:])
    start = max(0, _same(now, old) - _EXCERPT // 2)
    tokens = tool_tokens(composition.tools[:first], composition.counter)
    return Diff("tools", 0, 0, tokens, _excerpt(old[start:]), _excerpt(now[start:]))


def tool_text(tool: ToolSpec) -> str:
    """Return everything of a tool that a model is given, as text."""
    return tool.json + (" strict" if tool.strict else "")


def _whole_text(message: Message) -> str:
    """Return everything of a message that is not its role: text, calls, what it answers, and its name."""
    calls = "".join(f" [calls {call.name}({call.arguments}) as {call.id}]" for call in message.tool_calls)
    answers = f" [answers {message.tool_call_id}]" if message.tool_call_id is not None else ""
    named = f" [named {message.name}]" if message.name is not None else ""
    parts = (neutralise_markers(part.text) if isinstance(part, Text) else part.marker for part in message.parts)
    thought = f" [thought {message.reasoning}]" if message.thinking else ""
    return f"{''.join(parts)}{calls}{answers}{named}{thought}"


def _layer_at(composition: Contents, number: int, segments: Sequence[Segment], offset: int = 0) -> str:
    """Return the layer of the character at `offset` of a message; the last one when the text ends there."""
    layer = ""
    for segment in segments:
        layer = segment.prompt
        offset -= len(segment.text)
        if offset < 0:
            break
    if layer:
        return layer
    before = composition.sends_system + len(composition.conversation)  # a message without content
    if number == before and composition.sends_user:
        return "input"
    if number == 0 and composition.sends_system:
        return "system"
    return "conversation" if number < before else "intermediate"


def tokens_until(segments: Iterable[Segment], offset: int | None, counter: TokenCounter) -> int:
    """Count the text before `offset`, and the media whose markers stand before it; all when there is no offset."""
    text: list[str] = []
    media: list[Media] = []
    for segment in segments:
        if segment.media is None:
            text.append(segment.text if offset is None else segment.text[: max(0, offset)])
        elif offset is None or len(segment.text) <= offset:
            media.append(segment.media)
        if offset is not None:
            offset -= len(segment.text)
    return counter.count("".join(text)) + media_tokens(media)


def _excerpt(text: str) -> str:
    return text if len(text) <= _EXCERPT else text[: _EXCERPT - 1] + "\u2026"
