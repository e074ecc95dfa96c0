"""Search for the files to ingest; files that cannot be found or read are returned as errors."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

from agentkit_memory.checks import expanded
from agentkit_memory.errors import IngestError
from agentkit_memory.ingest.file_formats import FORMATS
from agentkit_memory.ingest.source_file import SourceFile, is_inside, reason

_MAX_SHOWN = 5
"""Maximum number of paths in a message."""
_SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", "site-packages"})


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file in a folder that no reader reads."""

    path: Path

    @property
    def ending(self) -> str:
        """End of the name, such as `.zip`; the whole name if it has no ending."""
        return self.path.suffix.lower() or self.path.name


def checked_paths(paths: object) -> list[Path]:
    """Return one path or several paths as a list, with `~` expanded.

    Raises:
        IngestError: The value is not a path or an iterable of paths.
    """
    values: list[object] = [paths]
    if isinstance(paths, Iterable) and not isinstance(paths, str | bytes | Mapping | os.PathLike):
        values = list(paths)
    # An empty text, such as an unset variable, would be the working folder.
    valid = [each for each in values if isinstance(each, str | os.PathLike) and each != ""]
    if len(valid) < len(values):
        invalid = [repr(each)[:80] for each in values if not isinstance(each, str | os.PathLike) or each == ""]
        raise IngestError("ingest", f"expected paths of files and folders, got {', '.join(invalid[:5])}")
    return [expanded(each) for each in valid]


def check_found(paths: Sequence[Path]) -> None:
    """Refuse paths of which none exists.

    A file that was deleted from a list of several files must not block the other files, and is reported by
    `find_files`.

    Raises:
        IngestError: None of the paths exists.
    """
    if not paths or any(os.path.lexists(path) for path in paths):
        return
    names = [_printable(path) for path in paths[:_MAX_SHOWN]]
    if len(paths) > _MAX_SHOWN:
        names.append(f"and {len(paths) - _MAX_SHOWN} others")
    raise IngestError(
        ", ".join(names),
        "cannot be found (No such file or directory); check the path. A text is added with memory.documents.add(text)",
    )


def find_files(paths: Iterable[Path], *, images: bool = False) -> Iterator[SourceFile | SkippedFile | IngestError]:
    """Yield each file once: named files with any ending, and the files of folders. Files without a reader are marked.

    Hidden files and folders inside a folder, and links to folders, are skipped. A named link is read as the file that
    it leads to. A link in a folder counts as a file of that folder, and its document is removed with the link. A link
    that leads out of the folder is not read: the writer of the folder could choose any file of this machine.
    """
    # Digests of the paths so far, which take less memory than the paths.
    seen: set[bytes] = set()
    # A file that is named is read, also if no reader reads it as a part of its folder.
    sources = list(paths)
    named: set[str] = set()
    for path in sources:
        # `_find` reports a name that no file can have.
        with suppress(OSError, ValueError):
            named.add(os.path.realpath(path))
    for path in sources:
        for file in _find(path, images):
            if isinstance(file, SkippedFile) and str(file.path) in named:
                continue
            if not isinstance(file, IngestError):
                name = blake2b(os.fsencode(file.path), digest_size=16).digest()
                if name in seen:
                    continue
                seen.add(name)
            yield file


def _find(path: Path, images: bool) -> Iterator[SourceFile | SkippedFile | IngestError]:
    try:
        mode = path.stat().st_mode
        real = Path(os.path.realpath(path))
    except (OSError, ValueError) as error:
        yield IngestError(_printable(path), f"cannot be found or read ({reason(error)}); check the path")
        return
    if not stat.S_ISDIR(mode):
        yield SourceFile(real, _printable(path), FORMATS.get(real.suffix.lower(), "text"))
        return
    problems: list[OSError] = []
    for parent, folders, names in os.walk(path, onerror=problems.append):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED_FOLDERS)
        for name in sorted(names):
            file = Path(parent, name)
            kind = FORMATS.get(file.suffix.lower())
            if name.startswith("."):
                continue
            if kind is None or (kind == "image" and not images):
                yield SkippedFile(real / file.relative_to(path))
            else:
                yield SourceFile(real / file.relative_to(path), _printable(file), kind, real)
    for problem in problems:
        yield IngestError(_printable(Path(problem.filename)), f"the folder cannot be read ({reason(problem)})")


def is_gone(uri: str, folder: Path | None = None) -> bool:
    """Return True if it is certain that a `file:` address does not lead to a file of `folder` any more.

    The path is missing, is a folder now, leads through a link to another file, or leads out of `folder`.
    """
    path = _path(uri)
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        # The file may still exist, for example in a folder whose permissions were changed.
        return False
    if folder is not None and not is_inside(path, folder):
        return True
    return stat.S_ISDIR(mode) or os.path.normcase(os.path.realpath(path.parent)) != os.path.normcase(path.parent)


def is_same_folder(uri: str, other: str) -> bool:
    """Return True if two `file:` addresses lead to one folder, for example in a file system that ignores case."""
    try:
        return uri == other or _path(uri).samefile(_path(other))
    except OSError:
        return False


def _path(uri: str) -> Path:
    # `Path.from_uri` requires Python 3.13.
    return Path(os.fsdecode(unquote_to_bytes(urlsplit(uri).path)))


def _printable(path: Path) -> str:
    """Return the path as the caller wrote it, in characters that every database and terminal accepts."""
    try:
        name = os.fsencode(path).decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:
        # The path contains an unpaired surrogate that does not represent a byte.
        name = str(path).encode("utf-8", "backslashreplace").decode()
    return name.replace("\0", "\\x00")
