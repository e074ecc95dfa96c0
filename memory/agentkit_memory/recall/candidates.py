"""`Considered`: an item that may answer a question, and what speaks for and against it; `Pool`: all of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

from agentkit_memory.records import TURN

if TYPE_CHECKING:
    from agentkit_memory.store.item_rows import StoredItem

__all__ = ["Considered", "Pool", "Slot"]

Slot: TypeAlias = Literal["documents", "conversation", "knowledge"]

_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*")
_GAP = 6 * 3600.0
"""Seconds of silence between two sittings of one conversation."""
_STANDS_ALONE = 60
"""Words from which on a text says by itself what it is about; a shorter one leans on what stands around it."""


@dataclass(slots=True)
class Considered:
    """An item, how each arm scored it, what else spoke for it, and what became of it."""

    item: StoredItem
    arms: dict[str, float] = field(default_factory=dict)
    """Raw scores, by the name of the arm that proposed it. Empty for a neighbour of what was proposed."""
    parts: dict[str, float] = field(default_factory=dict)
    """What the score is the sum of."""
    score: float = 0.0
    """Comparable within one recall: standard deviations above the average candidate, and the evidence."""
    used: bool = False
    reason: str = ""
    """Why it was used or not."""
    place: tuple[str, int] = field(init=False)
    """What it stands in, and where."""

    def __post_init__(self) -> None:
        item = self.item
        where = f"branch {item.branch_id}" if item.branch_id is not None else item.document_id or item.id
        self.place = where, item.position

    @property
    def id(self) -> str:
        """The id of the item."""
        return self.item.id

    @property
    def slot(self) -> Slot:
        """Where in a `PromptContext` it belongs."""
        return "documents" if self.item.document_id else "conversation" if self.item.kind == TURN else "knowledge"

    def why(self) -> str:
        """Return the score and its parts in one line."""
        parts = ", ".join(f"{name} {value:+.2f}" for name, value in self.parts.items() if abs(value) >= 0.005)
        arms = ", ".join(f"{name} {value:.3g}" for name, value in self.arms.items()) or "neighbour of a hit"
        return f"{self.score:+.2f} = {parts or '0'} ({arms})"


class Pool:
    """The candidates of one question, and how they stand to each other."""

    def __init__(self, candidates: Iterable[Considered]) -> None:
        self.candidates: Sequence[Considered] = tuple(candidates)
        self.base: list[float] = [0.0] * len(self.candidates)
        """What the arms together say of each, once they are fused."""
        self.floors: dict[str, float] = {}
        """Per arm what those score at most that it did not propose."""

    def __len__(self) -> int:
        return len(self.candidates)

    def found(self, arm: str) -> list[float]:
        """Return what an arm said of each candidate."""
        floor = self.floors.get(arm, 0.0)
        return [each.arms.get(arm, floor) for each in self.candidates]

    @cached_property
    def near(self) -> list[list[tuple[int, int]]]:
        """Per candidate the others within two places: how far after this one (negative: before), and which."""
        at: Mapping[tuple[str, int], int] = {each.place: number for number, each in enumerate(self.candidates)}
        near = []
        for each in self.candidates:
            where, position = each.place
            around = [(step, at.get((where, position + step))) for step in (-2, -1, 1, 2)]
            near.append([(step, other) for step, other in around if other is not None])
        return near

    @cached_property
    def leaning(self) -> list[float]:
        """Per candidate how much it leans on what stands around it: 1.0 for a short text, less for a longer one."""
        return [min(1.0, _STANDS_ALONE / (each.item.text.count(" ") + 1)) for each in self.candidates]

    @cached_property
    def asks(self) -> list[float]:
        """Per turn the share of it that is questions; 0.0 for what is no turn."""
        return [_asking(each.item.text) if each.item.kind == TURN else 0.0 for each in self.candidates]

    @cached_property
    def ends_asking(self) -> list[bool]:
        """Per candidate whether it is a turn that ends with a question."""
        return [each.item.kind == TURN and each.item.text.rstrip().endswith("?") for each in self.candidates]

    @cached_property
    def sittings(self) -> list[int]:
        """Per candidate the number of its sitting: turns of a branch without hours of silence between them.

        What is no turn has a negative number of its own.
        """
        numbers = [-1 - number for number in range(len(self))]
        turns = [number for number, each in enumerate(self.candidates) if each.item.kind == TURN]
        turns.sort(key=lambda number: self.candidates[number].place)
        sitting, before = 0, None
        for number in turns:
            item = self.candidates[number].item
            if before is not None and (
                item.branch_id != before.branch_id or abs((item.said_at or 0.0) - (before.said_at or 0.0)) > _GAP
            ):
                sitting += 1
            numbers[number], before = sitting, item
        return numbers


def _asking(text: str) -> float:
    if "?" not in text:
        return 0.0
    sentences = _SENTENCE.findall(text)
    total = sum(map(len, sentences))
    return sum(len(each) for each in sentences if each.endswith("?")) / total if total else 0.0
