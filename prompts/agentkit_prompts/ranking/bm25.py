"""BM25 index in memory, for up to a few thousand texts, such as examples."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

from agentkit_prompts.ranking.folded_text import HAN, MARKS, UNSPACED, fold_text, plain_word

_B = 0.75
_RUN = re.compile(rf"[{UNSPACED}]+|(?:[^\W_{UNSPACED}]|[{MARKS}])+")
_IS_UNSPACED = re.compile(rf"[{UNSPACED}]")
_IS_HAN = re.compile(rf"[{HAN}]")


def words(text: str) -> list[str]:
    """Return the terms of `text` in order: Unicode words without differences of case, width and accents. A run of
    characters of a script without spaces is split into pairs of characters; a Chinese character is a term too.
    """
    terms: list[str] = []
    for run in map(plain_word, _RUN.findall(fold_text(text))):
        if len(run) > 1 and _IS_UNSPACED.match(run):
            terms += [first + second for first, second in pairwise(run)]
            terms += _IS_HAN.findall(run)
        else:
            terms.append(run)
    return terms


class BM25:
    """Index of texts. The IDF is computed from these texts only and is never negative.

    Args:
        texts: Texts to rank; the methods refer to a text by its position.
        tokenize: Function that splits text into terms.
    """

    __slots__ = ("__dict__", "_counts", "_postings", "_tokenize", "size")

    k1: ClassVar[float] = 1.2
    """Weight of repeated terms."""

    def __init__(self, texts: Iterable[str], *, tokenize: Callable[[str], Sequence[str]] = words) -> None:
        self._tokenize = tokenize
        self._counts = [Counter(tokenize(text)) for text in texts]
        self.size = len(self._counts)
        lengths = [counts.total() for counts in self._counts]
        mean = sum(lengths) / max(1, self.size)
        self._postings: dict[str, list[tuple[int, float]]] = {}
        for position, counts in enumerate(self._counts):
            # `mean` is 0 if no text has terms.
            norm = self.k1 * (1 - _B + _B * lengths[position] / (mean or 1.0))
            for term, count in counts.items():
                weight = count * (self.k1 + 1) / (count + norm)
                self._postings.setdefault(term, []).append((position, weight))

    def scores(self, query: str) -> list[float]:
        """Return the score of each text; 0.0 for a text that has no term of the query."""
        scores = [0.0] * self.size
        for term, times in Counter(self._tokenize(query)).items():
            postings = self._postings.get(term, ())
            if postings:
                weight = times * self._idf(len(postings))
                for position, score in postings:
                    scores[position] += weight * score
        return scores

    def similarity(self, one: int, other: int) -> float:
        """Return the similarity of the texts at two positions: the cosine of their weighted terms, 0.0 to 1.0."""
        first, second = self._unit_vectors[one], self._unit_vectors[other]
        if len(second) < len(first):
            first, second = second, first
        return sum(weight * second.get(term, 0.0) for term, weight in first.items())

    def _idf(self, texts_with_it: int) -> float:
        return math.log1p((self.size - texts_with_it + 0.5) / (texts_with_it + 0.5))

    @cached_property
    def _unit_vectors(self) -> list[dict[str, float]]:
        vectors: list[dict[str, float]] = []
        for counts in self._counts:
            vector = {term: count * self._idf(len(self._postings[term])) for term, count in counts.items()}
            # A text without terms has the similarity 0.
            norm = math.hypot(*vector.values()) or 1.0
            vectors.append({term: weight / norm for term, weight in vector.items()})
        return vectors
