"""Reads rows of which the driver may not be able to decode one: the others come back all the same."""

from __future__ import annotations

from collections.abc import Mapping
from sqlite3 import Error as SQLiteError
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select
from sqlalchemy.exc import OperationalError

from agentkit_memory.store.driver_errors import is_undecodable

__all__ = ["readable_rows"]


def readable_rows(
    connection: Connection,
    statement: Select[*tuple[Any, ...]],
    parameters: Mapping[str, Any],
    key: ColumnElement[str],
) -> tuple[list[Any], list[str]]:
    """Return the rows of a statement, and the keys of those with a text that is not UTF-8, which are read one by one.

    `key` is a column that tells the rows apart.
    """
    try:
        return list(connection.execute(statement, parameters).all()), []
    except (OperationalError, SQLiteError) as error:
        if not is_undecodable(error):
            raise
    rows: list[Any] = []
    damaged: list[str] = []
    for each in connection.scalars(statement.with_only_columns(key, maintain_column_froms=True), parameters).all():
        try:
            rows += connection.execute(statement.where(key == each), parameters).all()
        except (OperationalError, SQLiteError) as error:
            if not is_undecodable(error):
                raise
            damaged.append(each)
    return rows, damaged
