"""Results of an evaluation: answers, scores and failures of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agentkit.errors import AgentError
from agentkit.models.model import NO_USAGE, Usage
from agentkit.models.model_errors import ModelReplyCut

_MAX_LISTED = 5
"""Maximum number of errors, and of rows per error, that a message lists."""


class EvaluationProgress(NamedTuple):
    """Progress of an evaluation."""

    done: int
    """Number of finished rows, including failed rows."""
    total: int
    failed: int


@dataclass(slots=True)
class RowResult:
    """Result of one row."""

    row: int
    """Position of the row."""
    answers: tuple[str, ...]
    """Answers of the model, one per request; if labels are scored, the likeliest label."""
    gold: Any = None
    """The true answer."""
    score: float | None = None
    """Score of the answers; None without a score function or a true answer."""
    labels: Mapping[Any, float] = field(default_factory=dict)
    """Log probability of each scored label: per token, or in mode `ll` of the whole continuation."""

    @property
    def answer(self) -> str:
        """The last answer."""
        if self.answers:
            return self.answers[-1]
        return ""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The answered rows, in order."""

    rows: Sequence[RowResult]
    usage: Usage = NO_USAGE
    """Tokens of the requests of this run, without answers from the file."""
    reused: int = 0
    """Number of rows with an answer from the file."""

    @property
    def score(self) -> float | None:
        """Mean of the scores; None without scores."""
        scores = [row.score for row in self.rows if row.score is not None]
        if scores:
            return sum(scores) / len(scores)
        return None

    def __repr__(self) -> str:
        score = "no score"
        if self.score is not None:
            score = f"score={self.score:.4f}"
        return f"Evaluation({len(self.rows)} rows, {score})"


class EvaluationFailed(AgentError):
    """Requests of rows failed. With the same `out` the next run sends only the requests of unanswered rows.

    Attributes:
        evaluation: The answered rows.
        failures: Errors by the position of the row.
    """

    def __init__(self, evaluation: Evaluation, failures: Mapping[int, Exception], *, is_stored: bool = True) -> None:
        total = len(failures) + len(evaluation.rows)
        super().__init__(
            f"{len(failures)} of {total} rows failed: {_listed_errors(failures)}. "
            f"{_advice([*failures.values()], is_stored=is_stored)}"
        )
        self.evaluation = evaluation
        self.failures = dict(failures)


def _listed_errors(failures: Mapping[int, Exception]) -> str:
    """Return the errors as text; equal errors are listed once, with all their rows."""
    rows: dict[str, list[int]] = {}
    for row, error in failures.items():
        rows.setdefault(f"{type(error).__name__}: {error}", []).append(row)
    errors = [f"{_listed_rows(numbers)}: {text}" for text, numbers in [*rows.items()][:_MAX_LISTED]]
    if len(rows) > _MAX_LISTED:
        errors.append(f"and {len(rows) - _MAX_LISTED} other errors")
    return "; ".join(errors)


def _advice(errors: Sequence[Exception], *, is_stored: bool) -> str:
    sentences: list[str] = []
    cut = sum(isinstance(error, ModelReplyCut) for error in errors)
    if cut < len(errors) and is_stored:
        sentences.append("Run the evaluation again with the same out= to retry the failed rows")
    elif cut < len(errors):
        sentences.append("With out= the next run would retry only the failed rows")
    if cut and is_stored:
        sentences.append(
            "Cut replies need a larger max_out_len in the configuration and another out=: this file contains answers "
            "within the old limit"
        )
    elif cut:
        sentences.append("Cut replies need a larger max_out_len in the configuration")
    return ". ".join(sentences)


def _listed_rows(rows: list[int]) -> str:
    """Return the numbers of rows, such as `row 3` or `rows 3, 4, 5 and 20 more`."""
    if len(rows) == 1:
        return f"row {rows[0]}"
    more = ""
    if len(rows) > _MAX_LISTED:
        more = f" and {len(rows) - _MAX_LISTED} more"
    return f"rows {', '.join(map(str, rows[:_MAX_LISTED]))}{more}"
