"""Messages that ask a model to repair its answer."""

from __future__ import annotations

from agentkit.errors import OutputError
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import RecalledMessage

__all__ = ["is_repair", "repair_message"]

_REPAIR = "Answer again, with valid JSON only."
"""The last sentence of such a message."""


def repair_message(error: OutputError) -> Message:
    """Return the message that asks the model to answer again, with the problems of its answer."""
    return Message("user", f"{error}. {_REPAIR}")


def is_repair(message: Message | RecalledMessage) -> bool:
    """Return True if a message asks the model to repair its answer."""
    return message.role == "user" and message.text.endswith(_REPAIR)
