"""The database of durable runs: its address, and how it is opened."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import event, exc

from agentkit.durable.durable_errors import DatabaseUnavailable
from agentkit.runs.run_database import RunDatabase, sqlite_engine
from agentkit.runs.run_errors import DurableError
from agentkit.runs.run_store import MAX_KEPT, RunStore
from agentkit_prompts.system.private_files import private_database

__all__ = ["OpenedDatabase", "checked_url", "is_made", "opened_database", "shown_url"]

_SECONDS_CONNECT = 10
_SECONDS_IDLE = 10
"""After which PostgreSQL ends a transaction whose client sends nothing more: less than the default lease. A worker that
was stopped in a transaction has locks that other workers need to execute its runs. DBOS sets no limit for connections
that it does not open itself."""
_CONNECTIONS, _MORE_CONNECTIONS = 5, 20
"""Of a process to PostgreSQL, those that stay open and those that are opened when they are needed."""


def checked_url(url: object) -> sa.URL:
    """Return the address of a database.

    Raises:
        DurableError: It is no address, or one of another kind of database.
    """
    try:
        if not isinstance(url, str):
            raise TypeError
        made = sa.make_url(url)
    except (TypeError, ValueError, exc.ArgumentError):
        made = None
    if made is None or made.get_backend_name() not in ("sqlite", "postgresql"):
        raise DurableError(
            f"Runs: expected sqlite:///runs.db or postgresql://user@host/database, got {_scheme(url)}", name="url"
        )
    if made.get_backend_name() == "sqlite":
        if made.database in (None, "", ":memory:"):
            raise DurableError(
                "Runs: a database in memory ends with the process: give it a file, sqlite:///runs.db",
                name="url.database",
            )
        if made.query or made.host or made.username or made.drivername != "sqlite":
            raise DurableError(
                "Runs: a SQLite address takes a file and nothing else, such as sqlite:///runs.db", name="url.query"
            )
        return sa.URL.create("sqlite", database=os.path.realpath(str(made.database)))  # one file, one worker and name
    return made


def _scheme(url: object) -> str:
    """Return what an error may show of an address: the rest may hold a password."""
    scheme, found, _ = url.partition("://") if isinstance(url, str) else ("", "", "")
    return f"{scheme[:40]}://..." if found else f"{type(url).__name__} that is no address"


def is_made(url: sa.URL) -> bool:
    """Return whether a database has the tables of runs; nothing of it is made or changed."""
    if url.get_backend_name() == "sqlite" and not Path(str(url.database)).exists():
        return False
    engine = sa.create_engine(_engine_url(url), poolclass=sa.NullPool)
    return RunDatabase.is_in(sa.inspect(engine))


class OpenedDatabase(NamedTuple):
    """An open database of durable runs."""

    client: Any
    """The `DBOSClient` of the database."""
    engine: sa.Engine
    """The connections that DBOS and the store share: so one transaction can write what belongs to both."""
    leases: sa.Engine
    rows: RunStore

    def close(self) -> None:
        """Close the connections."""
        self.client.destroy()
        self.engine.dispose()
        self.leases.dispose()


def opened_database(url: sa.URL, application: str) -> OpenedDatabase:
    """Open a database for one application, and make the tables that are missing.

    Raises:
        DurableError: DBOS is not installed.
        DatabaseUnavailable: There is no such file, and it cannot be made.
        RunStoreError: The database has another format.
    """
    try:
        from dbos import DBOS, DBOSClient, DBOSPortableJSONSerializer
    except ImportError as error:
        raise DurableError(
            "durable runs need DBOS: pip install 'agentkit-prompt-tree[durable]'", name="dbos"
        ) from error
    logger = logging.getLogger("dbos")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)
    if url.get_backend_name() == "sqlite":
        try:
            private_database(Path(str(url.database)))
        except OSError as error:
            raise DatabaseUnavailable(
                f"Runs: the database {shown_url(url)} cannot be opened: {error.strerror or error}: name a file in "
                "a folder that may be written to",
                name="url",
                path=shown_url(url),
            ) from error
        engine, leases = sqlite_engine(str(url.database)), sqlite_engine(str(url.database))
    else:
        address = _engine_url(url)
        engine = sa.create_engine(address, pool_size=_CONNECTIONS, max_overflow=_MORE_CONNECTIONS, pool_pre_ping=True)
        leases = sa.create_engine(address, pool_size=1, max_overflow=0, pool_pre_ping=True)
        for connections in (engine, leases):
            event.listen(connections, "connect", _limit_idle_transactions)
            # Many rows are one statement: while the driver sends a pipeline, PostgreSQL counts no idle time.
            connections.dialect.use_insertmanyvalues_wo_returning = True
    try:
        rows = RunStore(engine, keep=MAX_KEPT)
        DBOS.migrate(url.render_as_string(hide_password=False))
        client = DBOSClient(
            system_database_engine=engine,
            serializer=DBOSPortableJSONSerializer(),
            application_name=application,
            retry_connection_errors=False,  # without an end: whoever asks shall know
        )
    except BaseException:
        engine.dispose()
        leases.dispose()
        raise
    return OpenedDatabase(client, engine, leases, rows)


def _engine_url(url: sa.URL) -> sa.URL:
    """Return what SQLAlchemy connects to: a server that cannot be reached is given up after seconds."""
    if url.get_backend_name() == "sqlite":
        return url
    url = url.set(drivername="postgresql+psycopg")
    return url.update_query_dict({"connect_timeout": url.query.get("connect_timeout", str(_SECONDS_CONNECT))})


def _limit_idle_transactions(connection: Any, _: object) -> None:
    """Have PostgreSQL release the locks of a client that stops in a transaction."""
    # Not by `options` of the address, which may contain others, and which poolers of connections refuse.
    with connection.cursor() as cursor:
        cursor.execute(f"SET idle_in_transaction_session_timeout = '{_SECONDS_IDLE}s'")
    connection.commit()


def shown_url(url: sa.URL) -> str:
    """Return what an error may show of the address of a database."""
    return url.set(query={}).render_as_string(hide_password=True)  # a query may hold a password too
