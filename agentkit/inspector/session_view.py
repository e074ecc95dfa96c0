"""A session as plain JSON: a line per turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentkit.inspector.past_contexts import session_turns
from agentkit.inspector.source import RunSummary
from agentkit.session import Session
from agentkit_prompts.tokens.counter import ESTIMATE, message_tokens

__all__ = ["session_view", "turns_view"]

_MAX_TURNS = 50
"""Turns of one view; whoever scrolls asks for more."""
_LAST = 40
"""Those that a session is shown with at first."""
_MAX_EXCERPT = 120
_COUNT = message_tokens(ESTIMATE)

Json = dict[str, Any]


def session_view(session: Session, *, runs: Sequence[RunSummary] = ()) -> Json:
    """Return a session with the last of its turns, oldest first; `turns_view` gives the others.

    `count` is how many turns it has, and `most` the tokens of the largest one.

    Args:
        session: The conversation.
        runs: Runs on it, newest first.
    """
    sizes = session.conversation.derive(_COUNT)
    turns = session_turns(session.conversation)
    return {
        "session": session.id,
        "messages": len(session.conversation),
        "tokens": sum(sizes),
        "kwargs": dict(getattr(session, "additional_kwargs", None) or {}),
        "count": len(turns),
        "most": max([sum(sizes[start:stop]) for start, stop in turns], default=0),
        "turns": turns_view(session, max(0, len(turns) - _LAST), runs=runs),
    }


def turns_view(session: Session, first: int, *, runs: Sequence[RunSummary] = ()) -> list[Json]:
    """Return the turns of a session from one on, at most 50 of them, each with its `run` where there is one."""
    conversation = session.conversation
    sizes = conversation.derive(_COUNT)
    shown = session_turns(conversation)[first : first + _MAX_TURNS]
    begun = _begun(session, runs, shown[0].start) if shown else {}
    found = []
    for number, (start, stop) in enumerate(shown, first):
        messages = conversation[start:stop]
        answer = next((one.text for one in reversed(messages) if one.role == "assistant" and one.text), "")
        tools = [call.name for one in messages for call in one.tool_calls]
        turn: Json = {
            "turn": number,
            "input": _excerpt(messages[0].text if messages[0].role == "user" else ""),
            "answer": _excerpt(answer),
            "tools": tools[:12],
            "tokens": sum(sizes[start:stop]),
        }
        if (run := begun.get(start)) is not None:
            turn["run"] = run
        found.append(turn)
    return found


def _begun(session: Session, runs: Sequence[RunSummary], start: int) -> dict[int, str]:
    """Return the ids of runs by how many messages they began behind, of those from `start` on."""
    found: dict[int, str] = {}
    for run in runs:
        at = session.position(f"{run.id}:0")
        if at is not None and at < start and run.started_at is not None:
            break  # those that follow began earlier
        if at is not None:
            found.setdefault(at, run.id)
    return found


def _excerpt(text: str) -> str:
    short = " ".join(text[: 4 * _MAX_EXCERPT].split())
    return short if len(short) <= _MAX_EXCERPT and len(text) <= 4 * _MAX_EXCERPT else f"{short[: _MAX_EXCERPT - 1]}…"
