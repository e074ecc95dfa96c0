"""Retrievers: BM25 and dense scores of candidates, each with a share of the scores of their neighbours.

A turn is often understood only from the turn before it, and an answer from its question. With BM25, a neighbour lends
the terms a candidate does not have itself; with dense vectors, a share of its score. A long text is lent less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import sqrt
from types import MappingProxyType
from typing import ClassVar, Protocol, TypeAlias

from agentkit_memory.errors import InvalidArgument
from agentkit_memory.recall.candidates import Pool
from agentkit_memory.recall.question import Question
from agentkit_memory.recall.term_weights import MAX_SAMPLE, term_weights
from agentkit_prompts.errors import brief

__all__ = [
    "DENSE",
    "SPARSE",
    "BM25Retriever",
    "DenseRetriever",
    "PolicyPart",
    "Retriever",
    "Scores",
    "spread",
    "z_scores",
]

SPARSE = "bm25"
DENSE = "dense"

_MAX_NUMBER = 1e6
_MIN_DEVIATION = 1e-12
"""A smaller standard deviation counts as 0."""

_NOTHING: Mapping[int, float] = MappingProxyType({})

Scores: TypeAlias = tuple[list[float], list[float]]
"""Per candidate its own score, and what its neighbours lend it, on one scale."""


class Retriever(Protocol):
    """A query to the index that finds candidates, and the scores of these once the pool is complete."""

    @property
    def name(self) -> str:
        """`bm25` or `dense`: which query to the index it is."""
        ...

    def scores(self, question: Question, pool: Pool) -> Scores:
        """Return the scores of the candidates."""
        ...


@dataclass(frozen=True)
class PolicyPart:
    """A part of a policy, whose fields are numbers.

    Raises:
        InvalidArgument: A field is not a number, is infinite, or is below its minimum.
    """

    minimum: ClassVar[Mapping[str, float]] = {}

    def __post_init__(self) -> None:
        problems = []
        for name in (field.name for field in fields(self)):
            value: object = getattr(self, name)
            least = self.minimum.get(name, -_MAX_NUMBER)
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < _MAX_NUMBER:
                wanted = f"a number from {least:g} up" if name in self.minimum else "a number"
                problems.append(f"{name}: expected {wanted}, got {brief(value)}")
        if problems:
            raise InvalidArgument.listing(type(self).__name__, problems)


@dataclass(frozen=True)
class BM25Retriever(PolicyPart):
    """BM25. A term of the question counts once: in the candidate itself or, at a discount, in a neighbour."""

    share: float = 0.6
    """Weight of a term of a neighbour one place away; two places away, its square. 0.0 ignores neighbours."""
    answer: float = 0.9
    """Weight of the terms of a question for the turn that answers it, which may not repeat them."""
    minimum = MappingProxyType({"share": 0.0, "answer": 0.0})
    name = SPARSE

    def scores(self, question: Question, pool: Pool) -> Scores:
        """Return BM25 scores, with the term weights of the index."""
        own = pool.raw_scores(SPARSE)
        lent = [0.0] * len(pool)
        if not self.share:
            return own, lent
        best = [n for n, each in enumerate(pool.candidates) if SPARSE in each.retrieved]
        best = sorted(best, key=own.__getitem__, reverse=True)[:MAX_SAMPLE]
        named = len(question.terms) < len(question.asked)
        beside = [n for n, near in enumerate(pool.near) if near]
        if not named and not beside:
            return own, lent
        apart = range(len(pool)) if named else sorted({*beside, *best})
        held = pool.held_terms(question, apart)
        weights = term_weights([own[n] for n in best], [held[n] for n in best])
        if named:
            weights = {term: weight for term, weight in weights.items() if term in question.terms}
        worth = {
            n: {term: weights[term] * value for term, value in terms.items() if term in weights}
            for n, terms in held.items()
            if terms
        }
        shares = _shares(self.share)
        for n in apart:
            mine = worth.get(n, _NOTHING)
            own[n] = sum(mine.values())
            gained: dict[int, float] = {}
            leaning = 0.0
            for step, other in pool.near[n]:
                if other not in worth:  # as most
                    continue
                leaning = leaning or pool.leaning(n)
                share = leaning * (self.answer if step == -1 and pool.ends_asking(other) else shares[step])
                for term, value in worth[other].items():
                    lent_value = share * value - mine.get(term, 0.0)
                    if lent_value > gained.get(term, 0.0):
                        gained[term] = lent_value
            if gained:
                lent[n] = sum(gained.values())
        return own, lent


@dataclass(frozen=True)
class DenseRetriever(PolicyPart):
    """The cosine of dense vectors."""

    share: float = 0.3
    """Share of its score that a candidate lends one place away; two places away, its square."""
    answer: float = 0.9
    """Share of its score that a question lends to the turn that answers it."""
    minimum = BM25Retriever.minimum
    name = DENSE

    def scores(self, question: Question, pool: Pool) -> Scores:
        """Return cosines as z-scores."""
        own = z_scores(pool.raw_scores(DENSE))
        if not self.share:
            return own, [0.0] * len(pool)
        shares, lent = _shares(self.share), [0.0] * len(pool)
        for n, near in enumerate(pool.near):
            if near:
                leaning = pool.leaning(n)
                lent[n] = sum(
                    [
                        leaning * (self.answer if step == -1 and pool.ends_asking(other) else shares[step]) * own[other]
                        for step, other in near
                    ]
                )
        return own, lent


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of values and their standard deviation, 0.0 where they hardly differ."""
    if not values:
        return 0.0, 0.0
    mean = sum(values) / len(values)
    deviation = sqrt(sum([(value - mean) ** 2 for value in values]) / len(values))
    return mean, deviation if deviation > _MIN_DEVIATION else 0.0


def z_scores(values: Sequence[float]) -> list[float]:
    """Return the values in standard deviations above their mean; all 0.0 where they do not differ."""
    mean, deviation = spread(values)
    return [(value - mean) / deviation if deviation else 0.0 for value in values]


def _shares(share: float) -> dict[int, float]:
    """Return the share that a neighbour lends, by how many places away it is."""
    return {step: share ** abs(step) for step in (-2, -1, 1, 2)}
