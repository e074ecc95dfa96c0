"""`Formula`: a formula in MathML as text."""

from __future__ import annotations

from collections.abc import Mapping

_SIGNS = {
    "msup": ("^",),
    "msub": ("_",),
    "msubsup": ("_", "^"),
    "mover": ("^",),
    "munder": ("_",),
    "munderover": ("_", "^"),
    "mfrac": ("/",),
    "mroot": ("^1/",),
    "mtr": (" ",),
}
"""Text between the children of an element."""
_STARTS = {"msqrt": "√", "mroot": "√", "mtr": "; "}
_GROUPS = frozenset({"mrow", "mfrac", "msqrt", "msup", "msub"})
_MAX_CHARACTERS = 4096


class Formula:
    """Collects the TeX source and the characters of a `math` element, and returns the better text of the two."""

    def __init__(self, attributes: Mapping[str, str]) -> None:
        self._alternative = attributes.get("alttext", "").strip()
        self._source: list[str] = []
        self._characters: list[str] = []
        self._size = 0
        # Tags of the open elements, and the number of their children so far.
        self._open: list[tuple[str, int]] = [("math", 0)]
        self._annotation = ""

    @property
    def text(self) -> str:
        """TeX source of the formula, else its alternative text, else its characters."""
        source = " ".join("".join(self._source).split())
        return source or self._alternative or " ".join("".join(self._characters).split()).removeprefix("; ")

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Start an element of the formula."""
        if tag in ("annotation", "annotation-xml"):
            self._annotation = attributes.get("encoding", "").lower() or "none"
            return
        parent, children = self._open[-1]
        self._open[-1] = (parent, children + 1)
        signs = _SIGNS.get(parent, ())
        if signs and children:
            self._characters.append(signs[min(children, len(signs)) - 1])
        self._characters.append(_STARTS.get(tag, ""))
        if self._is_grouped(tag, parent):
            self._characters.append("(")
        self._open.append((tag, 0))

    def end(self, tag: str) -> None:
        """End an element of the formula."""
        if tag in ("annotation", "annotation-xml"):
            self._annotation = ""
        elif len(self._open) > 1 and self._open[-1][0] == tag:
            self._open.pop()
            if self._is_grouped(tag, self._open[-1][0]):
                self._characters.append(")")

    def data(self, text: str) -> None:
        """Add characters. The end of a very long formula is left out."""
        self._size += len(text)
        if self._size > _MAX_CHARACTERS:
            return
        if self._annotation:
            if "tex" in self._annotation:
                self._source.append(text)
        else:
            self._characters.append(text.strip())

    @staticmethod
    def _is_grouped(tag: str, parent: str) -> bool:
        return tag in _GROUPS and parent in (*_SIGNS, "msqrt") and parent != "mtr"
