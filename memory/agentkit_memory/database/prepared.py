"""`Prepared`: a SELECT whose SQL is compiled once, as compiling takes longer than a query of a few rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from operator import itemgetter
from sqlite3 import Connection as SQLiteConnection
from typing import Any

from sqlalchemy import Connection, Select, union_all

__all__ = ["Prepared"]


class Prepared:
    """A SELECT, or several whose rows follow each other, with parameters that are numbers, texts, or lists of either.

    It needs at least two parameters. The SQL is cached for each dialect and some lengths of the lists; other lists are
    filled up to the next length.
    """

    def __init__(self, *selects: Select[Any]) -> None:
        self.selects = selects
        self._texts: dict[tuple[object, ...], _Text] = {}

    def rows(self, connection: Connection, values: Mapping[str, object]) -> Sequence[Sequence[Any]]:
        """Return the rows for these values of the parameters.

        On SQLite the driver is called directly and raises its own errors: SQLAlchemy takes longer than the statement.
        """
        arguments = dict(values)
        key: list[object] = [connection.dialect.name]
        for name, value in values.items():
            if isinstance(value, list):
                arguments[name] = filled = _filled_up(value)
                key.append((name, len(filled)))
        text = self._texts.get(tuple(key))
        if text is None:
            text = self._texts[tuple(key)] = _Text(self.selects, connection, arguments)
        driver = connection.connection.driver_connection
        if isinstance(driver, SQLiteConnection):
            return driver.execute(text.sql, text.arguments(arguments)).fetchall()
        return connection.exec_driver_sql(text.sql, text.arguments(arguments)).all()


class _Text:
    """The SQL for lists of certain lengths, and the places of the values in it."""

    def __init__(self, selects: Sequence[Select[Any]], connection: Connection, values: Mapping[str, object]) -> None:
        statement: Any = selects[0]
        if len(selects) > 1:
            statement = union_all(*selects)
        numbers = count()
        numbered = {name: _numbered(value, numbers) for name, value in values.items()}
        state = statement.compile(dialect=connection.dialect).construct_expanded_state(numbered)
        self.sql = state.statement
        self._given = [*values]
        constants = {name: value for name, value in state.parameters.items() if not isinstance(value, _Number)}
        self._constants = [*constants.values()]
        places = dict(zip(constants, numbers, strict=False))
        for name, value in state.parameters.items():
            if isinstance(value, _Number):
                places[name] = value.number
        # A driver accepts parameters by their places, as SQLite does, or by their names.
        self._names = None
        if state.positiontup is None:
            self._names = [*places]
        self._ordered = itemgetter(*[places[name] for name in state.positiontup or places])

    def arguments(self, values: Mapping[str, object]) -> tuple[Any, ...] | dict[str, Any]:
        """Return the parameters for the driver: a tuple, or a dict if they have names."""
        flat: list[object] = []
        for name in self._given:
            value = values[name]
            if isinstance(value, list):
                flat += value
            else:
                flat.append(value)
        ordered: tuple[Any, ...] = self._ordered([*flat, *self._constants])
        if self._names is None:
            return ordered
        return dict(zip(self._names, ordered, strict=True))


class _Number:
    """Placeholder of a value while the SQL is compiled."""

    def __init__(self, number: int) -> None:
        self.number = number


def _numbered(value: object, numbers: Iterator[int]) -> object:
    if isinstance(value, list):
        return [_numbered(each, numbers) for each in value]
    return _Number(next(numbers))


def _filled_up(value: list[Any]) -> list[Any]:
    """Return a list with its last value repeated, up to one of a few lengths."""
    length = 1
    while length < len(value):
        length += max(1, length // 2)
    return value + value[-1:] * (length - len(value))
