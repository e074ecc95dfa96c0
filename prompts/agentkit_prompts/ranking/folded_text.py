"""Text folded to compare words: case, width and compatible forms of characters are one."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["MARKS", "UNSPACED", "folded"]

UNSPACED = (
    "\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Scripts written without spaces, for a class of an expression: Thai to Lao, Khmer, kana, Han."""
MARKS = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0966-\u0dff"
"""Marks and vowel signs that belong to a word, for a class of an expression."""
_MAX_MARKS = 30
"""Marks on one character; Unicode's own bound for text that is read as a stream."""
_VOICED = "\uff9e\uff9f"
"""Half-width kana signs: letters, which become marks."""
_RUN = re.compile(rf"(?:[^\w\s\x00-\x7f]|[{_VOICED}]){{{_MAX_MARKS + 1},}}")


def folded(text: str) -> str:
    """Return the text in NFKC and folded case, in time that grows with its length.

    Of a character with more than 30 marks, the others are left out: normalising sorts the marks of a character, which
    takes the square of their number.
    """
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", _RUN.sub(_cut, text)).casefold()


def _cut(found: re.Match[str]) -> str:
    kept: list[str] = []
    marks = 0
    for character in found[0]:
        is_mark = unicodedata.category(character)[0] == "M" or character in _VOICED
        marks = marks + 1 if is_mark else 0
        if marks <= _MAX_MARKS:
            kept.append(character)
    return "".join(kept)
