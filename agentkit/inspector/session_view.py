"""A session as JSON: a row for each turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from agentkit.inspector.past_contexts import turn_bounds
from agentkit.run.parts.session import SessionProtocol
from agentkit_prompts.errors import shortened
from agentkit_prompts.tokens.counter import ESTIMATE, message_tokens

MAX_TURNS = 50
"""Maximum turns of one answer; the page requests more when it scrolls."""
_LAST = 40
"""Number of turns in the first answer: the last turns."""
_MAX_EXCERPT = 120
"""Maximum characters of an input or an answer."""
_COUNT = message_tokens(ESTIMATE)
_FIRST_KEY = ":0"
"""End of the key `RUN_ID:0`, under which a run appends its first message."""

Json = dict[str, Any]


def first_turn(count: int, turn: int | None = None) -> int:
    """Return the number of the first turn to show, of `count` turns: the turns around `turn`, or the last turns."""
    last = max(0, count - _LAST)
    if turn is None:
        return last
    return max(0, min(last, turn - MAX_TURNS // 2))


def session_view(session: SessionProtocol, *, runs: Mapping[int, str] | None = None, turn: int | None = None) -> Json:
    """Return a session with the turns around `turn`, or its last turns, oldest first; see `turns_view` for other turns.

    `count` is the number of turns, and `most` the tokens of the largest turn.

    Args:
        session: The conversation.
        runs: Ids of runs by the index of the first message of the turn, see `run_ids_of_turns`.
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
    """Return at most `MAX_TURNS` turns of a session from number `first`; a turn of a stored run has its id as `run`."""
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


def run_ids_of_turns(session: SessionProtocol, bounds: Sequence[int]) -> dict[int, str]:
    """Return the ids of the runs of turns, by the index of the first message of the turn.

    The ids come from the keys of the messages, so that they can be ids of deleted runs.

    Args:
        session: The conversation.
        bounds: Bounds of the turns, see `turn_bounds`.
    """
    if len(bounds) < 2:
        return {}
    # A custom session can lack the method, which `SessionProtocol` does not require.
    keys_of = getattr(session, "keys", None)
    if keys_of is None:
        return {}
    keys: Mapping[int, str] = keys_of(bounds[0], bounds[-1])
    return {at: key.removesuffix(_FIRST_KEY) for at, key in keys.items() if key.endswith(_FIRST_KEY)}


def _excerpt(text: str) -> str:
    # Only the start is split: a message can have megabytes.
    return shortened(" ".join(text[: 4 * _MAX_EXCERPT].split()), _MAX_EXCERPT)
