"""What an assistant said in a rendered conversation: the spans of `{% generation %}`, or of its messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from agentkit_prompts.errors import ChatTemplateError

__all__ = ["Spans", "has_generation", "marked_spans", "reply_spans"]

Spans: TypeAlias = list[tuple[int, int]]
"""Start and end, in characters of the text, of what the assistant said."""

_PRIVATE = range(0xE000, 0xF8FF)


def has_generation(source: str) -> bool:
    """Tell whether a template marks what a model says with `{% generation %}`."""
    return "generation" in source and "endgeneration" in source


def marked_spans(text: str, render: Callable[[tuple[str, str]], str]) -> Spans:
    """Return where a template's `{% generation %}` blocks ended up in its text.

    The conversation is rendered once more with two characters around each block that the text does not hold. What
    the template does to the blocks afterwards must leave them where they are.

    Raises:
        ChatTemplateError: The template changes the text of the blocks after they were written.
    """
    unused = (chr(code) for code in _PRIVATE if chr(code) not in text)
    start, end = next(unused), next(unused)
    marked = render((start, end))
    spans: Spans = []
    depth = 0
    at = 0
    begun = 0
    kept: list[str] = []
    for piece in _split(marked, start, end):
        if piece == start:
            begun = at if depth == 0 else begun
            depth += 1
        elif piece == end:
            depth -= 1
            if depth == 0 and at > begun:
                spans.append((begun, at))
        else:
            kept.append(piece)
            at += len(piece)
        if depth < 0:
            break
    if depth or "".join(kept) != text:
        raise ChatTemplateError(
            "the template changes the text of its {% generation %} blocks after writing them (by a filter around "
            "them, or by testing it), so nobody can say where the model's words are; put the blocks outermost"
        )
    return spans


def _split(text: str, start: str, end: str) -> list[str]:
    pieces: list[str] = []
    for index, part in enumerate(text.split(start)):
        if index:
            pieces.append(start)
        for number, rest in enumerate(part.split(end)):
            if number:
                pieces.append(end)
            pieces.append(rest)
    return pieces


def reply_spans(
    messages: Sequence[dict[str, Any]],
    render: Callable[[Sequence[dict[str, Any]], bool], str],
    control_tokens: Sequence[str],
) -> tuple[str, Spans]:
    """Return the text of a conversation whose template has no `{% generation %}`, and what the assistant said in it.

    A model that is asked after the messages before a reply sees those with the generation prompt; what it must write
    to get to the conversation with the reply is the rest. Both are rendered, and both must be beginnings of the whole
    text, so a template that writes earlier replies differently from the last one is refused. White space behind a
    closing control token is the template's.

    Raises:
        ChatTemplateError: A reply is written differently when the conversation goes on.
    """
    text = render(messages, False)
    spans: Spans = []
    for index, message in enumerate(messages):
        if message.get("role") != "assistant":
            continue
        before, after = render(messages[:index], True), render(messages[: index + 1], False)
        if not (text.startswith(before) and text.startswith(after) and len(before) <= len(after)):
            raise ChatTemplateError(
                f"messages[{index}]: the template has no {{% generation %}} blocks, and writes this reply differently "
                "once the conversation goes on or after a generation prompt, so its loss span cannot be told; use the "
                "training version of the template, with {% generation %} around what the assistant says"
            )
        said = after[len(before) :]
        bare = said.rstrip()
        end = len(before) + (len(bare) if bare.endswith(tuple(control_tokens)) else len(said))
        if end > len(before):
            spans.append((len(before), end))
    return text, spans
