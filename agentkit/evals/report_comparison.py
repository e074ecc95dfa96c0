"""Comparison of two evaluations of the same rows: paired differences of scores, and the rows that changed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from agentkit.evals.evaluation_errors import EvaluationError
from agentkit.evals.outcome import Outcome
from agentkit.evals.score_statistics import Interval, mean_interval

Outcomes: TypeAlias = Sequence[Outcome]
_BEFORE = re.compile(r"before\s*(?:([+-])\s*([0-9]*\.?[0-9]+))?")
"""Threshold relative to an earlier evaluation."""


@dataclass(frozen=True, slots=True)
class ScoreDifference:
    """Difference of a score between two evaluations of the same rows."""

    name: str
    rows: int
    """Number of rows that both evaluations have."""
    before: float
    after: float
    interval: Interval
    """Mean difference over the rows, and its interval of 95 %."""
    better: tuple[str, ...]
    """Ids of the rows with a higher score."""
    worse: tuple[str, ...]
    """Ids of the rows with a lower score."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row with another score than before."""

    row: str
    """Id of the row."""
    score: str
    """Name of the score."""
    before: float
    after: float
    reason: str
    """Reason of the lower score, after `before: ` if the row is better now."""


def _row_ids(after: Outcomes, before: Outcomes) -> list[str]:
    """Return the ids of the rows that both evaluations have, in the order of `after`.

    A row with the same id and another input or expected answer is another row.
    """
    contents = {outcome.row.id: _content(outcome) for outcome in before}
    ids = dict.fromkeys(
        [each.row.id for each in after if each.row.id in contents and _content(each) == contents[each.row.id]]
    )
    return list(ids)


def _content(outcome: Outcome) -> tuple[str, str]:
    row = outcome.row
    return row.text, json.dumps(row.expected, sort_keys=True, default=str)


def differences(after: Outcomes, before: Outcomes) -> list[ScoreDifference]:
    """Return the difference of each score of both evaluations; see `EvaluationReport.compare`."""
    earlier_names = {name for outcome in before for name in outcome.scores}
    scores = dict.fromkeys(name for outcome in after for name in outcome.scores if name in earlier_names)
    ids = _row_ids(after, before)
    if not scores or not ids:
        missing = "score" if not scores else "row"
        raise EvaluationError(f"compare: the evaluations have no {missing} in common", name="before")
    return [_difference(name, _values(after, name, ids), _values(before, name, ids)) for name in scores]


def _values(outcomes: Outcomes, name: str, ids: Sequence[str]) -> dict[str, float]:
    """Return the mean value of a score by the ids of rows."""
    values: dict[str, list[float]] = {row: [] for row in ids}
    for outcome in outcomes:
        if outcome.row.id in values and name in outcome.scores:
            values[outcome.row.id].append(outcome.scores[name].value)
    return {row: math.fsum(each) / len(each) for row, each in values.items() if each}


def _difference(name: str, new: Mapping[str, float], old: Mapping[str, float]) -> ScoreDifference:
    changes = {row: value - old[row] for row, value in new.items() if row in old}
    count = len(changes)
    before = after = math.nan
    if count:
        before = math.fsum(old[row] for row in changes) / count
        after = math.fsum(new[row] for row in changes) / count
    better = tuple([row for row, change in changes.items() if change > 0])
    worse = tuple([row for row, change in changes.items() if change < 0])
    return ScoreDifference(name, count, before, after, mean_interval(list(changes.values())), better, worse)


def changed_rows(after: Outcomes, before: Outcomes) -> list[RowChange]:
    """Return the rows with another score than before, the largest loss first.

    Raises:
        EvaluationError: The evaluations have no score or no row in common.
    """
    changes: list[RowChange] = []
    ids = _row_ids(after, before)
    for difference in differences(after, before):
        name = difference.name
        old, new = _values(before, name, ids), _values(after, name, ids)
        old_reasons, new_reasons = _reasons(before, name), _reasons(after, name)
        for row in (*difference.worse, *difference.better):
            reason = new_reasons.get(row, "")
            if new[row] > old[row] and old_reasons.get(row):
                reason = f"before: {old_reasons[row]}"
            changes.append(RowChange(row, name, old[row], new[row], reason))
    return sorted(changes, key=lambda change: change.after - change.before)


def _reasons(outcomes: Outcomes, name: str) -> dict[str, str]:
    """Return the reason of the lowest value of a score by the ids of the rows."""
    lowest: dict[str, tuple[float, str]] = {}
    for outcome in outcomes:
        if name in outcome.scores:
            score = outcome.scores[name]
            entry = score.value, outcome.error or score.reason
            lowest[outcome.row.id] = min(lowest.get(outcome.row.id, entry), entry)
    return {row: reason for row, (_, reason) in lowest.items()}


def difference_rows(compared: Sequence[ScoreDifference]) -> list[tuple[str, ...]]:
    """Return a table of differences, with a header."""
    table: list[tuple[str, ...]] = [("score", "rows", "before", "after", "difference", "95 %", "better", "worse")]
    for each in compared:
        interval = each.interval
        means = f"{each.before:.3f}", f"{each.after:.3f}", f"{interval.mean:+.3f}"
        counts = str(len(each.better)), str(len(each.worse))
        table.append((each.name, str(each.rows), *means, f"{interval.low:+.3f} to {interval.high:+.3f}", *counts))
    return table


def minimum_of(threshold: float | str, before: float | None) -> float:
    """Return the minimum mean of a threshold.

    Args:
        threshold: The minimum mean; or `before`, `before-0.02` or `before+0.1`: the mean of the earlier evaluation.
        before: Mean of the earlier evaluation; None without an earlier evaluation.

    Raises:
        EvaluationError: The threshold is invalid, or needs an earlier evaluation.
    """
    if not isinstance(threshold, str):
        return threshold
    match = _BEFORE.fullmatch(threshold.strip())
    if match is None:
        problem = f"expected a number, before, or before-0.02, got {threshold!r:.40}"
        raise EvaluationError(f"thresholds: {problem}", name="thresholds", value=threshold[:40])
    if before is None:
        raise EvaluationError(f"thresholds: {threshold!r:.40} needs an earlier evaluation: pass before=", name="before")
    sign, change = match.groups()
    if sign is None:
        return before
    return before + float(f"{sign}{change}")
