"""`Database`: one engine, short transactions, and errors with advice."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from sqlite3 import Connection as SQLiteConnection
from threading import RLock
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, Insert, Table, create_engine, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError, OperationalError

from agentkit_memory.checks import is_time
from agentkit_memory.errors import (
    InvalidArgument,
    NotFound,
    StoreClosed,
    StoreError,
    StoreUnavailable,
    WouldWait,
)
from agentkit_memory.process.few_at_once import FewAtOnce
from agentkit_memory.process.forks import keep, track
from agentkit_memory.process.private_files import private_file, private_folder
from agentkit_memory.process.store_threads import Threads
from agentkit_memory.store.deferred_writes import DeferredWrites
from agentkit_memory.store.driver_errors import code_of, is_lost, translate
from agentkit_memory.store.migrate import REVISION, current_revision, migrate
from agentkit_memory.store.residue import may_hold
from agentkit_memory.store.sqlite import SQLiteFile

__all__ = ["Database", "upserts"]

_DIALECTS = {"sqlite": sqlite, "postgresql": postgresql}
_MIGRATION_LOCK = 0x61676E746B  # any number, the same in every process

T = TypeVar("T")

_MAX_COMPUTING = 2
_MAX_WAITING = 64

_RETRY = 0.1
"""Seconds between two tries to reach a server that was there before."""

_SERVER_OPTIONS = {"tcp_keepalives_idle": 30, "tcp_keepalives_interval": 10, "tcp_keepalives_count": 3}
_SERVER_OPTIONS |= {"idle_in_transaction_session_timeout": 60_000}
"""So that the server notices within a minute that a client is gone or stopped, and gives up its locks."""

_TARGET = ("SQLITE_FULL", "SQLITE_CANTOPEN", "SQLITE_IOERR_WRITE")
"""Errors of a copy that are about the file that is written."""

_MAX_HURRIED = 256
"""Writes in a row that do not wait: only one that waits lets SQLite copy its log into the file, which takes long."""


class Database:
    """The database of a memory, at its newest revision.

    On SQLite, writes of one process go one after the other: there is one writer anyway, and a lock in the process is
    fair and cheap where SQLite's own waiting is neither. On PostgreSQL, each write takes a connection from the pool.
    """

    def __init__(
        self, target: Engine | SQLiteFile, where: str, timeout: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._file = target if isinstance(target, SQLiteFile) else None
        self.engine = target.engine if isinstance(target, SQLiteFile) else target
        # Each statement by itself: a transaction would take two more round trips. SQLite is read like that anyway.
        self._reader = self.engine if self.is_sqlite else self.engine.execution_options(isolation_level="AUTOCOMMIT")
        self.where = where
        self.deferred = DeferredWrites(self.write)
        """Writes that nobody waits for."""
        self.threads = {"sessions": Threads(), "memory": Threads()}
        """Those of async callers; for conversations apart, so that an append does not wait behind recalls."""
        self.computing = self._turns()
        """Recalls at once: of a file they compute, of a server they mostly wait."""
        self._clock = clock
        self._lock = RLock()
        self._timeout = timeout
        self._writer: Connection | None = None
        self._hurried = 0  # writes without waiting since the last that may have waited
        self._closed = ""
        self._inherited = False
        self._was_connected = False
        track(self)

    @classmethod
    def open(cls, target: Path | str, *, timeout: float = 5.0, clock: Callable[[], float] = time.time) -> Database:
        """Open, create or upgrade the database at a file path or a URL.

        Args:
            target: Path of a SQLite file (its folder is created), or a database URL.
            timeout: Seconds to wait for another process that holds a lock.
            clock: Returns seconds since 1970.

        Raises:
            StoreError: The database is locked, read-only, corrupt, newer than this code or cannot be reached.
        """
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 <= timeout <= 1_000_000:
            raise InvalidArgument(f"timeout: expected seconds to wait for a lock, 0 or more, got {timeout!r}")
        if not callable(clock):
            raise InvalidArgument(f"clock: expected a function that returns seconds since 1970, got {clock!r}")
        if isinstance(target, Path):
            where = str(target)
            try:
                private_folder(target.parent)
            except (OSError, ValueError) as error:
                raise StoreUnavailable(f"{where}: its folder cannot be made ({error}); choose another one") from error
            for name in (target.name, f"{target.name}-wal", f"{target.name}-shm"):
                if name == target.name or target.with_name(name).exists():
                    private_file(target.with_name(name))  # SQLite gives the others the rights of the first
            database = cls(SQLiteFile(target, timeout), where, timeout, clock)
        else:
            engine, where = _server(target, timeout)
            database = cls(engine, where, timeout, clock)
        try:
            with database.read() as connection:
                current = current_revision(connection)
            if current != REVISION:
                with database.write() as connection:
                    if not database.is_sqlite:
                        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
                    migrate(connection, where)  # looks again, now that nobody else can
        except BaseException:
            database.close()
            raise
        database._was_connected = True
        return database

    def clock(self) -> float:
        """Return seconds since 1970. Nothing is ordered by it: it may go backwards.

        Raises:
            StoreError: The given clock returned something else.
        """
        now: object = self._clock()
        if not is_time(now):
            raise StoreError(f"{self.where}: expected seconds since 1970 from the clock that was given, got {now!r}")
        return float(now)

    @property
    def is_sqlite(self) -> bool:
        """Whether this is a SQLite file rather than a server."""
        return self.engine.dialect.name == "sqlite"

    def insert(self, table: Table) -> sqlite.Insert | postgresql.Insert:
        """Return an INSERT that has `on_conflict_do_update` and `on_conflict_do_nothing`."""
        return sqlite.insert(table) if self.is_sqlite else postgresql.insert(table)

    @contextlib.contextmanager
    def read(self, *, again: bool = False) -> Iterator[Connection]:
        """Lend a connection for reading, without a transaction: each statement sees what is committed by then.

        With `again`, what is read here is read `again` if need be: that the server is still there is not asked first.
        """
        if self._closed:
            raise self._refusal()
        try:
            with self._connected(self._reader, ping=not again) as connection:
                yield connection
        except (DBAPIError, UnicodeDecodeError, _driver_error(self.engine)) as error:
            raise translate(error, self.where) from error

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Lend a connection that sees what is committed now, whatever others write meanwhile. Nobody waits for it."""
        if self._closed:
            raise self._refusal()
        engine = self.engine if self.is_sqlite else self.engine.execution_options(isolation_level="REPEATABLE READ")
        try:
            with self._connected(engine) as connection, connection.begin():
                if self.is_sqlite:
                    driver: Any = connection.connection.driver_connection
                    driver.execute("BEGIN").close()
                yield connection
        except (DBAPIError, UnicodeDecodeError, _driver_error(self.engine)) as error:
            raise translate(error, self.where) from error

    def copy_into(self, path: Path) -> None:
        """Write a copy of a SQLite file, without deleted bytes, into an empty file; others read and write meanwhile."""
        if self._closed:
            raise self._refusal()
        try:
            with self.engine.connect() as connection:
                driver: Any = connection.connection.driver_connection
                driver.execute("VACUUM INTO ?", (str(path),)).close()
        except (DBAPIError, UnicodeDecodeError, _driver_error(self.engine)) as error:
            raise translate(
                error, str(path) if code_of(getattr(error, "orig", error)) in _TARGET else self.where
            ) from error

    @contextlib.contextmanager
    def write(self, *, wait: bool = True, may_clash: bool = False) -> Iterator[Connection]:
        """Lend a connection in a transaction: committed at the end, rolled back if anything is raised.

        Without `wait` a small write takes well below a millisecond, so that it needs no thread, or raises `WouldWait`.
        With `may_clash` an `IntegrityError` passes through, for callers that expect it.

        Raises:
            NotFound: The owner of the rows was deleted meanwhile.
        """
        try:
            if not self.is_sqlite:
                if not wait:
                    raise WouldWait
                if self._closed:
                    raise self._refusal()
                with self._connected(self.engine) as connection, connection.begin():
                    yield connection
                return
            lock = self._lock
            if not lock.acquire(blocking=wait):
                raise WouldWait
            try:
                if self._closed:
                    raise self._refusal()
                writer = self._writer
                if writer is None:
                    if not wait:
                        raise WouldWait  # opening a connection may take long
                    writer = self._writer = self.engine.connect()
                with writer.begin():
                    driver: Any = writer.connection.driver_connection
                    self._hurry(driver, not wait)
                    try:
                        driver.execute("BEGIN IMMEDIATE")  # a writer that begins as a reader can be refused later
                    except _driver_error(self.engine) as error:
                        if wait or not getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY"):
                            raise
                        raise WouldWait from None
                    yield writer
            finally:
                lock.release()
        except IntegrityError as error:
            if code_of(error.orig) in ("SQLITE_CONSTRAINT_FOREIGNKEY", "23503"):
                raise NotFound(
                    f"{self.where}: the owner of this was deleted or erased meanwhile; nothing was written: "
                    "open it again"
                ) from error
            if may_clash:
                raise
            raise translate(error, self.where) from error
        except (DBAPIError, UnicodeDecodeError, _driver_error(self.engine)) as error:
            raise translate(error, self.where) from error

    def again(self, act: Callable[[], T]) -> T:
        """Call a function that may be called twice; if the server closed its connection meanwhile, once more."""
        try:
            return act()
        except StoreUnavailable as error:
            if not is_lost(error):
                raise
            return act()

    def look_up(self, reads: Callable[[Connection], T]) -> T:
        """Call a function that reads with a connection; if the server closed that meanwhile, once more."""

        def read() -> T:
            with self.read(again=True) as connection:
                return reads(connection)

        return self.again(read)

    def _connected(self, engine: Engine, *, ping: bool = True) -> Connection:
        """Return a connection; a server that restarts is waited for up to the time limit.

        With `ping`, those that a restart closed are left out.
        """
        until = time.monotonic() + self._timeout
        while True:
            try:
                connection = engine.connect()
            except OperationalError:
                if self.is_sqlite or not self._was_connected or time.monotonic() >= until:
                    raise
                time.sleep(_RETRY)
                continue
            if not ping or self.is_sqlite:
                return connection
            try:
                opened: Any = connection.connection.dbapi_connection
                engine.dialect.do_ping(opened)
                return connection
            except _driver_error(engine):
                connection.invalidate()
                connection.close()

    def compact(self) -> bool:
        """Rewrite the file without deleted bytes, and empty its log; return whether that was possible now.

        It takes as long as copying the file, and blocks writers meanwhile. A reader keeps the log from being emptied.
        A server cleans its tables up by itself.

        Raises:
            StoreUnavailable: Another process was writing all the time.
        """
        if not self.is_sqlite:
            return False
        with self._lock:
            if self._closed:
                raise self._refusal()
            try:
                with self.engine.connect() as connection:
                    driver: Any = connection.connection.driver_connection
                    driver.execute("PRAGMA temp_store=FILE").close()  # the copy is as large as the store
                    try:
                        driver.execute("VACUUM").close()
                        busy, _, _ = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                    finally:
                        driver.execute("PRAGMA temp_store=MEMORY").close()
            except (DBAPIError, UnicodeDecodeError, _driver_error(self.engine)) as error:
                raise translate(error, self.where) from error
            return not busy

    def empty_log(self) -> bool:
        """Copy the log of SQLite into the file and empty it: deleted bytes are in neither then; return whether it was.

        A reader keeps it from being emptied. A server cleans its tables up by itself.

        Raises:
            StoreUnavailable: Another process was writing all the time.
        """
        if not self.is_sqlite:
            return False
        try:
            with self.engine.connect() as connection:
                driver: Any = connection.connection.driver_connection
                driver.execute("PRAGMA wal_checkpoint(PASSIVE)").close()  # most of it, while others write
                with self._lock:
                    if self._closed:
                        raise self._refusal()
                    busy, _, _ = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except (DBAPIError, UnicodeDecodeError, _driver_error(self.engine)) as error:
            raise translate(error, self.where) from error
        return not busy

    def may_hold(self, texts: set[bytes]) -> bool:
        """Whether deleted bytes of the file may hold one of these; on a server, nobody can say."""
        return not self.is_sqlite or may_hold(Path(self.where), texts)

    def _hurry(self, driver: Any, hurried: bool) -> None:
        """Switch the writer between waiting for locks, with checkpoints of the log, and neither."""
        if hurried and self._hurried == _MAX_HURRIED:
            raise WouldWait
        if hurried != bool(self._hurried):
            driver.execute(f"PRAGMA busy_timeout={0 if hurried else round(self._timeout * 1000)}").close()
            driver.execute(f"PRAGMA wal_autocheckpoint={0 if hurried else 1000}").close()
        self._hurried = self._hurried + 1 if hurried else 0

    def close(self) -> None:
        """Close every connection. Closing twice is fine; in a process that was forked since, nothing is closed."""
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
        """Leave it to the parent of this process: it was open when this one was forked."""
        free: SQLiteConnection | None = None
        writer, self._writer = self._writer, None
        if writer is not None:
            keep(writer)
            lent: Any = writer.connection.driver_connection
            if self._lock.acquire(blocking=False) and not lent.in_transaction:
                free = lent
        if self._file is not None:
            self._file.disown(free)
        keep(self.engine, self._reader)
        self._lock = RLock()  # the thread that held the other does not exist here
        self.computing = self._turns()  # nor do those that had a turn
        self._inherited = True
        self._closed = self._closed or why

    def _turns(self) -> FewAtOnce:
        return FewAtOnce(_MAX_COMPUTING if self.is_sqlite else _MAX_WAITING)

    def _refusal(self) -> StoreClosed:
        return StoreClosed(f"{self.where}: this memory {self._closed}")


def upserts(table: Table, changes: dict[str, Any] | None = None) -> Mapping[str, Insert]:
    """Return an INSERT per dialect name that, where the key exists, changes the row; without changes it skips it."""
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


_NO_DATABASE = (
    "expected a folder, or postgresql://user@host:port/database, got another address, which is not shown, as it may "
    "hold a password; SQLite is opened by its folder, and a folder of such a name as ./NAME"
)


def _server(address: str, timeout: float) -> tuple[Engine, str]:
    made: Engine | None = None
    try:
        url = make_url(address)
        if url.drivername == "postgresql":
            url = url.set(drivername="postgresql+psycopg")
        if url.get_backend_name() == "postgresql":
            settings = _SERVER_OPTIONS | {"lock_timeout": f"{timeout * 1000:.0f}"}
            made = create_engine(
                url,
                connect_args={
                    "connect_timeout": max(1, round(timeout)),
                    "options": " ".join(f"-c {name}={value}" for name, value in settings.items()),
                },
            )
    except ImportError as error:
        raise StoreUnavailable("a postgresql:// store needs psycopg: install the extra `postgres`") from error
    except (ArgumentError, NoSuchModuleError, ValueError):
        pass  # which quotes the address: it is not to be behind ours
    if made is None:
        raise InvalidArgument(_NO_DATABASE)
    return made, _shown(made.url)


def _shown(url: URL) -> str:
    """Return a database URL without its password, nor its query, which may hold one too."""
    return url.set(query={}).render_as_string()
