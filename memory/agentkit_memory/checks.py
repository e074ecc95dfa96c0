"""Whole numbers and times that a database can hold, and folders of users."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TypeGuard

__all__ = ["MAX_BYTES", "expanded", "is_time", "is_whole"]

MAX_BYTES = 2600
"""Bytes of names, in UTF-8, that may stand in one row of an index. PostgreSQL takes 2,704 with its own beside them."""

_MOST = 2**63 - 1


def is_whole(number: object, least: int = -_MOST - 1, most: int = _MOST) -> TypeGuard[int]:
    """Return whether this is a whole number between these, which are the least and the greatest a database can hold."""
    return isinstance(number, int) and not isinstance(number, bool) and least <= number <= most


def is_time(at: object, *, finite: bool = True) -> TypeGuard[float]:
    """Return whether these are seconds since 1970; unless they are to be finite, infinity is never or for ever."""
    if isinstance(at, bool) or not isinstance(at, int | float):
        return False
    try:
        return math.isfinite(at) if finite else not math.isnan(at)
    except OverflowError:  # larger than any float
        return False


def expanded(path: str | os.PathLike[str]) -> Path:
    """Return a path with the folder of a user for `~`; if there is no such user, it is a name like any other."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)
