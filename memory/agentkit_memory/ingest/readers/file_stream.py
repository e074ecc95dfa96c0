"""`FileStream`: one pass over a file in pieces, which hashes and counts the bytes, and decodes text."""

from __future__ import annotations

import codecs
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import BinaryIO, Self, cast

from agentkit_memory.errors import IngestError
from agentkit_memory.ingest.ingest_options import IngestOptions
from agentkit_memory.ingest.source_file import SourceFile, is_inside, reason
from agentkit_prompts.pages.encodings import marked_encoding
from agentkit_prompts.system.regular_files import open_inside, open_regular

PIECE = 256 * 1024
"""Bytes that are read at once."""
_MAX_PROBLEMS = 10
"""Maximum problems that an error lists; further problems are counted."""


class FileStream:
    """One pass over a file.

    Raises:
        IngestError: The file is gone, unreadable, not a regular file, or leads out of the folder in which it was found.
    """

    def __init__(self, file: SourceFile, options: IngestOptions, on_bytes: Callable[[int], None] | None = None) -> None:
        self.file = file
        self.options = options
        self._on_bytes = on_bytes
        self._hash = hashlib.blake2b(digest_size=24)
        self._problems: list[str] = []
        self._unlisted = 0
        self._gaps: dict[tuple[str, str], list[int | str]] = {}
        try:
            status = file.path.stat()
            if not stat.S_ISREG(status.st_mode):
                # The type is checked before opening: opening a pipe would wait for its writer.
                raise IngestError(file.source, "is not a regular file; pass a document")
            self.stream: BinaryIO = self._open()
        except OSError as error:
            raise self._unreadable(error) from error
        status = os.fstat(self.stream.fileno())
        self.stamp = _stamp(status)
        """Size, times and inode of the file when it was opened."""
        self.changed_ns = max(status.st_mtime_ns, status.st_ctime_ns)
        """Time of the last change of the file, in nanoseconds since 1970."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()

    @property
    def digest(self) -> str:
        """Hash of all bytes that were read so far."""
        return self._hash.hexdigest()

    def rewind(self) -> None:
        """Start again at the first byte."""
        self.stream.seek(0)
        self._hash = hashlib.blake2b(digest_size=24)

    def pieces(self) -> Iterator[bytes]:
        """Yield the rest of the file."""
        while True:
            try:
                piece = self.stream.read(PIECE)
            except OSError as error:
                raise self._unreadable(error) from error
            if not piece:
                return
            self._hash.update(piece)
            if self._on_bytes is not None:
                self._on_bytes(len(piece))
            yield piece

    def text(self, encoding: str | None = None) -> Iterator[str]:
        """Yield the text of the file, decoded by its byte order mark or, without a mark, as `encoding` or UTF-8.

        Raises:
            IngestError: The file is binary, or not in the encoding.
        """
        decoder: codecs.IncrementalDecoder | None = None
        # Offset of the current piece in the file.
        offset = 0
        name = encoding or "utf-8"
        first_bad: int | None = None
        for data in chain(self.pieces(), [b""]):
            piece = data
            if decoder is None:
                marked, offset = marked_encoding(piece)
                name = marked or name
                piece = piece[offset:]
                decoder = codecs.getincrementaldecoder(name)()
            text, bad = self._decode(decoder, piece, offset, name, final=not data)
            if first_bad is None:
                first_bad = bad
            if text:
                yield text
            offset += len(piece)
        if first_bad is not None:
            self.problem(f"bytes that are not {name.upper()} text, the first at {first_bad}, became U+FFFD")

    def problem(self, text: str) -> None:
        """Record that a part of the file is corrupt; `finish` reports all problems."""
        if len(self._problems) < _MAX_PROBLEMS:
            self._problems.append(text)
        else:
            self._unlisted += 1

    def gap(self, name: str, place: int | str, why: str) -> None:
        """Record that a part of the file has no text, such as a page that is an image."""
        self._gaps.setdefault((name, why), []).append(place)

    @property
    def gaps(self) -> str:
        """Description of the parts without text; empty text if the file has none."""
        texts = []
        for (name, why), places in self._gaps.items():
            plural = "s" if len(places) > 1 else ""
            texts.append(f"{name}{plural} {_ranges(places)}".rstrip() + f": {why}")
        return "; ".join(texts)

    @property
    def refused(self) -> bool:
        """True if the file is corrupt and will not be stored; readers continue only to find more problems."""
        return bool(self._problems) and not self.options.lenient

    def finish(self) -> IngestError | None:
        """Read the rest of the file; return the error of its corrupt parts, or None if no part is corrupt.

        Raises:
            IngestError: A part is corrupt and the options are not lenient, or the file was changed while it was read.
        """
        for _ in self.pieces():
            pass
        error = None
        if self._problems:
            problems = "; ".join(self._problems)
            if self._unlisted:
                problems += f"; and {self._unlisted} more"
            error = IngestError(self.file.source, problems)
            if not self.options.lenient:
                raise error
        if self._is_changed():
            raise IngestError(self.file.source, "was changed while it was read; ingest it again")
        return error

    def _is_changed(self) -> bool:
        try:
            now = _stamp(self.file.path.stat())
        except OSError as error:
            raise self._unreadable(error) from error
        return not now == self.stamp == _stamp(os.fstat(self.stream.fileno()))

    def _open(self) -> BinaryIO:
        path, folder = self.file.path, self.file.folder
        if folder is None:
            return open_regular(path)
        if is_inside(path, folder):
            return open_inside(path, folder)
        raise IngestError(
            self.file.source, f"is a link that leads out of {folder}; to store that file, name it, or copy it there"
        )

    def _decode(
        self, decoder: codecs.IncrementalDecoder, piece: bytes, offset: int, name: str, *, final: bool
    ) -> tuple[str, int | None]:
        """Return the text of a piece, and the offset of its first invalid byte, or None.

        Raises:
            IngestError: The file is binary, or a byte is invalid and the options are not lenient.
        """
        if not name.startswith("utf-16") and 0 in piece:
            at = offset + piece.index(0)
            raise IngestError(
                self.file.source,
                f"is binary (a zero byte at offset {at}); "
                "pass a text file, or give the file the ending of its format, such as `.pdf`, or its bytes a `format=`",
                name="binary",
                value=at,
            )
        state = decoder.getstate()
        bad = None
        try:
            text = decoder.decode(piece, final)
        except UnicodeDecodeError as error:
            bad = offset - len(state[0]) + error.start
            if not self.options.lenient:
                raise IngestError(
                    self.file.source,
                    f"is not {name.upper()} text (byte {bad}); convert it first, or ingest it leniently",
                    name=name,
                    value=bad,
                ) from error
            # The decoder raised before it consumed the piece: decode the piece again with replacements.
            decoder.setstate(state)
            decoder.errors = "replace"
            text = decoder.decode(piece, final)
            decoder.errors = "strict"
        if "\0" in text:
            raise IngestError(self.file.source, "contains NUL characters; pass a text file")
        return text, bad

    def _unreadable(self, error: OSError) -> IngestError:
        return IngestError(
            self.file.source,
            f"cannot be read ({reason(error)}); check that it exists, and check its permissions",
            name="path",
            value=type(error).__name__,
        )


class BytesStream(FileStream):
    """One pass over bytes of the caller, which are copied to an unnamed temporary file, since readers need a file."""

    def __init__(self, file: SourceFile, content: bytes, options: IngestOptions) -> None:
        self.file, self.options = file, options
        self._on_bytes = None
        self._hash = hashlib.blake2b(digest_size=24)
        self._problems, self._unlisted = [], 0
        self._gaps = {}
        self.stamp, self.changed_ns = "", 0
        try:
            self.stream = cast("BinaryIO", tempfile.TemporaryFile(buffering=0))  # noqa: SIM115 - closed on exit
            self.stream.write(content)
            self.stream.seek(0)
        except OSError as error:
            raise IngestError(file.source, f"cannot be read by way of a temporary file ({reason(error)})") from error

    def _is_changed(self) -> bool:
        return False


def _ranges(places: Sequence[int | str]) -> str:
    """Return numbers as ranges, such as `2, 4-7`, and names in quotes; many ranges are cut."""
    texts: list[str] = []
    start = last = -1
    for place in places:
        if isinstance(place, str):
            texts.append(repr(place) if place else "")
        elif place == last + 1 and start >= 0:
            texts[-1], last = f"{start}-{place}", place
        else:
            texts.append(str(place))
            start = last = place
    if len(texts) > _MAX_PROBLEMS:
        texts[_MAX_PROBLEMS:] = [f"and {len(texts) - _MAX_PROBLEMS} more"]
    return ", ".join(texts)


def _stamp(status: os.stat_result) -> str:
    return f"{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}:{status.st_ino}:{status.st_dev}"
