"""Checks of numbers, times and limits of pages, and paths with `~`."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import TypeGuard

from agentkit_memory.errors import InvalidArgument
from agentkit_prompts.errors import brief

MAX_BYTES = 2600
"""Maximum UTF-8 bytes of the names in one row of a database index; PostgreSQL accepts 2,704 with its header."""
MAX_DIMENSIONS = 65_536
"""Maximum length of a vector: a Qdrant server rejects longer vectors, and Qdrant Edge crashes."""

_MAX_INTEGER = 2**63 - 1
_ADDRESS = re.compile(r"\s*+[A-Za-z][A-Za-z0-9+._-]+:(?:/|\d+/?\s*+$)")
"""A scheme with a slash, or a host with its port, of at least two letters: `C:` is a drive."""


def is_whole(number: object, least: int = -_MAX_INTEGER - 1, most: int = _MAX_INTEGER) -> TypeGuard[int]:
    """Return True if a value is a whole number within bounds, by default the bounds of a database column."""
    return isinstance(number, int) and not isinstance(number, bool) and least <= number <= most


def check_limit(where: str, limit: object) -> None:
    """Check the maximum number of rows of a page; `where` is the operation, for the error.

    Raises:
        InvalidArgument: The limit is not a whole number, or is below 1.
    """
    if not is_whole(limit, 1):
        raise InvalidArgument(f"{where}: expected a limit of 1 or more, got {brief(limit)}", name="limit")


def is_time(at: object, *, finite: bool = True) -> TypeGuard[float]:
    """Return True if a value is a time in seconds since 1970; without `finite`, infinity is valid too."""
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
    """Return True if a text is an address, such as `mysql://...` or `localhost:6333`, and not a path."""
    return _ADDRESS.match(text) is not None or "://" in text


def expanded(path: str | os.PathLike[str]) -> Path:
    """Return a path with `~` expanded; the path of an unknown user (`~unknown/x`) is returned unchanged."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def is_file_name(path: Path) -> bool:
    """Return True if the file system accepts a path: it contains no NUL and no unpaired surrogate."""
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False
