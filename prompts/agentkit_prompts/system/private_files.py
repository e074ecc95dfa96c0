"""Files and folders that only their owner may enter, whatever the umask."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

__all__ = ["keep_private", "private_database", "private_file", "private_folder"]

_FILE, _FOLDER = 0o600, 0o700
_OTHERS = 0o077


def private_folder(path: Path) -> None:
    """Make a folder and those above it that are missing, each for its owner alone. One that exists stays as it is.

    Raises:
        OSError: It cannot be made, or is a file.
    """
    try:
        path.mkdir(_FOLDER)
    except FileExistsError:
        if not path.is_dir():
            raise
        return
    except FileNotFoundError:
        if path.parent == path:
            raise
        private_folder(path.parent)
        # Some file systems never have it.
        path.mkdir(_FOLDER, exist_ok=True)
    # The umask can have removed rights of the owner.
    path.chmod(_FOLDER)


def private_file(path: Path) -> None:
    """Make an empty file for its owner alone, or take the rights of others from one that exists, where that is ours.

    What cannot be made or changed is left to whoever opens it, who reports it; a folder, a device or a pipe keeps its
    rights.
    """
    with suppress(OSError, ValueError):
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE))
            path.chmod(_FILE)
        if not path.is_dir():
            _take_from_others(path)


def private_database(path: Path) -> None:
    """Make the file of a SQLite database and the folders above it that are missing, for their owner alone.

    Raises:
        OSError: The folder cannot be made, or is a file.
    """
    private_folder(path.parent)
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        if name == path.name or path.with_name(name).exists():
            # SQLite gives these files the rights of the database when it makes them.
            private_file(path.with_name(name))


def keep_private(folder: Path) -> None:
    """Take the rights of others from a folder and from all that is in it, where that is ours."""
    _take_from_others(folder)
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            if not (path := Path(parent, name)).is_symlink():
                _take_from_others(path)


def _take_from_others(path: Path) -> None:
    if os.name != "posix":
        return
    # The file belongs to another owner, or was removed.
    with suppress(OSError, ValueError):
        status = path.stat()
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            # Devices such as /dev/urandom are shared by all programs of a machine.
            return
        if status.st_mode & _OTHERS and status.st_uid == os.geteuid():
            path.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS)
