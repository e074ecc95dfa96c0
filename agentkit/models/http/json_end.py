"""Detection of the end of a JSON value that arrives in pieces, in one walk over its characters."""

from __future__ import annotations

import json
import re

_MARK = re.compile(r'[\\"{}\[\]]')
_DEPTH_CHANGES = {"{": 1, "[": 1, "}": -1, "]": -1}
_TEXT = re.compile(r"\S")
_MAX_SCALAR = 100
"""Maximum characters of a number or a literal such as `true`."""


class JsonEnd:
    """Detects if a growing text is one complete JSON value."""

    __slots__ = ("_depth", "_escaped", "_is_whole", "_pieces", "_quoted", "_size")

    def __init__(self) -> None:
        self._pieces: list[str] | None = []
        """Pieces so far; None after the end of the first value."""
        self._size = 0
        self._depth = 0
        self._quoted = False
        self._escaped = False
        self._is_whole = False

    def add(self, piece: str) -> None:
        """Add the next piece."""
        # Only white space may follow the value.
        if self._pieces is None:
            self._is_whole = self._is_whole and not _TEXT.search(piece)
            return
        self._pieces.append(piece)
        self._size += len(piece)
        end = self._walk(piece)
        if end is not None:
            whole = "".join(self._pieces)[: self._size - len(piece) + end]
            self._pieces = None
            self._is_whole = not _TEXT.search(piece, end) and is_json(whole)

    @property
    def is_whole(self) -> bool:
        """True if the text is one JSON value without other text."""
        # The end of a number is not marked, so a short text is parsed.
        if self._pieces is None or self._size > _MAX_SCALAR or self._depth or self._quoted:
            return self._is_whole
        return is_json("".join(self._pieces))

    def _walk(self, piece: str) -> int | None:
        """Return the end of the first object, list or string in a piece; None if the value does not end in it."""
        at = 0
        if self._escaped and piece:
            self._escaped = False
            at = 1
        while match := _MARK.search(piece, at):
            at, mark = match.end(), match[0]
            if mark == '"':
                self._quoted = not self._quoted
            elif mark == "\\":
                if self._quoted:
                    self._escaped = at == len(piece)
                    at += 1
                continue
            elif self._quoted:
                continue
            else:
                self._depth += _DEPTH_CHANGES[mark]
            if not self._quoted and self._depth <= 0:
                return at
        return None


def is_json(text: str) -> bool:
    """True if a text is JSON."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
