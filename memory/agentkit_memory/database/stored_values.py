"""What a column of either database holds: SQLite stores any type in any column, and text that is no text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import BigInteger, Column, Float, Integer, LargeBinary, String

from agentkit_memory.checks import is_time, is_whole
from agentkit_memory.database.readable_rows import is_name

__all__ = ["expected_instead", "sound_values"]


def expected_instead(column: Column[Any], value: object) -> str:
    """Return what a column takes in place of a value, such as `a number`; empty text where it takes this one."""
    if value is None and column.nullable:
        return ""
    kind = column.type
    if isinstance(kind, LargeBinary):
        return "" if isinstance(value, bytes | bytearray | memoryview) else "bytes"
    if isinstance(kind, Float):
        return "" if is_time(value, finite=False) else "a number"
    if isinstance(kind, Integer):
        end = 2 ** (63 if isinstance(kind, BigInteger) else 31)
        return "" if is_whole(value, -end, end - 1) else "a whole number"
    if not is_name(value) or "\0" in value:
        return "text"
    most = kind.length if isinstance(kind, String) else None
    return "" if most is None or len(value) <= most else f"text of at most {most} characters"


def sound_values(row: Any, columns: Iterable[Column[Any]]) -> tuple[list[Any], list[str]]:
    """Return the values of columns in a row, an empty one for each that is damaged, and the names of those."""
    found: list[Any] = []
    wrong: list[str] = []
    for column in columns:
        value = getattr(row, column.name)
        if expected_instead(column, value):
            value = None if column.nullable else column.type.python_type()
            wrong.append(column.name)
        found.append(value)
    return found, wrong
