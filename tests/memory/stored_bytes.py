"""Which files of a store contain some bytes: what was erased is in none of them."""

from __future__ import annotations

from pathlib import Path


def files_with(data: bytes, folder: Path) -> list[str]:
    """Return the names of the files in a folder, and in folders of it, that contain some bytes."""
    return [file.name for file in sorted(folder.rglob("*")) if file.is_file() and data in file.read_bytes()]
