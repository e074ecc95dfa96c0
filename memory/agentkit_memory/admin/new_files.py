"""Files that are written whole or not at all, readable by their owner only: a flushed draft is renamed."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentkit_memory.checks import expanded, is_file_name
from agentkit_memory.errors import InvalidArgument, StoreError, StoreUnavailable
from agentkit_prompts.system.flushed_files import whole_file

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""Error numbers of a disk that accepts no more bytes."""


def file_named(path: object) -> Path:
    """Return a path, with `~` expanded.

    Raises:
        InvalidArgument: `path` is not a path, or not a valid name of a file.
    """
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str) or not os.fspath(path):
        raise InvalidArgument(f"expected the path of a file, got {path!r}", name="path")
    place = expanded(path)
    if not is_file_name(place):
        raise InvalidArgument(f"{str(place)!r}: invalid name of a file; choose another name", path=str(place))
    return place


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield the path of an empty draft to write. Rename the draft to `path` at the end, or remove it on any error.

    Raises:
        StoreUnavailable: The file exists already, its folder is missing, it cannot be created, or the disk is full.
    """
    if path.exists() or path.is_symlink():
        raise StoreUnavailable(
            f"{path}: the file exists already; nothing was written: choose another name",
            path=str(path),
            name="exists",
        )
    if not path.parent.is_dir():
        raise file_problem(path, FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))
    try:
        with whole_file(path) as draft:
            yield draft
    except OSError as error:
        raise file_problem(path, error) from error


def file_problem(path: Path, error: OSError) -> StoreError:
    """Return the error of the memory layer for an error of the file system."""
    reason = error.strerror or type(error).__name__
    if error.errno in _FULL:
        return StoreUnavailable(
            f"{path}: {reason}; the file was removed: free some space, or choose another disk",
            path=str(path),
            name="disk",
        )
    return StoreUnavailable(f"{path}: {reason}; choose a file that can be read or created", path=str(path))
