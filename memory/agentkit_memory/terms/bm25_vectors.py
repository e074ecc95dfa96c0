"""BM25 as sparse vectors: terms become numbers, a document's weights hold everything but the IDF.

The IDF is multiplied in by the index at query time, over the scope that is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agentkit_memory.terms.analysis import TermFinder, count_terms

__all__ = ["SPACE", "HeldTerms", "SparseVector", "document_vector", "indexed_text", "query_vector"]

SPACE = "bm25-2"
"""Name of the vectors made here. Another analysis or other constants need another name."""

_K1 = 1.2
_B = 0.75
_MEAN_LENGTH = 120
"""Terms of a typical chunk. A constant: a real mean would reveal the other scopes."""


@dataclass(frozen=True, slots=True)
class SparseVector:
    """Term numbers (32 bits, ascending, each once) and their weights."""

    indices: list[int]
    values: list[float]


def indexed_text(title: str, text: str) -> str:
    """Return the text of an item that is indexed: a chunk is found by its headings too."""
    return f"{title}\n{text}" if title else text


def document_vector(text: str) -> SparseVector:
    """Return the weights of a stored text."""
    counts, length = count_terms(text, stored=True)
    ordered = sorted(counts)
    weights = _weights(counts.values(), length)
    return SparseVector(ordered, [weights[counts[term]] for term in ordered])


class HeldTerms:
    """The stored weights of the wanted terms in many texts, each times how often it is wanted. For one thread."""

    def __init__(self, wanted: Mapping[int, float]) -> None:
        self._wanted = wanted
        self._finder = TermFinder(wanted)

    def __call__(self, text: str) -> dict[int, float]:
        """Return the weights in a text."""
        counts, length = self._finder.find(text)
        if not counts:
            return {}
        weights = _weights(counts.values(), length)
        wanted = self._wanted
        return {term: wanted[term] * weights[count] for term, count in counts.items()}


def query_vector(text: str) -> SparseVector:
    """Return the weights of a question: how often each of its terms occurs. Empty if it has only stop words."""
    counts, _ = count_terms(text)
    ordered = sorted(counts)
    return SparseVector(ordered, [float(counts[term]) for term in ordered])


def _weights(counts: Iterable[int], length: int) -> dict[int, float]:
    """Return the weight of a term in a text of that many terms, by how often it occurs."""
    norm = _K1 * (1 - _B + _B * length / _MEAN_LENGTH)
    return {count: count * (_K1 + 1) / (count + norm) for count in set(counts)}
