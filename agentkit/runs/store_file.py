"""Lock of the SQLite file of a run store."""

from __future__ import annotations

import os
from pathlib import Path

from agentkit.runs.run_errors import RunStoreError
from agentkit_prompts.system.file_locks import locked
from agentkit_prompts.system.private_files import private_file, private_folder


def locked_file(path: Path) -> int:
    """Create a file if it is missing, lock it, and return the descriptor of the lock file.

    Without the lock, two servers would both continue the runs in the file.

    Raises:
        RunStoreError: Another process uses the file, or it cannot be created.
    """
    lock = path.with_name(f"{path.name}.lock")
    try:
        private_folder(path.parent)
        private_file(path)
        private_file(lock)
        file = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise RunStoreError(
            f"{path}: cannot be opened as the database of runs: {error.strerror or error}: name a file in a writable "
            "folder with space",
            path=str(path),
        ) from error
    if not locked(file):
        os.close(file)
        raise RunStoreError(
            f"{path}: another server stores its runs in this file: stop that server, or serve with another --home",
            path=str(path),
            value="busy",
        )
    return file
