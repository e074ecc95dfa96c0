"""Backups: one SQLite file with all rows of a SQLite or PostgreSQL store, and a digest at its end.

The copy is of one moment and blocks no readers or writers. The index is not included: it is rebuilt from the rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentkit_memory.admin.copy_folder import copy_folder
from agentkit_memory.admin.new_files import file_problem, new_file
from agentkit_memory.admin.table_rows import fill, read_rows
from agentkit_memory.database.engine import Database
from agentkit_memory.errors import StoreCorrupt, StoreVersion
from agentkit_memory.process.failpoints import failpoint
from agentkit_prompts.system.regular_files import open_regular

BACKUP_START = b"SQLite format 3\0"
"""First bytes of a backup."""

_FORMAT = 1
_FORMAT_KEY = "agentkit-memory-backup"
_CHUNK = 1 << 20
_MAX_SEAL = 1024
"""Maximum bytes of the seal: the last line, with the digest."""


def write_backup(database: Database, path: Path) -> int:
    """Write a backup and return its size in bytes; see `Admin.backup`."""
    with new_file(path) as draft:
        if database.is_sqlite:
            database.copy_into(draft, path)
        else:
            draft.unlink()
            copy = Database.open(draft, clock=database.clock)
            try:
                with database.snapshot() as connection:
                    fill(copy, read_rows(connection), database.where)
            finally:
                copy.close()
        failpoint("backup.copied")
        at = database.clock()
        with draft.open("r+b") as file:
            digest = hashlib.file_digest(file, "sha256")
            seal = {_FORMAT_KEY: _FORMAT, "bytes": file.tell(), "at": at}
            digest.update(_seal_line(seal))
            file.write(_seal_line(seal | {"sha256": digest.hexdigest()}))
        failpoint("backup.sealed")
    return path.stat().st_size


def _seal_line(seal: object) -> bytes:
    return f"\n{json.dumps(seal)}\n".encode()


@contextmanager
def opened_backup(path: Path, target: Database) -> Iterator[Database]:
    """Yield the database of a backup. The file is checked while it is copied, and the copy is opened.

    Args:
        path: Path of the backup.
        target: The store to restore into; the copy is written to its folder.

    Raises:
        StoreCorrupt: The file is cut or corrupt, or not a backup.
        StoreVersion: A newer version of agentkit wrote it.
        StoreUnavailable: The backup cannot be read, or the copy cannot be written.
    """
    with copy_folder(target) as folder:
        copy = folder / "memory.db"
        try:
            _copy_and_check(path, copy)
        except OSError as error:
            raise file_problem(path, error) from error
        database = Database.open(copy)
        try:
            yield database
        finally:
            database.close()


def _copy_and_check(path: Path, copy: Path) -> None:
    with open_regular(path) as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _MAX_SEAL))
        _, _, line = file.read().removesuffix(b"\n").rpartition(b"\n")
        try:
            seal = json.loads(line)
            version, body_size, stored_digest = seal[_FORMAT_KEY], seal["bytes"], seal.pop("sha256")
        except (ValueError, TypeError, KeyError, RecursionError):
            raise _corrupt(path, "its last line is not the end of a backup, so it was cut or is not a backup") from None
        if isinstance(version, int) and version > _FORMAT:
            raise StoreVersion(
                f"{path}: a backup in format {version}, this agentkit reads up to {_FORMAT}; upgrade agentkit",
                path=str(path),
                name="format",
                value=version,
            )
        if body_size != size - len(line) - 2:
            raise _corrupt(path, f"it has {size - len(line) - 2:,} of {body_size!r:.20} bytes")
        file.seek(0)
        digest, remaining = hashlib.sha256(), body_size
        with _naming_errors(copy):
            # Unbuffered, so that an error of writing occurs in `write` and not in `close`.
            out = copy.open("xb", buffering=0)
        with out:
            while remaining and (chunk := file.read(min(_CHUNK, remaining))):
                digest.update(chunk)
                remaining -= len(chunk)
                with _naming_errors(copy):
                    while chunk:
                        chunk = chunk[out.write(chunk) :]
        digest.update(_seal_line(seal))
        if remaining or digest.hexdigest() != stored_digest:
            raise _corrupt(path, "its digest does not match its bytes")


@contextmanager
def _naming_errors(path: Path) -> Iterator[None]:
    """Convert an `OSError` into a `StoreError` that names the file."""
    try:
        yield
    except OSError as error:
        raise file_problem(path, error) from error


def _corrupt(path: Path, reason: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"{path}: this backup is corrupt ({reason}); nothing was written: use another copy of it", path=str(path)
    )
