"""Regular expressions in schemas: an estimate of their cost, and a test if all providers support them."""

from __future__ import annotations

import re

from agentkit_prompts.limits import MAX_PATTERN_CHARS

_TOKEN = re.compile(r"\\[pP]\{[^}\\]*+\}|\\.|\[(?:\\.|[^\]\\])*+\]?|\{(\d+)(?:,(\d*))?\}|.", re.S)
_CLASS = re.compile(r"\\[wdsWDSpP]")
CHARS_OF_CLASS = 100
"""Size of a class of Unicode characters, such as `\\w`; the size of a character is 1."""

_UNCOMMON = re.compile(r"\(\?[=!<]|\\[1-9bBpP]|\{\d{4,}|\[\[:")
"""Parts of a pattern that some providers refuse: look-around, back-references, word borders, Unicode and named classes,
and large repetitions."""


def pattern_size(pattern: str) -> int:
    """Return the approximate number of characters of a pattern with its repetitions expanded."""
    groups, last = [0], 0
    for token in _TOKEN.finditer(pattern):
        text = token[0]
        if text == "(":
            groups.append(0)
        elif text == ")" and len(groups) > 1:
            last = groups.pop()
            groups[-1] += last
        elif token[1]:
            # Only nine digits are read: they exceed every limit, and `int` is slow for long numbers.
            times = int((token[2] or token[1])[:9])
            groups[-1] += last * max(times - 1, 0)
            last *= times
        elif text not in "*+?|^$":
            last = len(text) + CHARS_OF_CLASS * len(_CLASS.findall(text))
            groups[-1] += last
    return sum(groups)


def is_common_pattern(pattern: str) -> bool:
    """True if all providers probably support a regular expression."""
    if len(pattern) > MAX_PATTERN_CHARS or _UNCOMMON.search(pattern):
        return False
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return False
    return True
