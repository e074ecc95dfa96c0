"""Characters of PDF text that no person can read: codes of a font that the library returns as characters."""

from __future__ import annotations

import re
from collections.abc import Iterable

_CONTROLS = "\0-\x08\x0b\x0c\x0e-\x1f\x7f"
_PRIVATE = "\ue000-\uf8ff\U000f0000-\U0010fffd"
_CONTROL = re.compile(f"[{_CONTROLS}]")
_UNREADABLE = re.compile(f"[{_CONTROLS}\x80-\x9f{_PRIVATE}\ufffd]")
_SUSPICIOUS = re.compile(f"[{_CONTROLS}]|[{_PRIVATE}\ufffd]{{2}}")
"""Codes in the text of a page. A single private character is a bullet or another sign."""
_SIGN = re.compile(f"[{_PRIVATE}]")
_WORD = re.compile(r"\S{3,}")
_SMALL_CAPITAL = re.compile("[\uf720-\uf7ff]")
"""Small capitals and figures of other heights in the list of glyph names: their Latin character plus U+F700."""
_BULLET = re.compile("[\uf000-\uf0ff]")
"""Characters of symbol fonts, such as bullets."""
_MAX_CONTROLS = 1 / 20
"""Maximum share of control characters in text of a font without a map. With private codes, the space alone is one of
seven characters."""
_MAX_UNREADABLE = 1 / 3
"""Maximum share of unreadable characters in text of a font with a character map. Some maps have errors."""
_MIN_LETTERS = 1 / 2
"""Minimum share of letters and digits in the text of a font without a map. Private codes mostly start at "!"."""
_MIN_CODES = 4


def may_be_codes(text: str) -> bool:
    """Return True if the text of a page contains codes of fonts, perhaps next to other text."""
    return _SUSPICIOUS.search(text) is not None


def are_codes(text: str, *, is_mapped: bool) -> bool:
    """Return True if the text of one font of a page is codes; `is_mapped` is True if the font has a character map."""
    characters = text.translate(dict.fromkeys(map(ord, " \n\t\r")))
    if not characters:
        return False
    unreadable = len(_UNREADABLE.findall(_SMALL_CAPITAL.sub("", characters)))
    if unreadable > len(characters) * _MAX_UNREADABLE:
        return True
    if is_mapped:
        return False
    controls = len(_CONTROL.findall(characters))
    letters = sum(character.isalnum() for character in characters)
    has_signs = len(set(characters)) >= _MIN_CODES and letters < len(characters) * _MIN_LETTERS
    return controls > len(characters) * _MAX_CONTROLS or has_signs


def are_words(codes: Iterable[str]) -> bool:
    """Return True if codes are words, and not bullets, other single signs, or lines of one sign."""
    words = [word for piece in codes for word in _WORD.findall(piece)]
    return any(len(set(word)) > 1 or not _SIGN.match(word) for word in words)


def with_marks(text: str) -> str:
    """Return text with Latin characters and bullets instead of private characters for them."""
    if text.isascii():
        return text
    text = _SMALL_CAPITAL.sub(lambda match: chr(ord(match[0]) - 0xF700), text)
    return _BULLET.sub("\N{BULLET}", text)
