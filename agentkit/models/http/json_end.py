"""Where a JSON value that arrives in pieces ends, found in one walk over its characters."""

from __future__ import annotations

import json
import re

__all__ = ["JsonEnd", "is_json"]

_MARK = re.compile(r'[\\"{}\[\]]')
_TEXT = re.compile(r"\S")
_MAX_SCALAR = 100
"""Characters of a number or a word that may be a whole value by itself."""


class JsonEnd:
    """Tells of a growing text whether it is one whole JSON value so far."""

    __slots__ = ("_depth", "_escaped", "_is_whole", "_pieces", "_quoted", "_size")

    def __init__(self) -> None:
        self._pieces: list[str] | None = []
        """What came so far; None once its first value has ended."""
        self._size = 0
        self._depth = 0
        self._quoted = False
        self._escaped = False
        self._is_whole = False

    def add(self, piece: str) -> None:
        """Take the next piece."""
        # White space may follow the value, and nothing else.
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
        """Whether the text is a JSON value, and nothing more."""
        # A number has no mark at its end, so a short text is parsed as a whole.
        if self._pieces is None or self._size > _MAX_SCALAR or self._depth or self._quoted:
            return self._is_whole
        return is_json("".join(self._pieces))

    def _walk(self, piece: str) -> int | None:
        """Return where the first object, list or string ends in a piece, if it does."""
        at = 0
        if self._escaped and piece:
            self._escaped = False
            at = 1
        while found := _MARK.search(piece, at):
            at, mark = found.end(), found[0]
            if mark == "\\":
                if self._quoted:
                    self._escaped = at == len(piece)
                    at += 1
            elif mark == '"':
                self._quoted = not self._quoted
                if not self._quoted and not self._depth:
                    return at
            elif not self._quoted:
                self._depth += 1 if mark in "{[" else -1
                if self._depth <= 0:
                    return at
        return None


def is_json(text: str) -> bool:
    """Whether a text is JSON."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
