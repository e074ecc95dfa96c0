"""Metadata of items: JSON of bounded depth and size, so that every reader can decode it."""

from __future__ import annotations

import json
from collections.abc import Mapping

MAX_META = 8192
"""Maximum characters of the metadata of an item, as JSON."""

MAX_DEPTH = 32
"""Maximum levels of lists and objects in metadata."""


def written_metadata(metadata: Mapping[str, object], *, ascii_only: bool = True, sort_keys: bool = False) -> str:
    """Return metadata as JSON to store.

    Raises:
        ValueError: The metadata is not JSON, is too deep, or is too large; the message continues "its metadata".
    """
    try:
        meta = json.dumps(dict(metadata), sort_keys=sort_keys, allow_nan=False, ensure_ascii=ascii_only)
    except TypeError as error:
        raise ValueError(f"is not JSON ({error})") from None
    except RecursionError:
        raise ValueError(f"nests deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise ValueError(f"is not JSON ({error})") from None
    if len(meta) > MAX_META:
        raise ValueError(f"has {len(meta):,} characters as JSON, at most {MAX_META:,} are stored")
    if _is_deep(json.loads(meta)):
        raise ValueError(f"nests deeper than {MAX_DEPTH} levels")
    return meta


def read_metadata(stored: object) -> dict[str, object]:
    """Return stored metadata.

    Raises:
        ValueError: The metadata is corrupt or too deep; the message continues "its metadata".
    """
    if stored == "{}":
        return {}
    if not isinstance(stored, str):
        raise ValueError(f"is {type(stored).__name__}, expected JSON text")
    try:
        value = json.loads(stored)
    except RecursionError:
        raise ValueError("is not JSON (it nests too deeply)") from None
    except ValueError as error:
        raise ValueError(f"is not JSON ({str(error)[:100]})") from None
    if not isinstance(value, dict):
        raise ValueError(f"is a JSON {type(value).__name__}, expected an object")
    if _is_deep(value):
        raise ValueError(f"nests deeper than {MAX_DEPTH} levels")
    return value


def is_metadata(stored: object) -> bool:
    """Return True if stored metadata can be read."""
    try:
        read_metadata(stored)
    except ValueError:
        return False
    return True


def _is_deep(value: object) -> bool:
    # The value is visited level by level, because a recursive function could exhaust the stack.
    level: list[object] = [value]
    for _ in range(MAX_DEPTH + 1):
        below: list[object] = []
        for each in level:
            if isinstance(each, dict):
                below += each.values()
            elif isinstance(each, list):
                below += each
        if not below:
            return False
        level = below
    return True
