"""The database of durable runs: its address, and how it is opened."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event, exc

from agentkit.durable.durable_errors import DatabaseUnavailable, DurableError
from agentkit.durable.stored.run_tables import RunTables, engine_url
from agentkit.durable.stored.sqlite_connection import prepare
from agentkit_prompts.system.private_files import private_database

__all__ = ["address_of", "checked_url", "is_made", "opened_database", "shown_url"]

_CACHED_STATEMENTS = 16
"""Compiled statements that a SQLite connection keeps. They take up to 60 KiB each, and those with a list of ids differ
with its length: 128, the default of Python, on 25 connections are 90 MiB after some thousand runs.
"""


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


def address_of(url: sa.URL) -> str:
    """Return what DBOS connects to: the database, with its password and how connections are made."""
    if url.get_backend_name() == "sqlite":
        url = url.set(query={"cached_statements": str(_CACHED_STATEMENTS)})
    return url.render_as_string(hide_password=False)


def _scheme(url: object) -> str:
    """Return what an error may show of an address: the rest may hold a password."""
    scheme, found, _ = url.partition("://") if isinstance(url, str) else ("", "", "")
    return f"{scheme[:40]}://..." if found else f"{type(url).__name__} that is no address"


def is_made(url: sa.URL) -> bool:
    """Return whether a database has the tables of runs; nothing of it is made or changed."""
    if url.get_backend_name() == "sqlite" and not Path(str(url.database)).exists():
        return False
    engine = sa.create_engine(engine_url(url), poolclass=sa.NullPool)
    return RunTables.are_in(sa.inspect(engine))


def opened_database(url: sa.URL, application: str) -> tuple[Any, RunTables]:
    """Open a database for one application, and make the tables that are missing.

    Raises:
        DurableError: DBOS is not installed.
        DatabaseUnavailable: There is no such file, and it cannot be made.
    """
    address = address_of(url)
    try:
        from dbos import DBOS, DBOSClient
        from dbos._serialization import DBOSPortableJSON
    except ImportError as error:
        raise DurableError(
            "durable runs need DBOS: pip install 'agentkit-prompt-tree[durable]'", name="dbos"
        ) from error
    logger = logging.getLogger("dbos")
    level = logger.level
    if level == logging.NOTSET:
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
    tables = RunTables(url)
    try:
        tables.create()
        DBOS.migrate(address)
        client = DBOSClient(
            system_database_url=address,
            serializer=DBOSPortableJSON,
            application_name=application,
            retry_connection_errors=False,  # without an end: whoever asks shall know
        )
        if tables.is_sqlite:
            event.listen(client._sys_db.engine, "connect", prepare)
            client._sys_db.engine.dispose()  # what is open already
    except BaseException:
        tables.close()
        raise
    return client, tables


def shown_url(url: sa.URL) -> str:
    """Return what an error may show of the address of a database."""
    return url.set(query={}).render_as_string(hide_password=True)  # a query may hold a password too
