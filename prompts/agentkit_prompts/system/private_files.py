"""Files and folders that only their owner can access, independent of the umask."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

_FILE, _FOLDER = 0o600, 0o700
_OTHERS = 0o077


def private_folder(path: Path) -> None:
    """Create a folder and its missing parents, each accessible only by its owner. An existing folder is not changed.

    Raises:
        OSError: The folder cannot be created, or is a file.
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
        # `exist_ok`, because another process can create the folder at the same time.
        path.mkdir(_FOLDER, exist_ok=True)
    # The umask can remove rights of the owner.
    path.chmod(_FOLDER)


def private_file(path: Path) -> None:
    """Create an empty file that only its owner can access, or remove the rights of other users from an existing file.

    The rights of a file of another user, a folder, a device or a pipe are not changed. Errors are ignored, because the
    code that opens the file later reports them.
    """
    with suppress(OSError, ValueError):
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE))
            path.chmod(_FILE)
        if not path.is_dir():
            _take_from_others(path)


def private_database(path: Path) -> None:
    """Create the file of a SQLite database and its missing parent folders, accessible only by their owner.

    Raises:
        OSError: The folder cannot be created, or is a file.
    """
    private_folder(path.parent)
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        if name == path.name or path.with_name(name).exists():
            # SQLite creates further files with the rights of the database; existing files can have other rights.
            private_file(path.with_name(name))


def keep_private(folder: Path) -> None:
    """Remove the rights of other users from a folder and all files in it that belong to this user."""
    _take_from_others(folder)
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            if not (path := Path(parent, name)).is_symlink():
                _take_from_others(path)


def _take_from_others(path: Path) -> None:
    if os.name != "posix":
        return
    # Another process can remove the file.
    with suppress(OSError, ValueError):
        status = path.stat()
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            # Devices such as /dev/urandom are shared by all programs of a machine.
            return
        if status.st_mode & _OTHERS and status.st_uid == os.geteuid():
            path.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS)
