"""One round of a recall: its depth, and its candidates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from agentkit_memory.recall.candidates import ScoredItem
from agentkit_memory.recall.question import Question
from agentkit_memory.recall.recall_policy import MAX_CANDIDATES
from agentkit_memory.recall.recall_request import RecallRequest
from agentkit_memory.recall.retrievers import DENSE, SPARSE
from agentkit_memory.store.records import IMAGE, TURN
from agentkit_memory.store.stored_item import StoredItem

_WIDER = 16
"""Factor for the candidates of the next round, if copies replaced other candidates."""
_DEEPER = 4
"""Factor for the hits of the next round, if SQL or the filter left out most hits."""


class ConfirmedHit(NamedTuple):
    """An item that a retriever found and SQL confirmed."""

    item: StoredItem
    score: float


@dataclass(frozen=True, slots=True)
class Depth:
    """Limits of one round of a recall."""

    candidates: int
    """Candidates of each retriever, before hidden messages are added."""
    wanted: int
    """Hits of each retriever to consider."""
    hits: Mapping[str, int]
    """Hits to fetch from the index by retriever: more than `wanted` if most of them are not usable."""
    is_wider: bool = False
    """True if an earlier round found mostly copies: then only one copy of a text becomes a candidate."""

    @classmethod
    def of(cls, request: RecallRequest, candidates: int, *, is_wider: bool = False) -> Depth:
        """Return the first depth for a number of candidates."""
        hidden = sum(last - after for _, after, last in request.hidden)
        # Hidden messages are often the best hits, as they have the same topic: they must not replace other candidates.
        wanted = max(candidates, 2 * request.limit) + min(hidden, 4 * candidates)
        return cls(candidates, wanted, {SPARSE: wanted, DENSE: wanted}, is_wider)

    @property
    def is_widest(self) -> bool:
        """True if no more candidates may be looked for."""
        return self.candidates >= MAX_CANDIDATES

    def is_deepest(self, retriever: str) -> bool:
        """Return True if no more hits of a retriever may be fetched."""
        return self.hits[retriever] >= MAX_CANDIDATES

    def deeper(self, retriever: str) -> Depth:
        """Return the depth with more hits of one retriever."""
        hits = min(_DEEPER * self.hits[retriever], max(MAX_CANDIDATES, self.wanted))
        return replace(self, hits={**self.hits, retriever: hits})

    def wider(self, request: RecallRequest) -> Depth:
        """Return the depth with more candidates of every retriever."""
        candidates = min(_WIDER * max(self.candidates, request.limit), MAX_CANDIDATES)
        return Depth.of(request, candidates, is_wider=True)


@dataclass(slots=True)
class Candidates:
    """The candidates of one round."""

    request: RecallRequest
    depth: Depth
    question: Question
    next: Depth | None = None
    """Depth of the next round; None if these candidates suffice."""
    is_rare: bool = False
    """True if few of the best hits meet the filter, but too many items meet it for a search among their ids."""
    is_full: bool = False
    """True if there may be more hits than were considered."""
    copies: int = 0
    """Hits that were left out as copies."""
    floors: dict[str, float] = field(default_factory=dict)
    """Highest possible score of an item that a retriever did not find, by retriever."""
    items: dict[str, ScoredItem] = field(default_factory=dict)
    _texts: set[str] = field(default_factory=set)

    def add(self, retriever: str, hits: Sequence[ConfirmedHit]) -> None:
        """Add the hits of a retriever."""
        for item, score in hits:
            candidate = self.items.get(item.id)
            if candidate is not None:
                candidate.retrieved[retriever] = score
                continue
            if self.request.hidden and self.request.hides(item):
                continue
            if self.depth.is_wider and self._is_copy(item):
                continue
            self.items[item.id] = ScoredItem(item, {retriever: score})
        # If all hits were fetched, an item that BM25 did not find has none of the terms. A vector always has a score,
        # so that an item without a vector gets the lowest score.
        self.floors[retriever] = 0.0
        if len(hits) >= self.depth.wanted or retriever == DENSE:
            self.floors[retriever] = min([score for _, score in hits], default=0.0)

    def _is_copy(self, item: StoredItem) -> bool:
        if item.kind == IMAGE:
            return False
        text = " ".join(item.text.casefold().split())
        if text in self._texts:
            self.copies += 1
            return True
        self._texts.add(text)
        return False

    def add_neighbours(self, items: Iterable[StoredItem]) -> None:
        """Add messages near the best hits, which no retriever found."""
        for item in items:
            if item.id in self.items or (self.request.hidden and self.request.hides(item)):
                continue
            if self.request.allows(item):
                self.items[item.id] = ScoredItem(item)

    def best_turns(self) -> list[StoredItem]:
        """Return the messages among the best hits, which can be understood better with their neighbours."""
        around = self.request.policy.around
        if not around:
            return []
        # The scores of the retrievers have different scales, so that each score is divided by the highest score.
        tops = {}
        for name in self.floors:
            scores = [abs(each.retrieved.get(name, 0.0)) for each in self.items.values()]
            tops[name] = max(scores, default=0.0) or 1.0
        order = [
            (-sum([score / tops[name] for name, score in each.retrieved.items()]), each.item.id, each.item)
            for each in self.items.values()
        ]
        return [item for _, _, item in sorted(order)[:around] if item.kind == TURN]
