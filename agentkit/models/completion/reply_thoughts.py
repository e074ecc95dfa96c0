"""What a model thought in a reply, as it arrives."""

from __future__ import annotations

__all__ = ["ReplyThoughts"]


class ReplyThoughts:
    """The pieces of what was thought, and which of them were passed on."""

    __slots__ = ("_passed_on", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._passed_on = 0

    def __len__(self) -> int:
        return len(self._pieces)

    @property
    def text(self) -> str:
        """All that was thought."""
        return "".join(self._pieces)

    def new(self) -> str:
        """Return what was thought since this was asked before."""
        new = "".join(self._pieces[self._passed_on :])
        self._passed_on = len(self._pieces)
        return new

    def add(self, piece: str) -> None:
        """Take a piece."""
        self._pieces.append(piece)

    def keep(self, count: int) -> None:
        """Take back all pieces but the first ones."""
        del self._pieces[count:]
