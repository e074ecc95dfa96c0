"""Connections to a PostgreSQL server, with few round trips, which survive a restart of the server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import Dialect, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.pool import ConnectionPoolEntry

from agentkit_memory.database.driver_errors import is_commit_error
from agentkit_memory.errors import InvalidArgument, StoreUnavailable
from agentkit_prompts.extras import install

_RETRY = 0.1
"""Seconds between two tries to reach a server that was reached before."""

_OPTIONS = {"tcp_keepalives_idle": 30, "tcp_keepalives_interval": 10, "tcp_keepalives_count": 3}
_OPTIONS |= {"idle_in_transaction_session_timeout": 60_000}
"""Options with which the server detects within a minute that a client is gone or stopped, and releases its locks.

Statements are not sent in pipelines of the driver: after a pipeline, the server does not measure how long a transaction
is idle. The driver itself uses a pipeline only for many rows of one statement, deadline the next statement.
"""

_HELLO = text("SELECT 0")
"""Cheap statement that detects a lost connection."""

T = TypeVar("T")

_NO_DATABASE = (
    "expected a folder, or postgresql://user@host:port/database, got another address, which is not shown, as it may "
    "contain a password; pass the folder of a SQLite store, as ./NAME if its name looks like an address"
)


class PostgresServer:
    """A SQLAlchemy engine for a PostgreSQL server.

    Raises:
        InvalidArgument: The address is invalid.
        StoreUnavailable: The driver is not installed.
    """

    def __init__(self, address: str, timeout: float) -> None:
        self.engine = _engine(address, timeout)
        self.where = self.engine.url.set(query={}).render_as_string()
        """Address of the server without the password, and without the query, which may contain a password too."""
        self.was_reached = False
        """True if the server was reached before: then a new connection waits for a restart, up to the timeout."""
        self._timeout = timeout
        event.listen(self.engine, "do_connect", self._connect)
        # Reading statements commit automatically: a transaction would need another round trip.
        self._reads = self.engine.execution_options(isolation_level="AUTOCOMMIT")
        self._snapshots = self.engine.execution_options(isolation_level="REPEATABLE READ")

    def reader(self) -> Connection:
        """Return a connection for reading; see `Database.read`."""
        return _Reader(self._reads)

    @contextmanager
    def transaction(self, *, snapshot: bool = False) -> Iterator[Connection]:
        """Yield a connection in a transaction; see `Database.write` or, with `snapshot`, `Database.snapshot`."""
        with _begun(self._engine_of(snapshot)) as connection:
            yield connection
            connection.commit()

    def _engine_of(self, snapshot: bool) -> Engine:
        if snapshot:
            return self._snapshots
        return self.engine

    def change(self, function: Callable[[Connection], T], *, twice: bool, snapshot: bool = False) -> T:
        """Call a function in a transaction; see `Database.change` or, with `snapshot`, `Database.in_snapshot`."""
        engine = self._engine_of(snapshot)
        try:
            with engine.connect() as connection, connection.begin():
                return function(connection)
        except DBAPIError as error:
            if not error.connection_invalidated or (is_commit_error(error) and not twice):
                raise
        with engine.connect() as connection, connection.begin():
            return function(connection)

    def _connect(
        self, dialect: Dialect, entry: ConnectionPoolEntry, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> DBAPIConnection:
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return dialect.connect(*arguments, **options)
            except dialect.loaded_dbapi.OperationalError:
                if not self.was_reached or time.monotonic() >= deadline:
                    raise
            time.sleep(_RETRY)


class _Reader(Connection):
    """Connection for reading that executes a statement once more if the connection to the server was lost."""

    def execute(self, *arguments: Any, **options: Any) -> Any:
        return self._retried(super().execute, arguments, options)

    def scalar(self, *arguments: Any, **options: Any) -> Any:
        return self._retried(super().scalar, arguments, options)

    def exec_driver_sql(self, *arguments: Any, **options: Any) -> Any:
        return self._retried(super().exec_driver_sql, arguments, options)

    def _retried(self, method: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        try:
            return method(*arguments, **options)
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise
        # The next statement opens another connection.
        self.rollback()
        self.execution_options(isolation_level="AUTOCOMMIT")
        return method(*arguments, **options)


def _begun(engine: Engine) -> Connection:
    """Return a connection in a transaction. A pooled connection that was lost, such as by a restart, is replaced."""
    for is_last in (False, True):
        connection = engine.connect()
        try:
            connection.execute(_HELLO)
            return connection
        except BaseException as error:
            connection.close()
            if is_last or not (isinstance(error, DBAPIError) and error.connection_invalidated):
                raise
    raise AssertionError("the second try returns or raises")


def _engine(address: str, timeout: float) -> Engine:
    engine: Engine | None = None
    settings = _OPTIONS | {"lock_timeout": f"{timeout * 1000:.0f}"}
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    try:
        url = make_url(address)
        if url.drivername == "postgresql":
            url = url.set(drivername="postgresql+psycopg")
        if url.drivername == "postgresql+psycopg":
            arguments = {"connect_timeout": max(1, round(timeout)), "options": options}
            engine = create_engine(url, connect_args=arguments)
    except ImportError as error:
        raise StoreUnavailable(f"a postgresql:// store needs psycopg: {install('postgres')}", name="psycopg") from error
    except (ArgumentError, NoSuchModuleError, ValueError):
        # This error quotes the address, which may contain a password: the other error is raised without it as context.
        pass
    if engine is None:
        raise InvalidArgument(_NO_DATABASE, name="database")
    return engine
