"""`RecallPolicy`: the retrievers, scorers and limits of a recall."""

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

MAX_CANDIDATES = 10_000
"""Maximum documents of one recall, and maximum hits of one retriever."""


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
    """Retrievers, scorers and limits that find, score and choose candidates. The default needs no tuning.

    The scores of each retriever become z-scores over the candidates and are added; their sum becomes a z-score again,
    so that scorers have the same weight with one retriever as with two. Create a custom policy with
    `dataclasses.replace`.

    Raises:
        InvalidArgument: The retrievers are empty, or a part has the wrong type or is out of range.
    """

    name: str = "default"
    retrievers: Annotated[_Retrievers, Field(min_length=1)] = (
        BM25Retriever(),
        DenseRetriever(),
    )
    """Retrievers; dense retrieval is left out if the store has no model."""
    scorers: _Scorers = (
        SpeakerScorer(),
        DateScorer(),
        AnswerScorer(),
        QuestionScorer(),
    )
    candidates: Annotated[int, Field(ge=1, le=MAX_CANDIDATES)] = 24
    """Maximum number of candidates of each retriever."""
    around: CountOrZero = 6
    """Number of the best hits whose neighbouring turns become candidates too."""
    diversity: Share = 0.0
    """From 0.0 (the best first) to 1.0 (the most different first): maximal marginal relevance."""
    collapse: bool = True
    """True to use only the best of nearly equal texts."""
    tokens: Count | None = None
    """Maximum tokens of all used texts together, by the fast estimate."""
    reranker: _Reranker = None
    """Reorders the best candidates just before the choice."""

    def describe(self) -> dict[str, Any]:
        """Return the policy as plain data, for a log."""
        reranker = None
        if self.reranker is not None:
            reranker = self.reranker.name
        return _options(self) | {
            "retrievers": {each.name: _options(each) for each in self.retrievers},
            "scorers": {each.name: _options(each) for each in self.scorers},
            "reranker": reranker,
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
"""Policies by name: `default`; `lexical`, the default without dense vectors; `bm25` and `dense`, for comparisons."""


def named_policy(policy: RecallPolicy | str | None) -> RecallPolicy:
    """Return the policy with a name; None for the default policy.

    Raises:
        InvalidArgument: The name is unknown.
    """
    if isinstance(policy, RecallPolicy):
        return policy
    if policy is None:
        return POLICIES["default"]
    value, by_name = type(policy).__name__, None
    if isinstance(policy, str):
        value, by_name = policy, POLICIES.get(policy)
    if by_name is None:
        raise InvalidArgument(
            f"recall: unknown policy {brief(policy)}; expected one of {', '.join(POLICIES)}, or a RecallPolicy",
            name="policy",
            value=value,
        )
    return by_name
