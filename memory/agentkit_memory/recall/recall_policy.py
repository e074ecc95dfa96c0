"""`RecallPolicy`: which retrievers find and score, which scorers are added, and how many are chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, Field, SkipValidation

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
from agentkit_prompts.options import Count, CountOrZero, Share, options

__all__ = ["MAX_CANDIDATES", "POLICIES", "RecallPolicy", "named_policy"]

MAX_CANDIDATES = 10_000
"""Most documents of one recall, and most hits of one retriever that are read."""


def _check_parts(parts: tuple[object, ...]) -> tuple[object, ...]:
    for part in parts:
        if not (hasattr(part, "name") and hasattr(part, "scores")):
            raise InvalidArgument(
                f"expected objects with a `name` and a method `scores`, got {brief(part)}", value=type(part).__name__
            )
    return parts


def _check_reranker(reranker: object) -> object:
    if reranker is not None and not is_reranker(reranker):
        raise InvalidArgument(
            f"expected an object with a `name` and a method `rerank`, or None, got {brief(reranker)}",
            value=type(reranker).__name__,
        )
    return reranker


_Retrievers: TypeAlias = Annotated[tuple[SkipValidation[Retriever], ...], AfterValidator(_check_parts)]
_Scorers: TypeAlias = Annotated[tuple[SkipValidation[Scorer], ...], AfterValidator(_check_parts)]
_Reranker: TypeAlias = Annotated[SkipValidation[Reranker | None], AfterValidator(_check_reranker)]


@options(InvalidArgument)
class RecallPolicy:
    """How candidates are found, scored and chosen. The default needs no tuning.

    The scores of each retriever become z-scores over the candidates and are added; their sum becomes a z-score again,
    so that scorers weigh the same beside one retriever as beside two. Make your own with `dataclasses.replace`.

    Raises:
        InvalidArgument: There is no retriever, or a part is of the wrong kind or out of range.
    """

    name: str = "default"
    retrievers: Annotated[_Retrievers, Field(min_length=1)] = (
        BM25Retriever(),
        DenseRetriever(),
    )
    """Those that the index cannot serve are left out: without a model there is no dense retrieval."""
    scorers: _Scorers = (
        SpeakerScorer(),
        DateScorer(),
        AnswerScorer(),
        QuestionScorer(),
    )
    candidates: Annotated[int, Field(ge=1, le=MAX_CANDIDATES)] = 24
    """How many each retriever finds."""
    around: CountOrZero = 6
    """For how many of the best hits the neighbouring turns become candidates too."""
    diversity: Share = 0.0
    """From 0.0, the best first, to 1.0, the most different first (maximal marginal relevance)."""
    collapse: bool = True
    """Whether only the best of nearly equal texts is used."""
    tokens: Count | None = None
    """Most tokens of all used texts together, by the fast estimate."""
    reranker: _Reranker = None
    """Orders the best candidates anew, just before they are chosen from."""

    def describe(self) -> dict[str, Any]:
        """Return the policy as plain data, for a log."""
        return _options(self) | {
            "retrievers": {each.name: _options(each) for each in self.retrievers},
            "scorers": {each.name: _options(each) for each in self.scorers},
            "reranker": None if self.reranker is None else self.reranker.name,
        }


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
