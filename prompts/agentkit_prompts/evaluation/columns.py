"""Replacement of `{column}` in a text by the values of a row. Inserted text is not searched for columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from agentkit_prompts.errors import InContextError, Problem, Problems, brief
from agentkit_prompts.limits import MAX_CACHED

Tokens = tuple[tuple[str, str], ...]
"""Other spellings of a column: (token in the text, name of the column)."""


def safe_format(text: str, row: Mapping[str, Any] | None = None, /, **columns: Any) -> str:
    """Return `text` with each `{column}` replaced by `str()` of its value.

    Other text in braces is unchanged: unknown names, `{x!r}`, `{x:>5}` and `{ x }`. `{{x}}` becomes the value of `x` in
    braces. A value that contains `{column}` is unchanged.

    Args:
        text: Any text.
        row: Values by the names of columns.
        columns: More values by the names of columns.

    Raises:
        InContextError: The name of a column cannot be used in braces, or its value cannot become text.
    """
    values = {**(row or {}), **columns}
    return slots(text, tuple(values)).fill(values)


class Slots(NamedTuple):
    """A text split at its columns."""

    text: str
    """The text as a `%` format; the unchanged text if it has no columns."""
    names: tuple[str, ...]
    """Name of the column for each `%s` of the format, in order."""

    def fill(self, row: Mapping[str, Any]) -> str:
        """Return the text with the columns of `row`.

        Raises:
            InContextError: A value cannot become text.
        """
        if not self.names:
            return self.text
        try:
            return self.text % tuple([row[name] for name in self.names])
        except Exception as error:
            raise _no_text(row, self.names, error) from error


def slots(text: str, names: tuple[str, ...], tokens: Tokens = ()) -> Slots:
    """Split `text` at each `{name}` of these names, and at each of the `tokens` of these columns."""
    pattern, columns = _pattern(names, tokens)
    if pattern is None:
        return Slots(text, ())
    # Every second piece is a column, because the pattern has one group.
    pieces = pattern.split(text)
    if len(pieces) == 1:
        return Slots(text, ())
    # `%` with a format fills all columns in C, which is the fastest way to fill a text many times.
    format_ = "%s".join([piece.replace("%", "%%") for piece in pieces[::2]])
    return Slots(format_, tuple([columns[piece] for piece in pieces[1::2]]))


@lru_cache(MAX_CACHED)
def _pattern(names: tuple[str, ...], tokens: Tokens) -> tuple[re.Pattern[str] | None, Mapping[str, str]]:
    _check_names(names)
    columns = {f"{{{name}}}": name for name in names}
    columns.update({token: name for token, name in tokens if name in names})
    if not columns:
        return None, columns
    # The longest alternatives first, because a shorter alternative can match the start of a longer alternative.
    longest_first = sorted(columns, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest_first))})"), columns


def _check_names(names: tuple[str, ...]) -> None:
    # Rows come from files, and a table without a header has numbers as names.
    invalid = [brief(name) for name in names if not isinstance(name, str)]
    if invalid:
        raise InContextError(
            f"names of columns must be strings, got {', '.join(invalid)}",
            problems=[(name, "must be a string") for name in invalid],
        )


def _no_text(row: Mapping[str, Any], names: tuple[str, ...], error: Exception) -> InContextError:
    problems: Problems = []
    for name in dict.fromkeys(names):
        problems += _problems_of_value(name, row[name])
    listing = "; ".join([problem.text for problem in problems]) or f"{type(error).__name__}: {error}"
    text = f"columns that cannot become text: {listing}; pass strings, or values whose str() works"
    return InContextError(text, problems=problems)


def _problems_of_value(name: str, value: object) -> Problems:
    try:
        str(value)
    except Exception as error:
        text = f"{name!r} contains a {type(value).__name__} ({type(error).__name__}: {error})"
        return [Problem(name, text)]
    return []
