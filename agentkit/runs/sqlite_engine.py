"""Connections to SQLite databases of runs."""

from __future__ import annotations

import sqlite3
import time
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.pool import StaticPool

_SQLITE_WAIT = 30_000
"""Milliseconds that a writer waits for the other writers of a file."""
_CACHED_STATEMENTS = 16
"""Compiled statements of a SQLite connection. A statement takes up to 60 KiB, and a statement with a list of ids is
compiled for each length of the list: 128 statements, the default of Python, on 25 connections take 90 MiB after some
thousand runs."""
_FIRST_WITH_SUBSEC = (3, 42)
"""The first version of SQLite that has `unixepoch('subsec')`."""

_lenient_text = partial(str, encoding="utf-8", errors="replace")
"""Decoder of text, so that bytes that are no UTF-8 do not abort a statement."""


def sqlite_engine(path: str | None) -> sa.Engine:
    """Return the engine of a SQLite file, or without a path the engine of a database in memory."""
    if path is None:
        engine = sa.create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    else:
        options = {"cached_statements": _CACHED_STATEMENTS, "check_same_thread": False}
        engine = sa.create_engine(sa.URL.create("sqlite", database=path), connect_args=options)
    event.listen(engine, "connect", _prepare)
    return engine


def _prepare(connection: Any, _: object) -> None:
    """Set up a new connection to a SQLite database."""
    connection.text_factory = _lenient_text
    # DBOS writes times with `unixepoch('subsec')` on Python 3.12 and later.
    if sqlite3.sqlite_version_info < _FIRST_WITH_SUBSEC:
        connection.create_function("unixepoch", 1, lambda _: round(time.time(), 3))
    connection.execute("PRAGMA foreign_keys=ON")
    # The schema of a file from another person can call functions. On old SQLite, tables of DBOS call our `unixepoch`.
    if sqlite3.sqlite_version_info >= _FIRST_WITH_SUBSEC:
        connection.execute("PRAGMA trusted_schema=OFF")
    # Lock at the start of a transaction: a reader that becomes a writer fails if another writer was first.
    connection.isolation_level = "IMMEDIATE"
    connection.execute(f"PRAGMA busy_timeout={_SQLITE_WAIT}")
    connection.execute("PRAGMA journal_mode=WAL")
    # A stored tool result must survive a power failure, or the call is executed again.
    connection.execute("PRAGMA synchronous=FULL")
