"""The folder for the copy of a backup during a restore.

It is in the folder of the store, so that the next opening finds and removes the copy of a killed restore.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from agentkit_memory.database.engine import Database
from agentkit_memory.errors import IndexBroken, IndexUnavailable, StoreUnavailable
from agentkit_memory.index.folder_lock import FolderLock

_NAME = "restoring"


@contextmanager
def copy_folder(into: Database) -> Iterator[Path]:
    """Yield an empty folder for the copy of a backup that is restored into a database; remove the folder afterwards.

    For a database on a server, the folder is in the temporary folder of the system.

    Raises:
        StoreUnavailable: The folder cannot be created, or another process restores into the same store.
    """
    if not into.is_sqlite:
        with TemporaryDirectory(prefix="agentkit-") as name:
            yield Path(name)
        return
    remove_copy(into)
    folder = _folder(into)
    try:
        lock = FolderLock(folder)
    except IndexUnavailable as error:
        raise StoreUnavailable(
            f"{folder}: another process restores into this store; wait for it", path=str(folder), name="restore"
        ) from error
    except IndexBroken as error:
        raise StoreUnavailable(
            f"{folder}: the backup cannot be copied there ({error.__cause__})", path=str(folder), name="copy"
        ) from error
    try:
        yield folder
    finally:
        _remove(folder, lock)


def remove_copy(into: Database) -> None:
    """Remove the copy that a killed restore into a database left; the copy of a running restore stays."""
    folder = _folder(into)
    # A link could lead to any folder of this machine.
    if into.is_sqlite and folder.is_dir() and not folder.is_symlink():
        # The lock cannot be acquired while a restore is running.
        with suppress(IndexUnavailable, IndexBroken):
            _remove(folder, FolderLock(folder))


def _folder(into: Database) -> Path:
    return Path(into.where).parent / _NAME


def _remove(folder: Path, lock: FolderLock) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    lock.release()
