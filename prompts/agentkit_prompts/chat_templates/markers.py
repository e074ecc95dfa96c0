"""Which tokens of a role marker only the template may write."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["control_tokens"]

_BRACKETED = re.compile(r"<{1,2}[^<>\n]+>{1,2}|\[[^\[\]\n]+\]")


def control_tokens(tokens: Iterable[str], markers: Iterable[str]) -> tuple[str, ...]:
    """Return each token once, in order: `tokens` whole; of a marker its bracketed tokens, or its words if it has none.

    Markers of words, such as `USER:`, come without the white space around them. They mean something at the start of
    a line only; a token is one of them when it holds no bracket.
    """
    found = [token.strip() for token in tokens]
    for marker in markers:
        found += _BRACKETED.findall(marker) or [marker.strip()]
    return tuple(dict.fromkeys(filter(None, found)))
