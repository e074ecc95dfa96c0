"""Tables of PDF pages: the layout of the library keeps their columns."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

_MIN_RULES = 6
"""Minimum lines or boxes of a page that may have a ruled table."""
_MAX_TEXT = 50_000
"""Maximum characters of a page with columns."""
_RULE = re.compile(rb"(?<=[0-9.]) (?:re|l)(?=\s)")
_NUMERIC = re.compile(r"[-+(]?[$€£]?[0-9][0-9.,:/]*[)%]?")
_GAP = re.compile(r"(?<=\S)[ \t]{2,}(?=\S)")
_MIN_ROWS = 3


def with_columns(page: Any, text: str) -> str:
    """Return the text of a page; with the columns of its tables, if it seems to have tables.

    The layout of the library can lose text, such as rotated text: then the text without columns is kept.
    """
    if not 20 < len(text) < _MAX_TEXT or not (_has_number_rows(text) or _has_rules(page)):
        return text
    try:
        layout = page.extract_text(extraction_mode="layout", layout_mode_space_vertically=False)
    except Exception as error:
        if isinstance(error, MemoryError):
            raise
        return text
    lines = layout.split("\n")
    if sum(_GAP.search(line) is not None for line in lines) < _MIN_ROWS or _letters(layout) != _letters(text):
        return text
    return "\n".join(_GAP.sub(" | ", line.strip()) for line in lines)


def _has_number_rows(text: str) -> bool:
    """Return True if consecutive lines end with several numbers each."""
    count = 0
    for line in text.split("\n"):
        words = line.split()
        numbers = sum(_NUMERIC.fullmatch(word) is not None for word in words)
        count = count + 1 if numbers >= 2 and numbers * 3 >= len(words) else 0
        if count >= _MIN_ROWS:
            return True
    return False


def _has_rules(page: Any) -> bool:
    content = page.get_contents()
    return content is not None and len(_RULE.findall(content.get_data())) >= _MIN_RULES


def _letters(text: str) -> Counter[str]:
    return Counter("".join(text.split()))
