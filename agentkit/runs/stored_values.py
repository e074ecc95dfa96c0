"""Conversion of ids, texts and numbers that a database cannot store unchanged, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence


def stored_call(call_id: str) -> str:
    """Return the id of a call in ASCII, because a model can invent ids that a database cannot store."""
    return call_id.encode("unicode_escape").decode("ascii")


def call_of(stored: str) -> str:
    """Return the id of a call that `stored_call` wrote; a corrupt id is returned unchanged."""
    try:
        return stored.encode("ascii").decode("unicode_escape")
    except UnicodeError:
        return stored


def stored_text(text: str) -> str:
    """Return text that both databases store: without NUL and halves of surrogate pairs."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def stored_tags(tags: Sequence[str]) -> str:
    """Return tags in lines; a line break is also at the start and at the end, so that a search finds whole tags."""
    if not tags:
        return ""
    return "\n".join(["", *tags, ""])


def tags_of(stored: object) -> tuple[str, ...]:
    """Return the tags that `stored_tags` wrote."""
    return tuple(str(stored).split("\n")[1:-1])


def finite_number(value: object) -> float:
    """Return a stored number; 0 if it is corrupt."""
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    return 0.0
