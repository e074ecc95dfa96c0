"""Retrievers: BM25 and dense scores of candidates, each with a share of the scores of their neighbours.

Often a turn can only be understood with the turn before it, and an answer with its question. With BM25, a neighbour
lends terms that a candidate lacks; with dense vectors, a share of its score. A long text borrows less.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isnan, sqrt
from typing import Annotated, Protocol, TypeAlias

from pydantic import Field

from agentkit_memory.errors import InvalidArgument
from agentkit_memory.recall.candidates import Pool
from agentkit_memory.recall.question import QUESTION_MARKS, Question
from agentkit_memory.recall.term_weights import MAX_SAMPLE, term_weights
from agentkit_memory.store.records import TURN
from agentkit_prompts.options import options

SPARSE = "bm25"
DENSE = "dense"

_MAX_NUMBER = 1e6
Weight: TypeAlias = Annotated[float, Field(gt=-_MAX_NUMBER, lt=_MAX_NUMBER, allow_inf_nan=False)]
"""A number that scores are multiplied by."""
NonNegative: TypeAlias = Annotated[float, Field(ge=0, lt=_MAX_NUMBER, allow_inf_nan=False)]
"""A number, 0.0 or more."""
_MIN_DEVIATION = 1e-12
"""A smaller standard deviation counts as 0."""

_LONG = 60
"""Minimum words of a text that is understood without its neighbours."""

Scores: TypeAlias = tuple[list[float], list[float]]
"""The scores of the candidates, and the scores that neighbours lend to each candidate, on one scale."""


class Retriever(Protocol):
    """A query to the index that finds candidates, and the scores of the complete pool."""

    @property
    def name(self) -> str:
        """Query to the index: `bm25` or `dense`."""
        ...

    def scores(self, question: Question, pool: Pool) -> Scores:
        """Return the scores of the candidates."""
        ...


@options(InvalidArgument)
class BM25Retriever:
    """BM25. A term of the question counts once: in the candidate itself or, with a lower weight, in a neighbour."""

    share: NonNegative = 0.6
    """Weight of a term in a neighbour at distance 1; at distance 2, the square of the weight. 0.0: no neighbours."""
    answer: NonNegative = 0.9
    """Weight of a term in a question for the next turn, an answer that may not repeat the term."""
    name = SPARSE

    def scores(self, question: Question, pool: Pool) -> Scores:
        """Return BM25 scores, with the term weights of the index."""
        base = pool.raw_scores(SPARSE)
        lent = [0.0] * len(base)
        # If the question names speakers, all scores are computed again, since the index has counted the names as terms.
        is_named = len(question.terms) < len(question.all_terms)
        if not self.share or not (is_named or any(pool.near)):
            return base, lent
        with_neighbours = [number for number, near in enumerate(pool.near) if near]
        hits = [number for number, each in enumerate(pool.candidates) if SPARSE in each.retrieved]
        best = sorted(hits, key=base.__getitem__, reverse=True)[:MAX_SAMPLE]
        numbers: Sequence[int] = range(len(base))
        if not is_named:
            numbers = sorted({*with_neighbours, *best})
        contributions = _contributions(question, pool, base, best, numbers)
        for number in numbers:
            base[number] = 0.0
        for number, terms in contributions.items():
            base[number] = sum(terms.values())
        shares = _shares(self.share)
        for number in with_neighbours:
            lenders = [(step, other) for step, other in pool.near[number] if other in contributions]
            # Most candidates have no neighbour with a term of the question.
            if lenders:
                lent[number] = self._lent(pool, number, lenders, shares, contributions)
        return base, lent

    def _lent(
        self,
        pool: Pool,
        number: int,
        lenders: Sequence[tuple[int, int]],
        shares: Mapping[int, float],
        contributions: Mapping[int, Mapping[int, float]],
    ) -> float:
        """Return the contribution of terms of neighbours, as far as the candidate's own terms contribute less."""
        candidate_terms = contributions.get(number, {})
        gains: dict[int, float] = {}
        borrowed_share = _borrowed_share(pool, number)
        for step, other in lenders:
            share = shares[step]
            if step == -1 and _ends_with_question(pool, other):
                share = self.answer
            share *= borrowed_share
            for term, value in contributions[other].items():
                gain = share * value - candidate_terms.get(term, 0.0)
                if gain > gains.get(term, 0.0):
                    gains[term] = gain
        return sum(gains.values())


def _contributions(
    question: Question, pool: Pool, base: Sequence[float], best: Sequence[int], numbers: Iterable[int]
) -> dict[int, dict[int, float]]:
    """Return the contribution of each term of the question to the scores of candidates, by number and term.

    Candidates without a term are left out, and names of speakers add nothing. The weights of the terms are estimated
    from the best hits.
    """
    weights_by_number = pool.weights_by_candidate(question, numbers)
    weights = term_weights([base[number] for number in best], [weights_by_number[number] for number in best])
    counted = {term: weight for term, weight in weights.items() if term in question.terms}
    return {
        number: {term: counted[term] * value for term, value in terms.items() if term in counted}
        for number, terms in weights_by_number.items()
        if terms
    }


@options(InvalidArgument)
class DenseRetriever:
    """The cosine of dense vectors."""

    share: NonNegative = 0.3
    """Share of its score that a candidate lends at distance 1; at distance 2, the square of the share."""
    answer: NonNegative = 0.9
    """Share of its score that a question lends to the next turn, its answer."""
    name = DENSE

    def scores(self, question: Question, pool: Pool) -> Scores:
        """Return cosines as z-scores."""
        base = z_scores(pool.raw_scores(DENSE))
        lent = [0.0] * len(base)
        if not self.share:
            return base, lent
        shares = _shares(self.share)
        for number, near in enumerate(pool.near):
            if not near:
                continue
            borrowed_share = _borrowed_share(pool, number)
            for step, other in near:
                share = shares[step]
                if step == -1 and _ends_with_question(pool, other):
                    share = self.answer
                lent[number] += borrowed_share * share * base[other]
        return base, lent


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the standard deviation of values; 0.0 as the deviation if the values hardly differ."""
    if not values:
        return 0.0, 0.0
    mean = sum(values) / len(values)
    deviation = sqrt(sum([(value - mean) ** 2 for value in values]) / len(values))
    # A custom index may return NaN or infinity, whose deviation is NaN.
    if isnan(deviation) or deviation <= _MIN_DEVIATION:
        deviation = 0.0
    return mean, deviation


def z_scores(values: Sequence[float]) -> list[float]:
    """Return the distance of each value from the mean, in standard deviations; all 0.0 if the values do not differ."""
    mean, deviation = spread(values)
    if not deviation:
        return [0.0] * len(values)
    return [(value - mean) / deviation for value in values]


def _borrowed_share(pool: Pool, number: int) -> float:
    """Return the share of lent scores that a candidate borrows: 1.0 for a short text, less for a longer text."""
    return min(1.0, _LONG / (pool.candidates[number].item.text.count(" ") + 1))


def _shares(share: float) -> dict[int, float]:
    """Return the share of its score that a neighbour lends, by distance."""
    return {step: share ** abs(step) for step in (-2, -1, 1, 2)}


def _ends_with_question(pool: Pool, number: int) -> bool:
    """Return True if a candidate is a message that ends with a question: the answer often repeats none of its words."""
    item = pool.candidates[number].item
    return item.kind == TURN and item.text.rstrip().endswith(QUESTION_MARKS)
