"""`IngestReport`: the result of an ingestion; `IngestProgress`: its progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agentkit_memory.errors import IngestError


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """Progress of an ingestion."""

    done: int
    """Finished files, including files with errors."""
    total: int
    """Files that were found."""
    source: str
    """The file that was just finished, or that is being read."""
    chunks: int
    """Chunks written so far."""
    done_bytes: int = 0
    """Bytes read so far, including the file that is being read."""
    total_bytes: int = 0
    """Bytes of all files that were found."""


@dataclass(frozen=True, slots=True)
class IngestReport:
    """Result of an ingestion."""

    added: tuple[str, ...] = ()
    """Files that are new."""
    changed: tuple[str, ...] = ()
    """Files whose chunks were replaced."""
    unchanged: tuple[str, ...] = ()
    """Files that were stored already with the same content."""
    removed: tuple[str, ...] = ()
    """Files that are gone from an ingested folder, and were removed from the store."""
    errors: tuple[IngestError, ...] = ()
    """Errors of files that could not be read, and of files without text. The stored chunks of a file that could not be
    read stay, unless the file is gone; a file without text has no chunks."""
    repaired: tuple[IngestError, ...] = ()
    """Errors of files that were stored without their corrupt parts. Only with `IngestOptions.lenient`."""
    gaps: tuple[IngestError, ...] = ()
    """Parts of added and changed files that have no text, such as scanned pages, or that no reader reads, such as
    attachments and hidden sheets: one entry for each file. The other parts are stored."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Number of files in folders that no reader reads, by the ending of their names (`.zip`), in lower case."""
    chunks: int = 0
    """Chunks of the added and changed files."""
    pending: int = 0
    """Items of the store that are not indexed yet, since another process owns the index, or since the items belong to
    other scopes. They are indexed later, and found by their words until then."""

    @property
    def files(self) -> int:
        """Number of files that are in the store after this call."""
        return len(self.added) + len(self.changed) + len(self.unchanged)
