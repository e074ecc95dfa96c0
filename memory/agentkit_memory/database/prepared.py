"""Statements whose SQL is compiled once: `Prepared`, a SELECT, and `PreparedWrite`, an INSERT or UPDATE of rows.

SQLAlchemy takes longer for a small row, or a query of a few rows, than the database.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from operator import itemgetter
from sqlite3 import Connection as SQLiteConnection
from typing import Any

from sqlalchemy import Connection, Insert, Select, Update, union_all


class Prepared:
    """A SELECT, or several SELECTs whose rows are concatenated.

    At least two parameters are required: numbers, texts, or lists of numbers or texts. The SQL is cached for each
    dialect and some lengths of the lists; other lists are padded to the next length.
    """

    def __init__(self, *selects: Select[Any]) -> None:
        self.selects = selects
        self._compiled: dict[tuple[object, ...], _CompiledSql] = {}

    def rows(self, connection: Connection, values: Mapping[str, object]) -> Sequence[Sequence[Any]]:
        """Return the rows for these values of the parameters.

        On SQLite the driver is called directly and raises its own errors: SQLAlchemy takes longer than the statement.
        """
        arguments = dict(values)
        key: list[object] = [connection.dialect.name]
        for name, value in values.items():
            if isinstance(value, list):
                arguments[name] = padded = _padded(value)
                key.append((name, len(padded)))
        compiled = self._compiled.get(tuple(key))
        if compiled is None:
            compiled = self._compiled[tuple(key)] = _CompiledSql(self.selects, connection, arguments)
        driver = connection.connection.driver_connection
        if isinstance(driver, SQLiteConnection):
            return driver.execute(compiled.sql, compiled.arguments(arguments)).fetchall()
        return connection.exec_driver_sql(compiled.sql, compiled.arguments(arguments)).all()


class PreparedWrite:
    """An INSERT or an UPDATE, for all dialects or by dialect, that is executed once per row.

    The values of a row, at least two, are its only parameters: constants are literals.
    """

    def __init__(self, statement: Insert | Update | Mapping[str, Insert]) -> None:
        self._statement = statement
        self._compiled: dict[tuple[str, ...], tuple[str, itemgetter[tuple[Any, ...]]]] = {}

    def execute(self, connection: Connection, rows: Sequence[Mapping[str, object]]) -> int:
        """Execute the statement for the rows, which have the keys of the first row; return the number of rows."""
        statement = self._statement
        if isinstance(statement, Mapping):
            statement = statement[connection.dialect.name]
        # The drivers of servers have parameters by name, as the rows have.
        if not connection.dialect.positional:
            return connection.execute(statement, rows).rowcount
        names = tuple(rows[0])
        compiled = self._compiled.get(names)
        if compiled is None:
            columns = None
            if isinstance(statement, Insert):
                columns = names
            sql = statement.compile(dialect=connection.dialect, column_keys=columns)
            compiled = self._compiled[names] = str(sql), itemgetter(*(sql.positiontup or ()))
        text, ordered = compiled
        return connection.exec_driver_sql(text, [*map(ordered, rows)]).rowcount


class _CompiledSql:
    """The SQL for lists of certain lengths, and the positions of the values in the SQL."""

    def __init__(self, selects: Sequence[Select[Any]], connection: Connection, values: Mapping[str, object]) -> None:
        statement: Any = selects[0]
        if len(selects) > 1:
            statement = union_all(*selects)
        numbers = count()
        placeholders = {name: _placeholders(value, numbers) for name, value in values.items()}
        state = statement.compile(dialect=connection.dialect).construct_expanded_state(placeholders)
        self.sql = state.statement
        self._parameters = [*values]
        constants = {name: value for name, value in state.parameters.items() if not isinstance(value, _Placeholder)}
        self._constants = [*constants.values()]
        positions = dict(zip(constants, numbers, strict=False))
        for name, value in state.parameters.items():
            if isinstance(value, _Placeholder):
                positions[name] = value.number
        # The driver of SQLite accepts parameters by position, other drivers by name.
        self._names = None
        if state.positiontup is None:
            self._names = [*positions]
        # `itemgetter` returns a tuple only for two or more positions, so that two parameters are required.
        self._ordered = itemgetter(*[positions[name] for name in state.positiontup or positions])

    def arguments(self, values: Mapping[str, object]) -> tuple[Any, ...] | dict[str, Any]:
        """Return the parameters for the driver: a tuple, or a dict if they have names."""
        flat: list[object] = []
        for name in self._parameters:
            value = values[name]
            if isinstance(value, list):
                flat += value
            else:
                flat.append(value)
        ordered: tuple[Any, ...] = self._ordered([*flat, *self._constants])
        if self._names is None:
            return ordered
        return dict(zip(self._names, ordered, strict=True))


class _Placeholder:
    """Placeholder of a value while the SQL is compiled."""

    def __init__(self, number: int) -> None:
        self.number = number


def _placeholders(value: object, numbers: Iterator[int]) -> object:
    if isinstance(value, list):
        return [_placeholders(each, numbers) for each in value]
    return _Placeholder(next(numbers))


def _padded(value: list[Any]) -> list[Any]:
    """Return a list that is padded with its last value, up to one of a few lengths."""
    length = 1
    while length < len(value):
        length += max(1, length // 2)
    return value + value[-1:] * (length - len(value))
