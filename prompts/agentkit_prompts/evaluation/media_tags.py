"""Tagged content: one column of a row that holds text, images, videos and audio in order (AISBench document)."""

from __future__ import annotations

import re

__all__ = ["KINDS", "read_tags"]

KINDS = {"text": "question", "image": "image", "video": "video", "audio": "audio"}
"""Kind of content -> its placeholder in a part of that kind."""

_STARTS = {f"<AIS_{kind.upper()}_START>": kind for kind in KINDS}
"""Tag -> the kind of content that it begins."""

_END = "<AIS_CONTENT_TAG>"
"""Tag behind each piece."""

_TAG = re.compile("|".join(map(re.escape, (*_STARTS, _END))))


def read_tags(content: str) -> list[tuple[str, str]]:
    """Return (kind, text or address) of each piece, in order.

    A piece goes from its tag to the end tag, to the tag of another kind, or to the end. What stands outside every
    piece is text, unless it is white space between them; content without any tag is one text.
    """
    if not _TAG.search(content):
        return [("text", content)]
    found: list[tuple[str, str]] = []
    kind, start, held = "", 0, ""
    for tag in _TAG.finditer(content):
        held += content[start : tag.start()]
        start = tag.end()
        starts = _STARTS.get(tag[0], "")
        if kind and starts == kind:  # the same tag again changes nothing
            continue
        if kind or held.strip():
            found.append((kind or "text", held))
        kind, held = starts, ""
    held += content[start:]
    if kind or held.strip():
        found.append((kind or "text", held))
    return found
