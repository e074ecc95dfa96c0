"""Exclusive locks of open files, by file descriptor. The end of the process releases all its locks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from agentkit_prompts.system.private_files import private_file

_PAUSE = 0.02
"""Seconds between two attempts to lock."""

if os.name == "nt":  # pragma: no cover - Windows
    import msvcrt

    _FAR = 0x7FFF_FFFE
    """Position of the locked byte: after all content, because other processes cannot read a locked byte."""

    def lock(file: int) -> None:
        """Lock a file until it is closed.

        Raises:
            BlockingIOError: The file is locked already, in this or another process.
        """
        os.lseek(file, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        except OSError as error:
            raise BlockingIOError from error
        finally:
            os.lseek(file, 0, os.SEEK_SET)

    def unlock(file: int) -> None:
        """Do nothing: closing the file unlocks it."""

else:
    import fcntl

    def lock(file: int) -> None:
        """Lock a file until it is closed.

        Raises:
            BlockingIOError: The file is locked already, in this or another process.
            OSError: The file system has no locks.
        """
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def unlock(file: int) -> None:
        """Unlock a file: closing it is not enough if a forked process still has it open."""
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)


def locked(file: int) -> bool:
    """Lock a file until it is closed; return False if it is locked already, in this or another process.

    On a file system without locks, return True without a lock.
    """
    try:
        lock(file)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def temporary_lock(path: Path) -> int | None:
    """Create a file that only its owner can access, and lock it; return None if it is locked already.

    The owner of the lock removes the file before it closes the file.

    Raises:
        OSError: The file cannot be created.
    """
    private_file(path)
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        if not locked(file):
            os.close(file)
            return None
        # The previous owner can have removed the file between the opening and the lock.
        if _is_at(path, file):
            return file
        os.close(file)


@contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Wait until no other process and no other thread changes a file in such a block.

    A file that is replaced cannot be locked, so the lock is a file `NAME.lock` next to it, which is removed at the end.

    Raises:
        OSError: The lock cannot be created.
    """
    lock_path = path.with_name(f"{path.name}.lock")
    while (file := temporary_lock(lock_path)) is None:
        time.sleep(_PAUSE)
    try:
        yield
    finally:
        # Removed before it is unlocked: the next writer creates another file.
        with suppress(OSError):
            lock_path.unlink()
        unlock(file)
        os.close(file)


def _is_at(path: Path, file: int) -> bool:
    """True if a path is the path of an open file."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except FileNotFoundError:
        return False
