"""Weights of terms in a scope: estimated from the scores of the index or, where it has none, by how rare they are."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

__all__ = ["MAX_SAMPLE", "term_weights", "weights_outside_of_index"]

MAX_SAMPLE = 24
"""Hits from which the weights of terms are estimated."""
_MAX_SWEEPS = 16
_MIN_STEP = 1e-2
"""Of the average weight of a term: once no term moves by more, the sweeps end."""


def term_weights(scores: Sequence[float], held: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Estimate the weight of each term from the scores of texts: score = sum of (held times weight).

    An index returns the score of a text, not its parts: how rare a term is in the scope is not known here, but each
    score is an equation in it. Solved by coordinate descent; terms that always occur together share their weight.
    """
    columns: dict[int, list[tuple[int, float]]] = {}
    for row, terms in enumerate(held):
        for term, value in terms.items():
            columns.setdefault(term, []).append((row, value))
    # In one order, so that equal texts count equally.
    ordered = sorted(columns.items(), key=lambda each: (-len(each[1]), each[0]))
    totals = [sum(terms.values()) for terms in held]
    start = 0.0
    if any(totals):
        start = sum(scores) / sum(totals)
    weights = dict.fromkeys(columns, start)
    left = [score - start * own for score, own in zip(scores, totals, strict=True)]
    squares = {term: sum([value * value for _, value in column]) for term, column in ordered}
    for _ in range(_MAX_SWEEPS):
        furthest = 0.0
        for term, column in ordered:
            step = sum([value * left[row] for row, value in column]) / squares[term]
            # No term lowers a score: a weight never gets below 0.
            if step < -weights[term]:
                step = -weights[term]
            if not step:
                continue
            weights[term] += step
            if abs(step) > furthest:
                furthest = abs(step)
            for row, value in column:
                left[row] -= step * value
        if furthest <= _MIN_STEP * start:
            break
    return weights


def weights_outside_of_index(
    scores: Sequence[float], indexed: Sequence[Mapping[int, float]], held: Sequence[Mapping[int, float]]
) -> dict[int, float]:
    """Return the weights of the terms that texts hold which are not in the index.

    They are those of the index or, where it does not hold a term, by how rare that is among these texts.

    Args:
        scores: Of hits of the index.
        indexed: The terms that each hit holds.
        held: The terms that each of the texts holds.
    """
    if not any(held):
        return {}
    spread = Counter(chain.from_iterable(held))
    weights = {term: math.log1p((len(held) - texts + 0.5) / (texts + 0.5)) for term, texts in spread.items()}
    if scores:
        known = term_weights(scores, indexed)
        rarest = max(known.values(), default=0.0)
        weights = {term: known.get(term, max(weight, rarest)) for term, weight in weights.items()}
    return weights
