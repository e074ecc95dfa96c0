"""Rendering of a conversation whose last message the model continues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agentkit_prompts.context.wire.thought_fields import THOUGHT_FIELDS
from agentkit_prompts.errors import ChatTemplateError, Problem

_TAG = "THE-FINAL-MESSAGE-GOES-ON-HERE"
_SPACE = " "
"""Space after the tag, which shows if the template strips the text."""


def render_open(
    messages: Sequence[dict[str, Any]], field: str, render: Callable[[Sequence[dict[str, Any]]], str]
) -> str:
    """Return the text up to the end of the last message's `field`, without the text that the template writes after it.

    Raises:
        ChatTemplateError: The last message has no such text, or the template does not print it.
    """
    if not messages:
        raise ChatTemplateError(
            "continue_final_message: the conversation is empty; pass a message to continue",
            problems=[Problem("messages", "empty")],
        )
    place = f"messages[{len(messages) - 1}]"
    final, text = _opened(messages[-1], field)
    if text is None:
        raise ChatTemplateError(
            f"continue_final_message: {place} has no text in {field!r} to continue",
            name=field,
            problems=[Problem(f"{place}.{field}", "no text")],
        )
    rendered = render([*messages[:-1], final])
    # The last tag, because a template can print the content twice, for example in a title.
    end = rendered.rfind(_TAG)
    if end < 0 or text.strip() not in rendered:
        raise ChatTemplateError(
            f"continue_final_message: the template does not print {field!r} of {place} unchanged, so it cannot be "
            f"continued",
            name=field,
        )
    if rendered.startswith(_SPACE, end + len(_TAG)):
        return rendered[:end]
    # The template strips messages.
    return rendered[:end].rstrip()


def _opened(message: dict[str, Any], field: str) -> tuple[dict[str, Any], str | None]:
    """Return a message with the tag after the text of a field, and that text, if it is text."""
    text = message.get(field)
    if isinstance(text, list | tuple):
        text, parts = _open_parts(text)
        return {**message, field: parts}, text
    if not isinstance(text, str):
        return message, None
    names = [field]
    # A template can read the text under another name.
    if field in THOUGHT_FIELDS:
        names = [name for name in THOUGHT_FIELDS if message.get(name) == text]
    return {**message, **dict.fromkeys(names, text + _TAG + _SPACE)}, text


def _open_parts(parts: Sequence[Any]) -> tuple[str | None, list[Any]]:
    result = list(parts)
    for index in reversed(range(len(result))):
        part = result[index]
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            result[index] = {**part, "text": part["text"] + _TAG + _SPACE}
            return part["text"], result
    return None, result
