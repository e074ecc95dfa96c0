"""Search for bytes in the files of a store: erased texts must be in no file."""

from __future__ import annotations

from pathlib import Path


def files_with(data: bytes, folder: Path) -> list[str]:
    """Return the names of the files in a folder, and in folders of it, that contain some bytes."""
    return [file.name for file in sorted(folder.rglob("*")) if file.is_file() and data in file.read_bytes()]
