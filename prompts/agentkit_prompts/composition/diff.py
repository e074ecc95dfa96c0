"""`diff`: the first layer in which a composition differs from an earlier one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Media, Text, neutralise_markers
from agentkit_prompts.context.prompt_context import ToolSpec
from agentkit_prompts.templates.spans import Segment, tile
from agentkit_prompts.tokens.counter import MESSAGE_OVERHEAD, TokenCounter, media_tokens, tool_tokens

if TYPE_CHECKING:
    from agentkit_prompts.composition.contents import Contents

__all__ = ["Diff", "diff", "tokens_until", "tool_text"]


@dataclass(frozen=True, slots=True)
class Diff:
    """Where a composition first differs from an earlier one. A prompt cache can keep everything before that."""

    layer: str | None
    """The first layer that differs; None if nothing does."""
    message: int
    """Index of the message in which it differs."""
    offset: int
    """Characters of that message that are the same."""
    tokens: int
    """Tokens before the difference: the part that stays the same."""
    before: str
    """The text there in the earlier one, cut short."""
    after: str
    """The text there now, cut short."""

    def __str__(self) -> str:
        if self.layer is None:
            return f"the same, all {self.tokens} tokens"
        return f"{self.layer} differs after {self.tokens} tokens: {self.before!r} -> {self.after!r}"


_MAX_EXCERPT = 40


class _Sent(NamedTuple):
    """A message, its text, and the segments of its text."""

    message: Message
    segments: Sequence[Segment]

    @property
    def is_stored(self) -> bool:
        """True if it is of the conversation or of the tool traffic."""
        return not self.segments or self.segments[0].prompt in ("conversation", "intermediate")

    @property
    def text(self) -> str:
        """Its text, with a marker per use of a media part."""
        return "".join([segment.text for segment in self.segments])


def diff(composition: Contents, previous: Contents) -> Diff:
    """Return where `composition` first differs from `previous`, tools before messages, as they are sent."""
    if composition.tools != previous.tools:
        return _tools_diff(composition, previous)
    declared = composition.declarations.tokens(composition.counter)
    tokens = declared.tools
    ours = [_Sent(*pair) for pair in composition.walk()]
    theirs = [_Sent(*pair) for pair in previous.walk()]
    for number, (now, old) in enumerate(zip(ours, theirs, strict=False)):
        if now.message != old.message:
            return _message_diff(composition, number, now, old, tokens)
        if now.is_stored:
            tokens += declared.of_message(now.message)
        else:
            tokens += MESSAGE_OVERHEAD + tokens_until(now.segments, None, composition.counter)
    number = min(len(ours), len(theirs))
    if number < len(ours):
        layer = _layer_at(composition, number, ours[number].segments)
        return Diff(layer, number, 0, tokens, "", _excerpt(_whole_text(ours[number].message)))
    if number < len(theirs):
        layer = _layer_at(previous, number, theirs[number].segments)
        return Diff(layer, number, 0, tokens, _excerpt(_whole_text(theirs[number].message)), "")
    return Diff(None, number, 0, tokens, "", "")


def _message_diff(composition: Contents, number: int, now: _Sent, old: _Sent, tokens: int) -> Diff:
    """Return where a message differs, after the tokens of the messages before it."""
    if now.message.role != old.message.role:
        layer = _layer_at(composition, number, now.segments)
        return Diff(layer, number, 0, tokens, _excerpt(_whole_text(old.message)), _excerpt(_whole_text(now.message)))
    same = _common(now.text, old.text)
    tokens += MESSAGE_OVERHEAD + tokens_until(now.segments, same, composition.counter)
    layer = _layer_at(composition, number, now.segments, same)
    if now.text != old.text:
        return Diff(layer, number, same, tokens, _excerpt(old.text[same:]), _excerpt(now.text[same:]))
    # The texts are the same, so the calls or the name differ: they follow the text.
    before, after = _whole_text(old.message)[same:], _whole_text(now.message)[same:]
    return Diff(layer, number, same, tokens, _excerpt(before), _excerpt(after))


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the length of the common beginning."""
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return at
    return min(len(one), len(other))


def _tools_diff(composition: Contents, previous: Contents) -> Diff:
    ours, theirs = [tool_text(tool) for tool in composition.tools], [tool_text(tool) for tool in previous.tools]
    first = _common(ours, theirs)
    now, old = "\n".join(ours[first:]), "\n".join(theirs[first:])
    start = max(0, _common(now, old) - _MAX_EXCERPT // 2)
    tokens = tool_tokens(composition.tools[:first], composition.counter)
    return Diff("tools", 0, 0, tokens, _excerpt(old[start:]), _excerpt(now[start:]))


def tool_text(tool: ToolSpec) -> str:
    """Return everything that is sent of a tool, as text."""
    if tool.strict:
        return f"{tool.json} strict"
    return tool.json


def _whole_text(message: Message) -> str:
    """Return everything of a message but its role: text, calls, the call that it answers, name and thinking."""
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
    if number < before:
        return "conversation"
    return "intermediate"


def tokens_until(segments: Iterable[Segment], offset: int | None, counter: TokenCounter) -> int:
    """Count the text before `offset`, and the media whose markers are before it; all if there is no offset."""
    texts: list[str] = []
    media: list[Media] = []
    for span in tile(segments):
        is_whole = offset is None or span.end <= offset
        if span.segment.media is not None:
            if is_whole:
                media.append(span.segment.media)
        elif is_whole:
            texts.append(span.text)
        else:
            texts.append(span.text[: max(0, (offset or 0) - span.start)])
    return counter.count("".join(texts)) + media_tokens(media)


def _excerpt(text: str) -> str:
    if len(text) <= _MAX_EXCERPT:
        return text
    return f"{text[: _MAX_EXCERPT - 1]}\u2026"
