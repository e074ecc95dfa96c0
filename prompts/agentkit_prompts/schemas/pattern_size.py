"""How large a regular expression is: what compiling it takes, and looking at one character of a text with it."""

from __future__ import annotations

import re

__all__ = ["CHARS_OF_CLASS", "pattern_size"]

_TOKEN = re.compile(r"\\[pP]\{[^}]*+\}|\\.|\[(?:\\.|[^\]\\])*+\]?|\{(\d+)(?:,(\d*))?\}|.", re.S)
_CLASS = re.compile(r"\\[wdsWDSpP]")
CHARS_OF_CLASS = 100
"""What a class of Unicode characters takes, compared to one character."""


def pattern_size(pattern: str) -> int:
    """Return about how many characters a pattern has when all that it repeats is written out."""
    groups, last = [0], 0
    for token in _TOKEN.finditer(pattern):
        text = token[0]
        if text == "(":
            groups.append(0)
        elif text == ")" and len(groups) > 1:
            last = groups.pop()
            groups[-1] += last
        elif token[1]:
            # Nine digits are more than enough for any limit, and `int` takes time for more.
            times = int((token[2] or token[1])[:9])
            groups[-1] += last * max(times - 1, 0)
            last *= times
        elif text not in "*+?|^$":
            last = len(text) + CHARS_OF_CLASS * len(_CLASS.findall(text))
            groups[-1] += last
    return sum(groups)
