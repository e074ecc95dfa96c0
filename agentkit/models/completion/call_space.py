"""`space_pattern`: the white space before a tool call in a prompt."""

from __future__ import annotations

import re


def space_pattern(end: str, opening: str) -> re.Pattern[str]:
    """Return the pattern of the white space between the end of a text and the opening tag of a call."""
    start = re.escape(end)
    if not end.strip():
        # Each run of white space is searched once, from its start.
        start = rf"(?<!\s){start}"
    return re.compile(rf"{start}(\s*+){re.escape(opening)}")
