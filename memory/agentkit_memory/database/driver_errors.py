"""Conversion of errors of databases and drivers into errors of the memory layer, with advice."""

from __future__ import annotations

from sqlite3 import Error as SQLiteError
from typing import Any

from sqlalchemy.exc import DBAPIError

from agentkit_memory.errors import StoreCorrupt, StoreError, StoreUnavailable


def code_of(cause: object) -> str:
    """Return the code of an error of a driver, or empty text."""
    return getattr(cause, "sqlite_errorname", None) or getattr(cause, "sqlstate", None) or ""


def is_commit_error(error: DBAPIError) -> bool:
    """Return True if the commit failed, and not a statement: then the transaction may have been committed."""
    return error.statement is None


_RESTORE = "the file is left as it is: restore a backup, or `sqlite3 FILE .recover`"
_LOST = "the connection was lost; nothing was written: check that the server runs, and try again"
_UNKNOWN = (
    "the connection was lost at the end of a transaction, which may have been written: check the stored data, and "
    "repeat the call if nothing was written"
)
_MAX_QUOTED = 200
"""Maximum characters of a quoted message of a database, which may be very long for a corrupt file."""
_UNDECODABLE = "Could not decode to UTF-8"
"""Start of an error message of the SQLite driver, which has no code; the stored text follows."""


def _cause(error: Exception) -> Any:
    """Return the error of the driver."""
    if isinstance(error, DBAPIError):
        return error.orig
    return error


def is_undecodable(error: Exception) -> bool:
    """Return True if the driver of SQLite failed to decode a text that is not UTF-8."""
    cause = _cause(error)
    return isinstance(cause, SQLiteError) and str(cause).startswith(_UNDECODABLE)


# Each row: the start of the code, the class of the error, and the advice.
_SQLITE: tuple[tuple[str, type[StoreError], str], ...] = (
    (
        "SQLITE_BUSY",
        StoreUnavailable,
        "another process is writing; nothing was written: try again, or stop that process",
    ),
    ("SQLITE_LOCKED", StoreUnavailable, "another connection holds a lock; nothing was written: try again"),
    ("SQLITE_READONLY", StoreUnavailable, "nothing was written: make the file and its folder writable"),
    ("SQLITE_FULL", StoreUnavailable, "nothing was written, stored data is intact: free some space and try again"),
    ("SQLITE_IOERR", StoreUnavailable, "nothing was written: check the disk"),
    ("SQLITE_CORRUPT", StoreCorrupt, _RESTORE),
    ("SQLITE_CONSTRAINT", StoreCorrupt, f"stored rows do not fit together; {_RESTORE}"),
    ("SQLITE_NOTADB", StoreCorrupt, "the file is left as it is: move it away, or choose another path"),
    ("SQLITE_CANTOPEN", StoreUnavailable, "check that the folder exists and may be read and written"),
    ("SQLITE_PERM", StoreUnavailable, "check that the file may be read and written"),
    ("SQLITE_AUTH", StoreUnavailable, "check that the file may be read and written"),
)
_POSTGRES: tuple[tuple[str, type[StoreError], str], ...] = (
    ("25006", StoreUnavailable, "nothing was written: connect to the primary, or make the transaction writable"),
    ("42501", StoreUnavailable, "nothing was written: grant this user the right to write"),
    ("55P03", StoreUnavailable, "another transaction holds the lock; nothing was written: try again"),
    ("23505", StoreUnavailable, "it collided with rows of another transaction; nothing was written: try again"),
    ("40", StoreUnavailable, "it collided with another transaction; nothing was written: try again"),
    ("53", StoreUnavailable, "nothing was written, stored data is intact: the server is out of a resource"),
    ("XX", StoreCorrupt, "the server reports corrupt data: restore a backup"),
)


def translate(error: Exception, where: str) -> StoreError:
    """Return the `StoreError` for an error of the driver or of SQLAlchemy."""
    if isinstance(error, UnicodeDecodeError):
        # The message of the exception is not shown, because it quotes the corrupt schema.
        return StoreCorrupt(f"{where}: it contains text that is not UTF-8; {_RESTORE}", path=where, name="UTF-8")
    cause = _cause(error)
    code = code_of(cause)
    message = (str(cause).strip().split("\n")[0] or type(cause).__name__)[:_MAX_QUOTED]
    if is_undecodable(error):
        return StoreCorrupt(f"{where}: {message.split(' with text')[0]}; {_RESTORE}", path=where, name="UTF-8")
    # A code of PostgreSQL has five digits or capitals, so no prefix matches codes of both databases.
    for prefix, kind, advice in (*_SQLITE, *_POSTGRES):
        if code.startswith(prefix):
            return kind(f"{where}: {message}; {advice}", path=where, name=prefix)
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        if is_commit_error(error):
            return StoreUnavailable(f"{where}: {message}; {_UNKNOWN}", path=where, name="unknown")
        return StoreUnavailable(f"{where}: {message}; {_LOST}", path=where, name="lost")
    if not code:
        advice = "check that the server runs and the address is right"
        if isinstance(cause, SQLiteError):
            advice = "open it again"
        return StoreUnavailable(f"{where}: {message}; {advice}", path=where, name="database")
    return StoreError(f"{where}: {message} ({code or type(cause).__name__})", path=where, name=code)
