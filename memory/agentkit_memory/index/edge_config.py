"""Configuration of a shard of Qdrant Edge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkit_memory.errors import StoreUnavailable
from agentkit_memory.index.vector_index import DENSE, SPARSE
from agentkit_prompts.extras import install

if TYPE_CHECKING:
    import qdrant_edge as edge
else:
    try:
        import qdrant_edge as edge
    except ImportError as missing:
        raise StoreUnavailable(f"recall needs Qdrant Edge: {install('vector')}", name="vector") from missing

__all__ = ["edge", "edge_config"]

_MAX_SCANNED = 1000
"""Maximum points of a scope for scoring every point; for more points, posting lists are faster."""
_MIN_QUANTIZED = 64
"""Minimum dimensions for quantization to two bits: shorter vectors may become equal."""
_MAX_SEGMENTS = 100
"""Maximum number of segments; with more segments, the smallest are merged."""
_MIN_DELETED = 1e-9
"""Minimum share of deleted points for rewriting a segment: any deleted point is enough."""


def edge_config(dimensions: int, segment: int, *, vacuum: bool = False) -> edge.EdgeConfig:
    """Return the configuration of a shard; with `vacuum`, segments with any deleted point are rewritten.

    Args:
        dimensions: Length of the dense vectors; 0 without dense vectors.
        segment: Maximum size of a segment in bytes.
        vacuum: True to load a shard for compaction.
    """
    sparse = edge.EdgeSparseVectorParams(
        full_scan_threshold=_MAX_SCANNED, modifier=edge.Modifier.Idf, memory=edge.Memory.Cold
    )
    min_deleted, min_vectors = None, None
    if vacuum:
        min_deleted, min_vectors = _MIN_DELETED, 1
    return edge.EdgeConfig(
        vectors=_dense_config(dimensions),
        sparse_vectors={SPARSE: sparse},
        optimizers=edge.EdgeOptimizersConfig(
            deleted_threshold=min_deleted,
            vacuum_min_vector_number=min_vectors,
            indexing_threshold=segment >> 10,
            default_segment_number=_MAX_SEGMENTS,
        ),
        # A query takes a millisecond or two: less than passing it to threads.
        max_search_threads=1,
        id_tracker_memory=edge.Memory.Cold,
        # The outbox repeats writes that were not flushed.
        wal_enabled=False,
    )


def _dense_config(dimensions: int) -> dict[str, edge.EdgeVectorParams] | None:
    """Return the configuration of the dense vectors; None without dimensions."""
    if not dimensions:
        return None
    quantization = None
    if dimensions >= _MIN_QUANTIZED:
        # Each number is quantized to two bits; four times the requested hits are rescored with the full numbers. That
        # takes three fifths of the memory of one byte per number, and finds the same texts.
        quantization = edge.TurboQuantQuantizationConfig(bits=edge.TurboQuantBitSize.Bits2, memory=edge.Memory.Cached)
    # No graph is built (`m=0`): building a graph takes minutes, in which Edge holds the interpreter lock.
    params = edge.EdgeVectorParams(
        dimensions,
        edge.Distance.Cosine,
        quantization_config=quantization,
        hnsw_config=edge.HnswIndexConfig(m=0, ef_construct=1, full_scan_threshold=_MAX_SCANNED),
    )
    return {DENSE: params}
