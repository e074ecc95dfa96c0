"""Maximal marginal relevance: what is relevant, and not the same thing again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["mmr"]


def mmr(relevance: Sequence[float], similarity: Callable[[int, int], float], k: int, *, diversity: float) -> list[int]:
    """Return the positions of at most `k` items, chosen one by one.

    Each choice has the highest `(1 - diversity) * relevance - diversity * similarity`, where the similarity is that to
    the most similar item chosen before; ties go to the earlier position.

    Args:
        relevance: How well each item answers the query, best on the scale of `similarity`.
        similarity: How alike two items are, by position.
        k: How many to choose.
        diversity: 0.0 looks at relevance alone, 1.0 at being different alone.
    """
    left = list(range(len(relevance)))
    nearest = [0.0] * len(left)
    chosen: list[int] = []
    while left and len(chosen) < k:
        # Equal scores keep the order of relevance.
        best = max(left, key=lambda item: ((1 - diversity) * relevance[item] - diversity * nearest[item], -item))
        left.remove(best)
        for item in left:
            alike = similarity(best, item)
            nearest[item] = max(nearest[item], alike) if chosen else alike
        chosen.append(best)
    return chosen
