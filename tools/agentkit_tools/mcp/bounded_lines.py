"""Text encodings with a limit for lines, so that a line of a server cannot use unlimited memory and time.

The SDK decodes the output of a server with the encoding of its parameters and reads complete lines of any length. With
`bounded("utf-8")`, a line that is too long or contains too many values is replaced by the notification `TOO_LONG`. Half
a surrogate pair, which some servers write when they cut a text, becomes the replacement character, because the SDK
would refuse the whole line.
"""

from __future__ import annotations

import codecs
import re
from typing import Any

from agentkit_prompts.limits import MAX_INPUT_BYTES

MAX_VALUES = 300_000
"""Maximum JSON values of a message. Parsing takes a microsecond for each and blocks the process."""
TOO_LONG = "agentkit/line_too_long"
_HIGH, _LOW = r"\\u[dD][89abAB][0-9a-fA-F]{2}", r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HALF = re.compile(rf"((?<!\\)(?:\\\\)*+)(?:{_HIGH}(?!{_LOW})|(?<!{_HIGH}){_LOW})")
_PREFIX = "agentkit_bounded_lines_"
_NOTICE = f'{{"jsonrpc": "2.0", "method": "{TOO_LONG}"}}'


def values_in(text: str | bytes) -> int:
    """Return an upper bound of the number of JSON values in a text. It also counts separators in strings."""
    if isinstance(text, str):
        return text.count(",") + text.count("[") + text.count("{")
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def bounded(encoding: str) -> str:
    """Return the name of an encoding that decodes like `encoding` but replaces lines that are too long.

    Raises:
        LookupError: `encoding` is unknown.
    """
    return _PREFIX + codecs.lookup(encoding).name.replace("-", "_")


class _Decoder(codecs.IncrementalDecoder):
    """Incremental decoder that returns only complete lines."""

    encoding = ""

    def __init__(self, errors: str = "strict") -> None:
        super().__init__(errors)
        self._inner = codecs.getincrementaldecoder(self.encoding)(errors)
        self._pieces: list[str] = []
        self._size = 0
        self._skips = False

    def decode(self, input: Any, final: bool = False) -> str:
        # The SDK would join the pieces of a long line in quadratic time, so it receives complete lines.
        head, newline, tail = self._inner.decode(input, final).rpartition("\n")
        lines = ""
        if newline:
            lines = _of_whole_pairs(_of_few_values(self._complete_lines(head)))
            self._pieces, self._size, self._skips = [], 0, False
        if not self._skips:
            self._pieces.append(tail)
            self._size += len(tail)
            if self._size > MAX_INPUT_BYTES:
                self._pieces, self._skips = [], True
                return f"{lines}{_NOTICE}\n"
        return lines

    def _complete_lines(self, head: str) -> str:
        """Return complete lines, starting with the line whose first pieces are stored."""
        if self._skips:
            head = head.partition("\n")[2]
            if not head:
                return ""
            return f"{head}\n"
        return "".join([*self._pieces, head, "\n"])

    def reset(self) -> None:
        self.__init__(self.errors)  # type: ignore[misc]


def _of_few_values(lines: str) -> str:
    if values_in(lines) <= MAX_VALUES:
        return lines
    return "\n".join([line if values_in(line) <= MAX_VALUES else _NOTICE for line in lines.split("\n")])


def _of_whole_pairs(lines: str) -> str:
    # Most lines have no escaped surrogate, and the regular expression is slow.
    if ("\\ud" not in lines and "\\uD" not in lines) or lines.count("\\u") > MAX_VALUES:
        return lines
    return _HALF.sub(r"\1\\ufffd", lines)


def _search(name: str) -> codecs.CodecInfo | None:
    if not name.startswith(_PREFIX):
        return None
    inner = codecs.lookup(name.removeprefix(_PREFIX))
    decoder: type[_Decoder] = type("Decoder", (_Decoder,), {"encoding": inner.name})
    return codecs.CodecInfo(inner.encode, inner.decode, incrementaldecoder=decoder, name=name)


codecs.register(_search)
