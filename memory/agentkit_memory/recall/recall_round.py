"""One round of a recall: its depth, and its candidates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from agentkit_memory.recall.asked import Asked
from agentkit_memory.recall.candidates import ScoredItem
from agentkit_memory.recall.question import Question
from agentkit_memory.recall.recall_policy import MAX_CANDIDATES
from agentkit_memory.recall.retrievers import DENSE, SPARSE
from agentkit_memory.store.records import IMAGE, TURN
from agentkit_memory.store.stored_item import StoredItem

__all__ = ["Candidates", "ConfirmedHit", "Depth"]

_WIDER = 16
"""Factor of the candidates after copies took the places of other candidates."""
_DEEPER = 4
"""Factor of the hits after SQL or the filter left out most of them."""


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
    """True if an earlier round found mostly copies: then copies of one text take one place."""

    @classmethod
    def of(cls, asked: Asked, candidates: int, *, is_wider: bool = False) -> Depth:
        """Return the first depth for a number of candidates."""
        hidden = sum(last - after for _, after, last in asked.hidden)
        # Hidden messages are often the best hits, as they have the same topic: they must not replace other candidates.
        wanted = max(candidates, 2 * asked.limit) + min(hidden, 4 * candidates)
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

    def wider(self, asked: Asked) -> Depth:
        """Return the depth with more candidates of every retriever."""
        candidates = min(_WIDER * max(self.candidates, asked.limit), MAX_CANDIDATES)
        return Depth.of(asked, candidates, is_wider=True)


@dataclass(slots=True)
class Candidates:
    """The candidates of one round."""

    asked: Asked
    depth: Depth
    question: Question
    next: Depth | None = None
    """Depth of the next round; None if these candidates suffice."""
    is_rare: bool = False
    """True if the filter allows few of the best hits, and too many items meet it to ask the index about each."""
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
            if self.asked.hidden and self.asked.hides(item):
                continue
            if self.depth.is_wider and self._is_copy(item):
                continue
            self.items[item.id] = ScoredItem(item, {retriever: score})
        # An item that BM25 did not find has none of the terms, if all hits were fetched. A vector always has a score:
        # for items without a vector, the lowest one counts.
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
            if item.id in self.items or (self.asked.hidden and self.asked.hides(item)):
                continue
            if self.asked.allows(item):
                self.items[item.id] = ScoredItem(item)

    def best_turns(self) -> list[StoredItem]:
        """Return the messages among the best hits: only messages are understood from their neighbours."""
        around = self.asked.policy.around
        if not around:
            return []
        # Scores of different retrievers have different scales.
        tops = {}
        for name in self.floors:
            scores = [abs(each.retrieved.get(name, 0.0)) for each in self.items.values()]
            tops[name] = max(scores, default=0.0) or 1.0
        order = [
            (-sum([score / tops[name] for name, score in each.retrieved.items()]), each.item.id, each.item)
            for each in self.items.values()
        ]
        return [item for _, _, item in sorted(order)[:around] if item.kind == TURN]
