"""Repair messages: requests for an answer that matches the output type."""

from __future__ import annotations

from agentkit.errors import OutputError
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import RecalledMessage

__all__ = ["is_repair", "repair_message"]

_REPAIR = "Answer again, with valid JSON only."
"""Last sentence of a repair message, by which `is_repair` recognises the message."""


def repair_message(error: OutputError) -> Message:
    """Return a message with the errors of an answer and a request for another answer."""
    return Message("user", f"{error}. {_REPAIR}")


def is_repair(message: Message | RecalledMessage) -> bool:
    """True if a message requests a repaired answer."""
    return message.role == "user" and message.text.endswith(_REPAIR)
