"""A composition as one plain string."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkit_prompts.messages import Message

if TYPE_CHECKING:
    from agentkit_prompts.composition import Composition

__all__ = ["plain_text"]


def plain_text(composition: Composition) -> str:
    """Return the messages headed by their roles, blank lines between, media as alt text."""
    system, user = composition.system, composition.user
    lines = [f"system: {system.plain}"] if system.text else []
    lines += composition.conversation.derive(_line)
    if user.text:
        lines.append(f"user: {user.plain}")
    if len(composition.intermediate):
        lines += composition.intermediate.derive(_line)
        if composition.closing.text:
            lines.append(f"user: {composition.closing.plain}")
    return "\n\n".join(lines)


def _line(message: Message) -> str:
    calls = "".join(f"\n[calls {call.name}({call.arguments})]" for call in message.tool_calls)
    return f"{message.role}: {message.text}{calls}"
