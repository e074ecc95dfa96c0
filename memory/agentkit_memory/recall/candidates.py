"""`ScoredItem`: a candidate, an item with the parts of its score; `Pool`: all candidates of a question."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

from agentkit_memory.store.records import TURN

if TYPE_CHECKING:
    from agentkit_memory.recall.question import Question
    from agentkit_memory.store.stored_item import StoredItem

Slot: TypeAlias = Literal["documents", "conversation", "knowledge"]


@dataclass(slots=True)
class ScoredItem:
    """An item with the raw scores of the retrievers and the parts of its score."""

    item: StoredItem
    retrieved: dict[str, float] = field(default_factory=dict)
    """Raw scores, by the names of the retrievers that found the item; empty for a neighbour of a hit."""
    parts: dict[str, float] = field(default_factory=dict)
    """The summands of the score, by name."""
    score: float = 0.0
    """Score, comparable within one recall: the z-score of the retrievers, plus the scorers."""
    used: bool = False
    reason: str = ""
    """Reason why the item was used or not."""
    slot: Slot = field(init=False)
    """Field of a `PromptContext` that receives the item."""

    def __post_init__(self) -> None:
        if self.item.document_id:
            self.slot = "documents"
        elif self.item.kind == TURN:
            self.slot = "conversation"
        else:
            self.slot = "knowledge"

    @property
    def id(self) -> str:
        """The id of the item."""
        return self.item.id

    @property
    def place(self) -> tuple[str, int]:
        """Branch or document of the item, and its position."""
        item = self.item
        if item.branch_id is not None:
            return f"branch {item.branch_id}", item.position
        return item.document_id or item.id, item.position

    def why(self) -> str:
        """Return the score and its parts in one line."""
        parts = ", ".join(f"{name} {value:+.2f}" for name, value in self.parts.items() if abs(value) >= 0.005)
        raw = ", ".join(f"{name} {value:.3g}" for name, value in self.retrieved.items()) or "neighbour of a hit"
        return f"{self.score:+.2f} = {parts or '0'} ({raw})"

    def explanation(self) -> str:
        """Return the score with its parts and, if the item was not used, the reason."""
        if self.used:
            return self.reason
        return f"{self.why()}; {self.reason}"


class Pool:
    """The candidates of one question, and their neighbours."""

    def __init__(self, candidates: Iterable[ScoredItem]) -> None:
        self.candidates: Sequence[ScoredItem] = tuple(candidates)
        self.floors: dict[str, float] = {}
        """Maximum score of an item that a retriever did not find, by retriever."""
        self.stored_weights: Callable[[Sequence[str]], Mapping[str, Mapping[int, float]]] | None = None
        """Function that returns stored weights of the question's terms, by the ids of items; None without an index."""

    def __len__(self) -> int:
        return len(self.candidates)

    def raw_scores(self, retriever: str) -> list[float]:
        """Return the raw score of each candidate; the floor for a candidate that the retriever did not find."""
        floor = self.floors.get(retriever, 0.0)
        return [each.retrieved.get(retriever, floor) for each in self.candidates]

    def weights_by_candidate(self, question: Question, numbers: Iterable[int]) -> dict[int, Mapping[int, float]]:
        """Return the weights of the question's terms in candidates, by number; see `Question.weights_in`."""
        items = {number: self.candidates[number].item for number in numbers}
        new = [item for item in items.values() if item.id not in question.cached_weights]
        # The index returns weights faster than a text is analysed again.
        if new and self.stored_weights is not None:
            question.learn(self.stored_weights([item.id for item in new]))
        for item in new:
            if item.id not in question.cached_weights:
                question.weights_in(item)
        return {number: question.cached_weights[item.id] for number, item in items.items()}

    @cached_property
    def near(self) -> list[list[tuple[int, int]]]:
        """The neighbours of each candidate: distance, up to 2 (negative: before the candidate), and number of each."""
        numbers_at: dict[tuple[str | int, int], list[int]] = {}
        for number, each in enumerate(self.candidates):
            item = each.item
            owner: str | int = item.document_id or item.id
            if item.branch_id is not None:
                owner = item.branch_id
            # The parts of a long turn have the same position.
            numbers_at.setdefault((owner, item.position), []).append(number)
        near: list[list[tuple[int, int]]] = [[] for _ in self.candidates]
        for (owner, position), numbers in numbers_at.items():
            for step in (1, 2):
                for neighbour in numbers_at.get((owner, position + step), ()):
                    for number in numbers:
                        near[number].append((step, neighbour))
                        near[neighbour].append((-step, number))
        return near
