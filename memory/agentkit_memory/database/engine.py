"""`Database`: one engine, short transactions, and errors with advice."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from sqlite3 import Connection as SQLiteConnection
from threading import RLock
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, Insert, Table, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, IntegrityError

from agentkit_memory.database.deferred_writes import DeferredWrites
from agentkit_memory.database.driver_errors import code_of, translate
from agentkit_memory.database.migrate import REVISION, check_objects, current_revision, migrate
from agentkit_memory.database.postgres import PostgresServer
from agentkit_memory.database.residue import may_hold
from agentkit_memory.database.sqlite import SQLiteFile
from agentkit_memory.errors import (
    InvalidArgument,
    NotFound,
    StoreClosed,
    StoreError,
    StoreUnavailable,
    WouldWait,
)
from agentkit_memory.process.forks import keep, track
from agentkit_prompts.errors import brief
from agentkit_prompts.system.concurrency_limit import ConcurrencyLimit
from agentkit_prompts.system.private_files import private_database
from agentkit_prompts.system.threads import Threads

_DIALECTS = {"sqlite": sqlite, "postgresql": postgresql}
_MIGRATION_LOCK = 0x61676E746B
"""Key of the advisory lock of a migration, an arbitrary number that is the same in every process."""

T = TypeVar("T")

_MAX_THREADS = 8
"""Maximum threads of a pool for async callers."""
_MAX_COMPUTING = 2
"""Maximum concurrent recalls on a SQLite file: they compute in this process."""
_MAX_WAITING = 64
"""Maximum concurrent recalls on PostgreSQL: they mostly wait for the server."""

_TARGET_CODES = ("SQLITE_FULL", "SQLITE_CANTOPEN", "SQLITE_IOERR_WRITE")
"""Codes of errors that concern the target file of a copy."""

_MAX_HURRIED = 256
"""Maximum consecutive writes without waiting. SQLite copies its log into the file only during a write that may wait,
because copying takes long."""


class Database:
    """The database of a memory, at its newest revision.

    On SQLite, writes of one process are serialised: SQLite has one writer anyway, and a lock in the process is fair and
    cheap, unlike the lock of SQLite. On PostgreSQL, each write uses a connection of the pool.
    """

    def __init__(
        self, target: SQLiteFile | PostgresServer, where: str, timeout: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._target = target
        self.engine = target.engine
        self.where = where
        self.deferred = DeferredWrites(self.change)
        """Queue of writes in the background."""
        self.threads = {name: Threads(_MAX_THREADS, "agentkit-memory") for name in ("sessions", "memory")}
        """Threads of async callers; separate for sessions, so that an append does not wait for recalls."""
        self.computing = self._permits()
        """Limit of concurrent recalls."""
        self._clock = clock
        self._lock = RLock()
        self._timeout = timeout
        self._writer: Connection | None = None
        # Number of consecutive writes without waiting.
        self._hurried = 0
        self._closed = ""
        self._inherited = False
        track(self)

    @classmethod
    def open(cls, target: Path | str, *, timeout: float = 5.0, clock: Callable[[], float] = time.time) -> Database:
        """Open, create or upgrade the database at a file path or a URL.

        Args:
            target: Path of a SQLite file (its folder is created), or a database URL.
            timeout: Seconds to wait for another process that holds a lock.
            clock: Function that returns seconds since 1970.

        Raises:
            StoreError: The database is locked, read-only, corrupt, newer than this code or cannot be reached.
        """
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 <= timeout <= 1_000_000:
            raise InvalidArgument(
                f"timeout: expected seconds to wait for a lock, 0 or more, got {brief(timeout)}", name="timeout"
            )
        if not callable(clock):
            raise InvalidArgument(
                f"clock: expected a function that returns seconds since 1970, got {brief(clock)}", name="clock"
            )
        if isinstance(target, Path):
            where = str(target)
            try:
                private_database(target)
            except (OSError, ValueError) as error:
                raise StoreUnavailable(
                    f"{where}: its folder cannot be created or used ({error}); choose another folder",
                    path=where,
                    name="folder",
                ) from error
            database = cls(SQLiteFile(target, timeout), where, timeout, clock)
        else:
            server = PostgresServer(target, timeout)
            database = cls(server, server.where, timeout, clock)
        try:
            with database.read() as connection:
                check_objects(connection, database.where, is_sqlite=database.is_sqlite)
                current = current_revision(connection)
            if current != REVISION:
                with database.write() as connection:
                    if not database.is_sqlite:
                        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
                    # `migrate` reads the revision again: another process may have upgraded the database.
                    migrate(connection, database.where)
        except BaseException:
            database.close()
            raise
        if not isinstance(database._target, SQLiteFile):
            database._target.was_reached = True
        return database

    def clock(self) -> float:
        """Return seconds since 1970. The clock may be set back, so that no order depends on it.

        Raises:
            StoreError: The clock returned another value.
        """
        now: object = self._clock()
        # Infinity, NaN, and integers that are too large for a float are invalid.
        if isinstance(now, bool) or not isinstance(now, int | float) or not abs(now) <= sys.float_info.max:
            raise StoreError(
                f"{self.where}: expected seconds since 1970 from the function `clock`, got {brief(now)}", name="clock"
            )
        return float(now)

    @property
    def is_sqlite(self) -> bool:
        """True for a SQLite file, False for a server."""
        return self.engine.dialect.name == "sqlite"

    def insert(self, table: Table) -> sqlite.Insert | postgresql.Insert:
        """Return an INSERT that has `on_conflict_do_update` and `on_conflict_do_nothing`."""
        if self.is_sqlite:
            return sqlite.insert(table)
        return postgresql.insert(table)

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection for reading, without a transaction: each statement reads all rows committed before it.

        A statement whose connection to a server was lost is executed once more on another connection.
        """
        with self._translated():
            target = self._target
            with target.engine.connect() if isinstance(target, SQLiteFile) else target.reader() as connection:
                yield connection

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Yield a connection that reads the rows as of now, without later writes. No writer is blocked."""
        with self._translated():
            if isinstance(self._target, PostgresServer):
                with self._target.transaction(snapshot=True) as connection:
                    yield connection
                return
            with self.engine.connect() as connection, connection.begin():
                driver: Any = connection.connection.driver_connection
                driver.execute("BEGIN").close()
                yield connection

    def in_snapshot(self, read: Callable[[Connection], T]) -> T:
        """Call a function with a connection of a snapshot, and return its result.

        The function is called once more if the connection to a server is lost.
        """
        if isinstance(self._target, PostgresServer):
            with self._translated():
                return self._target.change(read, twice=True, snapshot=True)
        with self.snapshot() as connection:
            return read(connection)

    def copy_into(self, path: Path, name: Path) -> None:
        """Write a copy of a SQLite file, without deleted bytes, into an empty file. No reader or writer is blocked.

        Args:
            path: The empty file.
            name: Path of the copy in errors.
        """
        if self._closed:
            raise self._refusal()
        try:
            with self.engine.connect() as connection:
                driver: Any = connection.connection.driver_connection
                driver.execute("VACUUM INTO ?", (str(path),)).close()
        except (DBAPIError, UnicodeDecodeError, _driver_error(self.engine)) as error:
            where = self.where
            if code_of(getattr(error, "orig", error)) in _TARGET_CODES:
                where = str(name)
            raise translate(error, where) from error

    def change(
        self, function: Callable[[Connection], T], *, twice: bool = True, wait: bool = True, may_clash: bool = False
    ) -> T:
        """Call a function with a connection in a transaction, and return its result; for the options, see `write`.

        If the connection to a server is lost, the function is called once more. If the connection is lost during the
        commit, the transaction may have been committed: then the function is called again only with `twice`, which
        promises that a second call does no harm.
        """
        if isinstance(self._target, SQLiteFile):
            with self.write(wait=wait, may_clash=may_clash) as connection:
                return function(connection)
        if not wait:
            raise WouldWait
        with self._translated(may_clash):
            return self._target.change(function, twice=twice)

    @contextlib.contextmanager
    def write(self, *, wait: bool = True, may_clash: bool = False) -> Iterator[Connection]:
        """Yield a connection in a transaction, which is committed at the end, or rolled back after an exception.

        Without `wait`, a write that would wait raises `WouldWait`; other small writes take well below a millisecond, so
        that they need no thread. With `may_clash`, an `IntegrityError` passes through, for callers that expect it.

        Raises:
            NotFound: The owner of the rows was deleted meanwhile.
        """
        if isinstance(self._target, PostgresServer):
            if not wait:
                raise WouldWait
            with self._translated(may_clash), self._target.transaction() as connection:
                yield connection
            return
        with self._translated(may_clash):
            lock = self._lock
            if not lock.acquire(blocking=wait):
                raise WouldWait
            try:
                if self._closed:
                    raise self._refusal()
                writer = self._writer
                if writer is None:
                    if not wait:
                        # Opening a connection may take long.
                        raise WouldWait
                    writer = self._writer = self.engine.connect()
                with writer.begin():
                    driver: Any = writer.connection.driver_connection
                    self._hurry(driver, not wait)
                    try:
                        # The lock is acquired now: SQLite may refuse it later to a transaction that starts as a reader.
                        driver.execute("BEGIN IMMEDIATE")
                    except _driver_error(self.engine) as error:
                        if wait or not getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY"):
                            raise
                        raise WouldWait from None
                    yield writer
            finally:
                lock.release()

    @contextlib.contextmanager
    def _translated(self, may_clash: bool = False) -> Iterator[None]:
        """Convert errors of the database into errors of this package; raise `StoreClosed` after `close`."""
        if self._closed:
            raise self._refusal()
        try:
            yield
        except IntegrityError as error:
            if code_of(error.orig) in ("SQLITE_CONSTRAINT_FOREIGNKEY", "23503"):
                raise NotFound(
                    f"{self.where}: the owner of the new rows (a scope, conversation or document) was deleted "
                    "meanwhile; nothing was written: open or add the owner again",
                    name="owner",
                ) from error
            if may_clash:
                raise
            raise translate(error, self.where) from error
        except (DBAPIError, UnicodeDecodeError, _driver_error(self.engine)) as error:
            raise translate(error, self.where) from error

    def compact(self) -> bool:
        """Rewrite the file without deleted bytes, and empty its log; return False if a reader prevented that.

        Rewriting takes as long as copying the file, and blocks writers. Return False for a server, which cleans its
        tables itself.

        Raises:
            StoreUnavailable: Another process was writing during all tries.
        """
        if not self.is_sqlite:
            return False
        with self._lock, self._translated(), self.engine.connect() as connection:
            driver: Any = connection.connection.driver_connection
            # The temporary copy is as large as the store, too large for RAM.
            driver.execute("PRAGMA temp_store=FILE").close()
            try:
                driver.execute("VACUUM").close()
                busy, _, _ = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                driver.execute("PRAGMA temp_store=MEMORY").close()
            return not busy

    def empty_log(self) -> bool:
        """Copy the log of SQLite into the file and empty it, so that neither contains deleted bytes.

        Returns:
            True if the log was emptied; False if a reader prevented that. False for a server.

        Raises:
            StoreUnavailable: Another process was writing during all tries.
        """
        if not self.is_sqlite:
            return False
        with self._translated(), self.engine.connect() as connection:
            driver: Any = connection.connection.driver_connection
            # This copies most of the log without blocking writers.
            driver.execute("PRAGMA wal_checkpoint(PASSIVE)").close()
            with self._lock:
                if self._closed:
                    raise self._refusal()
                busy, _, _ = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return not busy

    def may_hold(self, parts: set[bytes]) -> bool:
        """Return True if deleted bytes of the file may contain one of these parts of texts; always for a server."""
        return not self.is_sqlite or may_hold(Path(self.where), parts)

    def _hurry(self, driver: Any, hurried: bool) -> None:
        """Configure the writer. A `hurried` writer neither waits for locks nor copies the log into the file."""
        if hurried and self._hurried == _MAX_HURRIED:
            raise WouldWait
        if hurried != bool(self._hurried):
            timeout, checkpoint = round(self._timeout * 1000), 1000
            if hurried:
                timeout = checkpoint = 0
            driver.execute(f"PRAGMA busy_timeout={timeout}").close()
            driver.execute(f"PRAGMA wal_autocheckpoint={checkpoint}").close()
        if hurried:
            self._hurried += 1
        else:
            self._hurried = 0

    def close(self) -> None:
        """Close every connection. A second call, or a call in a process that was forked later, closes nothing."""
        if not self._inherited:
            self.deferred.close(self._timeout)
        with self._lock:
            if self._inherited:
                return
            self._closed = "was closed; open it again"
            if self._writer is not None:
                self._writer.close()
                self._writer = None
            self.engine.dispose()

    def disown(self, why: str) -> None:
        """Leave the database to the parent process, which had opened it before the fork."""
        idle_writer: SQLiteConnection | None = None
        writer, self._writer = self._writer, None
        if writer is not None:
            keep(writer)
            driver: Any = writer.connection.driver_connection
            if self._lock.acquire(blocking=False) and not driver.in_transaction:
                idle_writer = driver
        if isinstance(self._target, SQLiteFile):
            self._target.disown(idle_writer)
        keep(self.engine, self._target)
        # A thread of the parent, which does not exist in this process, may hold the old lock or a permit.
        self._lock = RLock()
        self.computing = self._permits()
        self._inherited = True
        self._closed = self._closed or why

    def _permits(self) -> ConcurrencyLimit:
        if self.is_sqlite:
            return ConcurrencyLimit(_MAX_COMPUTING)
        return ConcurrencyLimit(_MAX_WAITING)

    def _refusal(self) -> StoreClosed:
        return StoreClosed(f"{self.where}: this memory {self._closed}", path=self.where, name="memory")


def upserts(table: Table, changes: dict[str, Any] | None = None) -> Mapping[str, Insert]:
    """Return an INSERT, by dialect, that changes the row if its key exists or, without `changes`, skips the row."""
    key = [column.name for column in table.primary_key]
    return {
        name: dialect.insert(table).on_conflict_do_nothing()
        if changes is None
        else dialect.insert(table).on_conflict_do_update(index_elements=key, set_=changes)
        for name, dialect in _DIALECTS.items()
    }


def _driver_error(engine: Engine) -> type[Exception]:
    error: type[Exception] = engine.dialect.loaded_dbapi.Error
    return error
