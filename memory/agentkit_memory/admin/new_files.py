"""Files that are written whole or not at all: under another name first, for their owner alone, flushed to the disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from agentkit_memory.checks import expanded
from agentkit_memory.errors import InvalidArgument, StoreError, StoreUnavailable
from agentkit_prompts.system.private_files import private_file

__all__ = ["file_named", "file_problem", "new_file"]

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def file_named(path: object) -> Path:
    """Return the path that was given.

    Raises:
        InvalidArgument: It is not a path, or no file can have that name.
    """
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str) or not os.fspath(path):
        raise InvalidArgument(f"expected the path of a file, got {path!r}", name="path")
    place = expanded(path)
    try:
        is_name = b"\0" not in os.fsencode(place)
    except ValueError:
        is_name = False
    if not is_name:
        raise InvalidArgument(f"{str(place)!r}: no file can have this name; choose another one", path=str(place))
    return place


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Lend an empty file to write, which gets its name at the end; on any error it is removed.

    Raises:
        StoreUnavailable: There is such a file already, it cannot be made, or the disk is full.
    """
    draft = path.with_name(f"{path.name}.partial")
    if path.exists() or path.is_symlink():
        raise StoreUnavailable(
            f"{path}: there is such a file already; nothing was written: choose another name",
            path=str(path),
            name="exists",
        )
    try:
        # A process that was killed may have left a draft.
        draft.unlink(missing_ok=True)
        private_file(draft)
        yield draft
        with draft.open("rb") as written:
            os.fsync(written.fileno())
        draft.replace(path)
        _flush_names(path.parent)
    except BaseException as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise file_problem(path, error) from error
        raise


def file_problem(path: Path, error: OSError) -> StoreError:
    """Return the error of the memory layer for one of the file system."""
    why = error.strerror or type(error).__name__
    if error.errno in _FULL:
        return StoreUnavailable(
            f"{path}: {why}; nothing is left of it: free some space, or choose another disk",
            path=str(path),
            name="disk",
        )
    return StoreUnavailable(f"{path}: {why}; choose a file that can be read or made", path=str(path))


def _flush_names(folder: Path) -> None:
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
