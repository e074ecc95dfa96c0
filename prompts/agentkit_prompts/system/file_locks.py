"""Locks of open files, by their numbers: one process has a file to itself, until it ends at the latest."""

from __future__ import annotations

import os
from contextlib import suppress

__all__ = ["lock", "locked", "unlock"]

if os.name == "nt":  # pragma: no cover - Windows
    import msvcrt

    _FAR = 0x7FFF_FFFE
    """Where the byte is that is locked: behind what anybody reads, since others may not read what is locked."""

    def lock(file: int) -> None:
        """Have a file to oneself until it is closed.

        Raises:
            BlockingIOError: Somebody else has it, in another process or in this one.
        """
        os.lseek(file, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        except OSError as error:
            raise BlockingIOError from error
        finally:
            os.lseek(file, 0, os.SEEK_SET)

    def unlock(file: int) -> None:
        """Closing the file does it."""

else:
    import fcntl

    def lock(file: int) -> None:
        """Have a file to oneself until it is closed.

        Raises:
            BlockingIOError: Somebody else has it, in another process or in this one.
            OSError: Its file system has no locks.
        """
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def unlock(file: int) -> None:
        """Let others have a file: closing it is not enough where a process that was forked meanwhile has it open."""
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)


def locked(file: int) -> bool:
    """Have a file to oneself until it is closed; return False when somebody else has it.

    On a file system without locks everybody has it.
    """
    try:
        lock(file)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
