"""Splitting of a long text into pieces of bounded size, at the best available place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

PIECE_BYTES = 1200
"""Bytes of a full piece, in UTF-8: about 200 English words, or 400 Chinese characters."""

SENTENCE_END = re.compile(r"[.!?…]['\")\]]*\s|[。！？]|\n")
SPACE = re.compile(r"\s")


def cut_text(text: str, places: Sequence[re.Pattern[str]] = (SENTENCE_END, SPACE)) -> Iterator[str]:
    """Yield the pieces of a text, each of at most `PIECE_BYTES`.

    A piece ends at the last match of the first pattern that matches in its second half, else at its maximum size.
    """
    start, end = 0, len(text)
    while start < end:
        window = text[start : min(end, start + PIECE_BYTES)]
        room = len(window.encode("utf-8", "surrogatepass")[:PIECE_BYTES].decode("utf-8", "ignore")) or 1
        if start + room >= end:
            yield text[start:]
            return
        cut = room
        for pattern in places:
            cuts = [match.end() for match in pattern.finditer(window, room // 2, room)]
            if cuts:
                cut = cuts[-1]
                break
        yield text[start : start + cut]
        start += cut
