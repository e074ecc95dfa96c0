"""`RecallPolicy`: which retrievers find and score, which scorers are added, and how many are chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from types import MappingProxyType
from typing import Any

from agentkit_memory.checks import is_whole
from agentkit_memory.errors import InvalidArgument
from agentkit_memory.recall.rerankers import Reranker, is_reranker
from agentkit_memory.recall.retrievers import BM25Retriever, DenseRetriever, Retriever
from agentkit_memory.recall.scorers import (
    AnswerScorer,
    DateScorer,
    QuestionScorer,
    Scorer,
    SpeakerScorer,
)
from agentkit_prompts.errors import brief
from agentkit_prompts.names import reject_unknown_fields

__all__ = ["MAX_CANDIDATES", "POLICIES", "RecallPolicy", "named_policy"]

MAX_CANDIDATES = 10_000
"""Most documents of one recall, and most hits of one retriever that are read."""


@reject_unknown_fields(InvalidArgument)
@dataclass(frozen=True, slots=True)
class RecallPolicy:
    """How candidates are found, scored and chosen. The default needs no tuning.

    The scores of each retriever become z-scores over the candidates and are added; their sum becomes a z-score again,
    so that scorers weigh the same beside one retriever as beside two. Make your own with `dataclasses.replace`.

    Raises:
        InvalidArgument: There is no retriever, or a part is of the wrong kind or out of range.
    """

    name: str = "default"
    retrievers: tuple[Retriever, ...] = (BM25Retriever(), DenseRetriever())
    """Those that the index cannot serve are left out: without a model there is no dense retrieval."""
    scorers: tuple[Scorer, ...] = (SpeakerScorer(), DateScorer(), AnswerScorer(), QuestionScorer())
    candidates: int = 24
    """How many each retriever finds."""
    around: int = 6
    """For how many of the best hits the neighbouring turns become candidates too."""
    diversity: float = 0.0
    """From 0.0, the best first, to 1.0, the most different first (maximal marginal relevance)."""
    collapse: bool = True
    """Whether only the best of nearly equal texts is used."""
    tokens: int | None = None
    """Most tokens of all used texts together, by the fast estimate."""
    reranker: Reranker | None = None
    """Orders the best candidates anew, just before they are chosen from."""

    def __post_init__(self) -> None:
        diversity: object = self.diversity
        problems = [
            f"{name}: expected {wanted}, got {brief(getattr(self, name))}"
            for name, right, wanted in (
                ("name", isinstance(self.name, str), "text"),
                (
                    "retrievers",
                    _are_parts(self.retrievers) and len(self.retrievers) > 0,
                    "a tuple of BM25Retriever(), DenseRetriever() or both",
                ),
                ("scorers", _are_parts(self.scorers), "a tuple of scorers, such as SpeakerScorer()"),
                ("candidates", is_whole(self.candidates, 1, MAX_CANDIDATES), f"1 to {MAX_CANDIDATES:,}"),
                ("around", is_whole(self.around, 0), "0 or more"),
                ("diversity", isinstance(diversity, int | float) and 0.0 <= diversity <= 1.0, "0.0 to 1.0"),
                ("collapse", isinstance(self.collapse, bool), "True or False"),
                (
                    "reranker",
                    self.reranker is None or is_reranker(self.reranker),
                    "an object with a `name` and a method `rerank`, or None",
                ),
                ("tokens", self.tokens is None or is_whole(self.tokens, 1), "1 or more, or None"),
            )
            if not right
        ]
        if problems:
            raise InvalidArgument.listing(f"RecallPolicy {self.name!r}", problems)

    def describe(self) -> dict[str, Any]:
        """Return the policy as plain data, for a log."""
        return _options(self) | {
            "retrievers": {each.name: _options(each) for each in self.retrievers},
            "scorers": {each.name: _options(each) for each in self.scorers},
            "reranker": None if self.reranker is None else self.reranker.name,
        }


def _are_parts(parts: object) -> bool:
    return isinstance(parts, tuple) and all(hasattr(each, "name") and hasattr(each, "scores") for each in parts)


def _options(part: object) -> dict[str, Any]:
    if not is_dataclass(part):
        return {"type": type(part).__name__}
    return {each.name: getattr(part, each.name) for each in fields(part)}


POLICIES: Mapping[str, RecallPolicy] = MappingProxyType(
    {
        policy.name: policy
        for policy in (
            RecallPolicy(),
            RecallPolicy("lexical", (BM25Retriever(),)),
            RecallPolicy("bm25", (BM25Retriever(share=0.0),), (), around=0),
            RecallPolicy("dense", (DenseRetriever(share=0.0),), (), around=0),
        )
    }
)
"""Policies by name: `default`; `lexical`, the same without a model; and plain ones to compare with."""


def named_policy(policy: RecallPolicy | str | None) -> RecallPolicy:
    """Return the policy of that name; the default one for None.

    Raises:
        InvalidArgument: The name is unknown.
    """
    if isinstance(policy, RecallPolicy):
        return policy
    if policy is None:
        return POLICIES["default"]
    found = None
    if isinstance(policy, str):
        found = POLICIES.get(policy)
    if found is None:
        raise InvalidArgument(
            f"recall: unknown policy {policy!r}; expected one of {', '.join(POLICIES)}, or a RecallPolicy",
            name="policy",
            value=str(policy),
        )
    return found
