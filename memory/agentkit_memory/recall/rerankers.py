"""`Reranker`: a custom model that reorders the best candidates, such as a cross-encoder."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import wait
from math import isfinite
from typing import Any, Protocol

from agentkit_memory.embedders.encoder import call_of_model
from agentkit_memory.errors import InvalidArgument
from agentkit_memory.recall.candidates import ScoredItem
from agentkit_prompts.errors import brief

_MAX_RERANKED = 50
"""Maximum number of candidates to rerank."""
_TIMEOUT = 1.0
"""Seconds that a recall waits for a reranker without a `rerank_timeout`."""
_MAX_TIMEOUT = 300.0
"""Maximum seconds of a `rerank_timeout`."""


class Reranker(Protocol):
    """Scores the best candidates again for a question.

    A recall waits for up to `rerank_timeout` seconds (an attribute, by default 1.0). If the reranker is late or raises
    an error, the order does not change, and `Recall.degraded` contains the problem.
    """

    @property
    def name(self) -> str:
        """Name of the reranker's part in the explanation of a score."""
        ...

    def rerank(self, question: str, candidates: Sequence[ScoredItem]) -> Sequence[float]:
        """Return a score for each candidate; the highest score is the best. The candidates are sorted, best first."""
        ...


_MAX_LATE = 64
"""Maximum number of rerankers with an unfinished late call; at this number, no reranker is called."""
_late_rerankers: dict[int, Reranker] = {}
"""Rerankers with an unfinished late call, by `id`. They are not called again, as each call may leave a thread."""


def is_reranker(part: object) -> bool:
    """Return True if an object has the attributes of a reranker."""
    return isinstance(getattr(part, "name", None), str) and callable(getattr(part, "rerank", None))


def reranked(reranker: Reranker, question: str, order: list[ScoredItem]) -> tuple[list[ScoredItem], str]:
    """Return the candidates in the order of a reranker, and its problem; empty text if it succeeded.

    Raises:
        InvalidArgument: The reranker has an invalid time limit, or did not return one finite number for each candidate.
    """
    limit: Any = getattr(reranker, "rerank_timeout", _TIMEOUT)
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 < limit <= _MAX_TIMEOUT:
        raise InvalidArgument(
            f"reranker {reranker.name!r}: rerank_timeout: expected seconds, more than 0 and at most {_MAX_TIMEOUT:g}, "
            f"got {brief(limit)}",
            name="rerank_timeout",
        )
    head = tuple(order[:_MAX_RERANKED])
    late = f"not reranked: reranker {reranker.name!r} did not return within {limit:g} seconds"
    if id(reranker) in _late_rerankers or len(_late_rerankers) >= _MAX_LATE:
        return order, f"{late}; it is called again after it has returned"
    # The call has a thread, because a model cannot be interrupted, and the recall must not wait for a late call.
    call = call_of_model(lambda: [*reranker.rerank(question, head)])
    if wait([call], limit).not_done:
        _late_rerankers[id(reranker)] = reranker
        call.add_done_callback(lambda _: _late_rerankers.pop(id(reranker), None))
        return order, late
    try:
        scores: list[Any] = call.result()
    except Exception as error:
        return order, f"not reranked: reranker {reranker.name!r} failed ({type(error).__name__}: {error})"
    if len(scores) != len(head) or not all(map(_is_score, scores)):
        raise InvalidArgument(
            f"reranker {reranker.name!r}: expected one finite number for each of {len(head)} candidates, got "
            f"{brief(scores)}",
            name=reranker.name,
        )
    for each, score in zip(head, scores, strict=True):
        each.parts[reranker.name] = float(score)
    # Candidates with equal scores keep their order.
    indexes = sorted(range(len(head)), key=lambda index: (-float(scores[index]), index))
    return [head[index] for index in indexes] + order[len(head) :], ""


def _is_score(value: object) -> bool:
    try:
        return not isinstance(value, str | bytes) and isfinite(float(value))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return False
