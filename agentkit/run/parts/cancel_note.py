"""The message in a conversation that names the reason of a cancellation."""

from __future__ import annotations

from agentkit.run.parts.session import SessionProtocol
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.wire.clean import clean

__all__ = ["append_cancel_note"]


def append_cancel_note(session: SessionProtocol, run_id: str, reason: str) -> None:
    """Append the reason of a cancellation to a conversation, once per run, so that the next run reads it. Blocks."""
    note = Message("user", f"The run was cancelled: {clean(reason)}")
    session.append(note, key=f"{run_id}:cancelled")
