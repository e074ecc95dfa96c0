"""Text without lone surrogates, which every wire format can encode."""

from __future__ import annotations


def clean(text: str) -> str:
    """Return `text` with lone surrogates replaced by U+FFFD; a pair of surrogates becomes its character."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
