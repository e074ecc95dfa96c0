"""Reads rows of which the driver may not be able to decode one: the others come back all the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from sqlite3 import Error as SQLiteError
from typing import Any, TypeGuard

from sqlalchemy import Connection, Select
from sqlalchemy.exc import OperationalError

from agentkit_memory.database.driver_errors import is_undecodable

__all__ = ["is_name", "is_text", "readable_rows", "rows_as_they_are", "texts_as_they_are"]


def readable_rows(
    connection: Connection, statement: Select[*tuple[Any, ...]], parameters: Mapping[str, Any], key: str
) -> tuple[list[Any], list[str]]:
    """Return the rows of a statement, and the keys of those with a text that is not UTF-8, which are left out.

    `key` names the column that tells the rows apart; a key that is not UTF-8 is left out too.
    """
    rows, is_whole = _rows(connection, statement, parameters)
    if is_whole:
        return rows, []
    sound = [row for row in rows if all(map(is_text, row))]
    damaged = [each for row in rows if not all(map(is_text, row)) and is_text(each := getattr(row, key))]
    return sound, damaged


def rows_as_they_are(
    connection: Connection, statement: Select[*tuple[Any, ...]], parameters: Mapping[str, Any]
) -> list[Any]:
    """Return the rows of a statement; a text that is not UTF-8 comes as `texts_as_they_are` has it."""
    return _rows(connection, statement, parameters)[0]


def _rows(
    connection: Connection, statement: Select[*tuple[Any, ...]], parameters: Mapping[str, Any]
) -> tuple[list[Any], bool]:
    """Return the rows, and whether the driver could decode all of them."""
    try:
        return list(connection.execute(statement, parameters).all()), True
    except (OperationalError, SQLiteError) as error:
        if not is_undecodable(error):
            raise
    with texts_as_they_are(connection):
        return list(connection.execute(statement, parameters).all()), False


@contextmanager
def texts_as_they_are(connection: Connection) -> Iterator[None]:
    """Within it, the driver of SQLite returns a text that is not UTF-8 too: each wrong byte is half of a pair."""
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


def is_text(value: object) -> bool:
    """Whether a value holds no half of a pair: it is no text, or one that the driver could decode."""
    return not isinstance(value, str) or value.isascii() or not any("\ud800" <= each <= "\udfff" for each in value)


def is_name(value: object) -> TypeGuard[str]:
    """Whether a value is text, and whole: SQLite stores any type in any column."""
    return isinstance(value, str) and is_text(value)
