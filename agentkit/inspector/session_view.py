"""A session as JSON: a row for each turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from agentkit.inspector.past_contexts import turn_bounds
from agentkit.run.parts.session import SessionProtocol
from agentkit_prompts.tokens.counter import ESTIMATE, message_tokens

__all__ = ["MAX_TURNS", "first_turn", "runs_begun", "session_view", "turns_view"]

MAX_TURNS = 50
"""Maximum turns of one answer; the page requests more when it scrolls."""
_LAST = 40
"""Turns of the first answer."""
_MAX_EXCERPT = 120
_COUNT = message_tokens(ESTIMATE)
_BEGUN = ":0"
"""Suffix of the key of the first message that a run appends, after the id of the run."""

Json = dict[str, Any]


def first_turn(count: int, turn: int | None = None) -> int:
    """Return the number of the first turn of an answer: of the turns around `turn`, or of the last turns."""
    last = max(0, count - _LAST)
    if turn is None:
        return last
    return max(0, min(last, turn - MAX_TURNS // 2))


def session_view(session: SessionProtocol, *, runs: Mapping[int, str] | None = None, turn: int | None = None) -> Json:
    """Return a session with the turns around `turn`, or its last turns, oldest first; see `turns_view` for other turns.

    `count` is the number of turns, and `most` the tokens of the largest turn.

    Args:
        session: The conversation.
        runs: Ids of runs by the index of the first message of the turn, see `runs_begun`.
        turn: Number of a turn, from 0; None for the last turn.
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
    """Return turns of a session from number `first`, at most `MAX_TURNS`, each with its `run` if the run is stored."""
    conversation = session.conversation
    sizes = conversation.derive(_COUNT)
    bounds = turn_bounds(conversation)[first : first + MAX_TURNS + 1]
    rows = []
    for number, (start, stop) in enumerate(pairwise(bounds), first):
        messages = conversation[start:stop]
        answers = [message.text for message in messages if message.role == "assistant" and message.text]
        tools = [call.name for message in messages for call in message.tool_calls]
        text = answer = ""
        if answers:
            answer = _excerpt(answers[-1])
        if messages[0].role == "user":
            text = messages[0].text
        turn: Json = {
            "turn": number,
            "input": _excerpt(text),
            "answer": answer,
            "tools": tools[:12],
            "tokens": sum(sizes[start:stop]),
        }
        if runs is not None and start in runs:
            turn["run"] = runs[start]
        rows.append(turn)
    return rows


def runs_begun(session: SessionProtocol, bounds: Sequence[int]) -> dict[int, str]:
    """Return the ids of the runs of turns, by the index of the first message of the turn.

    The ids come from the keys of the messages: the runs may have been deleted.

    Args:
        session: The conversation.
        bounds: Bounds of the turns, see `turn_bounds`.
    """
    if len(bounds) < 2:
        return {}
    # The protocol of sessions has no `keys`: a custom session may not have the method.
    keys_of = getattr(session, "keys", None)
    if keys_of is None:
        return {}
    keys: Mapping[int, str] = keys_of(bounds[0], bounds[-1])
    return {at: key.removesuffix(_BEGUN) for at, key in keys.items() if key.endswith(_BEGUN)}


def _excerpt(text: str) -> str:
    # Only the start is split: a message can have megabytes.
    short = " ".join(text[: 4 * _MAX_EXCERPT].split())
    if len(short) <= _MAX_EXCERPT and len(text) <= 4 * _MAX_EXCERPT:
        return short
    return f"{short[: _MAX_EXCERPT - 1]}…"
