"""Errors of evaluations of agents."""

from __future__ import annotations

from collections.abc import Sequence

from agentkit.errors import AgentError
from agentkit.models.model import NO_USAGE, Usage
from agentkit_prompts.errors import brief

_LISTED = 20
"""Maximum number of problems in the text of an error."""


class EvaluationError(AgentError, ValueError):
    """An argument or the file of an evaluation is invalid. Nothing was sent."""


class EvaluationWarning(UserWarning):
    """A score of an evaluation probably has no meaning: it names an unknown tool, or the offline model answers."""


class RowsError(EvaluationError):
    """Rows are invalid. Nothing was sent.

    Attributes:
        problems: Place, such as `row 3.additional_kwargs.city`, and text of each problem.
    """

    def __init__(self, problems: Sequence[tuple[str, str]], path: str | None = None) -> None:
        text = listed([f"{place}: {problem}" for place, problem in problems])
        super().__init__(f"invalid rows: {text}", path=path, name=problems[0][0], problems=problems)


class JudgeError(EvaluationError):
    """A judge answered without a valid verdict, also after a repair. The other rows were judged.

    Attributes:
        usage: Usage of the calls of the judge.
    """

    def __init__(self, judge: str, error: Exception) -> None:
        super().__init__(f"the judge {judge!r:.60} returned no valid verdict: {error}", name=judge)
        self.usage = usage_of(error)


class SimulatedUserError(EvaluationError):
    """A simulated user raised an exception, or returned no text. The run of its row failed.

    Attributes:
        turn: Number of the turn whose input is missing, from 2.
    """

    def __init__(self, turn: int, problem: str) -> None:
        super().__init__(f"the simulated user returned no input for turn {turn}: {problem}", name="simulated_user")
        self.turn = turn


def usage_of(error: Exception) -> Usage:
    """Return the usage of a failed run, which its error contains."""
    usage = getattr(error, "usage", None)
    return usage if isinstance(usage, Usage) else NO_USAGE


def check_counts(**counts: object) -> None:
    """Refuse a value that is no whole number of 1 or more; `counts`: the values by the names of the arguments."""
    for name, value in counts.items():
        if type(value) is not int or value < 1:
            raise EvaluationError(f"{name}: expected a whole number of 1 or more, got {brief(value, 40)}", name=name)


def listed(texts: Sequence[str]) -> str:
    """Return problems as text."""
    entries = list(texts[:_LISTED])
    if len(texts) > _LISTED:
        entries.append(f"and {len(texts) - _LISTED:,} more")
    return "; ".join(entries)
