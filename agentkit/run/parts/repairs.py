"""Repair messages: requests for an answer that matches the output type, or for a tool call that can be read."""

from __future__ import annotations

from agentkit.errors import UNREADABLE_CALL, OutputError
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import RecalledMessage

_REPAIR = "Answer again, with valid JSON only."
_CALL_REPAIR = "Write the whole tool call again, or answer without it."
"""Last sentences of repair messages, by which they are recognised."""


def repair_message(error: OutputError) -> Message:
    """Return a message with the errors of an answer and a request for another answer."""
    if error.name == UNREADABLE_CALL:
        return Message("user", f"{error}. {_CALL_REPAIR}")
    return Message("user", f"{error}. {_REPAIR}")


def is_repair(message: Message | RecalledMessage) -> bool:
    """True if a message requests a repaired answer."""
    return message.role == "user" and message.text.endswith((_REPAIR, _CALL_REPAIR))


def is_call_repair(message: Message) -> bool:
    """True if a message requests a tool call again that could not be read."""
    return message.role == "user" and message.text.endswith(_CALL_REPAIR)
