"""`VectorIndex`: the protocol of a vector index. An index of your own is one class that has these methods."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias, cast, runtime_checkable

from agentkit_memory.terms.bm25_vectors import SparseVector

__all__ = [
    "DENSE",
    "SCOPE",
    "SPARSE",
    "VERSION",
    "CountsWrites",
    "Hit",
    "IndexOpener",
    "KeepsTerms",
    "Point",
    "VectorIndex",
    "as_floats",
    "is_point_id",
]

SPARSE, DENSE, SCOPE, VERSION = "bm25", "dense", "scope", "version"
"""Names of the vectors and of the payload of a point in Qdrant."""


_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Point:
    """An item as the index holds it."""

    id: str
    """A UUID as text, in lower case."""
    version: int
    """Grows with every writing of the item; a point is never replaced by an older one."""
    scope_id: int
    """Number of the scope the item belongs to."""
    sparse: SparseVector
    dense: Sequence[float] | None = None
    """Of the length `dimensions`; None where there is no dense vector (yet)."""


class Hit(NamedTuple):
    """An item that was found; a higher score is better."""

    id: str
    score: float


class VectorIndex(Protocol):
    """The points of one space: BM25 weights and, where the space has a model, one dense vector each.

    Every write may be repeated. After `flush`, what was written survives a crash. A query never returns, nor is any
    score influenced by, a point of another scope than those it names.
    """

    @property
    def id(self) -> str:
        """Names this index for as long as it keeps what it holds; an emptied one has another name."""
        ...

    @property
    def dimensions(self) -> int:
        """Length of the dense vectors; 0 without any."""
        ...

    @property
    def shared(self) -> bool:
        """Whether other processes may write it at the same time, as they may a server."""
        ...

    def upsert(self, points: Sequence[Point]) -> None:
        """Add points, replacing those with the same id and no greater version."""
        ...

    def delete(self, ids: Sequence[str]) -> None:
        """Remove points; unknown ids are fine."""
        ...

    def query_sparse(
        self, vector: SparseVector, scope_ids: Sequence[int], limit: int, among: Sequence[str] | None = None
    ) -> list[Hit]:
        """Return the best points of the given scopes, weighing terms by their frequency in these scopes only.

        With `among` of the points with these ids only, with the same scores.
        """
        ...

    def query_dense(
        self, vector: Sequence[float], scope_ids: Sequence[int], limit: int, among: Sequence[str] | None = None
    ) -> list[Hit]:
        """Return the points of the given scopes whose dense vectors are nearest by cosine, which is the score.

        With `among` of the points with these ids only.
        """
        ...

    def versions(self) -> Iterator[tuple[str, int]]:
        """Yield the id and the version of every point, in ascending order of the id."""
        ...

    def count(self, scope_ids: Sequence[int] | None = None) -> int:
        """Return how many points there are, in all or of the given scopes."""
        ...

    def flush(self) -> None:
        """Make everything written so far durable."""
        ...

    def compact(self) -> bool:
        """Rewrite its files without the removed points; return whether nothing of these is left in them."""
        ...

    def clear(self) -> None:
        """Forget every point and take a new name."""
        ...

    def close(self) -> None:
        """Flush and free files, locks and connections."""
        ...


@runtime_checkable
class CountsWrites(Protocol):
    """An index that keeps on its disk how many batches SQL has acknowledged, as SQL does.

    Where the two numbers differ as it is opened, one of the two is an older copy.
    """

    def written(self) -> int:
        """Return the number that was kept last; 0 in an empty index."""
        ...

    def keep_written(self, writes: int) -> None:
        """Keep a number, unless a greater one is kept."""
        ...


@runtime_checkable
class KeepsTerms(Protocol):
    """An index that returns the BM25 weights it holds, in less time than a text is analysed again."""

    def term_weights(self, ids: Sequence[str], terms: Set[int]) -> dict[str, dict[int, float]]:
        """Return the weights of these terms in those of the points that it holds."""
        ...


def is_point_id(item: object) -> bool:
    """Return whether this is the id of a point; of an item it may be something else where the database is damaged."""
    return isinstance(item, str) and _UUID.fullmatch(item) is not None


def as_floats(vector: Sequence[float]) -> list[float]:
    """Return the vector as a list, which clients read faster than an array of numpy."""
    if isinstance(vector, list):
        return vector
    as_list = getattr(vector, "tolist", None)
    return list(vector) if as_list is None else cast("list[float]", as_list())


IndexOpener: TypeAlias = Callable[[str, int], VectorIndex]
"""Opens the index of a space: its name, and the dimensions of its dense vectors (0: none)."""
