"""Finds files and reads them as text, or says why it cannot."""

from __future__ import annotations

import codecs
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

from agentkit_memory.errors import IngestError

__all__ = ["MAX_FILE_BYTES", "SourceFile", "find_files", "is_gone", "read_text"]

MAX_FILE_BYTES = 64 * 1024 * 1024
"""Largest file that is read: it is held in memory while it is cut."""

_MARKDOWN = frozenset({".md", ".markdown", ".mdown", ".mkd", ".mdx"})
_TEXT = _MARKDOWN | {".txt", ".text", ".rst", ".log", ".csv", ".tsv"}
_SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", "site-packages"})


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to ingest: where it is, what to call it, and the folder it was found through, if any."""

    path: Path
    source: str
    folder: Path | None = None

    @property
    def uri(self) -> str:
        """The file's own name in the store: the same however the path was written."""
        return self.path.as_uri()

    @property
    def is_markdown(self) -> bool:
        """Whether headings and fences mean something in it."""
        return self.path.suffix.lower() in _MARKDOWN


def find_files(paths: Iterable[str | os.PathLike[str]]) -> Iterator[SourceFile | IngestError]:
    """Yield each file once: those named, whatever their ending, and the text and Markdown files of folders.

    Hidden files and folders inside a folder, and links to folders, are passed over.
    """
    seen: set[Path] = set()
    for given in paths:
        for file in _find(Path(given).expanduser()):
            if isinstance(file, SourceFile):
                if file.path in seen:
                    continue
                seen.add(file.path)
            yield file


def _find(path: Path) -> Iterator[SourceFile | IngestError]:
    try:
        mode = path.stat().st_mode
        real = Path(os.path.realpath(path))
    except (OSError, ValueError) as error:
        yield IngestError(_shown(path), f"cannot be found or read ({_reason(error)}); check the path")
        return
    if not stat.S_ISDIR(mode):
        yield SourceFile(real, _shown(path))
        return
    problems: list[OSError] = []
    for parent, folders, names in os.walk(path, onerror=problems.append):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED_FOLDERS)
        for name in sorted(names):
            file = Path(parent, name)
            if not name.startswith(".") and file.suffix.lower() in _TEXT:
                yield SourceFile(Path(os.path.realpath(file)), _shown(file), real)
    for problem in problems:
        yield IngestError(_shown(Path(problem.filename)), f"the folder cannot be read ({_reason(problem)})")


def read_text(file: SourceFile) -> tuple[bytes, str]:
    """Return the bytes of a file and its text.

    Raises:
        IngestError: The file is gone, unreadable, too large, no regular file, binary, or not UTF-8.
    """
    try:
        status = file.path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise IngestError(file.source, "is not a regular file; give a text or Markdown file")
        if status.st_size > MAX_FILE_BYTES:
            size, most = status.st_size // 2**20, MAX_FILE_BYTES // 2**20
            raise IngestError(file.source, f"has {size} MiB, at most {most} MiB are read; split it")
        data = file.path.read_bytes()
    except OSError as error:
        raise IngestError(
            file.source, f"cannot be read ({_reason(error)}); check that it is there, and check its permissions"
        ) from error
    encoding = "utf-8-sig"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    elif b"\0" in data:
        at = data.index(b"\0")
        raise IngestError(file.source, f"is binary (a zero byte at offset {at}); give text or Markdown")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise IngestError(
            file.source, f"is not {encoding.removesuffix('-sig').upper()} text (byte {error.start}); convert it first"
        ) from error
    if "\0" in text:
        raise IngestError(file.source, "holds NUL characters; give text or Markdown")
    return data, text


def is_gone(uri: str) -> bool:
    """Return whether the file at a `file:` address is certainly no longer there."""
    try:
        os.stat(os.fsdecode(unquote_to_bytes(urlsplit(uri).path)))  # noqa: PTH116 - a Path cannot be had from a URI yet
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # such as a folder that may not be entered at the moment
        return False
    return False


def _shown(path: Path) -> str:
    """Return the path as it was given, in characters every database and terminal can hold."""
    return os.fsencode(path).decode("utf-8", "backslashreplace").replace("\0", "\\x00")


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
