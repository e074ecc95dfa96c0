"""Packing of blocks into chunks: along headings, then whole paragraphs, then items, rows, lines and sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from agentkit_memory.ingest.readers.section_start import SectionStart
from agentkit_memory.terms.cuts import PIECE_BYTES, SENTENCE_END, SPACE, cut_text
from agentkit_prompts.pages.page_blocks import Block

CHUNKER = "3"
"""Version of the cuts. If the version changes, every file is chunked again."""

CHUNK_BYTES = PIECE_BYTES
"""Bytes of a full chunk."""

_MAX_WHOLE = 3 * CHUNK_BYTES
"""Maximum bytes of code or of a table that is not cut."""

_LIMITS = {"code": _MAX_WHOLE, "table": _MAX_WHOLE}
"""Maximum bytes of a block that is not cut, by kind; `CHUNK_BYTES` for other kinds."""

_LINE_END = re.compile(r"\n")
_BLANK_LINE = re.compile(r"\n[ \t\r]*\n")
_ITEM_END = re.compile(r"\n(?=[ \t]{0,3}(?:[-*+]|\d{1,9}[.)])[ \t])")
_CUTS = {
    "text": (SENTENCE_END, SPACE),
    "list": (_ITEM_END, SENTENCE_END, SPACE),
    "table": (_LINE_END, SPACE),
    "code": (_BLANK_LINE, _LINE_END, SPACE),
}
"""Patterns of places to cut a long block, by kind. The first pattern that matches late enough in the text is used."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document: exactly `text[start:end]` of the document's text, in characters, without blank edges.

    In a chunk that continues a table, the names of the columns are repeated before this text. The text of a page or a
    record starts at 0. `title` is the path of the headings above the chunk, joined with " > "; `line` is counted from
    1; `meta` is JSON.
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


def chunk_blocks(blocks: Iterable[Block | SectionStart]) -> Iterator[Chunk]:
    """Yield the chunks of a document in order: the whole document, without overlaps and without blank edges."""
    packer = _Packer()
    for block in blocks:
        if isinstance(block, SectionStart):
            yield from packer.start(block)
        elif block.kind == "heading":
            yield from packer.head(block)
        elif block.text.isspace():
            yield from packer.space(block.text)
        else:
            yield from packer.fill(block)
    yield from packer.flush()


class _Packer:
    """The chunk that is being filled, and its position in the document."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        # Bytes.
        self._size = 0
        self._has_body = False
        self._position = self._start = 0
        self._line = 1
        self._section = SectionStart()
        self._headings: list[tuple[int, str]] = []
        self._title = ""
        # Head of the table whose rest is the start of the current chunk.
        self._table_head = ""

    def start(self, section: SectionStart) -> Iterator[Chunk]:
        """Start a page or a record."""
        yield from self.flush()
        self._section, self._headings, self._title = section, [], section.title
        self._start, self._line = 0, section.line or 1
        self._position += section.is_separate and self._position > 0

    def head(self, block: Block) -> Iterator[Chunk]:
        """Add a heading, which ends the chunk before it."""
        if self._has_body or self._size > CHUNK_BYTES:
            yield from self.flush()
        while self._headings and self._headings[-1][0] >= block.level:
            self._headings.pop()
        self._headings.append((block.level, block.title))
        self._title = " > ".join(self._path())
        self._add(block.text)

    def _path(self) -> Iterator[str]:
        """Yield the headings above the text, without titles of the document that a later heading repeats."""
        path = [(0, self._section.title), *self._headings]
        seen: set[str] = set()
        names: list[str] = []
        for level, name in reversed(path):
            words = name.casefold()
            if not name or (names and names[-1].casefold() == words) or (level == 0 and words in seen):
                continue
            seen.add(words)
            names.append(name)
        return reversed(names)

    def space(self, text: str) -> Iterator[Chunk]:
        """Add blank lines."""
        if self._size + len(text) > _MAX_WHOLE:
            yield from self.flush()
        self._add(text)

    def fill(self, block: Block) -> Iterator[Chunk]:
        """Add a block, which is cut if it is too long for one chunk."""
        text, size = block.text, _size(block.text)
        if not block.continues and not self._texts:
            self._table_head = ""
        if block.continues and self._has_body:
            # The rest of the previous part is cut together with this part, so that cuts do not depend on the parts.
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
                if _size(block.head) <= CHUNK_BYTES:
                    self._table_head = block.head
        self._add(text)
        self._has_body = True

    def flush(self) -> Iterator[Chunk]:
        """Yield the chunk, unless it is blank, and start the next chunk."""
        text = "".join(self._texts)
        body = text.strip()
        if body:
            blank_start = len(text) - len(text.lstrip())
            start = self._start + blank_start
            line = self._section.line or self._line + text.count("\n", 0, blank_start)
            end = start + len(body)
            yield Chunk(self._position, start, end, line, self._title, self._table_head + body, self._section.meta)
            self._position += 1
        self._start += len(text)
        self._line += text.count("\n")
        self._texts, self._size, self._has_body = [], 0, False
        self._table_head = ""

    def _add(self, text: str) -> None:
        self._texts.append(text)
        self._size += _size(text)


def _size(text: str) -> int:
    if text.isascii():
        return len(text)
    return len(text.encode("utf-8", "surrogatepass"))
