"""A session as plain JSON: a line per turn, short enough that a page can hold thousands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentkit.inspector.past_contexts import session_turns
from agentkit.session import Session
from agentkit_prompts.tokens.counter import ESTIMATE, message_tokens

__all__ = ["session_view"]

_MAX_EXCERPT = 120


def session_view(session: Session, *, runs: Mapping[int, str]) -> dict[str, Any]:
    """Return the turns of a session, oldest first.

    Args:
        session: The conversation.
        runs: The id of the run that began behind so many messages, where it is known.
    """
    conversation = session.conversation
    count = message_tokens(ESTIMATE)
    sizes = conversation.derive(count)
    turns = []
    for number, (start, stop) in enumerate(session_turns(conversation)):
        messages = conversation[start:stop]
        answer = next((one.text for one in reversed(messages) if one.role == "assistant" and one.text), "")
        tools = [call.name for one in messages for call in one.tool_calls]
        turn: dict[str, Any] = {
            "turn": number,
            "input": _excerpt(messages[0].text if messages[0].role == "user" else ""),
            "answer": _excerpt(answer),
            "tools": tools[:12],
            "tokens": sum(sizes[start:stop]),
        }
        if (run := runs.get(start)) is not None:
            turn["run"] = run
        turns.append(turn)
    return {
        "session": session.id,
        "messages": len(conversation),
        "tokens": sum(sizes),
        "kwargs": dict(getattr(session, "additional_kwargs", None) or {}),
        "turns": turns,
    }


def _excerpt(text: str) -> str:
    short = " ".join(text[: 4 * _MAX_EXCERPT].split())
    return short if len(short) <= _MAX_EXCERPT and len(text) <= 4 * _MAX_EXCERPT else f"{short[: _MAX_EXCERPT - 1]}…"
