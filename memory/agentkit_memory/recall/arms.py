"""Arms: how a candidate is scored by its words and by its meaning, each with a share of what its neighbours score.

A turn is often understood only from the turn before it, and an answer from its question. By words, a neighbour lends
the terms a candidate does not have itself; by meaning, a share of its score. Long texts speak for themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import inf, sqrt
from types import MappingProxyType
from typing import ClassVar, Protocol, TypeAlias

from agentkit_memory.errors import RecallError
from agentkit_memory.index.sparse import held_terms, indexed_text
from agentkit_memory.recall.candidates import Pool
from agentkit_memory.recall.question import Question

__all__ = ["DENSE", "SPARSE", "Arm", "Meaning", "Part", "Scores", "Words", "spread", "standardised", "term_weights"]

SPARSE = "words"
DENSE = "meaning"

_LARGE = 1e6
_FLAT = 1e-12
"""A smaller standard deviation is none."""
_SWEEPS = 16
_SETTLED = 1e-3
"""Of the average worth of a term: when no term moves by more, more sweeps would tell nothing."""
_SAMPLE = 64
"""Hits from which the weights of terms are read off."""

Scores: TypeAlias = tuple[list[float], list[float]]
"""Per candidate what it scores itself, and what its neighbours lend it, on one scale."""


class Arm(Protocol):
    """A way to score candidates: the index proposes by it, and what it said is seen again in the light of the pool."""

    @property
    def name(self) -> str:
        """`words` or `meaning`: which query to the index it stands for."""
        ...

    def scores(self, question: Question, pool: Pool) -> Scores:
        """Return the scores of the candidates."""
        ...


@dataclass(frozen=True)
class Part:
    """A part of a policy, whose fields are numbers.

    Raises:
        RecallError: One is no number, is infinite, or is less than the least it can be.
    """

    least: ClassVar[Mapping[str, float]] = {}

    def __post_init__(self) -> None:
        problems = []
        for name in (field.name for field in fields(self)):
            value: object = getattr(self, name)
            least = self.least.get(name, -inf)
            if (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not max(least, -_LARGE) <= value < _LARGE
            ):
                wanted = "a number" if least == -inf else f"a number from {least:g} up"
                problems.append(f"{name}: expected {wanted}, got {value!r}")
        if problems:
            raise RecallError(f"{type(self).__name__}: " + "; ".join(problems))


@dataclass(frozen=True)
class Words(Part):
    """BM25, each term of the question counted once: where the candidate has it, or at a discount next to it."""

    share: float = 0.6
    """What a term is worth one place away; two places away, the square of it. 0.0 looks at no neighbour."""
    answer: float = 0.9
    """What the terms of a question are worth to the turn that answers it, which need not repeat them."""
    least = MappingProxyType({"share": 0.0, "answer": 0.0})

    @property
    def name(self) -> str:
        """The sparse query."""
        return SPARSE

    def scores(self, question: Question, pool: Pool) -> Scores:
        """Return BM25 with terms weighed as the index weighed them."""
        own = pool.found(SPARSE)
        lent = [0.0] * len(pool)
        if not self.share:
            return own, lent
        best = sorted((n for n, each in enumerate(pool.candidates) if SPARSE in each.arms), key=lambda n: -own[n])
        best = best[:_SAMPLE]
        named = len(question.terms) < len(question.asked)
        apart = range(len(pool)) if named else sorted({n for n, near in enumerate(pool.near) if near}.union(best))
        held = {n: _held(pool, n, question.asked) for n in apart}
        weights = term_weights([own[n] for n in best], [held[n] for n in best])
        worth = {
            n: {term: weights.get(term, 0.0) * value for term, value in terms.items() if term in question.terms}
            for n, terms in held.items()
        }
        lenders = _lenders(pool, self.share, self.answer)
        for n, terms in worth.items():
            own[n] = sum(terms.values())
            best_of: dict[int, float] = {}
            for other, share in lenders[n]:
                for term, value in worth[other].items():
                    best_of[term] = max(best_of.get(term, 0.0), share * value)
            if best_of:
                lent[n] = sum([max(0.0, value - terms.get(term, 0.0)) for term, value in best_of.items()])
        return own, lent


@dataclass(frozen=True)
class Meaning(Part):
    """The cosine of dense vectors."""

    share: float = 0.3
    """How much of its score a candidate lends one place away; two places away, the square of it."""
    answer: float = 0.9
    """How much of its score a question lends to the turn that answers it."""
    least = Words.least

    @property
    def name(self) -> str:
        """The dense query."""
        return DENSE

    def scores(self, question: Question, pool: Pool) -> Scores:
        """Return cosines, in standard deviations above their mean."""
        own = standardised(pool.found(DENSE))
        if not self.share:
            return own, [0.0] * len(pool)
        return own, [
            sum([share * own[other] for other, share in lenders]) for lenders in _lenders(pool, self.share, self.answer)
        ]


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of values and their standard deviation, 0.0 where they hardly differ."""
    if not values:
        return 0.0, 0.0
    mean = sum(values) / len(values)
    deviation = sqrt(sum([(value - mean) ** 2 for value in values]) / len(values))
    return mean, deviation if deviation > _FLAT else 0.0


def standardised(values: Sequence[float]) -> list[float]:
    """Return the values in standard deviations above their mean; all 0.0 where they do not differ."""
    mean, deviation = spread(values)
    return [(value - mean) / deviation if deviation else 0.0 for value in values]


def term_weights(scores: Sequence[float], held: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Return what each term is worth, read off the scores of texts: score = sum of (held times worth).

    An index says what a text scores, not why. How rare a term is in the scope that was read is not known here, but
    each score is an equation in it. Solved by coordinate descent; a term that no text tells apart from another shares
    the worth with it.
    """
    columns: dict[int, list[tuple[int, float]]] = {}
    for row, terms in enumerate(held):
        for term, value in terms.items():
            columns.setdefault(term, []).append((row, value))
    total = sum(map(sum, (terms.values() for terms in held)))
    start = sum(scores) / total if total else 0.0
    weights = dict.fromkeys(columns, start)
    left = [score - start * sum(terms.values()) for score, terms in zip(scores, held, strict=True)]
    squares = {term: sum([value * value for _, value in column]) for term, column in columns.items()}
    for _ in range(_SWEEPS):
        furthest = 0.0
        for term, column in columns.items():
            step = max(sum([value * left[row] for row, value in column]) / squares[term], -weights[term])
            weights[term] += step
            furthest = max(furthest, abs(step))
            for row, value in column:
                left[row] -= step * value
        if furthest <= _SETTLED * start:
            break
    return weights


def _held(pool: Pool, number: int, asked: Mapping[int, float]) -> dict[int, float]:
    """Return the terms of the question that a candidate holds, weighed as its vector in the index is."""
    item = pool.candidates[number].item
    return held_terms(indexed_text(item.title, item.text), asked)


def _lenders(pool: Pool, share: float, answer: float) -> list[list[tuple[int, float]]]:
    """Return per candidate who lends to it, and how much of what it has."""
    shares = {step: share ** abs(step) for step in (-2, -1, 1, 2)}
    asking = pool.ends_asking
    return [
        [(other, leaning * (answer if step == -1 and asking[other] else shares[step])) for step, other in near]
        for leaning, near in zip(pool.leaning, pool.near, strict=True)
    ]
