"""A file that one process writes to, at a time."""

from __future__ import annotations

import os
from contextlib import suppress

__all__ = ["locked", "unlocked"]

if os.name == "nt":  # pragma: no cover - Windows
    import msvcrt

    _FAR = 0x7FFF_FFFE
    """Where the byte is that is locked: behind what anybody reads, since others may not read what is locked."""

    def _lock(file: int) -> None:
        os.lseek(file, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        except OSError as error:
            raise BlockingIOError from error
        finally:
            os.lseek(file, 0, os.SEEK_SET)

    def unlocked(file: int) -> None:
        """Closing the file does it."""

else:
    import fcntl

    def _lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def unlocked(file: int) -> None:
        """Let others have a file: closing it is not enough where a process that was forked meanwhile has it open."""
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)


def locked(file: int) -> bool:
    """Have a file to oneself until it is closed; return False when another run has it, in any process."""
    try:
        _lock(file)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
