"""Text that can be encoded, for every wire format."""

from __future__ import annotations

__all__ = ["clean"]


def clean(text: str) -> str:
    """Return `text` with lone surrogates, which no encoding has, replaced by U+FFFD; pairs are joined."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
