"""A session as plain JSON: a line per turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentkit.inspector.past_contexts import Turn, session_turns
from agentkit.inspector.source import RunSummary
from agentkit.session import Session
from agentkit_prompts.tokens.counter import ESTIMATE, message_tokens

__all__ = ["run_of_turn", "session_view", "turns_view"]

_MAX_TURNS = 50
"""Turns of one view; whoever scrolls asks for more."""
_LAST = 40
"""Those that a session is shown with at first."""
_MAX_EXCERPT = 120
_COUNT = message_tokens(ESTIMATE)

Json = dict[str, Any]


def session_view(session: Session, *, runs: Sequence[RunSummary] = (), turn: int | None = None) -> Json:
    """Return a session with the turns around one, or its last ones, oldest first; `turns_view` gives the others.

    `count` is how many turns it has, and `most` the tokens of the largest one.

    Args:
        session: The conversation.
        runs: Runs on it, newest first.
        turn: A turn that is looked at, from 0; the last one when not given.
    """
    sizes = session.conversation.derive(_COUNT)
    turns = session_turns(session.conversation)
    last = max(0, len(turns) - _LAST)
    first = last if turn is None else max(0, min(last, turn - _MAX_TURNS // 2))
    return {
        "session": session.id,
        "messages": len(session.conversation),
        "tokens": sum(sizes),
        "kwargs": dict(getattr(session, "additional_kwargs", None) or {}),
        "count": len(turns),
        "most": max([sum(sizes[start:stop]) for start, stop in turns], default=0),
        "turns": turns_view(session, first, runs=runs),
    }


def turns_view(session: Session, first: int, *, runs: Sequence[RunSummary] = ()) -> list[Json]:
    """Return the turns of a session from one on, at most 50 of them, each with its `run` where there is one."""
    conversation = session.conversation
    sizes = conversation.derive(_COUNT)
    shown = session_turns(conversation)[first : first + _MAX_TURNS]
    begun = _begun(session, runs, shown[0], shown[-1]) if shown else {}
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


def run_of_turn(session: Session, turn: Turn, runs: Sequence[RunSummary]) -> str | None:
    """Return the id of the run that a turn is of; `runs` are those on the session, newest first."""
    return _begun(session, runs, turn, turn).get(turn.start)


def _begun(session: Session, runs: Sequence[RunSummary], first: Turn, last: Turn) -> dict[int, str]:
    """Return the ids of runs by how many messages they began behind, of those from the first turn to the last one."""
    found: dict[int, str] = {}
    is_ordered = all(run.started_at is not None for run in runs)
    newest = _first_before(session, runs, last.stop) if is_ordered else 0
    for run in runs[newest:]:
        at = session.position(f"{run.id}:0")
        if at is not None and at < first.start and is_ordered:
            break  # those that follow began earlier
        if at is not None:
            found.setdefault(at, run.id)
    return found


def _first_before(session: Session, runs: Sequence[RunSummary], stop: int) -> int:
    """Return where the runs begin, newest first, that began before message `stop`: few of them are asked for."""
    low, high = 0, len(runs)
    while low < high:
        middle = probe = (low + high) // 2
        at = None
        while probe < high and (at := session.position(f"{runs[probe].id}:0")) is None:  # its messages are not there
            probe += 1
        if at is not None and at >= stop:
            low = probe + 1
        else:
            high = middle
    return low


def _excerpt(text: str) -> str:
    short = " ".join(text[: 4 * _MAX_EXCERPT].split())
    return short if len(short) <= _MAX_EXCERPT and len(text) <= 4 * _MAX_EXCERPT else f"{short[: _MAX_EXCERPT - 1]}…"
