"""Files to chunks in the store: one transaction a file, errors a file, and whatever is unchanged passed over."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from agentkit_memory.errors import IngestError
from agentkit_memory.ingest.chunks import CHUNKER, chunk_text
from agentkit_memory.ingest.files import SourceFile, find_files, is_gone, read_text
from agentkit_memory.ingest.report import IngestProgress, IngestReport
from agentkit_memory.store.documents import DocumentStore

__all__ = ["ingest_files"]

_BATCH = 512  # chunks


def ingest_files(
    store: DocumentStore,
    paths: Iterable[str | os.PathLike[str]],
    on_progress: Callable[[IngestProgress], None] | None = None,
    on_stored: Callable[[], None] | None = None,
) -> IngestReport:
    """Store the files, calling `on_stored` whenever enough was written to be worth indexing.

    Raises:
        StoreError: The database cannot be written. The files before the one at fault are stored.
    """
    outcomes: dict[str, list[str]] = {"added": [], "changed": [], "unchanged": []}
    errors: list[IngestError] = []
    chunks = waiting = 0
    given = [Path(path).expanduser() for path in paths]
    found = list(find_files(given))
    for done, file in enumerate(found, 1):
        try:
            if isinstance(file, IngestError):
                raise file
            outcome, written = _ingest(store, file)
            outcomes[outcome].append(file.source)
            chunks += written
            waiting += written
            if on_stored is not None and waiting >= _BATCH:
                waiting = 0
                on_stored()
        except IngestError as error:
            errors.append(error)
        if on_progress is not None:
            on_progress(IngestProgress(done, len(found), file.source, chunks))
    return IngestReport(
        added=tuple(outcomes["added"]),
        changed=tuple(outcomes["changed"]),
        unchanged=tuple(outcomes["unchanged"]),
        removed=tuple(name for folder in given if folder.is_dir() for name in _remove_gone(store, folder)),
        errors=tuple(errors),
        chunks=chunks,
    )


def _ingest(store: DocumentStore, file: SourceFile) -> tuple[str, int]:
    data, text = read_text(file)
    digest = hashlib.blake2b(data, digest_size=24, person=CHUNKER.encode()).hexdigest()
    if store.content_hash(file.uri) == digest:
        return "unchanged", 0
    chunks = list(chunk_text(text, markdown=file.is_markdown))
    new = store.replace(file.uri, file.source, digest, chunks)
    return ("added" if new else "changed"), len(chunks)


def _remove_gone(store: DocumentStore, folder: Path) -> list[str]:
    """Remove what was ingested from a folder before and is no longer on the disk."""
    return store.remove_below(folder.resolve().as_uri(), is_gone)
