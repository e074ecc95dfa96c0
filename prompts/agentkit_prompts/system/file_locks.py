"""Exclusive locks of open files, by file descriptor. The end of the process releases all its locks."""

from __future__ import annotations

import os
from contextlib import suppress

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
