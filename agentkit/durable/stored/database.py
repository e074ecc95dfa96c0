"""Address and connections of the database of durable runs."""

from __future__ import annotations

import logging
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import event, exc

from agentkit.runs.run_database import RunDatabase, shown_url
from agentkit.runs.run_errors import DatabaseUnavailable, DurableError
from agentkit.runs.run_store import RunStore
from agentkit.runs.sqlite_engine import sqlite_engine
from agentkit_prompts.extras import install
from agentkit_prompts.system.private_files import private_database

_SECONDS_CONNECT = 10
"""Seconds for a connection to PostgreSQL, unless the address sets `connect_timeout`."""
_SECONDS_IDLE = 10
"""Seconds after which PostgreSQL ends an idle transaction; less than the default lease, because a worker that was
stopped in a transaction has locks which other workers need."""
_CONNECTIONS, _MORE_CONNECTIONS = 5, 20
"""Permanent and additional connections of a process to PostgreSQL."""


def checked_url(url: object) -> sa.URL:
    """Return the address of a database.

    Raises:
        DurableError: The value is not an address, or belongs to another kind of database.
    """
    try:
        if not isinstance(url, str):
            raise TypeError
        address = sa.make_url(url)
    except (TypeError, ValueError, exc.ArgumentError):
        address = None
    if address is None or address.get_backend_name() not in ("sqlite", "postgresql"):
        raise DurableError(
            f"Runs: expected sqlite:///runs.db or postgresql://user@host/database, got {_scheme(url)}", name="url"
        )
    if address.get_backend_name() == "sqlite":
        if address.database in (None, "", ":memory:"):
            raise DurableError(
                "Runs: a database in memory is lost with the process: use a file, sqlite:///runs.db",
                name="url.database",
            )
        if address.query or address.host or address.username or address.drivername != "sqlite":
            raise DurableError(
                "Runs: expected a SQLite address with a file only, such as sqlite:///runs.db", name="url.query"
            )
        # The real path, so that a file has only one worker even if links lead to it.
        return sa.URL.create("sqlite", database=os.path.realpath(str(address.database)))
    return address


def _scheme(url: object) -> str:
    """Return the scheme of an address for an error, because the rest can contain a password."""
    if not isinstance(url, str) or "://" not in url:
        return f"{type(url).__name__} that is no address"
    return f"{url.partition('://')[0][:40]}://..."


def is_created(url: sa.URL) -> bool:
    """True if a database has the tables of runs. Nothing is created or changed."""
    if url.get_backend_name() == "sqlite" and not Path(str(url.database)).exists():
        return False
    engine = sa.create_engine(_engine_url(url), poolclass=sa.NullPool)
    return RunDatabase.is_in(sa.inspect(engine))


class OpenedDatabase(NamedTuple):
    """An open database of durable runs."""

    client: Any
    """The `DBOSClient` of the database."""
    engine: sa.Engine
    """Connections that DBOS and the store share, so that one transaction can write to both."""
    leases: sa.Engine
    """Separate connections to renew leases; see `WorkerRows`."""
    rows: RunStore

    def close(self) -> None:
        """Close the connections."""
        self.client.destroy()
        self.engine.dispose()
        self.leases.dispose()


def check_installed() -> None:
    """Refuse durable runs without the library that executes them.

    Raises:
        DurableError: DBOS is not installed.
    """
    if find_spec("dbos") is None:
        raise DurableError(f"durable runs need DBOS: {install('durable')}", name="dbos")


def opened_database(url: sa.URL, application: str) -> OpenedDatabase:
    """Open a database for one application, and create missing tables.

    Raises:
        DatabaseUnavailable: The file is missing and cannot be created.
        RunStoreError: The database has another format.
    """
    from dbos import DBOS, DBOSClient, DBOSPortableJSONSerializer

    logger = logging.getLogger("dbos")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)
    if url.get_backend_name() == "sqlite":
        try:
            private_database(Path(str(url.database)))
        except OSError as error:
            raise file_error(url, error) from error
        engine, leases = sqlite_engine(str(url.database)), sqlite_engine(str(url.database))
    else:
        address = _engine_url(url)
        engine = sa.create_engine(address, pool_size=_CONNECTIONS, max_overflow=_MORE_CONNECTIONS, pool_pre_ping=True)
        leases = sa.create_engine(address, pool_size=1, max_overflow=0, pool_pre_ping=True)
        for connections in (engine, leases):
            event.listen(connections, "connect", _limit_idle_transactions)
            # Many rows in one statement instead of a pipeline of statements, in which PostgreSQL counts no idle time.
            connections.dialect.use_insertmanyvalues_wo_returning = True
    try:
        rows = RunStore(engine)
        DBOS.migrate(url.render_as_string(hide_password=False))
        client = DBOSClient(
            system_database_engine=engine,
            serializer=DBOSPortableJSONSerializer(),
            application_name=application,
            retry_connection_errors=False,  # DBOS would retry without an end
        )
    except BaseException:
        engine.dispose()
        leases.dispose()
        raise
    return OpenedDatabase(client, engine, leases, rows)


def file_error(url: sa.URL, error: OSError) -> DatabaseUnavailable:
    """Return the error of a SQLite database whose file, or a file next to it, cannot be opened."""
    return DatabaseUnavailable(
        f"Runs: the database {shown_url(url)} cannot be opened: {error.strerror or error}: name a file in a "
        "writable folder with space",
        name="url",
        path=shown_url(url),
    )


def _engine_url(url: sa.URL) -> sa.URL:
    """Return the address for SQLAlchemy, with a connect timeout."""
    if url.get_backend_name() == "sqlite":
        return url
    url = url.set(drivername="postgresql+psycopg")
    return url.update_query_dict({"connect_timeout": url.query.get("connect_timeout", str(_SECONDS_CONNECT))})


def _limit_idle_transactions(connection: Any, _: object) -> None:
    """Set the timeout with which PostgreSQL releases the locks of a stopped client."""
    # Not by `options` of the address, which can contain other options, and which connection poolers refuse.
    with connection.cursor() as cursor:
        cursor.execute(f"SET idle_in_transaction_session_timeout = '{_SECONDS_IDLE}s'")
    connection.commit()
