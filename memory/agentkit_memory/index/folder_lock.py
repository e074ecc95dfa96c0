"""An operating-system lock on the index folder: one process owns it.

It is acquired before the index is loaded, because a second load that fails can corrupt later writes of the first owner.
`filelock` is not suitable. On a file system without locks, it creates a file whose existence is the lock, and which
stays if the owner is killed; and a forked process could not leave its lock to the parent process.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from agentkit_memory.errors import IndexBroken, IndexUnavailable
from agentkit_memory.process.forks import track
from agentkit_prompts.system.file_locks import lock
from agentkit_prompts.system.private_files import private_folder


class FolderLock:
    """A lock on a folder, held until `release` is called or the process ends.

    Raises:
        IndexUnavailable: Another process, or another `FolderLock` of this process, holds the lock.
        IndexBroken: The folder cannot be created or written.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / "lock"
        self._file = -1
        track(self)
        try:
            private_folder(folder)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise IndexBroken(
                f"{folder}: the index folder cannot be written ({error}); make it writable",
                path=str(folder),
                name="write",
            ) from error
        try:
            lock(self._file)
        except OSError as error:
            if not isinstance(error, BlockingIOError):
                self.release()
                raise IndexBroken(
                    f"{folder}: the index folder cannot be locked ({error}); move it to a disk that supports locks",
                    path=str(folder),
                    name="lock",
                ) from error
            owner, process = "", "another process"
            if os.name == "posix":
                owner = os.pread(self._file, 20, 0).decode("ascii", "replace").strip()
            if owner:
                process = f"process {owner}"
            self.release()
            raise IndexUnavailable(
                f"{folder}: the index is in use by {process}; new items are queued in the database and indexed by that "
                "process at its next recall; to recall here, stop that process",
                owned=True,
                path=str(folder),
                name="owner",
                value=owner,
            ) from error
        if os.name == "posix":
            # The content is for the error of another process; on a full disk, the lock works without it.
            with suppress(OSError):
                os.ftruncate(self._file, 0)
                os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Release the folder. A second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def disown(self, why: str) -> None:
        """Leave the lock to the parent process after a fork."""
        # `release` only closes the file. Unlocking the file would release the lock of the parent too.
        with suppress(OSError):
            self.release()
