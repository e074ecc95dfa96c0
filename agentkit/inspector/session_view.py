"""A session as plain JSON: a line per turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from agentkit.inspector.past_contexts import turn_bounds
from agentkit.run.parts.session import SessionProtocol
from agentkit_prompts.tokens.counter import ESTIMATE, message_tokens

__all__ = ["MAX_TURNS", "first_turn", "runs_begun", "session_view", "turns_view"]

MAX_TURNS = 50
"""Turns of one view; whoever scrolls asks for more."""
_LAST = 40
"""Those that a session is shown with at first."""
_MAX_EXCERPT = 120
_COUNT = message_tokens(ESTIMATE)
_BEGUN = ":0"
"""Behind the id of a run, the key of the first message that it appends."""

Json = dict[str, Any]


def first_turn(count: int, turn: int | None = None) -> int:
    """Return the first of the turns that a session of so many is shown with: those around one, or the last ones."""
    last = max(0, count - _LAST)
    return last if turn is None else max(0, min(last, turn - MAX_TURNS // 2))


def session_view(session: SessionProtocol, *, runs: Mapping[int, str] | None = None, turn: int | None = None) -> Json:
    """Return a session with the turns around one, or its last ones, oldest first; `turns_view` gives the others.

    `count` is how many turns it has, and `most` the tokens of the largest one.

    Args:
        session: The conversation.
        runs: Ids of runs by the index of the first message of the turn, see `runs_begun`.
        turn: A turn that is looked at, from 0; the last one when not given.
    """
    sizes = session.conversation.derive(_COUNT)
    bounds = turn_bounds(session.conversation)
    return {
        "session": session.id,
        "messages": len(session.conversation),
        "tokens": sum(sizes),
        "kwargs": dict(getattr(session, "additional_kwargs", None) or {}),
        "count": len(bounds) - 1,
        "most": max([sum(sizes[start:stop]) for start, stop in pairwise(bounds)], default=0),
        "turns": turns_view(session, first_turn(len(bounds) - 1, turn), runs=runs),
    }


def turns_view(session: SessionProtocol, first: int, *, runs: Mapping[int, str] | None = None) -> list[Json]:
    """Return the turns of a session from one on, at most `MAX_TURNS`, each with its `run` where there is one."""
    conversation = session.conversation
    sizes = conversation.derive(_COUNT)
    bounds = turn_bounds(conversation)[first : first + MAX_TURNS + 1]
    found = []
    for number, (start, stop) in enumerate(pairwise(bounds), first):
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
        if (run := (runs or {}).get(start)) is not None:
            turn["run"] = run
        found.append(turn)
    return found


def runs_begun(session: SessionProtocol, bounds: Sequence[int]) -> dict[int, str]:
    """Return the ids of the runs that turns are of, by the index of the first message of the turn.

    They stand in the keys of the messages; whether these runs are still known is another question.

    Args:
        session: The conversation.
        bounds: Of these turns, see `turn_bounds`.
    """
    if len(bounds) < 2:
        return {}
    keys_of = getattr(session, "keys", None)  # a session of somebody's own may not know
    keys: Mapping[int, str] = {} if keys_of is None else keys_of(bounds[0], bounds[-1])
    return {at: key.removesuffix(_BEGUN) for at, key in keys.items() if key.endswith(_BEGUN)}


def _excerpt(text: str) -> str:
    short = " ".join(text[: 4 * _MAX_EXCERPT].split())
    return short if len(short) <= _MAX_EXCERPT and len(text) <= 4 * _MAX_EXCERPT else f"{short[: _MAX_EXCERPT - 1]}…"
