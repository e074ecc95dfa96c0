"""`RunDatabase`: a SQLite or PostgreSQL database with the tables of runs."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import nullcontext
from threading import RLock
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import StaticPool
from sqlalchemy.schema import CreateIndex, CreateTable

from agentkit.runs import conversions
from agentkit.runs.run_errors import DatabaseDamaged, DatabaseUnavailable, RunStoreError
from agentkit_prompts.system.acting_objects import acting_objects

T = TypeVar("T")

_RECONNECT_SECONDS = 5.0
"""Seconds that an operation waits for an unavailable database, such as a server that restarts."""
_PAUSE = 0.2
"""Seconds between two tries of an operation."""
_CREATION_LOCK = 7_239_116_025_340_177
"""Key of the PostgreSQL advisory lock under which a process creates the tables; an arbitrary number."""

_MAX_REASON = 300
"""Maximum characters of the error of a database in an error message."""
DATABASE_ERRORS = (SQLAlchemyError, UnicodeDecodeError, DatabaseUnavailable)
"""Errors of a database that does not respond or refuses a request. A corrupt file can break the error text of SQLite,
which raises `UnicodeDecodeError`; `RunDatabase` raises the last class instead of the other classes."""
_DAMAGED_FILE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
"""Primary result codes of SQLite for a file that is damaged or is no database."""
_DAMAGED_SERVER = frozenset({"42P01", "42P07", "42703", "3F000", "XX001", "XX002"})
"""Codes of PostgreSQL for a missing or unexpected table, a missing column or schema, and damaged tables and indexes."""
_WRONG_TABLES = ("no such table", "no such column", "has no column named", "already exists")
"""Parts of messages of SQLite for a missing or unexpected table or column, which have no separate code."""
_Key = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # SQLite counts only in a column of this type
_metadata = sa.MetaData()
_LISTED = ("user", "agent", "state", "tokens", "cost", "seconds")
"""Columns of runs that have an index with the tenant and the number, for the filters and orders of lists."""


def _partial_index(name: str, *columns: str) -> sa.Index:
    """Return an index of the rows whose first column is not null."""
    is_set = sa.text(f"{columns[0]} IS NOT NULL")
    return sa.Index(name, *columns, sqlite_where=is_set, postgresql_where=is_set)


runs_table = sa.Table(
    "agentkit_runs",
    _metadata,
    sa.Column("number", _Key, primary_key=True),
    sa.Column("run_id", sa.Text, nullable=False, unique=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("permissions", sa.Text, nullable=False, server_default=""),  # of the caller, separated by spaces
    sa.Column("locale", sa.Text),
    sa.Column("tags", sa.Text, nullable=False, server_default=""),  # see `stored_tags`
    sa.Column("agent", sa.Text, nullable=False),
    sa.Column("session", sa.Text),
    sa.Column("executor", sa.Text, nullable=False),
    sa.Column("version", sa.Text, nullable=False),  # of the agent
    sa.Column("schedule", sa.Text),  # name of the schedule that started the run
    # An agent that runs as a tool has a row with these three columns; they are null in the row of a run.
    sa.Column("top", sa.Text),  # id of the run that contains the agent
    sa.Column("parent", sa.Text),  # id of the run or agent that called the agent
    sa.Column("calls", sa.Text),  # JSON: ids of the calls that lead to the agent
    sa.Column("request", sa.Text),  # JSON: request for the executor that queues the run
    sa.Column("leg", sa.Integer, nullable=False),  # number of times that the run was queued again
    sa.Column("held_until", sa.Float, index=True),  # a worker queues the run after this time; null: the run is not held
    sa.Column("worker", sa.Text),  # id of the worker that executes the run or executed it last
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("updated_at", sa.Float, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    # Columns of the list of runs: its filters and its orders.
    sa.Column("error", sa.Text, nullable=False, server_default=""),  # class of the error
    sa.Column("tokens", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("cost", sa.Float, nullable=False, server_default="0"),  # US dollars; 0 if a price is unknown
    sa.Column("seconds", sa.Float, nullable=False, server_default="0"),  # until the end
    sa.Column("words", sa.Text, nullable=False, server_default=""),  # see `searched_words`
    sa.Column("unread", sa.Integer, nullable=False, server_default="0"),  # number of messages to the run
    sa.Column("reason", sa.Text, nullable=False, server_default=""),  # of a cancellation
    # Key of the attempt that may write, or of the operation that ended it; null if the run waits for an attempt.
    sa.Column("fence", sa.Text),
    sa.Column("input", sa.Text),  # JSON, as are usage and outcome
    sa.Column("usage", sa.Text, nullable=False),
    sa.Column("outcome", sa.Text),
    sa.Index("ix_agentkit_runs_tenant", "tenant", "number"),
    *[sa.Index(f"ix_agentkit_runs_{name}", "tenant", name, "number") for name in _LISTED],
    sa.Index("ix_agentkit_runs_user_state", "tenant", "user", "state", "number"),
    sa.Index("ix_agentkit_runs_state_number", "state", "number"),  # lists of all tenants
    _partial_index("ix_agentkit_runs_schedule", "schedule", "number"),
    _partial_index("ix_agentkit_runs_session", "session", "tenant", "user", "number"),
    # SQLite would prefer a whole index of this column for lists, because runs have no `top`, to the index of a filter.
    _partial_index("ix_agentkit_runs_top", "top", "number"),
    sa.Index("ix_agentkit_runs_worker", "state", "worker"),
    sqlite_autoincrement=True,
)
tags_table = sa.Table(
    "agentkit_tags",
    _metadata,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("tag", sa.Text, primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True),  # of the run
    sa.Column("run", sa.Text, nullable=False, index=True),
    sa.Index("ix_agentkit_tags_tag", "tag", "number"),  # lists of all tenants
)
keys_table = sa.Table(
    "agentkit_keys",
    _metadata,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("user", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),  # idempotency key of the request that started the run
    sa.Column("run", sa.Text, nullable=False, index=True),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Index("ix_agentkit_keys_age", "tenant", "created_at"),
)
lines_table = sa.Table(
    "agentkit_journal_lines",
    _metadata,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("line", sa.Text, nullable=False),
)
decisions_table = sa.Table(
    "agentkit_decisions",
    _metadata,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("call", sa.Text, primary_key=True),  # as `stored_call` writes it
    sa.Column("tool", sa.Text, nullable=False),
    sa.Column("arguments", sa.Text, nullable=False),
    sa.Column("agent", sa.Text, nullable=False),
    sa.Column("asked_at", sa.Float, nullable=False),
    sa.Column("expires_at", sa.Float, index=True),
    sa.Column("decision", sa.Text),
    sa.Column("decided_by", sa.Text, nullable=False),
    sa.Column("decided_at", sa.Float),
)
messages_table = sa.Table(
    "agentkit_messages",
    _metadata,
    sa.Column("number", _Key, primary_key=True),
    sa.Column("run", sa.Text, nullable=False),
    sa.Column("key", sa.Text),  # idempotency key of the sender
    sa.Column("message", sa.Text, nullable=False),  # JSON
    sa.Column("moment", sa.Text, nullable=False),  # when the run receives it
    sa.Column("sender", sa.Text, nullable=False),
    sa.Column("sent_at", sa.Float, nullable=False),
    sa.Column("received_at", sa.Float),  # when the journal contained it; null: unread
    sa.Index("ix_agentkit_messages_run", "run", "key"),
    sqlite_autoincrement=True,
)
events_table = sa.Table(
    "agentkit_events",
    _metadata,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("data", sa.Text, nullable=False),
)
hooks_table = sa.Table(
    "agentkit_webhooks",
    _metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("tenant", sa.Text),  # null: all tenants
    sa.Column("states", sa.Text, nullable=False),  # separated by spaces
    sa.Column("seen_at", sa.Float, nullable=False),  # when a server registered the webhook
)
notices_table = sa.Table(
    "agentkit_notices",
    _metadata,
    sa.Column("number", _Key, primary_key=True),
    sa.Column("hook", sa.Text, nullable=False),
    sa.Column("run", sa.Text, nullable=False, index=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("due_at", sa.Float, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Index("ix_agentkit_notices_due", "hook", "due_at"),
    sqlite_autoincrement=True,
)
texts_table = sa.Table(
    "agentkit_part_texts",
    _metadata,
    sa.Column("hash", sa.Text, primary_key=True),
    sa.Column("text", sa.Text, nullable=False),  # of a prompt, or the schema of a tool
)
usage_table = sa.Table(
    "agentkit_usage",
    _metadata,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("day", sa.Text, primary_key=True),
    sa.Column("runs", sa.BigInteger, nullable=False),
    sa.Column("input_tokens", sa.BigInteger, nullable=False),
    sa.Column("output_tokens", sa.BigInteger, nullable=False),
    sa.Column("cached_tokens", sa.BigInteger, nullable=False),
    sa.Column("money", sa.Float, nullable=False),
)
workers_table = sa.Table(
    "agentkit_workers",
    _metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("state", sa.Text, nullable=False),  # alive, stopped or dead
    sa.Column("beat", sa.BigInteger, nullable=False),
    sa.Column("serves", sa.Text, nullable=False),  # JSON: [[agent, version], ...]
    sa.Column("lease", sa.Float, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("started_at", sa.Float, nullable=False),
    sa.Column("beat_at", sa.Float, nullable=False),
)
_format_table = sa.Table("agentkit_store", _metadata, sa.Column("format", sa.Integer, nullable=False))
DBOS_TABLES = (
    *("application_versions", "dbos_migrations", "event_dispatch_kv", "notifications", "operation_outputs", "queues"),
    *("streams", "workflow_events", "workflow_events_history", "workflow_input", "workflow_output"),
    *("workflow_schedules", "workflow_status"),
)
"""Tables of DBOS in the file of durable runs. On PostgreSQL they have a separate schema, with triggers of DBOS."""
_OLD_TABLES = ("run_store", "agentkit_approvals")
"""Tables that only versions before 0.1 created."""


class RunDatabase:
    """A database with the tables of runs.

    Args:
        engine: The connections. Writers of SQLite begin their transactions with the lock of the file.
        name: Name of the database in errors.

    Raises:
        RunStoreError: The database has another format.
    """

    def __init__(self, engine: sa.Engine, name: str) -> None:
        self.engine = engine
        self.name = name
        self.is_sqlite = engine.dialect.name == "sqlite"
        # All threads share the one connection of a database in memory.
        self._lock = RLock() if isinstance(engine.pool, StaticPool) else nullcontext()
        # `clock_timestamp` of PostgreSQL advances within a transaction; `now()` is the time of its start.
        clock = "extract(epoch from clock_timestamp())"
        if self.is_sqlite:
            clock = "(julianday('now') - 2440587.5) * 86400.0"
        self.now: Any = sa.literal_column(clock, sa.Float)
        """Seconds since 1970 by the clock of the database."""
        self.work(self._create)

    def work(
        self, work: Callable[[sa.Connection], T], is_stored: Callable[[sa.Connection, T], bool] | None = None
    ) -> T:
        """Call a function in a transaction and return its result; call it again if the connection was lost.

        Args:
            work: The function.
            is_stored: True if the transaction with this result was committed. It is called if the connection was lost
                during the commit. Not needed for a function that has the same effect and result when it is repeated.

        Raises:
            DatabaseUnavailable: The database does not respond, or refuses the transaction.
            IntegrityError: The function stored a key that the database contains already.
        """
        try:
            return self._work(work, is_stored)
        except (IntegrityError, DatabaseDamaged):
            raise
        except DATABASE_ERRORS as error:
            raise database_error(error, self.name, self.name) from error

    def close(self) -> None:
        """Close the connections."""
        # SQLite crashes if a connection is closed while another thread uses it, such as a cancelled background task.
        with self._lock:
            self.engine.dispose()

    def time(self) -> float:
        """Return seconds since 1970 by the clock of the database, which is the clock of all shared rows."""
        return self.work(self.time_in)

    def time_in(self, connection: sa.Connection) -> float:
        """Return the same seconds in a transaction."""
        seconds: float = connection.execute(sa.select(self.now)).scalar_one()
        return seconds

    def _work(self, work: Callable[[sa.Connection], T], is_stored: Callable[[sa.Connection, T], bool] | None) -> T:
        until = time.monotonic() + _RECONNECT_SECONDS
        last: tuple[T] | None = None
        while True:
            # The connection was lost during the commit, so that the transaction can have been committed.
            lost = last
            try:
                with self._lock, self.engine.begin() as connection:
                    if lost is not None and is_stored is not None and is_stored(connection, lost[0]):
                        return lost[0]
                    last = None
                    last = (work(connection),)
                return last[0]
            except IntegrityError:
                if lost is None or is_stored is None:
                    raise
                # The lost transaction was still in its commit when `is_stored` looked for its rows.
                with self._lock, self.engine.begin() as connection:
                    if not is_stored(connection, lost[0]):
                        raise
                return lost[0]
            except DBAPIError as error:
                if not _is_lost(error) or time.monotonic() > until:
                    raise
                time.sleep(_PAUSE)

    @staticmethod
    def is_in(database: sa.Inspector) -> bool:
        """True if a database has tables of runs."""
        return _format_table.name in database.get_table_names()

    def _create(self, connection: sa.Connection) -> None:
        """Create the tables, or convert tables of an older format."""
        # One process creates the tables, and other processes wait until they are complete.
        if self.is_sqlite:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATION_LOCK)))
        self._check_objects(connection)
        tables = set(sa.inspect(connection).get_table_names())
        if _format_table.name not in tables:
            if old := tables.intersection(_OLD_TABLES):
                raise RunStoreError(
                    f"{self.name}: has runs of a version before 0.1 (table {min(old)}), which this version does not "
                    "read: finish them with the version that wrote them, and start a new database",
                    path=self.name,
                    value="old",
                )
            for table in _metadata.sorted_tables:
                connection.execute(CreateTable(table, if_not_exists=True))
                for index in table.indexes:
                    connection.execute(CreateIndex(index, if_not_exists=True))
            connection.execute(sa.insert(_format_table).values(format=conversions.FORMAT))
        else:
            self._convert(connection)
        self._check_columns(connection)

    def _convert(self, connection: sa.Connection) -> None:
        """Convert tables of an older format."""
        stored = connection.scalar(sa.select(sa.func.max(_format_table.c.format)))
        if stored == conversions.FORMAT:
            return
        if not isinstance(stored, int) or stored < 1:
            raise _damaged(self.name, self.name, f"the table {_format_table.name} has no valid format: {stored!r:.20}")
        if stored > conversions.FORMAT:
            raise RunStoreError(
                f"{self.name}: format {stored!r:.20} of the runs was written by a newer agentkit; this version "
                f"reads up to {conversions.FORMAT}: upgrade agentkit",
                path=self.name,
                value=stored,
            )
        for format in range(stored, conversions.FORMAT):
            conversions.CONVERSIONS[format](connection)
        connection.execute(sa.update(_format_table).values(format=conversions.FORMAT))

    def _check_columns(self, connection: sa.Connection) -> None:
        """Check that no table and no column is missing, so that a run does not fail in the middle of its work."""
        stored = sa.inspect(connection).get_multi_columns(filter_names=[*_metadata.tables])
        columns = {table: {column["name"] for column in described} for (_, table), described in stored.items()}
        for table in _metadata.sorted_tables:
            missing = f"the table {table.name} is missing"
            if table.name in columns:
                names = [column.name for column in table.columns if column.name not in columns[table.name]]
                missing = f"the table {table.name} has no column {', '.join(names)}"
                if not names:
                    continue
            raise _damaged(self.name, self.name, missing)

    def _check_objects(self, connection: sa.Connection) -> None:
        """Refuse objects of another author that act when the tables are read or written."""
        names = [*_metadata.tables]
        if self.is_sqlite:
            names += DBOS_TABLES
        rows_of = lambda statement: [*connection.exec_driver_sql(statement)]  # noqa: E731
        objects = acting_objects(rows_of, names, is_sqlite=self.is_sqlite, with_expressions=DBOS_TABLES)
        if objects:
            raise RunStoreError(
                f"{self.name}: {', '.join(map(str, objects)):.600} would act on reads or writes, and agentkit creates "
                "no such object: do not open a database of a person whom you do not trust; in a database that you "
                f"trust, remove it first: {'; '.join([each.removal for each in objects]):.600}",
                path=self.name,
                name=objects[0].name,
                value=objects[0].table,
            )


def database_error(error: BaseException, name: str, path: str, again: str = "then try again") -> DatabaseUnavailable:
    """Return the error of a database that does not respond, refuses a request, or is damaged.

    Args:
        error: The error, of one of `DATABASE_ERRORS`.
        name: Name of the database, as the subject of a sentence.
        path: Path or address of the database, without secrets.
        again: Advice for the time after the database responds again.
    """
    if isinstance(error, DatabaseUnavailable) and error.__cause__ is not None:
        error = error.__cause__
    reason = " ".join(str(getattr(error, "orig", None) or error).split())[:_MAX_REASON]
    if _is_damage(error):
        return _damaged(name, path, reason)
    return DatabaseUnavailable(
        f"{name} does not respond or refuses: {reason}: check that it runs, is reachable, is writable and has space, "
        f"{again}",
        name="database",
        path=path,
    )


def _damaged(name: str, path: str, reason: str) -> DatabaseDamaged:
    return DatabaseDamaged(
        f"{name} is damaged: {reason}: check its path; stop its workers and servers, and restore a backup; for a "
        "SQLite file without a backup, `sqlite3 FILE .recover` writes the rows that are still readable",
        name="database",
        path=path,
    )


def _is_damage(error: BaseException) -> bool:
    """True if a database is damaged, or has no such table or column."""
    if isinstance(error, UnicodeDecodeError):
        return True
    cause = getattr(error, "orig", None)
    if isinstance(cause, sqlite3.Error):
        # The low byte of an extended code is its primary code. An error of the module has no code.
        code = getattr(cause, "sqlite_errorcode", 0)
        return code & 0xFF in _DAMAGED_FILE or any(part in str(cause) for part in _WRONG_TABLES)
    return getattr(cause, "sqlstate", None) in _DAMAGED_SERVER


def shown_url(url: sa.URL) -> str:
    """Return the address of a database for an error, without secrets."""
    return url.set(query={}).render_as_string(hide_password=True)  # a query can contain a password too


def _is_lost(error: DBAPIError) -> bool:
    if error.connection_invalidated:
        return True
    text = str(error.orig).lower()
    parts = ("connection", "starting up", "shutting down", "server closed", "terminating", "locked")
    return isinstance(error, OperationalError) and any(part in text for part in parts)
