"""Text for comparisons, without differences of case, width and compatible forms."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["MARKS", "UNSPACED", "fold_text"]

UNSPACED = (
    "\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Characters of scripts without spaces (Thai, Lao, Khmer, kana, Han), for a character class of a regular expression."""
MARKS = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0966-\u0dff"
"""Marks and vowel signs inside words, for a character class of a regular expression."""
_MAX_MARKS = 30
"""Maximum number of marks on one character, which is the limit of the Unicode standard for streams."""
_VOICED = "\uff9e\uff9f"
"""Half-width kana signs, which are letters, but become marks in NFKC."""
_RUN = re.compile(rf"(?:[^\w\s\x00-\x7f]|[{_VOICED}]){{{_MAX_MARKS + 1},}}")


def fold_text(text: str) -> str:
    """Return the text in NFKC and folded case, in linear time.

    After 30 marks on a character, further marks are removed, because normalisation sorts marks in quadratic time.
    """
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", _RUN.sub(_cut, text)).casefold()


def _cut(found: re.Match[str]) -> str:
    characters: list[str] = []
    marks = 0
    for character in found[0]:
        is_mark = unicodedata.category(character)[0] == "M" or character in _VOICED
        marks = marks + 1 if is_mark else 0
        if marks <= _MAX_MARKS:
            characters.append(character)
    return "".join(characters)
