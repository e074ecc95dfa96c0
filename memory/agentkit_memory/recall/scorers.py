"""Scorers: what a policy adds to the retrievers' scores, such as who spoke and when. One small class each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from agentkit_memory.recall.candidates import Pool
from agentkit_memory.recall.question import Question, answers_number, answers_time
from agentkit_memory.recall.retrievers import PolicyPart
from agentkit_memory.store.records import TURN

__all__ = ["AnswerScorer", "DateScorer", "QuestionScorer", "RecencyScorer", "Scorer", "SpeakerScorer"]

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
        if not named:
            return [0.0] * len(pool)
        return [
            self.weight if each.item.kind == TURN and each.item.speaker in named else 0.0 for each in pool.candidates
        ]


@dataclass(frozen=True)
class DateScorer(PolicyPart):
    """Raises turns from about the dates that the question names."""

    weight: float = 1.0
    name = "date"

    def scores(self, question: Question, pool: Pool) -> Sequence[float]:
        """Return the weight times the nearness of the nearest date of the question."""
        dates = question.dates
        if not dates:
            return [0.0] * len(pool)
        return [
            self.weight * max(date.nearness(each.item.said_at) for date in dates)
            if each.item.said_at is not None
            else 0.0
            for each in pool.candidates
        ]


@dataclass(frozen=True)
class AnswerScorer(PolicyPart):
    """Raises texts with the kind of answer asked for: a time for "when", a number for "how many"."""

    weight: float = 0.5
    name = "answer"

    def scores(self, question: Question, pool: Pool) -> Sequence[float]:
        """Return the weight for texts that hold such an answer, else 0.0."""
        time, number = question.asks_time, question.asks_number
        if not time and not number:
            return [0.0] * len(pool)
        return [
            self.weight
            if (time and answers_time(each.item.text)) or (number and answers_number(each.item.text))
            else 0.0
            for each in pool.candidates
        ]


@dataclass(frozen=True)
class QuestionScorer(PolicyPart):
    """Lowers turns that are questions: they share the words of an answer without giving one."""

    weight: float = 0.5
    name = "asking"

    def scores(self, question: Question, pool: Pool) -> Sequence[float]:
        """Return minus the weight times the share of a turn that is questions."""
        return [-self.weight * share for share in pool.asks]


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
            at = each.item.said_at if each.item.said_at is not None else each.item.created_at
            scores.append(self.weight * 0.5 ** (max(0.0, question.now - at) / (_DAY * self.half_life)))
        return scores
