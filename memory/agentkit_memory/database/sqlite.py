"""Connections to a SQLite file: their settings, and their handling in a forked process."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from sqlite3 import Connection, OperationalError
from typing import cast

from sqlalchemy import create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry

from agentkit_memory.errors import StoreUnavailable
from agentkit_memory.process.forks import keep

_PRAGMAS = (
    "synchronous=NORMAL",
    "foreign_keys=ON",
    "temp_store=MEMORY",
    # 16,000 kB: the pages that a recall reads are spread over a large file.
    "cache_size=-16000",
    "secure_delete=ON",
    # The schema of a file from another person can call functions.
    "trusted_schema=OFF",
)

_idle: list[Connection] = []
"""Connections of the parent process that were not in use at the fork."""
_busy: list[Path] = []
"""Files that another thread of the parent process was using at the fork."""


class SQLiteFile:
    """A SQLAlchemy engine for a SQLite file, and its open connections.

    Raises:
        StoreUnavailable: This process was forked while the parent process was using the file.
    """

    def __init__(self, path: Path, timeout: float) -> None:
        _close_inherited(path)
        self._path = path
        self._timeout = timeout
        self._open: dict[Connection, ConnectionPoolEntry | None] = {}
        url = URL.create("sqlite", database=str(path))
        options = {"timeout": timeout, "isolation_level": None, "check_same_thread": False}
        # The number of connections has no limit: a recall has a connection while it waits for its permit to compute.
        self.engine = create_engine(url, connect_args=options, max_overflow=-1)
        event.listen(self.engine, "connect", self._prepare)
        event.listen(self.engine, "close", self._forget)

    def disown(self, idle_writer: Connection | None) -> None:
        """Leave every connection to the parent process, after a fork.

        Args:
            idle_writer: The connection of the writer, if it was not in use.
        """
        keep(self.engine, *self._open)
        for each, entry in self._open.items():
            if each is idle_writer or (entry is not None and not entry.in_use):
                _idle.append(each)
            else:
                _busy.append(self._path)

    def _prepare(self, connection: DBAPIConnection, entry: ConnectionPoolEntry) -> None:
        if not isinstance(connection, Connection):
            raise TypeError(f"expected a connection of sqlite3, got {connection!r}")
        # A connection without an entry counts as used, if this process forks now.
        self._open[connection] = None
        try:
            _use_write_ahead_log(connection, self._timeout)
            for pragma in _PRAGMAS:
                connection.execute(f"PRAGMA {pragma}").close()
        except BaseException:
            # SQLAlchemy sends no `close` event for a connection that fails here.
            del self._open[connection]
            raise
        self._open[connection] = entry

    def _forget(self, connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        self._open.pop(cast("Connection", connection), None)


def _close_inherited(path: Path) -> None:
    """Close inherited connections before this process opens a file.

    SQLite counts its locks by process: it would treat the locks of the parent as locks of this process, and when the
    parent closes the file, writes of this process would be lost. A connection that was in use cannot be closed.
    """
    while _idle:
        _idle.pop().close()
    for each in _busy:
        with suppress(OSError):
            if each.samefile(path):
                raise StoreUnavailable(
                    f"{path}: this process was forked while another thread was using this file, and SQLite cannot "
                    "distinguish the two processes; fork while the memory is idle, or start processes by `spawn` or "
                    "`forkserver`",
                    path=str(path),
                    name="fork",
                )


def _use_write_ahead_log(connection: Connection, timeout: float) -> None:
    """Switch a file to write-ahead logging, which is permanent.

    SQLite does not wait for the lock of this change: the change fails at once if two processes open a new file.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").close()
            return
        except OperationalError as error:
            if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() >= deadline:
                raise
        time.sleep(0.01)
