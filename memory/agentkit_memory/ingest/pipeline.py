"""Ingestion of files: unchanged files are skipped, errors are reported per file, no file is read into memory whole."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from agentkit_memory.checks import MAX_BYTES
from agentkit_memory.errors import IngestError, StoreCorrupt
from agentkit_memory.ingest.chunks import CHUNKER, Chunk, chunk_blocks
from agentkit_memory.ingest.document_removal import finish_removals, forget_document, remove_gone
from agentkit_memory.ingest.document_writer import DocumentWriter, NewDocument, Version
from agentkit_memory.ingest.file_formats import READERS
from agentkit_memory.ingest.find_files import (
    SkippedFile,
    check_found,
    find_files,
    is_gone,
    is_same_folder,
)
from agentkit_memory.ingest.images import MAX_IMAGE, checked_alt, checked_image, image_chunk
from agentkit_memory.ingest.ingest_options import IngestOptions, record_key, record_options
from agentkit_memory.ingest.readers.file_stream import PIECE, FileStream
from agentkit_memory.ingest.report import IngestProgress, IngestReport
from agentkit_memory.ingest.source_file import SourceFile
from agentkit_memory.store.item_rows import storable
from agentkit_memory.store.outbox import WORTH_INDEXING
from agentkit_prompts.context.parts import Image
from agentkit_prompts.system.regular_files import is_folder

_STEP = 4 * 1024 * 1024
"""Bytes between two calls of `on_progress` within a file."""
_MAX_PIECES = MAX_IMAGE // PIECE + 2
"""Maximum pieces of an image that are read: enough to detect that the image is too large."""
_MIN_AGE_NS = 2 * 10**9
"""Minimum nanoseconds since the last change of a file with a stamp: file times are coarse, so that a younger file may
change again without a change of its times."""


class NoText(IngestError):
    """A file or a document was read and contains no text."""

    def __init__(self, source: str, problem: str) -> None:
        super().__init__(source, problem)
        self.problem = problem


def text_chunks(reading: FileStream, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Yield the chunks of a file.

    Raises:
        NoText: The file has none.
    """
    is_empty = True
    for chunk in chunks:
        is_empty = False
        yield chunk
    if is_empty and not reading.refused:
        problem = "contains no text"
        if reading.gaps:
            problem += f": {reading.gaps}"
        raise NoText(reading.file.source, problem)


def ingest_files(
    writer: DocumentWriter,
    paths: Sequence[Path],
    options: IngestOptions,
    on_progress: Callable[[IngestProgress], None] | None = None,
    on_stored: Callable[[], None] | None = None,
) -> IngestReport:
    """Store files and the files of folders; call `on_stored` whenever enough chunks for a batch of the index wait.

    Raises:
        IngestError: None of the paths exists, and no document is stored under them; or the options are of records, and
            no file has records.
        StoreError: The database cannot be written. The files before the error are stored.
    """
    run = _Ingestion(writer, options, on_progress, on_stored)
    if on_progress is not None:
        run.count(paths)
    removed = [path for path in paths if not is_folder(path) and run.remove_named(path)]
    rest = [path for path in paths if path not in removed]
    if not removed:
        check_found(paths)
    if names := record_options(options):
        _check_records(rest, names)
    for file in find_files(rest, images=options.alt_text is not None):
        if isinstance(file, SkippedFile):
            run.skip(file)
        else:
            run.take(file)
    finish_removals(writer.database, writer.scope_id)
    for path in paths:
        if is_folder(path):
            run.remove_gone_from(path)
    return run.report()


def _check_records(paths: Sequence[Path], names: Sequence[str]) -> None:
    """Refuse options of records if no file has records: the options would be ignored.

    Raises:
        IngestError: There are files, and none of them is JSON lines.
    """
    formats = {file.format for file in find_files(paths) if isinstance(file, SourceFile)}
    if formats and "records" not in formats:
        raise IngestError(
            "ingest",
            f"{', '.join(names)} would be ignored: none of the files is JSON lines (`.jsonl`, `.ndjson`), and the rows "
            "of a CSV file are not records; remove the option, or convert a file to JSON lines",
            name=names[0],
        )


class _Ingestion:
    """The state of one call of `ingest_files`."""

    def __init__(
        self,
        writer: DocumentWriter,
        options: IngestOptions,
        on_progress: Callable[[IngestProgress], None] | None,
        on_stored: Callable[[], None] | None,
    ) -> None:
        self._writer = writer
        self._options = options
        self._on_progress = on_progress
        self._on_stored = on_stored
        self._outcomes: dict[str, list[str]] = {"added": [], "changed": [], "unchanged": []}
        self._errors: list[IngestError] = []
        self._repaired: list[IngestError] = []
        self._gaps: list[IngestError] = []
        self._skipped: Counter[str] = Counter()
        self._removed: list[str] = []
        self._total = self._total_bytes = 0
        self._done = self._done_bytes = 0
        self._chunks = self._waiting = 0
        self._file = ""
        # Bytes of the current file that were read, and bytes at the last call of `on_progress`.
        self._read = self._reported = 0
        # Chunks of the current file that were written.
        self._staged = 0

    def count(self, paths: Sequence[Path]) -> None:
        """Count the files and their bytes, for the progress."""
        for file in find_files(paths, images=self._options.alt_text is not None):
            self._total += not isinstance(file, SkippedFile)
            if isinstance(file, SourceFile):
                self._total_bytes += _size(file)

    def skip(self, file: SkippedFile) -> None:
        """Count a file without a reader."""
        self._skipped[file.ending] += 1

    def take(self, file: SourceFile | IngestError) -> None:
        """Store one file, or record its error."""
        self._file, self._read, self._reported = file.source, 0, 0
        size = 0
        try:
            if isinstance(file, IngestError):
                raise file
            size = _size(file)
            outcome, written = self._ingest(file)
            self._outcomes[outcome].append(file.source)
            self._chunks += written
            self._count_waiting(written - self._staged)
        except IngestError as error:
            self._errors.append(error)
        except StoreCorrupt as error:
            # A corrupt row of one document does not block the other documents.
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
            removed=tuple(self._removed),
            errors=tuple(self._errors),
            repaired=tuple(self._repaired),
            gaps=tuple(self._gaps),
            skipped=dict(sorted(self._skipped.items())),
            chunks=self._chunks,
        )

    def remove_named(self, path: Path) -> bool:
        """Remove the documents of a named file or folder that is gone; return True if any were stored."""
        try:
            if os.path.lexists(path) or not is_gone(path.absolute().as_uri()):
                return False
            addresses = dict.fromkeys((Path(os.path.realpath(path)).as_uri(), path.absolute().as_uri()))
        except (OSError, ValueError):
            # No file can have such a name.
            return False
        return self._remove(addresses, is_gone)

    def remove_gone_from(self, folder: Path) -> None:
        """Remove the documents of a folder whose files are gone; search by its real path and by the given path."""
        real = folder.resolve()

        def is_gone_from_folder(uri: str) -> bool:
            return is_gone(uri, real)

        self._remove(dict.fromkeys((real.as_uri(), folder.absolute().as_uri())), is_gone_from_folder)

    def _remove(self, addresses: Iterable[str], is_gone: Callable[[str], bool]) -> bool:
        database, scope_id = self._writer.database, self._writer.scope_id
        removed = [
            name for each in addresses for name in remove_gone(database, scope_id, each, is_gone, is_same_folder)
        ]
        self._removed += removed
        return bool(removed)

    def _ingest(self, file: SourceFile) -> tuple[str, int]:
        """Store a file unless it is stored already; return the outcome and the number of its chunks."""
        uri, kind, now = file.uri, file.format, self._writer.database.clock()
        if len(uri) > MAX_BYTES:
            raise IngestError(
                file.source,
                f"has an address of {len(uri):,} bytes, at most {MAX_BYTES:,} can be stored; shorten its path, in "
                "which a character that is not ASCII counts as six bytes or more",
            )
        alt = key = ""
        if kind == "image":
            alt = key = self._alt_text(file)
        elif kind == "records":
            key = record_key(self._options)
        # The chunks depend on these values and on the bytes of the file.
        cut_key = [CHUNKER, kind, key]
        stored = self._writer.find(uri)
        with FileStream(file, self._options, self._on_bytes) as reading:
            stamp = self._stamp(reading, cut_key, now)
            if stored.content_hash and self._is_stored(uri, stored, reading, stamp, cut_key):
                return "unchanged", 0

            def seal() -> Version:
                error = reading.finish()
                hashes = self._content_hashes(cut_key, reading.digest)
                if error is None:
                    return Version(hashes[0], stamp)
                self._repaired.append(error)
                # A repaired file has a separate hash, so that it is read again without `lenient`.
                return Version(hashes[-1], stamp)

            image: Image | None = None
            chunks: Iterable[Chunk]
            if kind == "image":
                content = b"".join(islice(reading.pieces(), _MAX_PIECES))
                image = checked_image(reading.file.source, Image(content, name=reading.file.path.name))
                chunks = [image_chunk(image, alt)]
            else:
                chunks = text_chunks(reading, chunk_blocks(READERS[kind](reading)))
            document = NewDocument(uri, file.source, now, image=image)
            try:
                written = self._writer.write(document, chunks, seal, self._on_staged)
            except NoText as error:
                # The file was read: its former text is not its text any more.
                if stored.content_hash:
                    forget_document(self._writer.database, self._writer.id_of(uri))
                raise IngestError(file.source, error.problem) from None
            if reading.gaps:
                self._gaps.append(IngestError(file.source, reading.gaps))
        return ("added" if written.is_new else "changed"), written.chunks

    def _is_stored(self, uri: str, stored: Version, reading: FileStream, stamp: str, cut_key: Sequence[str]) -> bool:
        """Return True if the current content of a file is stored. A file with another stamp is read for its hash."""
        if stamp and stored.stamp == stamp:
            return True
        for _ in reading.pieces():
            pass
        if stored.content_hash in self._content_hashes(cut_key, reading.digest):
            if stamp:
                self._writer.put_stamp(uri, stamp)
            return True
        reading.rewind()
        self._read = self._reported = 0
        return False

    def _alt_text(self, file: SourceFile) -> str:
        """Return the alt text of an image.

        Raises:
            IngestError: The alt text is missing or invalid, or the function that returns it failed.
        """
        if self._options.alt_text is None:
            advice = "set IngestOptions(alt_text=...), or use `documents.add`"
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

    def _stamp(self, reading: FileStream, cut_key: Sequence[str], now: float) -> str:
        """Return a stamp that changes with the file; empty text if the next change may not change the file times."""
        if reading.changed_ns + _MIN_AGE_NS > now * 1e9:
            return ""
        return f"{reading.stamp}:{self._content_hashes(cut_key, '')[-1]}"

    def _content_hashes(self, cut_key: Sequence[str], digest: str) -> list[str]:
        """Return the hash of a file's bytes, format and options; with `lenient`, also the hash of the repaired file."""
        hashes = [_hash([*cut_key, digest])]
        if self._options.lenient:
            hashes.append(_hash([*cut_key, digest, "lenient"]))
        return hashes

    def _on_bytes(self, count: int) -> None:
        self._read += count
        if self._read - self._reported >= _STEP:
            self._reported = self._read
            self._report_progress()

    def _on_staged(self, chunks: int) -> None:
        self._staged += chunks
        self._count_waiting(chunks)
        self._report_progress()

    def _count_waiting(self, chunks: int) -> None:
        """Count written chunks; call `on_stored` when enough chunks wait for the index."""
        self._waiting += chunks
        if self._on_stored is not None and self._waiting >= WORTH_INDEXING:
            self._waiting = 0
            self._on_stored()

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
