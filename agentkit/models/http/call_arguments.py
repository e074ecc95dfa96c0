"""`CallArguments`: the arguments of a tool call, which arrive in pieces."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

from agentkit.models.http.json_end import JsonEnd, is_json
from agentkit.models.http.piece_joiner import PieceJoiner
from agentkit_prompts.context.wire.clean import clean

_START = re.compile(r'\s*[{\["]')
"""Start of a JSON document."""
_BLANK = re.compile(r"\s*")
_EMPTY = ("{}", "null")
_QUOTED = re.compile(r"""(?<!\\)(?:"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+')""", re.DOTALL)
_decode = json.JSONDecoder().raw_decode


class CallArguments:
    """Arguments of a tool call. A complete document that another document follows is replaced by that document.

    Servers send `{}` before the first piece, or repeat the whole arguments in the last piece.
    """

    __slots__ = ("_end", "_held", "_joiner", "_walked")

    def __init__(self) -> None:
        self._joiner = PieceJoiner()
        self._held = ""
        """Empty arguments that are not emitted yet, because other arguments may replace them."""
        self._end: JsonEnd | None = None
        self._walked = 0
        """Number of pieces that `_end` has read."""

    def add(self, piece: object) -> str:
        """Add a piece, which may be an object, and return the text to emit."""
        if piece is None or piece == "":
            return ""
        if not isinstance(piece, str):
            piece = json.dumps(piece, ensure_ascii=False)
        if self._joiner.pieces and _START.match(piece) and self.is_complete:
            if self.equal(piece) or piece.strip() in _EMPTY:
                return ""
            self._joiner, self._end, self._walked, self._held = PieceJoiner(), None, 0, ""
        new = self._joiner.append(piece)
        if len(self._joiner.pieces) == 1 and new.strip() in _EMPTY:
            self._held = new
            return ""
        return self.rest() + new

    def equal(self, piece: object) -> bool:
        """True if a piece repeats all pieces so far."""
        # The length is compared first, because joining the pieces for every repetition is slow.
        return isinstance(piece, str) and len(piece) == self._joiner.size and piece == str(self._joiner)

    def replace(self, whole: object) -> str:
        """Replace the arguments by the whole arguments unless those are empty, and return the text to emit."""
        arguments = CallArguments()
        arguments.add(whole)
        text, before = str(arguments), str(self)
        if not text or text == before or (text.strip() in _EMPTY and is_json(before)):
            return ""
        start = before.removesuffix(self._held)
        self._joiner, self._end, self._walked, self._held = arguments._joiner, None, 0, arguments._held
        if self._held:
            return ""
        if text.startswith(start):
            return text[len(start) :]
        return ""

    def rest(self) -> str:
        """Return the text that `add` held back."""
        text, self._held = self._held, ""
        return text

    @property
    def is_complete(self) -> bool:
        """True if the arguments so far are one JSON value; each piece is walked once."""
        end = self._end = self._end or JsonEnd()
        for piece in self._joiner.pieces[self._walked :]:
            end.add(piece)
        self._walked = len(self._joiner.pieces)
        return end.is_whole

    def __bool__(self) -> bool:
        return bool(self._joiner.pieces)

    def __str__(self) -> str:
        text, pieces = str(self._joiner), self._joiner.pieces
        if len(pieces) < 2 or not all(piece.startswith(before) for before, piece in pairwise(pieces)):
            return text
        # Some servers send all arguments so far in each piece; nested arguments only look like that.
        if is_json(text):
            return text
        return pieces[-1]


def arguments_text(text: str) -> str:
    """Return arguments as a tool reads them: without repetition, and decoded if they were encoded twice."""
    try:
        value: Any = json.loads(text)
    except RecursionError:
        return clean(text)
    except ValueError:
        return clean(_last_document(text))
    inner = text
    while isinstance(value, str):
        inner = value
        try:
            value = json.loads(inner)
        except (ValueError, RecursionError):
            return clean(text)
    if isinstance(value, dict):
        return clean(inner)
    return clean(text)


def _last_document(text: str) -> str:
    """Return the last of several documents in a text if the documents before it are empty or equal to it.

    Documents that differ may be two calls, so that none of them is chosen.
    """
    documents: list[tuple[object, str]] = []
    at = _blank_end(text, 0)
    while at < len(text):
        try:
            value, end = _decode(text, at)
        except (ValueError, RecursionError):
            break
        if not isinstance(value, dict | None):
            break
        documents.append((value, text[at:end]))
        at = _blank_end(text, end)
    if not documents:
        return text
    if at < len(text):
        # The rest is incomplete or invalid: the error names it without the empty documents.
        if any(value for value, _ in documents):
            return text
        return text[at:]
    last, source = next(((value, source) for value, source in reversed(documents) if value), documents[-1])
    if all(not value or value == last for value, _ in documents):
        return source
    return text


def _blank_end(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    assert match is not None
    return match.end()


def is_half(text: str) -> bool:
    """True if arguments end inside of a text, an object or a list, so that the rest did not arrive."""
    text = text.rstrip()
    if not text or is_json(text):
        return False
    rest = _QUOTED.sub("", text)
    if '"' in rest:
        # After a text with a wrong quotation mark, the last bracket shows that the arguments are complete.
        return not text.endswith(("}", "]"))
    return rest.count("{") + rest.count("[") > rest.count("}") + rest.count("]")
