"""What a vector index has to be able to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Hit", "Point", "SparseVector", "VectorIndex"]


@dataclass(frozen=True, slots=True)
class SparseVector:
    """Term numbers (32 bits, ascending, each once) and their weights."""

    indices: list[int]
    values: list[float]


@dataclass(frozen=True, slots=True)
class Point:
    """An item as the index holds it: its id (a UUID as text), its vector and the number of its scope."""

    id: str
    vector: SparseVector
    scope_id: int


@dataclass(frozen=True, slots=True)
class Hit:
    """An item that was found; a higher score is better."""

    id: str
    score: float


class VectorIndex(Protocol):
    """A vector index of one process.

    Every write may be repeated. After `flush`, what was written survives a crash.
    """

    @property
    def id(self) -> str:
        """Names this index for as long as it keeps what it holds; an emptied one has another name."""
        ...

    def upsert(self, points: Sequence[Point]) -> None:
        """Add points, replacing those with the same id."""
        ...

    def delete(self, ids: Sequence[str]) -> None:
        """Remove points; unknown ids are fine."""
        ...

    def query(self, vector: SparseVector, scope_ids: Sequence[int], limit: int) -> list[Hit]:
        """Return the best points of the given scopes, weighing terms by their frequency in these scopes only."""
        ...

    def count(self) -> int:
        """Return how many points there are."""
        ...

    def flush(self) -> None:
        """Make everything written so far durable."""
        ...

    def clear(self) -> None:
        """Forget every point and take a new name."""
        ...

    def close(self) -> None:
        """Flush and let go of the folder."""
        ...
