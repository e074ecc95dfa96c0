"""Files and names of files that are on the disk: a power failure does not undo them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from agentkit_prompts.system.private_files import private_file

# Windows flushes only files that are open for writing.
_FILE = os.O_RDONLY if os.name == "posix" else os.O_RDWR


def flush_names(folder: Path) -> None:
    """Wait until new and changed names in a folder are on the disk: a power failure can undo other names."""
    # Windows cannot open folders.
    if os.name == "posix":
        _flush(folder, os.O_RDONLY)


def replace_files(drafts: Mapping[Path, Path]) -> None:
    """Rename drafts to the paths of complete files, which are replaced. All drafts are flushed before the first rename.

    Args:
        drafts: Paths of the files by the paths of their drafts, which are in the same folders.

    Raises:
        OSError: A draft cannot be flushed, and no file was replaced; or a file cannot be replaced.
    """
    for draft in drafts:
        _flush(draft, _FILE)
    for draft, path in drafts.items():
        draft.replace(path)
    for folder in {path.parent for path in drafts.values()}:
        flush_names(folder)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield the path of an empty draft that only its owner can read; at the end the draft replaces the file `path`.

    Another process reads the complete old or the complete new file. On any error the draft is removed.

    Raises:
        OSError: The draft cannot be written, or the file cannot be replaced.
    """
    # Processes that write the same file at the same time have different drafts.
    draft = path.with_name(f".{path.name}.{os.urandom(4).hex()}.part")
    try:
        private_file(draft)
        yield draft
        replace_files({draft: path})
    finally:
        with suppress(OSError, ValueError):
            draft.unlink(missing_ok=True)


def _flush(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
