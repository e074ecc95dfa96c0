"""BM25 as sparse vectors: terms are numbers, and the weights of a document contain all factors except the IDF.

The index multiplies by the IDF at query time, over the scope that is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import NamedTuple

from agentkit_memory.terms.analysis import count_terms, find_terms

SPACE = "bm25-4"
"""Name of the space of these vectors. Change the name together with the analysis or the constants."""

_FLOAT = Struct("f")
_K1 = 1.2
_B = 0.75
_MEAN_LENGTH = 120
"""Number of terms of a typical chunk. It is a constant, because a real mean would depend on other scopes."""


class SparseVector(NamedTuple):
    """Term numbers (32 bits, ascending, each once) and their weights."""

    indices: list[int]
    values: list[float]


def indexed_text(title: str, text: str) -> str:
    """Return the text to index for an item: the title, by which a chunk is found too, and the text."""
    if title:
        return f"{title}\n{text}"
    return text


def document_vector(text: str) -> SparseVector:
    """Return the weights of a stored text."""
    counts, length = count_terms(text, stored=True)
    ordered = sorted(counts)
    weights = _weights(counts.values(), length)
    return SparseVector(ordered, [weights[counts[term]] for term in ordered])


def weights_of_terms(text: str, factors: Mapping[int, float]) -> dict[int, float]:
    """Return the stored weights of terms in a text, each multiplied by its factor."""
    counts, length = find_terms(text, frozenset(factors))
    if not counts:
        return {}
    weights = _weights(counts.values(), length)
    return {term: factors[term] * weights[count] for term, count in counts.items()}


def query_vector(text: str) -> SparseVector:
    """Return the weights of a question: the count of each term."""
    counts, _ = count_terms(text)
    ordered = sorted(counts)
    return SparseVector(ordered, [float(counts[term]) for term in ordered])


def _weights(counts: Iterable[int], length: int) -> dict[int, float]:
    """Return the weight of each count of a term in a text of `length` words."""
    norm = _K1 * (1 - _B + _B * length / _MEAN_LENGTH)
    # Weights are rounded to 32 bits, as in an index, so that scores from the index and from texts are equal.
    return {count: _FLOAT.unpack(_FLOAT.pack(count * (_K1 + 1) / (count + norm)))[0] for count in set(counts)}
