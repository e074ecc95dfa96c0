"""Fields of messages in the chat form that contain the thinking of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentkit_prompts.context.thinking import Thinking
from agentkit_prompts.context.wire.owner import Owner

THOUGHT_FIELDS = ("reasoning_content", "thinking", "reasoning")
"""Fields whose text is the thinking. Gateways fill several fields: the first field with a text counts."""
DETAILS = "reasoning_details"
"""Field with the thinking as parts, from OpenRouter and MiniMax; its text counts if the other fields have no text."""


def thought_text_in(message: Mapping[str, Any]) -> str:
    """Return the thinking of a message; empty without thinking."""
    return _field_in(message)[1]


def take_thought(message: dict[str, Any], owner: Owner) -> Thinking | None:
    """Remove the field with the thinking from a message, and return the thinking; None without thinking."""
    field, text = _field_in(message)
    if not text:
        return None
    data = {field: message.pop(field)}
    key = owner.key(data)
    # The first field is the default of `openai_message`. Another field must be sent back under its name.
    opaque = {}
    if field != THOUGHT_FIELDS[0]:
        opaque = {key: data}
    return Thinking(text, key, opaque=opaque)


def _field_in(message: Mapping[str, Any]) -> tuple[str, str]:
    """Return the field with the thinking, and its text; an empty text without thinking."""
    for field in THOUGHT_FIELDS:
        text = message.get(field)
        if isinstance(text, str) and text:
            return field, text
    details = message.get(DETAILS)
    if not isinstance(details, list | tuple):
        return DETAILS, ""
    texts = [item.get("text") or item.get("summary") for item in details if isinstance(item, Mapping)]
    return DETAILS, "".join([text for text in texts if isinstance(text, str)])
