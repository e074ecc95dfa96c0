"""Finds the text of the assistant in a rendered conversation: the spans of `{% generation %}`, or of its messages."""

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
"""Start and end, in characters of the text, of what the assistant wrote."""
_Messages: TypeAlias = Sequence[Mapping[str, Any]]
_Draw: TypeAlias = Callable[[_Messages, bool], str]


def has_generation(source: str) -> bool:
    """Return True if a template marks the text of the model with `{% generation %}`."""
    return "generation" in source and "endgeneration" in source


def marked_spans(text: str, render: Callable[[tuple[str, str]], str]) -> Spans:
    """Return the spans of the `{% generation %}` blocks of a template in its text.

    The conversation is rendered once more with two characters around each block that the text does not hold. What
    the template does to the blocks afterwards must leave them where they are.

    Raises:
        ChatTemplateError: The template changes the text of the blocks after they were written.
    """
    start, end = islice(unused(text), 2)
    marked = render((start, end))
    spans = _between(marked, start, end)
    if spans is None or marked.replace(start, "").replace(end, "") != text:
        raise ChatTemplateError(
            "the template changes the text of its {% generation %} blocks after writing them (by a filter around "
            "them, or by testing it), so it is unknown where the model's words are; put the blocks outermost",
            name="generation",
        )
    return spans


def _between(text: str, start: str, end: str) -> Spans | None:
    """Return the spans between marks, as places in the text without them; None if the marks are not in pairs.

    Only the outermost pairs count. Spans that touch are one.
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
    """Return the text of a finished conversation by any chat template, and where in it the assistant speaks.

    A template may have a method `spans(messages, tools, **kwargs)` of its own; others are asked what they
    write before and after each reply.

    Raises:
        ChatTemplateError: The template refuses the conversation, or writes it so that this is unknown.
    """
    own = getattr(template, "spans", None)
    if callable(own):
        return cast("tuple[str, Spans]", own(messages, tools, **kwargs))
    return reply_spans(
        messages, lambda part, prompt: template.render(part, tools, prompt, **kwargs), template.control_tokens
    )


def shifted(spans: Spans, text: str, escaped: str) -> Spans:
    """Return the spans of `text` as those of `escaped`, which is the same with characters put in between.

    Raises:
        ChatTemplateError: It is another text.
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
                "spans are unknown; take them out of the messages"
            )
        places.append(at)
        at += 1
    return [(places[start], places[end - 1] + 1) for start, end in spans]


def reply_spans(messages: _Messages, render: _Draw, control_tokens: Sequence[str]) -> tuple[str, Spans]:
    """Return the text of a conversation whose template has no `{% generation %}`, and what the assistant wrote in it.

    A model that is asked after the messages before a reply sees those with the generation prompt; what it must write
    to get to the conversation with the reply is the rest. Both are rendered, and where both are beginnings of the
    whole text, the rest is the span. A template that writes earlier replies in another way than the last one, or has
    no such prompt, is shown the reply with two characters around its content that the text does not hold: the span
    is what stands between them, and the closing token. White space behind a closing token is the template's.

    Raises:
        ChatTemplateError: Neither shows where a reply is.
    """
    text = render(messages, False)
    spans: Spans = []
    for index, message in enumerate(messages):
        if message.get("role") != "assistant":
            continue
        asked = (messages, index, text, render, control_tokens)
        span = _prompted(*asked) or _marked(*asked)
        if span is None:
            raise ChatTemplateError(
                f"messages[{index}]: the template has no {{% generation %}} blocks, and writes this reply differently "
                "once the conversation goes on or after a generation prompt, so its loss span is unknown; use the "
                "training version of the template, with {% generation %} around what the assistant says",
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
    # Both must be beginnings of the whole text, or the template writes this reply in another way later.
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
    shown = [*messages]
    shown[index] = {**messages[index], "content": f"{start}{content}{end}"}
    try:
        marked, alone = render(shown, False), render(shown[: index + 1], False)
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
    """Return a text up to the control token that ends it, white space aside; nothing without such a token."""
    bare = reply.rstrip()
    return bare if bare.endswith(tuple(control_tokens)) else ""
