"""Statistics of scores: means with confidence intervals, repeats, and paired differences."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_RESAMPLES = 2_000
_MAX_DRAWS = 4_000_000
"""Maximum number of drawn values of one interval: many rows need fewer resamples for the same accuracy."""


class Interval(NamedTuple):
    """A mean and its confidence interval of 95 %."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def mean_interval(values: Sequence[float], seed: int = 0) -> Interval:
    """Return the mean of values, one per row, and its interval by the percentile bootstrap over rows.

    Args:
        values: The values; NaN and an empty list give NaN.
        seed: Seed of the resamples: the same values always have the same interval.
    """
    count = len(values)
    if not count:
        return Interval(math.nan, math.nan, math.nan)
    mean = math.fsum(values) / count
    if len(set(values)) == 1:
        return Interval(mean, mean, mean)
    resamples = max(200, min(_RESAMPLES, _MAX_DRAWS // count))
    draw = random.Random(seed)
    means = sorted([sum(draw.choices(values, k=count)) / count for _ in range(resamples)])
    return Interval(mean, _quantile(means, 0.025), _quantile(means, 0.975))


def kappa(cells: Mapping[tuple[int, int], int], *, is_weighted: bool = False) -> float:
    """Return Cohen's kappa of two raters; NaN if agreement by chance is complete, such as without rows.

    Args:
        cells: Number of rows by the levels that both raters chose, from 0.
        is_weighted: True for quadratic weights: a difference of `d` levels counts `d` squared.
    """
    rows = sum(cells.values())
    first: dict[int, int] = {}
    second: dict[int, int] = {}
    observed = 0
    for (a, b), count in cells.items():
        first[a] = first.get(a, 0) + count
        second[b] = second.get(b, 0) + count
        if is_weighted:
            observed += count * (a - b) ** 2
        elif a != b:
            observed += count
    # Disagreement of all pairs of rows, without a loop over the pairs of levels.
    if is_weighted:
        squares = sum([count * a * a for a, count in first.items()]) + sum(
            [count * b * b for b, count in second.items()]
        )
        sums = sum([count * a for a, count in first.items()]) * sum([count * b for b, count in second.items()])
        chance = rows * squares - 2 * sums
    else:
        chance = rows * rows - sum([count * second.get(a, 0) for a, count in first.items()])
    if not chance:
        return math.nan
    return 1 - observed * rows / chance


def kappa_interval(pairs: Sequence[tuple[int, int]], *, is_weighted: bool = False, seed: int = 0) -> Interval:
    """Return Cohen's kappa and its interval by the percentile bootstrap over rows; see `kappa`.

    Resamples whose kappa is undefined are left out.

    Args:
        pairs: The levels that both raters chose, from 0, one pair per row.
        is_weighted: See `kappa`.
        seed: Seed of the resamples.
    """
    count = len(pairs)
    value = kappa(Counter(pairs), is_weighted=is_weighted)
    if math.isnan(value):
        return Interval(value, value, value)
    draw = random.Random(seed)
    resamples = max(200, min(_RESAMPLES, _MAX_DRAWS // count))
    values = [kappa(Counter(draw.choices(pairs, k=count)), is_weighted=is_weighted) for _ in range(resamples)]
    ordered = sorted([each for each in values if not math.isnan(each)])
    return Interval(value, _quantile(ordered, 0.025), _quantile(ordered, 0.975))


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile by linear interpolation, as numpy does by default."""
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def pass_at(successes: int, repeats: int, tries: int) -> float:
    """Return the unbiased estimate of the probability that at least one of `tries` runs succeeds (pass@k).

    Args:
        successes: Number of runs of the row that succeeded.
        repeats: Number of runs of the row.
        tries: The k of pass@k, at most `repeats`.
    """
    return 1 - math.comb(repeats - successes, tries) / math.comb(repeats, tries)


def pass_all(successes: int, repeats: int, tries: int) -> float:
    """Return the unbiased estimate of the probability that all of `tries` runs succeed (pass^k); see `pass_at`."""
    return math.comb(successes, tries) / math.comb(repeats, tries)
