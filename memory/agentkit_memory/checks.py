"""Checks of numbers and times that a database can store, and paths with `~`."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import TypeGuard

__all__ = ["MAX_BYTES", "MAX_DIMENSIONS", "expanded", "is_address", "is_time", "is_whole"]

MAX_BYTES = 2600
"""Maximum bytes of names, in UTF-8, in one row of a database index. PostgreSQL accepts 2,704 including its header."""
MAX_DIMENSIONS = 65_536
"""Maximum length of a vector: Qdrant rejects longer vectors, and its index in this process crashes."""

_MAX_INTEGER = 2**63 - 1
_ADDRESS = re.compile(r"\s*+[A-Za-z][A-Za-z0-9+._-]+:(?:/|\d+/?\s*+$)")
"""Start of an address, or a host with its port; one letter and a colon are a drive."""


def is_whole(number: object, least: int = -_MAX_INTEGER - 1, most: int = _MAX_INTEGER) -> TypeGuard[int]:
    """Return True if a value is a whole number within the bounds; by default the bounds of a database."""
    return isinstance(number, int) and not isinstance(number, bool) and least <= number <= most


def is_time(at: object, *, finite: bool = True) -> TypeGuard[float]:
    """Return True if a value is seconds since 1970; if not `finite`, infinity (never, for ever) is valid too."""
    if isinstance(at, bool) or not isinstance(at, int | float):
        return False
    try:
        if finite:
            return math.isfinite(at)
        return not math.isnan(at)
    except OverflowError:
        # A whole number may be larger than any float.
        return False


def is_address(text: str) -> bool:
    """Return True if a text is an address, such as `mysql://...` or `localhost:6333`, and not the path of a folder."""
    return _ADDRESS.match(text) is not None or "://" in text


def expanded(path: str | os.PathLike[str]) -> Path:
    """Return a path with `~` expanded; a path with an unknown user is returned unchanged."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)
