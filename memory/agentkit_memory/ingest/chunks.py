"""Packing of blocks into chunks: along headings, then whole paragraphs, then items, rows, lines and sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from agentkit_memory.ingest.readers.blocks import Block, Part
from agentkit_memory.terms.cuts import PIECE_BYTES, SENTENCE_END, SPACE, cut_text

__all__ = ["CHUNKER", "CHUNK_BYTES", "Chunk", "chunk_blocks"]

CHUNKER = "2"
"""Version of the cuts. If it changes, every file is chunked again."""

CHUNK_BYTES = PIECE_BYTES
"""Bytes of a full chunk."""

_MAX_WHOLE = 3 * CHUNK_BYTES
"""Maximum bytes of code or of a table that is not cut."""

_LIMITS = {"code": _MAX_WHOLE, "table": _MAX_WHOLE}

_LINE_END = re.compile(r"\n")
_BLANK_LINE = re.compile(r"\n[ \t\r]*\n")
_ITEM_END = re.compile(r"\n(?=[ \t]{0,3}(?:[-*+]|\d{1,9}[.)])[ \t])")
_CUTS = {
    "text": (SENTENCE_END, SPACE),
    "list": (_ITEM_END, SENTENCE_END, SPACE),
    "table": (_LINE_END, SPACE),
    "code": (_BLANK_LINE, _LINE_END, SPACE),
}
"""Places to cut a block that is too long: the first of these that occurs late enough."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document: exactly `text[start:end]` of the document's text, in characters, without blank edges.

    The text of a page or a record starts at 0. `title` is the path of the headings above it, joined with " > "; `line`
    is counted from 1; `meta` is JSON.
    """

    position: int
    start: int
    end: int
    line: int
    title: str
    text: str
    meta: str = "{}"
    image: str = ""
    """Hash of the image that the text describes, if any."""


def chunk_blocks(blocks: Iterable[Block | Part]) -> Iterator[Chunk]:
    """Yield the chunks of a document in order. They do not overlap, and together contain all of it but blank edges."""
    packer = _Packer()
    for block in blocks:
        if isinstance(block, Part):
            yield from packer.start(block)
        elif block.kind == "heading":
            yield from packer.head(block)
        elif block.text.isspace():
            yield from packer.space(block.text)
        else:
            yield from packer.fill(block)
    yield from packer.flush()


class _Packer:
    """The chunk that is being filled, and its place in the document."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        # Bytes.
        self._size = 0
        self._has_body = False
        self._position = self._start = 0
        self._line = 1
        self._part = Part()
        self._headings: list[tuple[int, str]] = []
        self._title = ""

    def start(self, part: Part) -> Iterator[Chunk]:
        yield from self.flush()
        self._part, self._headings, self._title = part, [], part.title
        self._start, self._line = 0, part.line or 1
        self._position += part.apart and self._position > 0

    def head(self, block: Block) -> Iterator[Chunk]:
        if self._has_body or self._size > CHUNK_BYTES:
            yield from self.flush()
        while self._headings and self._headings[-1][0] >= block.level:
            self._headings.pop()
        self._headings.append((block.level, block.title))
        names = (self._part.title, *(name for _, name in self._headings))
        self._title = " > ".join(name for name in names if name)
        self._add(block.text)

    def space(self, text: str) -> Iterator[Chunk]:
        if self._size + len(text) > _MAX_WHOLE:
            yield from self.flush()
        self._add(text)

    def fill(self, block: Block) -> Iterator[Chunk]:
        text, size = block.text, _size(block.text)
        if block.continues and self._has_body:
            # The remainder of the part before is cut together with this part, so that cuts do not depend on parts.
            rest = "".join(self._texts)
            text, size = rest + text, self._size + size
            self._texts, self._size = [], 0
        elif self._has_body and self._size + size > CHUNK_BYTES:
            yield from self.flush()
        limit = _LIMITS.get(block.kind, CHUNK_BYTES)
        if size > limit:
            *pieces, text = cut_text(text, _CUTS[block.kind])
            for piece in pieces:
                self._add(piece)
                yield from self.flush()
        self._add(text)
        self._has_body = True

    def flush(self) -> Iterator[Chunk]:
        text = "".join(self._texts)
        body = text.strip()
        if body:
            lead = len(text) - len(text.lstrip())
            start = self._start + lead
            line = self._part.line or self._line + text.count("\n", 0, lead)
            yield Chunk(self._position, start, start + len(body), line, self._title, body, self._part.meta)
            self._position += 1
        self._start += len(text)
        self._line += text.count("\n")
        self._texts, self._size, self._has_body = [], 0, False

    def _add(self, text: str) -> None:
        self._texts.append(text)
        self._size += _size(text)


def _size(text: str) -> int:
    if text.isascii():
        return len(text)
    return len(text.encode("utf-8", "surrogatepass"))
