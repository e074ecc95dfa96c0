"""The choice among the scored candidates: the best, without copies, within the limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from agentkit_memory.recall.candidates import Pool, ScoredItem
from agentkit_memory.recall.near_duplicates import Copies
from agentkit_memory.recall.question import Question
from agentkit_memory.recall.recall_request import RecallRequest
from agentkit_memory.recall.recall_result import relevance
from agentkit_memory.store.records import IMAGE
from agentkit_memory.terms.analysis import split_words
from agentkit_prompts.ranking.mmr import mmr
from agentkit_prompts.tokens.counter import ESTIMATE

_MAX_DIVERSE = 64
"""Maximum number of candidates that diversity reorders."""
_SCORE = attrgetter("score")


def ranked(pool: Pool, diversity: float = 0.0) -> list[ScoredItem]:
    """Return the candidates, the best first; ties in the order of the document.

    With diversity, candidates that differ from the candidates before them come earlier.
    """
    order: list[ScoredItem] = []
    for _, equal in groupby(sorted(pool.candidates, key=_SCORE, reverse=True), _SCORE):
        tied = [*equal]
        if len(tied) > 1:
            tied.sort(key=lambda each: (each.item.uri, *each.place, each.item.start, each.id))
        order += tied
    if not diversity:
        return order
    return _diverse(order, diversity)


def choose(
    question: Question,
    order: Sequence[ScoredItem],
    request: RecallRequest,
    image_hashes_of: Callable[[Sequence[str]], Mapping[str, str]],
) -> list[ScoredItem]:
    """Choose at most `request.limit` facts and as many other items, best first; set the reason on every candidate.

    Args:
        question: The question without the names of speakers.
        order: The candidates, best first.
        request: The arguments of the recall.
        image_hashes_of: Returns the hash of each image by its id: only the same image is a copy of an image.
    """
    choice = _Choice(request)
    images: Mapping[str, str] = {}
    image_ids = [each.id for each in order if each.item.kind == IMAGE]
    if image_ids:
        images = image_hashes_of(image_ids)
    copies = Copies(question, images)
    for each in order:
        each.used = False
        each.reason = choice.exclusion(each)
        if each.reason:
            continue
        size = choice.size(each)
        excess_reason = choice.excess(size)
        if request.policy.collapse:
            each.reason = copies.reason(each, keep=not excess_reason)
        each.reason = each.reason or excess_reason
        if not each.reason:
            choice.use(each, size)
    return choice.used


class _Choice:
    """The candidates that are used so far, and the room for more."""

    def __init__(self, request: RecallRequest) -> None:
        self.used: list[ScoredItem] = []
        self._request = request
        self._below = f"below the first {request.limit}"
        self._facts_left = request.limit
        self._others_left = request.limit
        """Places for items that are not facts."""
        self._tokens = request.policy.tokens

    def exclusion(self, each: ScoredItem) -> str:
        """Return the reason that excludes a candidate regardless of its text; otherwise empty text."""
        places = self._others_left
        if each.slot == "knowledge":
            places = self._facts_left
        if not places:
            return self._below
        if self._request.roles is not None and not self._request.is_of_roles(each.item):
            return f"from the {each.item.role}, but `roles` allows only {', '.join(self._request.roles)}"
        # A neighbour of a hit has no term of the question: it is a candidate only because of its position.
        if not each.retrieved and each.score <= 0.0:
            return "neighbour of a hit, below the average candidate"
        return ""

    def size(self, each: ScoredItem) -> int:
        """Return the number of tokens of a candidate; 0 if tokens are not limited, as counting takes time."""
        if self._tokens is None:
            return 0
        return ESTIMATE.count(each.item.text)

    def excess(self, size: int) -> str:
        """Return a reason if a candidate of this size has more tokens than are left."""
        if self._tokens is None or size <= self._tokens:
            return ""
        return f"has {size} tokens, {self._tokens} were left"

    def use(self, each: ScoredItem, size: int) -> None:
        """Use a candidate of this size."""
        if each.slot == "knowledge":
            self._facts_left -= 1
        else:
            self._others_left -= 1
        if self._tokens is not None:
            self._tokens -= size
        each.used, each.reason = True, each.why()
        self.used.append(each)


def _diverse(order: Sequence[ScoredItem], diversity: float) -> list[ScoredItem]:
    head = order[:_MAX_DIVERSE]
    # Each text is compared with every chosen text, so only the head is reordered.
    texts = [frozenset(split_words(each.item.text)) for each in head]

    def similarity(first: int, second: int) -> float:
        return len(texts[first] & texts[second]) / (len(texts[first] | texts[second]) or 1)

    chosen = mmr([relevance(each.score) for each in head], similarity, len(head), diversity=diversity)
    return [head[number] for number in chosen] + list(order[_MAX_DIVERSE:])
