"""A light English stemmer: inflections and the commonest endings.

Words of the same meaning should have one stem, whatever it looks like.
"""

from __future__ import annotations

import re

__all__ = ["stem"]

_VOWEL = re.compile(r"[aeiouy]")
_DOUBLE = re.compile(r"([^aeiou])\1$")

# Longest first, without a last e: ending, replacement, and the fewest letters of the root, one of them a vowel.
_ENDINGS: tuple[tuple[str, str, int], ...] = (
    ("ization", "iz", 3),
    ("isation", "iz", 3),
    ("ational", "", 3),
    ("fulness", "ful", 3),
    ("ousness", "ous", 3),
    ("iveness", "iv", 3),
    ("ation", "", 3),
    ("ement", "", 4),
    ("ator", "", 3),
    ("ment", "", 4),
    ("ness", "", 3),
    ("ally", "al", 3),
    ("abl", "", 4),
    ("ibl", "", 4),
    ("anc", "", 4),
    ("enc", "", 4),
    ("ity", "", 4),
    ("ion", "", 4),
    ("is", "iz", 4),
    ("ly", "", 3),
)


def stem(word: str) -> str:
    """Return the stem of a lower-case word. Short words, and those with other letters than a to z, stay."""
    if len(word) < 3 or not word.isascii() or not word.isalpha():
        return word
    word = _past(_plural(word))
    word = word[:-3] if len(word) > 5 and word.endswith("ate") else _without_e(word)
    for ending, instead, least in _ENDINGS:
        if word.endswith(ending):
            root = word[: -len(ending)]
            if len(root) >= least and _VOWEL.search(root):
                word = _without_e(root + instead)
            break
    if len(word) > 3 and _DOUBLE.search(word):
        return word[:-1]
    if len(word) > 2 and word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "i"
    return word


def _without_e(word: str) -> str:
    return word[:-1] if len(word) > 2 and word.endswith("e") and _VOWEL.search(word[:-1]) else word


def _plural(word: str) -> str:
    if len(word) < 4:
        return word
    if word.endswith("ies"):
        return word[:-3] + "y" if len(word) > 4 else word[:-1]
    if word.endswith(("sses", "xes", "ches", "shes", "zes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _past(word: str) -> str:
    """Take off `ied`, `ed` and `ing` where a word is left."""
    for ending, instead in (("ied", "y"), ("ed", ""), ("ing", "")):
        if word.endswith(ending):
            root = word[: -len(ending)]
            if len(root) > 1 and not root.endswith("e") and (instead or _VOWEL.search(root)):
                return root + (instead or ("e" if root.endswith("at") else ""))
            return word
    return word
