"""`PieceJoiner`: joins pieces of text whose surrogate pairs may be split."""

from __future__ import annotations

from agentkit_prompts.context.wire.clean import clean


class PieceJoiner:
    """Joins pieces of text; the first half of a split surrogate pair waits for the second half."""

    __slots__ = ("_half", "pieces", "size")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.size = 0
        """Characters of `pieces`."""
        self._half = ""

    def cleaned(self, piece: str, *, last: bool = False) -> str:
        """Return a piece as valid text, without storing it."""
        piece = self._half + piece
        self._half = ""
        if not last:
            piece, self._half = without_half(piece)
        return clean(piece)

    def append(self, piece: str) -> str:
        """Store a piece and return it as valid text."""
        piece = self.cleaned(piece)
        if piece:
            self.pieces.append(piece)
            self.size += len(piece)
        return piece

    def __str__(self) -> str:
        return "".join(self.pieces) + clean(self._half)


def without_half(piece: str) -> tuple[str, str]:
    """Return a text without the first half of a surrogate pair at its end, and that half."""
    if piece and "\ud800" <= piece[-1] <= "\udbff":
        return piece[:-1], piece[-1]
    return piece, ""
