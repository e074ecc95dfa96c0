"""How large the values of a configuration may be: what is worked out with them is bounded before it is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

__all__ = ["MAX_SIZE", "Problem", "apart", "bounded", "hashed", "room", "together", "weigh"]

MAX_SIZE = 1_000_000
"""Items of a list, and characters of a text."""
_MAX_VALUES = 1_000_000
"""Values of a whole configuration, those that are shared counted each time."""
_MAX_CHARS = 64_000_000
"""Characters of all the texts among them."""
_MAX_BITS = 4096
_MAX_NESTING = 100
"""Levels of containers: hashing a deep tuple recurses in C, where too many are the end of the process."""
_MAX_ALIKE = 100
"""Keys that have the same hash: each new one is compared with all of them."""
_MAX_SHOWN = 500


class Problem(Exception):
    """Why something of a configuration cannot be read, without its place.

    `name` is the construct, method, function or variable that cannot be read, if there is one.
    """

    def __init__(self, why: str, name: str | None = None) -> None:
        super().__init__(why if len(why) <= _MAX_SHOWN else f"{why[:_MAX_SHOWN]}...")
        self.name = name


def bounded(value: Any) -> Any:
    """Return a value that is not too large."""
    if isinstance(value, str | bytes | list | tuple | dict | set | range) and len(value) > MAX_SIZE:
        raise Problem(f"a {type(value).__name__} of more than {MAX_SIZE:,}")
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise Problem("a number of more than a thousand digits")
    return value


def room(size: int, what: str) -> None:
    """Refuse to make something of more than so many items or characters."""
    if size > MAX_SIZE:
        raise Problem(f"more than {MAX_SIZE:,} {what}")


def together(texts: Iterable[str]) -> str:
    """Return texts as one that is not too long."""
    made: list[str] = []
    size = 0
    for text in texts:
        made.append(text)
        size += len(text)
        room(size, "characters")
    return "".join(made)


def weigh(*values: Any, chars: int = _MAX_CHARS) -> None:
    """Refuse values that nest deeply, or would be too many when written out, however often they share a part.

    Args:
        *values: What is about to be written, copied, hashed or compared.
        chars: Characters that all of their texts and numbers may have together.
    """
    left, written, level = _MAX_VALUES, 0, [*values]
    for _ in range(_MAX_NESTING):
        left -= len(level)
        inner: list[Any] = []
        for value in level:
            if isinstance(value, str | bytes):
                written += len(value)
            elif isinstance(value, int):
                written += value.bit_length() >> 2
            elif isinstance(value, Mapping):
                inner += [*value.keys(), *value.values()]
            elif isinstance(value, list | tuple | set | frozenset):
                inner += value
            elif isinstance(value, range):
                left -= len(value)
            if left < len(inner):
                raise Problem(f"more than {_MAX_VALUES:,} values")
        if written > chars:
            raise Problem(f"more than {chars:,} characters")
        if not inner:
            return
        level = inner
    raise Problem(f"values that nest more than {_MAX_NESTING} levels deep")


def hashed(key: Any) -> Any:
    """Return a value that is about to be hashed."""
    if isinstance(key, tuple):
        weigh(key)
    return key


def apart(keys: Collection[Any]) -> None:
    """Refuse keys that a dict or a set takes long to tell apart."""
    if len(keys) <= _MAX_ALIKE or all(isinstance(key, str) for key in keys):
        return
    weigh(*keys)
    if max(Counter(map(hash, keys)).values()) > _MAX_ALIKE:
        raise Problem(f"more than {_MAX_ALIKE} keys that have the same hash")
