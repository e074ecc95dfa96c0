"""Loss spans: the text of the assistant in a rendered conversation, from `{% generation %}` blocks or from its
messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from agentkit_prompts.chat_templates.guard.tainted_text import unused
from agentkit_prompts.errors import ChatTemplateError, Problem

if TYPE_CHECKING:
    from agentkit_prompts.chat_templates.protocol import ChatTemplate

Spans: TypeAlias = list[tuple[int, int]]
"""Start and end, in characters, of each text of the assistant."""
_MAX_TEXTS = 32
"""Maximum number of texts whose spans are known: the runs of a model that can be in progress."""
_Messages: TypeAlias = Sequence[Mapping[str, Any]]
_Draw: TypeAlias = Callable[[_Messages, bool], str]


def has_generation(source: str) -> bool:
    """True if a template marks the text of the model with `{% generation %}`."""
    return "generation" in source and "endgeneration" in source


def marked_spans(text: str, render: Callable[[tuple[str, str]], str]) -> Spans:
    """Return the spans of the `{% generation %}` blocks of a template in its text.

    The conversation is rendered again with two unused characters around each block. The template must not move these
    characters after it writes the block.

    Raises:
        ChatTemplateError: The template changes the text of the blocks after writing them.
    """
    start, end = islice(unused(text), 2)
    marked = render((start, end))
    spans = _between(marked, start, end)
    if spans is None or marked.replace(start, "").replace(end, "") != text:
        raise ChatTemplateError(
            "the template changes the text of its {% generation %} blocks after writing them (by a filter around "
            "them, or by testing it), so the loss spans are unknown; use {% generation %} as the outermost block",
            name="generation",
        )
    return spans


def _between(text: str, start: str, end: str) -> Spans | None:
    """Return the spans between marks, as offsets in the text without marks; None if a mark has no partner.

    Only the outermost pairs count. Adjacent spans are merged.
    """
    spans: Spans = []
    opened: list[int] = []
    for number, mark in enumerate(re.finditer(f"[{start}{end}]", text)):
        at = mark.start() - number
        if mark[0] == start:
            opened.append(at)
        elif not opened:
            return None
        elif (begin := opened.pop()) < at and not opened:
            _add_span(spans, begin, at)
    return None if opened else spans


def _add_span(spans: Spans, begin: int, end: int) -> None:
    if spans and spans[-1][1] == begin:
        begin, _ = spans.pop()
    spans.append((begin, end))


def spans_of(
    template: ChatTemplate,
    messages: _Messages,
    tools: Sequence[Mapping[str, Any]] | None = None,
    known_spans: KnownSpans | None = None,
    **kwargs: Any,
) -> tuple[str, Spans]:
    """Return the text of a finished conversation in any chat template, and the spans of the assistant.

    A template can define `spans(messages, tools, **kwargs)`. For other templates, the text before and after each reply
    is rendered, except for replies in `known_spans`.

    Raises:
        ChatTemplateError: The template refuses the conversation, or the spans are unknown.
    """
    own = getattr(template, "spans", None)
    if callable(own):
        # Other templates than Jinja templates read unknown arguments as variables.
        if known_spans is not None and "known_spans" in signature(own).parameters:
            kwargs["known_spans"] = known_spans
        return cast("tuple[str, Spans]", own(messages, tools, **kwargs))
    return reply_spans(
        messages,
        lambda part, prompt: template.render(part, tools, prompt, **kwargs),
        template.control_tokens,
        known_spans,
    )


def shifted(spans: Spans, text: str, escaped: str) -> Spans:
    """Convert spans of `text` to spans of `escaped`, which is `text` with inserted characters.

    Raises:
        ChatTemplateError: `escaped` contains different text.
    """
    if text == escaped:
        return spans
    places: list[int] = []
    at = 0
    for character in text:
        # Escaping only inserts characters, so each character is found after the previous one.
        at = escaped.find(character, at)
        if at < 0:
            raise ChatTemplateError(
                "the template writes the conversation differently once control tokens in it are escaped, so its loss "
                "spans are unknown; remove the tokens from the messages"
            )
        places.append(at)
        at += 1
    return [(places[start], places[end - 1] + 1) for start, end in spans]


def reply_spans(
    messages: _Messages, render: _Draw, control_tokens: Sequence[str], known_spans: KnownSpans | None = None
) -> tuple[str, Spans]:
    """Return the text of a conversation, and the spans of the assistant, for a template without `{% generation %}`.

    The messages before a reply are rendered with the generation prompt, and then with the reply. If both texts are
    prefixes of the whole text, their difference is the span. If the template writes earlier replies differently, or has
    no generation prompt, the reply is rendered with two unused characters around its content: the span is the text
    between them, with the closing token. White space after a closing token is not a part of the span.

    Raises:
        ChatTemplateError: Both methods fail to find a reply.
    """
    text = render(messages, False)
    spans: Spans = []
    if known_spans is not None:
        spans = known_spans.of(messages, text)
    replies = [index for index, message in enumerate(messages) if message.get("role") == "assistant"]
    for index in replies[len(spans) :]:
        request = (messages, index, text, render, control_tokens)
        span = _prompted(*request) or _marked(*request)
        if span is None:
            raise ChatTemplateError(
                f"messages[{index}]: the template has no {{% generation %}} blocks, and writes this reply differently "
                "once the conversation continues or after a generation prompt, so its loss span is unknown; use the "
                "training version of the template, with {% generation %} around the text of the assistant",
                problems=[Problem(f"messages[{index}]", "unknown loss span")],
            )
        if span[1] > span[0]:
            spans.append(span)
    # Without a span for each reply, the spans of a later text would belong to other replies.
    if known_spans is not None and replies and len(spans) == len(replies):
        known_spans.add(messages, text, spans)
    return text, spans


class KnownSpans:
    """Spans in the latest conversations, for conversations that continue them, such as the prompts of one run."""

    def __init__(self) -> None:
        self._entries: list[_KnownText] = []

    def add(self, messages: _Messages, text: str, spans: Spans) -> None:
        """Store the spans of all replies of a conversation, instead of the conversation that it continues."""
        entry = _KnownText([*messages], text, spans)
        entries = [each for each in self._entries if len(each.known(messages, text)) < len(each.spans)]
        self._entries = [*entries[1 - _MAX_TEXTS :], entry]

    def of(self, messages: _Messages, text: str) -> Spans:
        """Return the spans of the first replies, if an earlier conversation has the same replies at the same places."""
        best: Spans = []
        for entry in self._entries:
            best = max(best, entry.known(messages, text), key=len)
        return list(best)


class _KnownText(NamedTuple):
    """A conversation, its text, and the span of each reply."""

    messages: _Messages
    text: str
    spans: Spans

    def known(self, messages: _Messages, text: str) -> Spans:
        """Return the spans of the replies that another conversation has at the same places."""
        pairs = zip(self.messages, messages, strict=False)
        equal = takewhile(lambda pair: pair[0] == pair[1], pairs)
        replies = sum(message.get("role") == "assistant" for message, _ in equal)
        if not replies:
            return []
        start = _same_start(self.text, text)
        return [span for span in self.spans[:replies] if span[1] <= start]


def _same_start(first: str, second: str) -> int:
    """Return the length of the common start of two texts."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _prompted(
    messages: _Messages, index: int, text: str, render: _Draw, control_tokens: Sequence[str]
) -> tuple[int, int] | None:
    try:
        before, after = render(messages[:index], True), render(messages[: index + 1], False)
    except ChatTemplateError:
        return None
    # If one is not a prefix of the whole text, the template writes this reply differently later.
    if not (text.startswith(before) and text.startswith(after) and len(before) <= len(after)):
        return None
    reply = after[len(before) :]
    return len(before), len(before) + len(_closed(reply, control_tokens) or reply)


def _marked(
    messages: _Messages, index: int, text: str, render: _Draw, control_tokens: Sequence[str]
) -> tuple[int, int] | None:
    content = messages[index].get("content")
    if not isinstance(content, str) or not content or messages[index].get("tool_calls"):
        return None
    start, end = islice(unused(text), 2)
    changed = [*messages]
    changed[index] = {**messages[index], "content": f"{start}{content}{end}"}
    try:
        marked, alone = render(changed, False), render(changed[: index + 1], False)
    except ChatTemplateError:
        return None
    before, _, rest = marked.partition(start)
    reply, _, behind = rest.partition(end)
    if before + reply + behind != text:
        return None
    closing = _closed(alone.partition(end)[2], control_tokens)
    stop = len(before) + len(reply)
    if behind.startswith(closing):
        stop += len(closing)
    return len(before), stop


def _closed(reply: str, control_tokens: Sequence[str]) -> str:
    """Return a text up to its last control token, if only white space follows; else None."""
    bare = reply.rstrip()
    return bare if bare.endswith(tuple(control_tokens)) else ""
