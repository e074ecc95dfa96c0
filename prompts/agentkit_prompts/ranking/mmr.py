"""Maximal marginal relevance: selection of relevant and different items."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def mmr(relevance: Sequence[float], similarity: Callable[[int, int], float], k: int, *, diversity: float) -> list[int]:
    """Return the positions of at most `k` items, chosen one by one.

    The next item has the highest value of `(1 - diversity) * relevance - diversity * similarity`, where the similarity
    is the similarity to the most similar chosen item. Of equal values, the earlier position is chosen.

    Args:
        relevance: Relevance of each item for the query, on the scale of `similarity`.
        similarity: Function that returns the similarity of two positions.
        k: Number of items to choose.
        diversity: 0.0 ranks by relevance only, 1.0 by difference only.
    """
    remaining = list(range(len(relevance)))
    nearest = [0.0] * len(remaining)
    selected: list[int] = []
    while remaining and len(selected) < k:
        best = max(remaining, key=lambda item: ((1 - diversity) * relevance[item] - diversity * nearest[item], -item))
        remaining.remove(best)
        for item in remaining:
            alike = similarity(best, item)
            nearest[item] = max(nearest[item], alike) if selected else alike
        selected.append(best)
    return selected
