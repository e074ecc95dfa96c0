"""Scorers, which a policy adds to the scores of its retrievers, such as speaker and date; and the sum of all scores."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite
from types import MappingProxyType
from typing import Protocol

from agentkit_memory.errors import InvalidArgument, StoreError
from agentkit_memory.recall.candidates import Pool
from agentkit_memory.recall.question import Question, answers_number, answers_time
from agentkit_memory.recall.retrievers import BM25Retriever, PolicyPart, Retriever, spread
from agentkit_memory.store.records import TURN

__all__ = ["AnswerScorer", "DateScorer", "QuestionScorer", "RecencyScorer", "Scorer", "SpeakerScorer", "add_up"]

_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*")
_DAY = 86_400.0


class Scorer(Protocol):
    """Raises or lowers the scores of candidates."""

    @property
    def name(self) -> str:
        """Its name where a score is explained."""
        ...

    def scores(self, question: Question, pool: Pool) -> Sequence[float]:
        """Return what to add to each score; 1.0 is one standard deviation of the retrievers' scores."""
        ...


@dataclass(frozen=True)
class SpeakerScorer(PolicyPart):
    """Raises turns of speakers whom the question names."""

    weight: float = 1.0
    name = "speaker"

    def scores(self, question: Question, pool: Pool) -> Sequence[float]:
        """Return the weight for turns of named speakers, else 0.0."""
        named = question.speakers
        items = [each.item for each in pool.candidates]
        if not named:
            return [0.0] * len(items)
        return [self.weight * (item.kind == TURN and item.speaker in named) for item in items]


@dataclass(frozen=True)
class DateScorer(PolicyPart):
    """Raises turns from about the dates that the question names."""

    weight: float = 1.0
    name = "date"

    def scores(self, question: Question, pool: Pool) -> Sequence[float]:
        """Return the weight times the nearness of the nearest date of the question."""
        scores = [0.0] * len(pool.candidates)
        if not question.dates:
            return scores
        for number, each in enumerate(pool.candidates):
            if each.item.said_at is not None:
                nearest = max([date.nearness(each.item.said_at) for date in question.dates])
                scores[number] = self.weight * nearest
        return scores


@dataclass(frozen=True)
class AnswerScorer(PolicyPart):
    """Raises texts with the kind of answer asked for: a time for "when", a number for "how many"."""

    weight: float = 0.5
    name = "answer"

    def scores(self, question: Question, pool: Pool) -> Sequence[float]:
        """Return the weight for texts that hold such an answer, else 0.0."""
        tests = []
        if question.asks_time:
            tests.append(answers_time)
        if question.asks_number:
            tests.append(answers_number)
        if not tests:
            return [0.0] * len(pool.candidates)
        texts = [each.item.text for each in pool.candidates]
        return [self.weight * any(test(text) for test in tests) for text in texts]


@dataclass(frozen=True)
class QuestionScorer(PolicyPart):
    """Lowers turns that are questions: they share the words of an answer without giving one."""

    weight: float = 0.5
    name = "asking"

    def scores(self, question: Question, pool: Pool) -> Sequence[float]:
        """Return minus the weight times the share of a turn that is questions."""
        scores = [0.0] * len(pool.candidates)
        for number, each in enumerate(pool.candidates):
            if each.item.kind == TURN and "?" in each.item.text:
                scores[number] = -self.weight * _share_of_questions(each.item.text)
        return scores


@dataclass(frozen=True)
class RecencyScorer(PolicyPart):
    """Raises newer items, by an exponential decay. Not part of the default."""

    weight: float = 0.5
    half_life: float = 30.0
    """In days."""
    minimum = MappingProxyType({"half_life": 1e-6})
    name = "recent"

    def scores(self, question: Question, pool: Pool) -> Sequence[float]:
        """Return the weight, halved with every half-life; future times count as now."""
        scores = []
        for each in pool.candidates:
            at = each.item.said_at
            if at is None:
                at = each.item.created_at
            scores.append(self.weight * 0.5 ** (max(0.0, question.now - at) / (_DAY * self.half_life)))
        return scores


def _share_of_questions(text: str) -> float:
    """Return the share of a text that is in sentences with a question mark."""
    sentences = _SENTENCE.findall(text)
    total = sum([len(each) for each in sentences])
    if not total:
        return 0.0
    return sum([len(each) for each in sentences if each.endswith("?")]) / total


def add_up(
    policy: str, retrievers: Sequence[Retriever], scorers: Sequence[Scorer], question: Question, pool: Pool
) -> None:
    """Set the score of every candidate, and the parts of the score by name.

    The scores of each retriever are scaled to z-scores and added. The sum is scaled again, so that a scorer has the
    same weight after one retriever as after two.

    Raises:
        InvalidArgument: A retriever or a scorer failed, or did not return one finite number for each candidate.
    """
    # Without an index and without vectors, BM25 alone can be computed.
    active = [each for each in retrievers if each.name in pool.floors] or [BM25Retriever()]
    sums = [0.0] * len(pool.candidates)
    columns: dict[str, list[float]] = {}
    for retriever in active:
        with _named(policy, retriever, pool):
            own, lent = [_finite(values, pool) for values in retriever.scores(question, pool)]
        both = [one + other for one, other in zip(own, lent, strict=True)]
        mean, scale = _scale(both)
        columns[retriever.name] = [(value - mean) * scale for value in own]
        columns[f"{retriever.name} neighbours"] = [value * scale for value in lent]
        sums = [total + (value - mean) * scale for total, value in zip(sums, both, strict=True)]
    if len(active) > 1:
        _, scale = _scale(sums)
        columns = {name: [value * scale for value in values] for name, values in columns.items()}
        sums = [total * scale for total in sums]
    for scorer in scorers:
        with _named(policy, scorer, pool):
            values = _finite(scorer.scores(question, pool), pool)
        columns[scorer.name] = values
        sums = [total + value for total, value in zip(sums, values, strict=True)]
    # Most scorers change nothing: their columns are left out first.
    columns = {name: values for name, values in columns.items() if any(values)}
    for number, each in enumerate(pool.candidates):
        each.score = sums[number]
        each.parts = {name: values[number] for name, values in columns.items() if values[number]}


def _scale(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of values, and the factor to standard deviations; 0.0 if they hardly differ."""
    mean, deviation = spread(values)
    if not deviation:
        return mean, 0.0
    return mean, 1.0 / deviation


@contextmanager
def _named(policy: str, part: Retriever | Scorer, pool: Pool) -> Iterator[None]:
    """Name the part of a policy that fails. A custom part may return or raise anything."""
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        where = f"RecallPolicy {policy!r}: {part.name!r}"
        raise InvalidArgument(
            f"{where} failed on {len(pool.candidates)} candidates ({type(error).__name__}: {error})",
            path=where,
            value=type(error).__name__,
        ) from error


def _finite(values: Iterable[float], pool: Pool) -> list[float]:
    scores = [*values]
    if len(scores) != len(pool.candidates) or not isfinite(sum(scores)):
        raise ValueError("expected one finite number for each candidate")
    return scores
