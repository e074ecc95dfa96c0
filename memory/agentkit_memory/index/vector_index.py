"""`VectorIndex`: the protocol of a vector index. A custom index is one class with these methods."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence, Set
from typing import NamedTuple, Protocol, TypeAlias, cast, runtime_checkable

from agentkit_memory.terms.bm25_vectors import SparseVector

SPARSE, DENSE, SCOPE, VERSION = "bm25", "dense", "scope", "version"
"""Names of the vectors and of the payload of a point in Qdrant."""

_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Point(NamedTuple):
    """An item in the index."""

    id: str
    """A UUID as text, in lower case."""
    version: int
    """Version of the item, which grows with every write; a point is never replaced by an older version."""
    scope_id: int
    """Number of the scope the item belongs to."""
    sparse: SparseVector
    dense: Sequence[float] | None = None
    """Dense vector with `dimensions` numbers; None in a space without a model, or until the vector is computed."""


class Hit(NamedTuple):
    """An item that was found; a higher score is better."""

    id: str
    score: float


class VectorIndex(Protocol):
    """The points of one space. A point has BM25 weights and, if the space has a model, a dense vector.

    Every write may be repeated. After `flush`, writes survive a crash. A query never returns a point of another scope
    than its `scope_ids`, and points of other scopes do not influence its scores.
    """

    @property
    def id(self) -> str:
        """Id of the content of this index; it changes when the index is emptied."""
        ...

    @property
    def dimensions(self) -> int:
        """Length of the dense vectors; 0 without dense vectors."""
        ...

    @property
    def shared(self) -> bool:
        """True if other processes may write the index at the same time, as on a server."""
        ...

    def upsert(self, points: Sequence[Point]) -> None:
        """Add points; a stored point with the same id is replaced unless its version is greater."""
        ...

    def delete(self, ids: Sequence[str]) -> None:
        """Remove points; unknown ids are fine."""
        ...

    def query_sparse(
        self, vector: SparseVector, scope_ids: Sequence[int], limit: int, among: Sequence[str] | None = None
    ) -> list[Hit]:
        """Return the best points of some scopes, weighing terms by their frequency in these scopes only.

        `among` limits the result to points with these ids, without changing their scores.
        """
        ...

    def query_dense(
        self, vector: Sequence[float], scope_ids: Sequence[int], limit: int, among: Sequence[str] | None = None
    ) -> list[Hit]:
        """Return the points of some scopes whose dense vectors are nearest by cosine, which is the score.

        `among` limits the result to points with these ids.
        """
        ...

    def versions(self) -> Iterator[tuple[str, int]]:
        """Yield the id and the version of every point, in ascending order of the id."""
        ...

    def count(self, scope_ids: Sequence[int] | None = None) -> int:
        """Return the number of points of some scopes; None for all scopes."""
        ...

    def flush(self) -> None:
        """Make everything written so far durable."""
        ...

    def compact(self) -> bool:
        """Rewrite the files without removed points; return True if the files contain no removed points now."""
        ...

    def clear(self) -> None:
        """Remove every point, and change the id."""
        ...

    def close(self) -> None:
        """Flush, and release files, locks and connections; other methods then raise `StoreClosed`."""
        ...


@runtime_checkable
class CountsWrites(Protocol):
    """An index that stores on its disk the number of acknowledged batches, and the number of points after the last.

    SQL stores the number of batches too. If the two numbers differ when the index is opened, the index or the database
    is an older copy.
    """

    def written(self) -> int:
        """Return the stored number of batches; 0 in an empty index."""
        ...

    def keep_written(self, writes: int) -> None:
        """Store a number of batches, and the number of points, unless a greater number of batches is stored."""
        ...

    def is_as_written(self) -> bool:
        """Return True if the index has the stored number of points. The points are not counted one by one."""
        ...


@runtime_checkable
class KeepsTerms(Protocol):
    """An index that returns its BM25 weights in less time than a text is analysed again."""

    def term_weights(self, ids: Sequence[str], terms: Set[int]) -> dict[str, dict[int, float]]:
        """Return the weights of these terms, by the ids of the stored points."""
        ...


def is_point_id(item: object) -> bool:
    """Return True if a value is a valid id of a point. In a corrupt database the id of an item may be invalid."""
    return isinstance(item, str) and _UUID.fullmatch(item) is not None


def as_floats(vector: Sequence[float]) -> list[float]:
    """Return the vector as a list, which clients read faster than an array of numpy."""
    if isinstance(vector, list):
        return vector
    to_list = getattr(vector, "tolist", None)
    if to_list is None:
        return list(vector)
    return cast("list[float]", to_list())


IndexOpener: TypeAlias = Callable[[str, int], VectorIndex]
"""Function of the name and the dimensions of a space (0 without dense vectors) that opens its index."""
