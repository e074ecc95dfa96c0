"""What a column of either database holds: SQLite stores any type in any column, and text that is no text."""

from __future__ import annotations

import math

from sqlalchemy import BigInteger, Column, Float, Integer, LargeBinary, String

__all__ = ["expected_instead"]


def expected_instead(column: Column[object], value: object) -> str:
    """Return what a column takes in place of a value, such as `a number`; empty text where it takes this one."""
    if value is None and column.nullable:
        return ""
    kind = column.type
    if isinstance(kind, LargeBinary):
        return "" if isinstance(value, bytes | bytearray | memoryview) else "bytes"
    if isinstance(kind, Float):
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
        return "" if is_number else "a number"
    if isinstance(kind, Integer):
        bits = 63 if isinstance(kind, BigInteger) else 31
        is_whole = isinstance(value, int) and not isinstance(value, bool) and -(2**bits) <= value < 2**bits
        return "" if is_whole else "a whole number"
    if not isinstance(value, str) or "\0" in value or any("\ud800" <= each <= "\udfff" for each in value):
        return "text"
    most = kind.length if isinstance(kind, String) else None
    return "" if most is None or len(value) <= most else f"text of at most {most} characters"
