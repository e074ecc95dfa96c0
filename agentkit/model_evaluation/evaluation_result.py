"""What an evaluation found: the answers and scores of its rows, and which of them could not be asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agentkit.errors import AgentError
from agentkit.models.model import NO_USAGE, Usage
from agentkit.models.model_errors import ModelReplyCut

__all__ = ["Evaluation", "EvaluationFailed", "EvaluationProgress", "RowResult"]

_MAX_NAMED = 5


class EvaluationProgress(NamedTuple):
    """How far an evaluation is."""

    done: int
    """Rows that are through, failed ones included."""
    total: int
    failed: int


@dataclass(slots=True)
class RowResult:
    """What came of one row."""

    row: int
    """Position of the row."""
    answers: tuple[str, ...]
    """What the model answered, one for each request; of labels that are scored, the likeliest."""
    gold: Any = None
    """The true answer."""
    score: float | None = None
    """How right the answers are; None where nothing scores them, or no true answer is known."""
    labels: Mapping[Any, float] = field(default_factory=dict)
    """Log probability of each label that was scored, per token; in mode `ll` of the whole continuation."""

    @property
    def answer(self) -> str:
        """The last answer."""
        if self.answers:
            return self.answers[-1]
        return ""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The rows that were answered, in order."""

    rows: Sequence[RowResult]
    usage: Usage = NO_USAGE
    """Tokens of the requests of this run; those that a file held already count nothing."""
    reused: int = 0
    """Rows of which the file held an answer already."""

    @property
    def score(self) -> float | None:
        """The mean of the scores there are; None without any."""
        found = [row.score for row in self.rows if row.score is not None]
        if found:
            return sum(found) / len(found)
        return None

    def __repr__(self) -> str:
        shown = "no score"
        if self.score is not None:
            shown = f"score={self.score:.4f}"
        return f"Evaluation({len(self.rows)} rows, {shown})"


class EvaluationFailed(AgentError):
    """Rows could not be asked. With the same `out` the evaluation goes on, and asks only what has no answer.

    Attributes:
        evaluation: The rows that were answered.
        failures: Position of a row -> what went wrong.
    """

    def __init__(self, evaluation: Evaluation, failures: Mapping[int, Exception], *, kept: bool = True) -> None:
        rows: dict[str, list[int]] = {}
        for row, error in failures.items():
            rows.setdefault(f"{type(error).__name__}: {error}", []).append(row)
        first = [f"{_joined_list(numbers)}: {text}" for text, numbers in [*rows.items()][:_MAX_NAMED]]
        more = ""
        if len(rows) > _MAX_NAMED:
            more = f"; and {len(rows) - _MAX_NAMED} other errors"
        total = len(failures) + len(evaluation.rows)
        advice = []
        cut = sum(isinstance(error, ModelReplyCut) for error in failures.values())
        if cut < len(failures):
            again = "Run it again with the same out= to ask them again"
            advice.append(again if kept else "With out= the next run would go on")
        if cut:
            other = ""
            if kept:
                other = " and another out=: this one holds answers within the old limit"
            advice.append(f"Cut replies need a larger max_out_len in the configuration{other}")
        super().__init__(
            f"{len(failures)} of {total} rows could not be asked: {'; '.join(first)}{more}. {'. '.join(advice)}"
        )
        self.evaluation = evaluation
        self.failures = dict(failures)


def _joined_list(rows: list[int]) -> str:
    """Return which rows, such as `row 3` or `rows 3, 4, 5 and 20 more`."""
    if len(rows) == 1:
        return f"row {rows[0]}"
    more = ""
    if len(rows) > _MAX_NAMED:
        more = f" and {len(rows) - _MAX_NAMED} more"
    return f"rows {', '.join(map(str, rows[:_MAX_NAMED]))}{more}"
