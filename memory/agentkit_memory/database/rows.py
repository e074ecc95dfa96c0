"""The boundary at which stored rows are decoded.

SQLite stores any type in any column, and text that is not UTF-8. A row with such a value is corrupt: its error is a
`StoreCorrupt` with the table and the key of the row. Recall leaves the row out and reports it, `admin.verify` names it,
and `admin.repair` moves it to a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from sqlite3 import Error as SQLiteError
from typing import Any, NamedTuple, TypeGuard

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Float,
    Integer,
    LargeBinary,
    Select,
    String,
)
from sqlalchemy.exc import OperationalError

from agentkit_memory.checks import is_time, is_whole
from agentkit_memory.database.driver_errors import is_undecodable
from agentkit_memory.errors import StoreCorrupt


class Rows(NamedTuple):
    """The rows of a statement, decoded."""

    sound: list[Any]
    corrupt: list[StoreCorrupt]
    """The errors of the rows that were left out."""


def decode_rows(
    connection: Connection,
    statement: Select[*tuple[Any, ...]],
    parameters: Mapping[str, Any],
    key: Column[Any],
    path: str = "",
) -> Rows:
    """Return the sound rows of a statement, and the errors of the other rows.

    Args:
        connection: Connection to read with.
        statement: Statement that selects columns of tables, including `key`.
        parameters: Values of the parameters of the statement.
        key: The column whose table and value identify a corrupt row.
        path: Owner of the rows, such as `conversation 'trip'`, for errors.
    """
    rows, is_decodable = _read(connection, statement, parameters)
    columns = [_checked_as(each) for each in statement.selected_columns]
    if is_decodable and _have_their_types(rows, columns):
        return Rows(rows, [])
    key_index = statement.selected_columns.keys().index(key.name)
    decoded = Rows([], [])
    for row in rows:
        problems = [(column.name, column_problem(column, value)) for column, value in zip(columns, row, strict=True)]
        column, problem = next((each for each in problems if each[1]), ("", ""))
        if problem:
            decoded.corrupt.append(corrupt_row(key.table.name, row[key_index], column, problem, path))
        else:
            decoded.sound.append(row)
    return decoded


def _checked_as(selected: ColumnElement[Any]) -> Column[Any]:
    """Return the column to check values with: the selected column or, for an expression, a column of its type."""
    if isinstance(selected, Column):
        return selected
    return Column(selected.key, selected.type)


def _have_their_types(rows: Sequence[Any], columns: Sequence[Column[Any]]) -> bool:
    """Return True if all values have the types of their columns. This takes less time than checking each row."""
    return all(
        _types(column).issuperset(map(type, values))
        for column, values in zip(columns, zip(*rows, strict=True), strict=False)
    )


def _types(column: Column[Any]) -> frozenset[type]:
    """Return the types of the values that the driver returns for a column."""
    types: tuple[type, ...] = (str,)
    match column.type:
        case LargeBinary():
            types = (bytes, memoryview)
        case Float():
            types = (int, float)
        case Integer():
            types = (int,)
        case Boolean():
            types = (bool,)
    if column.nullable:
        types += (type(None),)
    return frozenset(types)


def sound_rows(
    connection: Connection,
    statement: Select[*tuple[Any, ...]],
    parameters: Mapping[str, Any],
    key: Column[Any],
    path: str = "",
) -> list[Any]:
    """Return the rows of a statement; see `decode_rows`.

    Raises:
        StoreCorrupt: A row is corrupt.
    """
    sound, corrupt = decode_rows(connection, statement, parameters, key, path)
    if corrupt:
        raise corrupt[0]
    return sound


def corrupt_row(table: str, row: object, column: str, problem: str, path: str = "") -> StoreCorrupt:
    """Return the error of a corrupt row.

    Args:
        table: Name of the table of the row.
        row: Key of the row.
        column: The column with an invalid value.
        problem: Problem of the value, such as `is 'x', expected a number`.
        path: Owner of the row, such as `conversation 'trip'`.
    """
    # A key that is not UTF-8 can be neither printed nor stored in a log.
    key = ascii(row)
    if is_decoded_text(row):
        key = row
    owner = ""
    if path:
        owner = f" ({path})"
    return StoreCorrupt(
        f"{table} {key:.80}{owner}: its {column} {problem}; move the row to a file with admin.repair(removed_to=...)",
        table=table,
        row=key,
        name=column,
        path=path or None,
    )


def column_problem(column: Column[Any], value: object) -> str:
    """Return a problem such as `is 'x', expected a number`; empty text if the value is valid for the column."""
    expected = expected_value(column, value)
    if not expected:
        return ""
    # Text that cannot be decoded is not quoted: it may be personal data.
    if not is_decoded(value):
        return f"is not UTF-8, expected {expected}"
    return f"is {value!a:.40}, expected {expected}"


def expected_value(column: Column[Any], value: object) -> str:
    """Return the expected type of a column, such as `a number`; empty text if the value is valid."""
    if value is None and column.nullable:
        return ""
    is_right, expected = is_decoded_text(value) and "\0" not in value, "text"
    match column.type:
        case LargeBinary():
            is_right, expected = isinstance(value, bytes | bytearray | memoryview), "bytes"
        case Float():
            is_right, expected = is_time(value, finite=False), "a number"
        case Boolean():
            is_right, expected = isinstance(value, bool), "true or false"
        case Integer() as kind:
            is_right, expected = _fits(value, kind), "a whole number"
        case String(length=int(limit)) if is_right:
            is_right, expected = len(str(value)) <= limit, f"text of at most {limit} characters"
    if is_right:
        return ""
    return expected


def _fits(value: object, kind: Integer) -> bool:
    """Return True if a value is a whole number that PostgreSQL accepts for a type. SQLite accepts any number."""
    end = 2**31
    if isinstance(kind, BigInteger):
        end = 2**63
    return is_whole(value, -end, end - 1)


def raw_rows(connection: Connection, statement: Select[*tuple[Any, ...]], parameters: Mapping[str, Any]) -> list[Any]:
    """Return the rows of a statement without checks; for text that is not UTF-8, see `raw_texts`."""
    return _read(connection, statement, parameters)[0]


def _read(
    connection: Connection, statement: Select[*tuple[Any, ...]], parameters: Mapping[str, Any]
) -> tuple[list[Any], bool]:
    """Return the rows of a statement, and True if the driver could decode all of them."""
    try:
        return list(connection.execute(statement, parameters).all()), True
    except (OperationalError, SQLiteError) as error:
        if not is_undecodable(error):
            raise
    with raw_texts(connection):
        return list(connection.execute(statement, parameters).all()), False


@contextmanager
def raw_texts(connection: Connection) -> Iterator[None]:
    """Change the driver of SQLite: in text that is not UTF-8, each invalid byte becomes half of a surrogate pair."""
    if connection.dialect.name != "sqlite":
        yield
        return
    driver: Any = connection.connection.driver_connection
    before, driver.text_factory = driver.text_factory, _decoded
    try:
        yield
    finally:
        driver.text_factory = before


def _decoded(stored: bytes) -> str:
    return stored.decode("utf-8", "surrogateescape")


def is_decoded(value: object) -> bool:
    """Return False for a text that is not UTF-8, which `raw_texts` marks by surrogates; True for all other values."""
    if not isinstance(value, str) or value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_decoded_text(value: object) -> TypeGuard[str]:
    """Return True if a value is text that the driver could decode."""
    return isinstance(value, str) and is_decoded(value)
