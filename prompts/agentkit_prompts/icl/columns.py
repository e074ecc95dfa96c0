"""Columns of a row put where a template names them in braces, in one pass: what a column says is never read again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from agentkit_prompts.errors import InContextError

__all__ = ["pieces_of", "safe_format", "text_of"]


def safe_format(text: str, row: Mapping[str, Any] | None = None, /, **columns: Any) -> str:
    """Return `text` with each `{column}` replaced by `str()` of its value.

    Nothing else in braces means anything: unknown names, `{x!r}`, `{x:>5}` and `{ x }` stay, and `{{x}}` is `{x}`
    filled within braces. A value that holds `{column}` stays as it is.

    Args:
        text: Any text.
        row: Column name to value.
        columns: More of them.

    Raises:
        InContextError: A column has no name that could stand in braces, or its value cannot become text.
    """
    values = {**(row or {}), **columns} if columns else row or {}
    pieces = pieces_of(text, tuple(values))
    if len(pieces) == 1:
        return pieces[0]
    filled = list(pieces)
    for place in range(1, len(filled), 2):
        value = values[filled[place]]
        filled[place] = value if type(value) is str else text_of(filled[place], value)
    return "".join(filled)


@lru_cache(1024)
def pieces_of(text: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Cut `text` at the placeholders of these names: text, name, text, name, ..., text."""
    pattern = _pattern(names)
    return tuple(pattern.split(text)) if pattern is not None else (text,)


def text_of(name: str, value: object) -> str:
    """Return the text of a column's value.

    Raises:
        InContextError: It has none.
    """
    try:
        return str(value)
    except Exception as error:
        raise InContextError(
            f"column {name!r}: a {type(value).__name__} that cannot become text ({type(error).__name__}: {error}); "
            "give a string, or a value whose str() works"
        ) from error


@lru_cache(256)
def _pattern(names: tuple[str, ...]) -> re.Pattern[str] | None:
    odd = [repr(name)[:80] for name in names if not isinstance(name, str)]
    if odd:
        raise InContextError(f"names of columns must be strings, got {', '.join(odd)}")
    if not names:
        return None
    longest_first = sorted(names, key=len, reverse=True)
    return re.compile(r"\{(" + "|".join(map(re.escape, longest_first)) + r")\}")
