"""`SourceFile`: a file to ingest."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to ingest: its path, and its name as the caller wrote it."""

    path: Path
    source: str
    format: str
    """Name of the format that the file is read as."""
    folder: Path | None = None
    """Real path of the folder in which the file was found, and which it must not leave. None for a named file."""

    @property
    def uri(self) -> str:
        """Address that identifies the file in the store."""
        return self.path.as_uri()


def is_inside(path: Path, folder: Path) -> bool:
    """Return True if the real path (without links) of a file is in a folder. The path of the folder must be real."""
    try:
        return Path(os.path.realpath(path)).is_relative_to(folder)
    except (OSError, ValueError):
        return False


def reason(error: Exception) -> str:
    """Return the message of an error, without the path."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)
