"""`RecallPolicy`: which arms propose and score, what evidence is added, and how many are chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from types import MappingProxyType
from typing import Any

from agentkit_memory.errors import RecallError, StoreError
from agentkit_memory.recall.arms import Arm, Meaning, Words, spread
from agentkit_memory.recall.candidates import Pool
from agentkit_memory.recall.evidence import Asking, Evidence, Expected, SaidThen, Sitting, Speaker
from agentkit_memory.recall.question import Question
from agentkit_memory.values import is_whole

__all__ = ["MOST", "POLICIES", "RecallPolicy", "named_policy"]

MOST = 10_000
"""Most documents of one recall, and most proposals of an arm, looked through for what holds."""


@dataclass(frozen=True, slots=True)
class RecallPolicy:
    """How candidates are found, scored and chosen. The default needs no tuning.

    The arms' scores are standardised over the candidates and added; their sum is standardised again, so that the
    evidence weighs the same with one arm as with two. Make your own with `dataclasses.replace` or from its parts.

    Raises:
        RecallError: It proposes nothing, or a part is of the wrong kind or out of range.
    """

    name: str = "default"
    arms: tuple[Arm, ...] = (Words(), Meaning())
    """Arms that the index cannot serve are left out: without a model there is no meaning."""
    evidence: tuple[Evidence, ...] = (Speaker(), SaidThen(), Sitting(), Expected(), Asking())
    candidates: int = 45
    """How many each arm proposes."""
    around: int = 12
    """Around how many of the best proposals the turns next to them become candidates too."""
    diversity: float = 0.0
    """From 0.0, the best first, to 1.0, the most different first (maximal marginal relevance)."""
    collapse: bool = True
    """Whether of those that say nearly the same only the best is used."""
    tokens: int | None = None
    """Most tokens that what is used may have, by the fast estimate."""

    def __post_init__(self) -> None:
        diversity: object = self.diversity
        problems = [
            f"{name}: expected {wanted}, got {getattr(self, name)!r}"
            for name, right, wanted in (
                ("name", isinstance(self.name, str), "text"),
                ("arms", _are_parts(self.arms) and len(self.arms) > 0, "a tuple of Words(), Meaning() or both"),
                ("evidence", _are_parts(self.evidence), "a tuple of evidence, such as Speaker()"),
                ("candidates", is_whole(self.candidates, 1, MOST), f"1 to {MOST:,}"),
                ("around", is_whole(self.around, 0), "0 or more"),
                ("diversity", isinstance(diversity, int | float) and 0.0 <= diversity <= 1.0, "0.0 to 1.0"),
                ("collapse", isinstance(self.collapse, bool), "True or False"),
                ("tokens", self.tokens is None or is_whole(self.tokens, 1), "1 or more, or None"),
            )
            if not right
        ]
        if problems:
            raise RecallError(f"RecallPolicy {self.name!r}: " + "; ".join(problems))

    def score(self, question: Question, pool: Pool, arms: frozenset[str]) -> None:
        """Score the candidates by the arms that could be asked, and explain each score by its parts."""
        sums = [0.0] * len(pool)
        columns: dict[str, list[float]] = {}
        active = [arm for arm in self.arms if arm.name in arms] or [Words()]  # which need no index
        for arm in active:
            own, lent = self._told(arm, 2, question, pool)
            mean, deviation = spread([one + other for one, other in zip(own, lent, strict=True)])
            scale = 1.0 / deviation if deviation else 0.0
            columns[arm.name] = [(value - mean) * scale for value in own]
            if any(lent):
                columns[f"{arm.name} around"] = [value * scale for value in lent]
            sums = [total + (one + other - mean) * scale for total, one, other in zip(sums, own, lent, strict=True)]
        if len(active) > 1:
            deviation = spread(sums)[1]
            scale = 1.0 / deviation if deviation else 0.0
            columns = {name: [value * scale for value in values] for name, values in columns.items()}
            sums = [total * scale for total in sums]
        pool.base = sums
        for evidence in self.evidence:
            (values,) = self._told(evidence, 1, question, pool)
            columns[evidence.name] = values
            sums = [total + value for total, value in zip(sums, values, strict=True)]
        for number, each in enumerate(pool.candidates):
            each.score = sums[number]
            each.parts = {name: values[number] for name, values in columns.items() if values[number]}

    def _told(self, part: Arm | Evidence, rows: int, question: Question, pool: Pool) -> list[list[float]]:
        """Return what a part says of the candidates, which may be anything: policies are made of anybody's parts."""
        where = f"RecallPolicy {self.name!r}: {part.name!r}"
        try:
            said: Any = part.scores(question, pool)
            told = [list(values) for values in (said if rows > 1 else (said,))]
            right = len(told) == rows and all(len(values) == len(pool) and isfinite(sum(values)) for values in told)
        except StoreError:
            raise
        except Exception as error:
            raise RecallError(f"{where} failed on {len(pool)} candidates ({type(error).__name__}: {error})") from error
        if not right:
            raise RecallError(f"{where}: expected one finite number for each of {len(pool)} candidates")
        return told

    def describe(self) -> dict[str, Any]:
        """Return the policy as plain data, for a log."""
        return {
            "name": self.name,
            "arms": {arm.name: _options(arm) for arm in self.arms},
            "evidence": {each.name: _options(each) for each in self.evidence},
            "candidates": self.candidates,
            "around": self.around,
            "diversity": self.diversity,
            "collapse": self.collapse,
            "tokens": self.tokens,
        }


def _are_parts(parts: object) -> bool:
    return isinstance(parts, tuple) and all(hasattr(each, "name") and hasattr(each, "scores") for each in parts)


def _options(part: object) -> dict[str, Any]:
    return asdict(part) if hasattr(part, "__dataclass_fields__") else {"type": type(part).__name__}  # type: ignore[call-overload]


POLICIES: Mapping[str, RecallPolicy] = MappingProxyType(
    {
        policy.name: policy
        for policy in (
            RecallPolicy(),
            RecallPolicy("words", arms=(Words(),)),
            RecallPolicy("bm25", arms=(Words(share=0.0),), evidence=(), around=0),
            RecallPolicy("dense", arms=(Meaning(share=0.0),), evidence=(), around=0),
            RecallPolicy("alone", arms=(Words(share=0.0), Meaning(share=0.0)), around=0),
            RecallPolicy("fused", arms=(Words(share=0.0), Meaning(share=0.0)), evidence=(), around=0),
        )
    }
)
"""Policies by name: `default`; `words`, the same without a model; and plain ones to compare with."""


def named_policy(policy: RecallPolicy | str | None) -> RecallPolicy:
    """Return the policy of that name; the default one for None.

    Raises:
        RecallError: There is none of that name.
    """
    if isinstance(policy, RecallPolicy):
        return policy
    name = "default" if policy is None else policy
    found = POLICIES.get(name) if isinstance(name, str) else None
    if found is None:
        raise RecallError(
            f"recall: there is no policy {policy!r}; there are {', '.join(POLICIES)}, or give a RecallPolicy"
        )
    return found
