"""Encodings of text whose lines have a greatest length, so that a line without end takes no memory without end.

The SDK reads what a server writes in the encoding it is given, as much as comes before the next end of a line. In
`bounded("utf-8")` a line that is too long becomes the notification `TOO_LONG`, and the rest of it is left out.
"""

from __future__ import annotations

import codecs
from typing import Any

__all__ = ["MAX_LINE_CHARS", "TOO_LONG", "bounded"]

MAX_LINE_CHARS = 64 * 1024 * 1024
TOO_LONG = "agentkit/line_too_long"
_PREFIX = "agentkit_bounded_lines_"
_NOTICE = f'{{"jsonrpc": "2.0", "method": "{TOO_LONG}"}}\n'


def bounded(encoding: str) -> str:
    """Return the name of an encoding that differs from `encoding` in what it reads of lines that are too long.

    Raises:
        LookupError: There is no such encoding.
    """
    return _PREFIX + codecs.lookup(encoding).name.replace("-", "_")


class _Decoder(codecs.IncrementalDecoder):
    """Gives whole lines only: who joins pieces of a line one by one takes time without end, too."""

    encoding = ""

    def __init__(self, errors: str = "strict") -> None:
        super().__init__(errors)
        self._inner = codecs.getincrementaldecoder(self.encoding)(errors)
        self._pieces: list[str] = []
        self._size = 0
        self._skips = False

    def decode(self, input: Any, final: bool = False) -> str:
        head, newline, tail = self._inner.decode(input, final).rpartition("\n")
        lines = ""
        if newline:
            lines = self._ended(head)
            self._pieces, self._size, self._skips = [], 0, False
        if not self._skips:
            self._pieces.append(tail)
            self._size += len(tail)
            if self._size > MAX_LINE_CHARS:
                self._pieces, self._skips = [], True
                return lines + _NOTICE
        return lines

    def _ended(self, head: str) -> str:
        """Return lines that have ended, the one whose beginning is kept first."""
        if self._skips:
            head = head.partition("\n")[2]
            return head + "\n" if head else ""
        return "".join([*self._pieces, head, "\n"])

    def reset(self) -> None:
        self.__init__(self.errors)  # type: ignore[misc]


def _search(name: str) -> codecs.CodecInfo | None:
    if not name.startswith(_PREFIX):
        return None
    inner = codecs.lookup(name.removeprefix(_PREFIX))
    decoder: type[_Decoder] = type("Decoder", (_Decoder,), {"encoding": inner.name})
    return codecs.CodecInfo(inner.encode, inner.decode, incrementaldecoder=decoder, name=name)


codecs.register(_search)
