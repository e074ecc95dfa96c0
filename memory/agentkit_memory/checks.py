"""Checks of numbers and times that a database can hold, and paths with `~`."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import TypeGuard

__all__ = ["MAX_BYTES", "MAX_DIMENSIONS", "expanded", "is_address", "is_time", "is_whole"]

MAX_BYTES = 2600
"""Bytes of names, in UTF-8, in one row of a database index. PostgreSQL takes 2,704 with its own beside them."""
MAX_DIMENSIONS = 65_536
"""Numbers in a vector; Qdrant takes no longer ones, and its index in this process ends the process instead."""

_MAX_INTEGER = 2**63 - 1
_ADDRESS = re.compile(r"\s*+[A-Za-z][A-Za-z0-9+._-]+:(?:/|\d+/?\s*+$)")
"""How an address begins, or a host with its port; one letter and a colon are a drive."""


def is_whole(number: object, least: int = -_MAX_INTEGER - 1, most: int = _MAX_INTEGER) -> TypeGuard[int]:
    """Return whether this is a whole number within the bounds; by default those of a database."""
    return isinstance(number, int) and not isinstance(number, bool) and least <= number <= most


def is_time(at: object, *, finite: bool = True) -> TypeGuard[float]:
    """Return whether these are seconds since 1970; if not `finite`, infinity (never, for ever) is one too."""
    if isinstance(at, bool) or not isinstance(at, int | float):
        return False
    try:
        return math.isfinite(at) if finite else not math.isnan(at)
    except OverflowError:
        # A whole number may be larger than any float.
        return False


def is_address(text: str) -> bool:
    """Return whether a text is an address, such as `mysql://...` or `localhost:6333`, and no path of a folder."""
    return _ADDRESS.match(text) is not None or "://" in text


def expanded(path: str | os.PathLike[str]) -> Path:
    """Return a path with `~` expanded; with an unknown user it stays as it is."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)
