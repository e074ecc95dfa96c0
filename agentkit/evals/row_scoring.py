"""`RowScoring`: the scores of one run so far."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from agentkit.evals.eval_row import EvalRow
from agentkit.evals.evaluation_errors import EvaluationError
from agentkit.evals.run_scores import Score
from agentkit.models.model import NO_USAGE, Usage


@dataclass(slots=True)
class RowScoring:
    """The scores of one run so far."""

    row: EvalRow
    values: dict[str, Score]
    usage: Usage
    """Usage of the scores, also of scores that failed."""

    def add(self, name: str, value: Any) -> None:
        """Add the value of a score.

        Raises:
            EvaluationError: The value is not a finite number.
        """
        score = value
        if not isinstance(score, Score):
            score = Score(value)
        if score.usage is not NO_USAGE:
            self.usage += score.usage
        if not isinstance(score.value, int | float) or not math.isfinite(score.value):
            raise EvaluationError(f"expected a number, got {score.value!r:.60}", name=name)
        if type(score.value) is not float or type(score.reason) is not str:
            score = Score(float(score.value), str(score.reason), score.usage)
        self.values[name] = score
