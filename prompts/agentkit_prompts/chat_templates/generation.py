"""Loss spans: the text of the assistant in a rendered conversation, from `{% generation %}` blocks or from its
messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from agentkit_prompts.chat_templates.guard.tainted_text import unused
from agentkit_prompts.errors import ChatTemplateError, Problem

if TYPE_CHECKING:
    from agentkit_prompts.chat_templates.protocol import ChatTemplate

__all__ = ["Spans", "has_generation", "marked_spans", "reply_spans", "shifted", "spans_of"]

Spans: TypeAlias = list[tuple[int, int]]
"""Start and end, in characters, of each text of the assistant."""
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
    **kwargs: Any,
) -> tuple[str, Spans]:
    """Return the text of a finished conversation in any chat template, and the spans of the assistant.

    A template can define `spans(messages, tools, **kwargs)`. For other templates, the text before and after each reply
    is rendered.

    Raises:
        ChatTemplateError: The template refuses the conversation, or the spans are unknown.
    """
    own = getattr(template, "spans", None)
    if callable(own):
        return cast("tuple[str, Spans]", own(messages, tools, **kwargs))
    return reply_spans(
        messages, lambda part, prompt: template.render(part, tools, prompt, **kwargs), template.control_tokens
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


def reply_spans(messages: _Messages, render: _Draw, control_tokens: Sequence[str]) -> tuple[str, Spans]:
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
    for index, message in enumerate(messages):
        if message.get("role") != "assistant":
            continue
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
    return text, spans


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
