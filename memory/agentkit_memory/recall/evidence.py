"""Evidence: what speaks for a candidate beside its words and meaning. One small object each; a policy adds them up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from types import MappingProxyType
from typing import Protocol

from agentkit_memory.recall.arms import Part, standardised
from agentkit_memory.recall.candidates import Pool
from agentkit_memory.recall.question import Question, answers_number, answers_time
from agentkit_memory.records import TURN

__all__ = ["Asking", "Evidence", "Expected", "Recent", "SaidThen", "Sitting", "Speaker"]

_DAY = 86_400.0


class Evidence(Protocol):
    """Speaks for or against candidates."""

    @property
    def name(self) -> str:
        """What it is called where a score is explained."""
        ...

    def scores(self, question: Question, pool: Pool) -> Sequence[float]:
        """Return what to add to each score. 1.0 is one standard deviation of what the arms say."""
        ...


@dataclass(frozen=True)
class Speaker(Part):
    """The question names who spoke."""

    weight: float = 1.0
    name = "speaker"

    def scores(self, question: Question, pool: Pool) -> Sequence[float]:
        """Return the weight for turns of those who are named."""
        named = question.speakers
        return [
            self.weight if named and each.item.kind == TURN and each.item.speaker in named else 0.0
            for each in pool.candidates
        ]


@dataclass(frozen=True)
class SaidThen(Part):
    """It was said about when the question says."""

    weight: float = 1.0
    name = "date"

    def scores(self, question: Question, pool: Pool) -> Sequence[float]:
        """Return the weight times the nearness of the nearest date of the question."""
        dates = question.dates
        return [
            self.weight * max(date.nearness(each.item.said_at) for date in dates)
            if dates and each.item.said_at is not None
            else 0.0
            for each in pool.candidates
        ]


@dataclass(frozen=True)
class Sitting(Part):
    """What was said in one sitting is of one subject: a turn among others that fit, fits better."""

    weight: float = 0.3
    best: int = 3
    """How many of its turns a sitting is judged by."""
    least = MappingProxyType({"best": 1})
    name = "sitting"

    def scores(self, question: Question, pool: Pool) -> Sequence[float]:
        """Return the weight times the mean of the sitting's best turns, standardised; 0.0 for what is no turn."""
        members: dict[int, list[float]] = {}
        for sitting, score in zip(pool.sittings, pool.base, strict=True):
            if sitting >= 0:
                members.setdefault(sitting, []).append(score)
        means = {sitting: fmean(sorted(scores)[-self.best :]) for sitting, scores in members.items()}
        turns = [sitting for sitting in pool.sittings if sitting >= 0]
        of_turns = iter(standardised([means[sitting] for sitting in turns]))
        return [self.weight * next(of_turns) if sitting >= 0 else 0.0 for sitting in pool.sittings]


@dataclass(frozen=True)
class Expected(Part):
    """It holds what is asked for: a time for "when", a number for "how many"."""

    weight: float = 0.5
    name = "answer"

    def scores(self, question: Question, pool: Pool) -> Sequence[float]:
        """Return the weight for what holds it."""
        time, number = question.asks_time, question.asks_number
        return [
            self.weight
            if (time and answers_time(each.item.text)) or (number and answers_number(each.item.text))
            else 0.0
            for each in pool.candidates
        ]


@dataclass(frozen=True)
class Asking(Part):
    """Who asks does not tell: questions use the words of an answer, and hold none."""

    weight: float = 0.5
    name = "asking"

    def scores(self, question: Question, pool: Pool) -> Sequence[float]:
        """Return minus the weight times the share of a turn that is questions."""
        return [-self.weight * share for share in pool.asks]


@dataclass(frozen=True)
class Recent(Part):
    """What is newer counts more, by so much as it is newer."""

    weight: float = 0.5
    half_life: float = 30.0
    """Days after which half of the weight is left."""
    least = MappingProxyType({"half_life": 1e-6})
    name = "recent"

    def scores(self, question: Question, pool: Pool) -> Sequence[float]:
        """Return the weight, halved with every half-life; times to come count as now."""
        scores = []
        for each in pool.candidates:
            at = each.item.said_at if each.item.said_at is not None else each.item.created_at
            scores.append(self.weight * 0.5 ** (max(0.0, question.now - at) / (_DAY * self.half_life)))
        return scores
