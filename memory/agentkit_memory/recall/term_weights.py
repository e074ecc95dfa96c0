"""Weights of terms in a scope: estimated from scores of the index; for terms outside of its hits, from their rarity."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

MAX_SAMPLE = 24
"""Maximum number of hits for the estimate of the weights of terms."""
_MAX_SWEEPS = 16
"""Maximum number of passes over all weights."""
_MIN_STEP = 1e-2
"""Convergence threshold, relative to the average weight: the sweeps end when no weight changes by more."""


def term_weights(scores: Sequence[float], term_values: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Estimate the weight of each term from the scores of texts: score = sum of (term value times weight).

    An index returns the score of a text, not its parts. The rarity of a term in the scope is unknown, but each score is
    a linear equation of the weights, solved by coordinate descent. Terms that always occur together share their weight.
    """
    columns: dict[int, list[tuple[int, float]]] = {}
    for row, terms in enumerate(term_values):
        for term, value in terms.items():
            columns.setdefault(term, []).append((row, value))
    # The order is fixed, so that the result depends only on the texts.
    ordered = sorted(columns.items(), key=lambda each: (-len(each[1]), each[0]))
    totals = [sum(terms.values()) for terms in term_values]
    initial_weight = 0.0
    if any(totals):
        initial_weight = sum(scores) / sum(totals)
    weights = dict.fromkeys(columns, initial_weight)
    residuals = [score - initial_weight * total for score, total in zip(scores, totals, strict=True)]
    squares = {term: sum([value * value for _, value in column]) for term, column in ordered}
    for _ in range(_MAX_SWEEPS):
        if _sweep(ordered, squares, weights, residuals) <= _MIN_STEP * initial_weight:
            break
    return weights


def _sweep(
    columns: Sequence[tuple[int, Sequence[tuple[int, float]]]],
    squares: Mapping[int, float],
    weights: dict[int, float],
    residuals: list[float],
) -> float:
    """Improve each weight once, update the residuals, and return the largest change of a weight."""
    largest = 0.0
    for term, column in columns:
        step = sum([value * residuals[row] for row, value in column]) / squares[term]
        # No term lowers a score: a weight is never below 0.
        if step < -weights[term]:
            step = -weights[term]
        if not step:
            continue
        weights[term] += step
        if abs(step) > largest:
            largest = abs(step)
        for row, value in column:
            residuals[row] -= step * value
    return largest


def weights_outside_of_index(
    scores: Sequence[float], indexed: Sequence[Mapping[int, float]], texts_terms: Sequence[Mapping[int, float]]
) -> dict[int, float]:
    """Return the weights of the terms of texts outside of the index.

    A weight is estimated from the index. If its hits do not contain the term, the weight is the rarity of the term in
    the texts, or the highest estimated weight if that is larger.

    Args:
        scores: Scores of hits of the index.
        indexed: Terms of each hit.
        texts_terms: Terms of each text.
    """
    if not any(texts_terms):
        return {}
    counts = Counter(chain.from_iterable(texts_terms))
    weights = {
        term: math.log1p((len(texts_terms) - text_count + 0.5) / (text_count + 0.5))
        for term, text_count in counts.items()
    }
    if scores:
        estimated = term_weights(scores, indexed)
        highest = max(estimated.values(), default=0.0)
        weights = {term: estimated.get(term, max(weight, highest)) for term, weight in weights.items()}
    return weights
