"""`choose_examples`: worked examples from runs with good scores, and the split of rows that keeps them apart."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence

from agentkit.evals.eval_row import EvalRow
from agentkit.evals.evaluation_report import EvaluationReport
from agentkit.evals.outcome import Outcome
from agentkit.improve.improve_errors import ImproveError
from agentkit_prompts.context.prompt_context import Example
from agentkit_prompts.names import nearest


def split_rows(rows: Sequence[EvalRow], share: float = 0.3) -> tuple[list[EvalRow], list[EvalRow]]:
    """Split rows into train rows and held-out rows, always in the same way; equal inputs are in one of both.

    Args:
        rows: The rows.
        share: Share of the held-out rows, from 0 to 1.

    Raises:
        ImproveError: The share is invalid, or one part would be empty.
    """
    if not isinstance(share, int | float) or not 0 < share < 1:
        raise ImproveError(f"held_out: expected rows, or a share between 0 and 1, got {share!r:.40}", name="held_out")
    inputs = sorted({input_key(row) for row in rows}, key=lambda text: hashlib.blake2b(text.encode()).digest())
    count = max(1, round(share * len(inputs)))
    if len(inputs) < 2 or count >= len(inputs):
        raise ImproveError(
            f"rows: {len(inputs)} different inputs cannot be split into train rows and held-out rows: add rows",
            name="rows",
            value=len(inputs),
        )
    held_out = set(inputs[:count])
    train = [row for row in rows if input_key(row) not in held_out]
    return train, [row for row in rows if input_key(row) in held_out]


def input_key(row: EvalRow) -> str:
    """Return all that a run of a row receives, as text."""
    parts = (row.input, row.additional_kwargs, [repr(message) for message in row.history])
    return json.dumps(parts, sort_keys=True, default=repr)


def choose_examples(
    report: EvaluationReport, *, count: int = 4, score: str | None = None, minimum: float = 1.0
) -> list[Example]:
    """Return worked examples: inputs and answers of the best runs, of different tags first.

    Pass a report of train rows only, see `split_rows`: held-out rows that the prompt shows would measure nothing.

    Args:
        report: Outcomes of train rows.
        count: Maximum number of examples.
        score: Name of the score that counts; None for the mean of all scores.
        minimum: Minimum score of a run.

    Raises:
        ImproveError: The score is unknown, or no run has the minimum.
    """
    if score is not None and score not in report.score_names:
        raise ImproveError(
            f"unknown score {score!r:.80}{nearest(score, report.score_names)}", name="score", value=score
        )
    best: dict[str, Outcome] = {}
    for outcome in report.outcomes:
        value = mean_score(outcome, score)
        text = outcome.row.input
        if isinstance(text, str) and value >= minimum and _is_example(outcome):
            best[text] = max(best.get(text, outcome), outcome, key=lambda each: mean_score(each, score))
    if not best:
        raise ImproveError(f"no run has a score of at least {minimum:g}: lower minimum=", name="minimum", value=minimum)
    # Good runs first, and of equal runs the shorter.
    waiting = sorted(
        best.items(), key=lambda entry: (-mean_score(entry[1], score), len(entry[0] + answer_of(entry[1])))
    )
    chosen: list[Example] = []
    seen: set[tuple[str, ...]] = set()
    # A second round takes further rows of tags that have an example already.
    for is_repeat in (False, True):
        for text, outcome in waiting:
            example = Example(text, answer_of(outcome))
            if len(chosen) < count and example not in chosen and (is_repeat or outcome.row.tags not in seen):
                seen.add(outcome.row.tags)
                chosen.append(example)
    return chosen


def _is_example(outcome: Outcome) -> bool:
    """True if a run has an answer and no history: an example is two texts."""
    return not outcome.row.history and not outcome.error and bool(answer_of(outcome).strip())


def answer_of(outcome: Outcome) -> str:
    """Return the answer of a run as text; a structured answer as JSON."""
    if isinstance(outcome.output, str):
        return outcome.output
    return json.dumps(outcome.output, ensure_ascii=False)


def mean_score(outcome: Outcome, score: str | None = None) -> float:
    """Return a score of an outcome, or the mean of its scores; 0 without a value."""
    if score is not None:
        return outcome.scores[score].value if score in outcome.scores else 0.0
    values = [each.value for each in outcome.scores.values()]
    return math.fsum(values) / len(values) if values else 0.0
