"""`Outcome`: one run of a row of an evaluation, with its scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentkit.evals.eval_row import EvalRow
from agentkit.evals.run_scores import Score
from agentkit.models.model import NO_USAGE, Usage


@dataclass(slots=True)
class Outcome:
    """One run of a row. Immutable by convention: a frozen class takes longer to create."""

    row: EvalRow
    repeat: int
    """Number of the run of this row, from 0."""
    run_id: str
    output: Any
    """The answer, as JSON data; None if the run failed."""
    error: str
    """Class and message of the error that ended the run; empty if it finished."""
    scores: Mapping[str, Score]
    """Scores by name. Each score of a failed run is 0."""
    usage: Usage
    steps: int
    """Number of model calls."""
    seconds: float
    overhead: Usage = NO_USAGE
    """Usage of the judges and the simulated user, which is no part of `usage`."""
