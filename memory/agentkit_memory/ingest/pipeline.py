"""Files to chunks in the store: unchanged files are skipped, errors are reported per file, no file is held whole."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path

from agentkit_memory.checks import MAX_BYTES, expanded
from agentkit_memory.errors import IngestError, StoreCorrupt
from agentkit_memory.ingest.chunks import CHUNKER, chunk_blocks
from agentkit_memory.ingest.documents import DocumentStore
from agentkit_memory.ingest.find_files import Format, SourceFile, find_files, is_gone, is_same_folder
from agentkit_memory.ingest.images import MAX_IMAGE, checked_alt, checked_image
from agentkit_memory.ingest.ingest_options import IngestOptions
from agentkit_memory.ingest.leftovers import finish_removals
from agentkit_memory.ingest.readers.blocks import Block, Part
from agentkit_memory.ingest.readers.file_stream import PIECE, FileStream
from agentkit_memory.ingest.readers.html import html_blocks
from agentkit_memory.ingest.readers.json_lines import record_blocks
from agentkit_memory.ingest.readers.pdf import pdf_blocks
from agentkit_memory.ingest.readers.text_and_markdown import text_blocks
from agentkit_memory.ingest.report import IngestProgress, IngestReport
from agentkit_memory.store.item_rows import storable
from agentkit_memory.store.outbox import WORTH_INDEXING
from agentkit_prompts.context.parts import Image
from agentkit_prompts.system.regular_files import is_folder

__all__ = ["READERS", "ingest_files"]

_STEP = 4 * 1024 * 1024  # bytes between two calls of `on_progress` within a file
_MAX_PIECES = MAX_IMAGE // PIECE + 2
"""Of an image: enough to see that it is too large."""
_MIN_AGE_NS = 2 * 10**9
"""A file that was changed more recently may change again without new times: these move in steps."""

READERS: Mapping[Format, Callable[[FileStream], Iterator[Block | Part]]] = {
    "text": lambda reading: text_blocks(reading.text(), markdown=False),
    "markdown": lambda reading: text_blocks(reading.text(), markdown=True),
    "html": html_blocks,
    "pdf": pdf_blocks,
    "records": record_blocks,
}
"""A new format is a row here, and its endings in `find_files.FORMATS`."""


def ingest_files(
    store: DocumentStore,
    paths: Iterable[str | os.PathLike[str]],
    options: IngestOptions,
    on_progress: Callable[[IngestProgress], None] | None = None,
    on_stored: Callable[[], None] | None = None,
) -> IngestReport:
    """Store the files, calling `on_stored` whenever enough was written to be worth indexing.

    Raises:
        StoreError: The database cannot be written. The files before the one at fault are stored.
    """
    given = [expanded(path) for path in paths]
    run = _Run(store, options, on_progress, on_stored)
    if on_progress is not None:
        run.count(given)
    gone = [path for path in given if not is_folder(path) and _remove_named(store, run, path)]
    rest = [path for path in given if path not in gone]
    for file in find_files(rest, images=options.alt_text is not None):
        run.take(file)
    finish_removals(store.database, store.scope_id)
    run.removed += [name for folder in given if is_folder(folder) for name in _remove_gone(store, folder)]
    return run.report()


class _Run:
    """The state of one ingestion."""

    def __init__(
        self,
        store: DocumentStore,
        options: IngestOptions,
        on_progress: Callable[[IngestProgress], None] | None,
        on_stored: Callable[[], None] | None,
    ) -> None:
        self._store = store
        self._options = options
        self._on_progress = on_progress
        self._on_stored = on_stored
        self._outcomes: dict[str, list[str]] = {"added": [], "changed": [], "unchanged": []}
        self._errors: list[IngestError] = []
        self._repaired: list[IngestError] = []
        self.removed: list[str] = []
        self._total = self._total_bytes = 0
        self._done = self._done_bytes = 0
        self._chunks = self._waiting = 0
        self._file = ""
        self._read = self._reported = 0  # bytes of the file that is being read
        self._staged = 0  # chunks of it that are written

    def count(self, given: list[Path]) -> None:
        """Count the files and their bytes, for the progress."""
        for file in find_files(given, images=self._options.alt_text is not None):
            self._total += 1
            if isinstance(file, SourceFile):
                self._total_bytes += _size(file)

    def take(self, file: SourceFile | IngestError) -> None:
        """Store one file, or note its error."""
        self._file, self._read, self._reported = file.source, 0, 0
        size = 0
        try:
            if isinstance(file, IngestError):
                raise file
            size = _size(file)
            outcome, written = self._ingest(file)
            self._outcomes[outcome].append(file.source)
            self._chunks += written
            self._waiting += written
            if self._on_stored is not None and self._waiting >= WORTH_INDEXING:
                self._waiting = 0
                self._on_stored()
        except IngestError as error:
            self._errors.append(error)
        except StoreCorrupt as error:  # a damaged row of one document keeps nobody from the others
            self._errors.append(IngestError(file.source, f"cannot be stored: {error}"))
        self._done += 1
        self._done_bytes += size
        self._read = self._staged = 0
        self._report_progress()

    def report(self) -> IngestReport:
        return IngestReport(
            added=tuple(self._outcomes["added"]),
            changed=tuple(self._outcomes["changed"]),
            unchanged=tuple(self._outcomes["unchanged"]),
            removed=tuple(self.removed),
            errors=tuple(self._errors),
            repaired=tuple(self._repaired),
            chunks=self._chunks,
        )

    def _ingest(self, file: SourceFile) -> tuple[str, int]:
        if len(file.uri) > MAX_BYTES:
            raise IngestError(
                file.source,
                f"has an address of {len(file.uri):,} bytes, at most {MAX_BYTES:,} can be stored; shorten its path, in "
                "which a character that is not ASCII counts as six bytes or more",
            )
        alt = self._alt_text(file) if file.format == "image" else ""
        digest, known_stamp = self._store.find(file.uri)
        with FileStream(file, self._options, self._on_bytes) as reading:
            stamp = self._stamp(reading, alt)
            if digest:
                if stamp and known_stamp == stamp:
                    return "unchanged", 0
                for _ in reading.pieces():
                    pass
                if digest in self._names(file, reading.digest, alt):
                    if stamp:
                        self._store.put_stamp(file.uri, stamp)
                    return "unchanged", 0
                reading.rewind()
                self._read = self._reported = 0

            def seal() -> tuple[str, str]:
                damaged = reading.finish()
                names = self._names(file, reading.digest, alt)
                if damaged is None:
                    return names[0], stamp
                self._repaired.append(damaged)
                return names[-1], stamp

            if file.format == "image":
                content = b"".join(islice(reading.pieces(), _MAX_PIECES))
                image = checked_image(file.source, Image(content, name=file.path.name))
                new = self._store.write_image(file.uri, file.source, image, alt, seal())
                return ("added" if new else "changed"), 1
            chunks = chunk_blocks(READERS[file.format](reading))
            new, written = self._store.write(file.uri, file.source, chunks, seal, self._on_queued, self._on_staged)
        return ("added" if new else "changed"), written

    def _alt_text(self, file: SourceFile) -> str:
        """Return the alt text of an image.

        Raises:
            IngestError: There is none, or the function that returns it failed.
        """
        if self._options.alt_text is None:
            advice = "give IngestOptions(alt_text=...), or `documents.add` it"
            raise IngestError(file.source, f"is an image, which is recalled by its alt text: {advice}", name="alt_text")
        try:
            alt: object = self._options.alt_text(file.path)
        except Exception as error:
            raise IngestError(
                file.source,
                f"alt_text failed ({type(error).__name__}: {error})",
                name="alt_text",
                value=type(error).__name__,
            ) from error
        return storable(checked_alt(file.source, alt))

    def _stamp(self, reading: FileStream, alt: str) -> str:
        """Return a stamp that will differ if the file is changed; empty where its times cannot show that."""
        if reading.changed_ns + _MIN_AGE_NS > self._store.database.clock() * 1e9:
            return ""
        return f"{reading.stamp}:{self._names(reading.file, '', alt)[-1]}"

    def _names(self, file: SourceFile, digest: str, alt: str) -> list[str]:
        """Return the hashes under which the chunks of a file are stored: of its bytes, and of how they are cut."""
        cut = [CHUNKER, file.format, self._options.record_key if file.format == "records" else alt, digest]
        names = [_hash(cut)]
        if self._options.lenient:
            names.append(_hash([*cut, "lenient"]))
        return names

    def _on_bytes(self, count: int) -> None:
        self._read += count
        if self._read - self._reported >= _STEP:
            self._reported = self._read
            self._report_progress()

    def _on_staged(self, chunks: int) -> None:
        self._staged = chunks
        self._report_progress()

    def _on_queued(self) -> None:
        if self._on_stored is not None:
            self._on_stored()
        self._report_progress()

    def _report_progress(self) -> None:
        if self._on_progress is not None:
            self._on_progress(
                IngestProgress(
                    done=self._done,
                    total=max(self._total, self._done),
                    source=self._file,
                    chunks=self._chunks + self._staged,
                    done_bytes=self._done_bytes + self._read,
                    total_bytes=max(self._total_bytes, self._done_bytes + self._read),
                )
            )


def _size(file: SourceFile) -> int:
    try:
        return file.path.stat().st_size
    except OSError:
        return 0


def _hash(parts: list[str]) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=24).hexdigest()


def _remove_named(store: DocumentStore, run: _Run, path: Path) -> bool:
    """Remove what was stored of a named file or folder that is gone; return whether there was anything."""
    try:
        if not is_gone(path.absolute().as_uri()) or os.path.lexists(path):
            return False
        addresses = dict.fromkeys((Path(os.path.realpath(path)).as_uri(), path.absolute().as_uri()))
    except (OSError, ValueError):  # a name that no file can have
        return False
    removed = [name for uri in addresses for name in store.remove_at(uri, is_gone)]
    removed += [name for uri in addresses for name in store.remove_below(uri, is_gone, is_same_folder)]
    run.removed += removed
    return bool(removed)


def _remove_gone(store: DocumentStore, folder: Path) -> list[str]:
    """Remove documents of a folder, by its real and its given path, whose files are gone."""
    real = folder.resolve()
    addresses = dict.fromkeys((real.as_uri(), folder.absolute().as_uri()))
    gone = partial(is_gone, folder=real)
    return [name for uri in addresses for name in store.remove_below(uri, gone, is_same_folder)]
