"""`IngestReport`: what an ingestion did; `IngestProgress`: how far it is."""

from __future__ import annotations

from dataclasses import dataclass

from agentkit_memory.errors import IngestError

__all__ = ["IngestProgress", "IngestReport"]


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """How far an ingestion is."""

    done: int
    """Files done, those with errors too."""
    total: int
    """Files found."""
    source: str
    """The file that was just done, or that is being read."""
    chunks: int
    """Chunks written so far."""
    done_bytes: int = 0
    """Bytes read so far, of the file that is being read too."""
    total_bytes: int = 0
    """Bytes of all files found."""


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What an ingestion did."""

    added: tuple[str, ...] = ()
    """Files that are new."""
    changed: tuple[str, ...] = ()
    """Files whose chunks were replaced."""
    unchanged: tuple[str, ...] = ()
    """Files that were stored already with the same content."""
    removed: tuple[str, ...] = ()
    """Files that are gone from an ingested folder, and so from the store."""
    errors: tuple[IngestError, ...] = ()
    """Files that could not be read, and why. What was stored of them before is kept, unless they are gone."""
    repaired: tuple[IngestError, ...] = ()
    """Files that were stored without their damaged parts, and which these are. Only with `IngestOptions.lenient`."""
    chunks: int = 0
    """Chunks of the added and changed files."""
    pending: int = 0
    """Items of the store the index does not hold yet: another process owns it, or they are of other scopes. They are
    indexed later, and found by their words until then."""

    @property
    def files(self) -> int:
        """How many files are in the store because of this call or before it."""
        return len(self.added) + len(self.changed) + len(self.unchanged)
