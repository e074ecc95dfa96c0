"""Invisible characters, which could hide the start of a line from a search but not from a model.

They are white space, control and format characters (the categories Cc, Cf and Zs), surrogates, fillers, variation
selectors, tags, and combining marks for letters of any script (the script "Inherited").
"""

from __future__ import annotations

_UNSEEN = (
    "\x00-\x09\x0e-\x1b\x1f\x20\x7f-\x84\x86-\xa0\xad\u0300-\u036f\u0483-\u0489\u0600-\u0605\u061c\u064b-\u0655"
    "\u0670\u06dd\u070f\u0890\u0891\u08e2\u0951-\u0954\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u1ab0-\u1aff"
    "\u1cd0-\u1ce8\u1ced\u1cf4\u1cf8\u1cf9\u1dc0-\u1dff\u2000-\u200f\u202a-\u202f\u205f-\u206f\u20d0-\u20ff\u2800"
    "\u3000\u302a-\u302d\u3099\u309a\u3164\ud800-\udfff\ufe00-\ufe0f\ufe20-\ufe2f\ufeff\uffa0\ufff0-\ufffc"
    "\U000101fd\U000102e0\U000110bd\U000110cd\U0001133b\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001cf00-\U0001cf46\U0001d167-\U0001d169\U0001d173-\U0001d17a\U0001d17b-\U0001d182\U0001d185-\U0001d18b"
    "\U0001d1aa-\U0001d1ad\U000e0000-\U000e0fff"
)
UNSEEN = f"[{_UNSEEN}]"
"""Regular expression of one invisible character, except line breaks."""
WORD_END = r"(?![^\W_\u115f\u1160\u3164\uffa0])"
"""Regular expression of the end of a word. Fillers do not continue a word: they are letters, but invisible."""
