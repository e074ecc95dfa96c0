"""`superscript` and `subscript`: raised and lowered text that stays apart from the text around it."""

from __future__ import annotations

import re

_ORDINALS = frozenset({"st", "nd", "rd", "th", "er", "re", "ère", "e", "ème", "eme", "nde", "tm", "sm", "mc"})
"""Endings of ordinal numbers and marks of trade, which are read with the word before them."""
_PLAIN = re.compile(r"[-+−–]?[\w.,]+[-+−]?")


def superscript(content: str, before: str, after: str) -> str:
    """Return raised text: `10` and `6` become `10^6`, and `1` and `st` stay `1st`.

    Args:
        content: The raised text.
        before: Character before it, or empty text.
        after: Character after it, or empty text.
    """
    is_sign = not any(character.isalnum() or character in "+-−" for character in content)
    if is_sign or not _can_mix(before) or content.lower() in _ORDINALS:
        return content
    if after in ("/", "⁄") and content.isdigit() and before.isdigit():
        return f" {content}"
    return _marked("^", content, after)


def subscript(content: str, before: str, after: str) -> str:
    """Return lowered text: `H`, `2` and `O` stay `H2O`, and `101` and `2` become `101_2`."""
    is_formula = before.isalpha() and content.isdigit() and not after.isdigit()
    if is_formula or not _can_mix(before):
        return content
    return _marked("_", content, after)


def reference_mark(content: str) -> str:
    """Return the mark of a footnote in brackets."""
    if content.startswith(("[", "(")):
        return content
    return f"[{content}]"


def _can_mix(before: str) -> bool:
    return before.isalnum() or before in (")", "]", "}")


def _marked(mark: str, content: str, after: str) -> str:
    text = f"{mark}({content})"
    if _PLAIN.fullmatch(content):
        text = mark + content
    if after.isdigit():
        text += " "
    return text
