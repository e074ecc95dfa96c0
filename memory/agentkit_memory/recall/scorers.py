"""Scorers of a policy, such as speaker and date, and the sum of their scores and the scores of the retrievers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import isfinite
from typing import Annotated, Any, Protocol

from pydantic import Field

from agentkit_memory.errors import InvalidArgument, StoreError
from agentkit_memory.recall.candidates import Pool
from agentkit_memory.recall.question import QUESTION_MARKS, Question
from agentkit_memory.recall.retrievers import BM25Retriever, Retriever, Weight, spread
from agentkit_memory.store.records import TURN
from agentkit_prompts.options import options

_TIME = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|ago|since|recently|last|next|this (?:week|weekend|month|year|morning)"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day|january|february|april|june|july|august|september|october|november"
    r"|december|in (?:may|march)|weeks?|weekend|months?|years?|days?|(?:19|20)\d\d|\d{1,2}(?:st|nd|rd|th|:\d\d))\b",
    re.I,
)
_NUMBER = re.compile(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|dozen|hundred|thousand|once|twice|couple|half)\b", re.I
)
_ENDS = re.escape("".join((".!。！", *QUESTION_MARKS)))
_SENTENCE = re.compile(rf"[^{_ENDS}\n]+[{_ENDS}]*")
_DAY = 86_400.0


class Scorer(Protocol):
    """Raises or lowers the scores of candidates."""

    @property
    def name(self) -> str:
        """Name of the scorer's part in the explanation of a score."""
        ...

    def scores(self, question: Question, pool: Pool) -> Sequence[float]:
        """Return the addition to each score; 1.0 is one standard deviation of the scores of the retrievers."""
        ...


@options(InvalidArgument)
class SpeakerScorer:
    """Raises turns of speakers that the question names."""

    weight: Weight = 1.5
    name = "speaker"

    def scores(self, question: Question, pool: Pool) -> Sequence[float]:
        """Return the weight for turns of named speakers, else 0.0."""
        named = question.speakers
        if not named:
            return [0.0] * len(pool.candidates)
        items = [each.item for each in pool.candidates]
        return [self.weight * (item.kind == TURN and item.speaker in named) for item in items]


@options(InvalidArgument)
class DateScorer:
    """Raises turns whose time is near the dates that the question names."""

    weight: Weight = 1.5
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


@options(InvalidArgument)
class AnswerScorer:
    """Raises texts that contain the kind of answer: a time for "when", a number for "how many"."""

    weight: Weight = 0.5
    name = "answer"

    def scores(self, question: Question, pool: Pool) -> Sequence[float]:
        """Return the weight for texts that contain such an answer, else 0.0."""
        wanted = []
        if question.asks_time:
            wanted.append(_TIME)
        if question.asks_number:
            wanted.append(_NUMBER)
        if not wanted:
            return [0.0] * len(pool.candidates)
        texts = [each.item.text for each in pool.candidates]
        return [self.weight * any(pattern.search(text) for pattern in wanted) for text in texts]


@options(InvalidArgument)
class QuestionScorer:
    """Lowers turns that are questions: they contain the words of an answer, but no answer."""

    weight: Weight = 0.5
    name = "asking"

    def scores(self, question: Question, pool: Pool) -> Sequence[float]:
        """Return the negative weight, multiplied by the share of questions in the text of a turn."""
        scores = [0.0] * len(pool.candidates)
        for number, each in enumerate(pool.candidates):
            if each.item.kind == TURN and any(mark in each.item.text for mark in QUESTION_MARKS):
                scores[number] = -self.weight * _share_of_questions(each.item.text)
        return scores


@options(InvalidArgument)
class RecencyScorer:
    """Raises newer items, by an exponential decay. Not part of the default."""

    weight: Weight = 0.5
    half_life: Annotated[Weight, Field(ge=1e-6)] = 30.0
    """Half-life in days."""
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
    return sum([len(each) for each in sentences if each.endswith(QUESTION_MARKS)]) / total


def add_up(
    policy: str, retrievers: Sequence[Retriever], scorers: Sequence[Scorer], question: Question, pool: Pool
) -> None:
    """Set the score of every candidate, and the parts of the score by name.

    The scores of each retriever are scaled to z-scores and added. The sum is scaled again, so that a scorer has the
    same weight after one retriever as after two.

    Raises:
        InvalidArgument: A retriever or a scorer failed, or did not return one finite number for each candidate.
    """
    columns, sums = _fused(policy, retrievers, question, pool)
    for scorer in scorers:
        (values,) = _checked(policy, scorer, 1, question, pool)
        # Most scorers change nothing, and need no column.
        if any(values):
            columns[scorer.name] = values
            sums = [total + value for total, value in zip(sums, values, strict=True)]
    for number, each in enumerate(pool.candidates):
        each.score = sums[number]
        each.parts = {name: values[number] for name, values in columns.items() if values[number]}


def _fused(
    policy: str, retrievers: Sequence[Retriever], question: Question, pool: Pool
) -> tuple[dict[str, list[float]], list[float]]:
    """Return the scaled scores of each retriever by name, and their sums."""
    columns: dict[str, list[float]] = {}
    sums = [0.0] * len(pool.candidates)
    # If no retriever of the policy could be used, BM25 is computed from the texts.
    active = [each for each in retrievers if each.name in pool.floors] or [BM25Retriever()]
    for retriever in active:
        base, lent = _checked(policy, retriever, 2, question, pool)
        both = [base_score + lent_score for base_score, lent_score in zip(base, lent, strict=True)]
        mean, scale = _scale(both)
        columns[retriever.name] = [(value - mean) * scale for value in base]
        if any(lent):
            columns[f"{retriever.name} neighbours"] = [value * scale for value in lent]
        sums = [total + (value - mean) * scale for total, value in zip(sums, both, strict=True)]
    # Scorers add standard deviations of the sum. The sum of several retrievers is scaled to standard deviations again.
    if len(active) > 1:
        _, scale = _scale(sums)
        columns = {name: [value * scale for value in values] for name, values in columns.items()}
        sums = [total * scale for total in sums]
    return columns, sums


def _scale(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of values, and the factor from values to standard deviations; 0.0 if the values hardly differ."""
    mean, deviation = spread(values)
    if not deviation:
        return mean, 0.0
    return mean, 1.0 / deviation


def _checked(policy: str, part: Retriever | Scorer, rows: int, question: Question, pool: Pool) -> list[list[float]]:
    """Return the rows of scores of a retriever or scorer. Custom code may return or raise anything."""
    where, size = f"RecallPolicy {policy!r}: {part.name!r}", len(pool.candidates)
    try:
        returned: Any = part.scores(question, pool)
        if rows == 1:
            returned = (returned,)
        scores = [[*values] for values in returned]
        is_valid = len(scores) == rows and all(len(row) == size and isfinite(sum(row)) for row in scores)
    except StoreError:
        raise
    except Exception as error:
        raise InvalidArgument(
            f"{where} failed on {size} candidates ({type(error).__name__}: {error})",
            path=where,
            value=type(error).__name__,
        ) from error
    if not is_valid:
        raise InvalidArgument(f"{where}: expected one finite number for each of {size} candidates", path=where)
    return scores
