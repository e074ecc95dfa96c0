"""Cuts a text into passages along its structure: headings, fenced code, paragraphs, then sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["CHUNKER", "CHUNK_BYTES", "Chunk", "chunk_text"]

CHUNKER = "1"
"""Version of the cuts. With another one, every file is chunked anew."""

CHUNK_BYTES = 1200
"""Size to fill a chunk to, in UTF-8 bytes: about 200 English words, or 400 Chinese characters."""

_FENCE_BYTES = 3 * CHUNK_BYTES
"""Fenced code is kept whole up to this size."""

_HEADING = re.compile(r" {0,3}(#{1,6})(?![^\s])")
_CLOSING = re.compile(r"(?:^|\s)#+$")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*\r?\n?\Z")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_SENTENCE_END = re.compile(r"[.!?…]['\")\]]*\s|[。！？]|\n")
_SPACE = re.compile(r"\s")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage: exactly `text[start:end]` of the file's text, in characters, without blank edges.

    `title` is the path of the headings above it, joined with " > "; `line` is counted from 1.
    """

    position: int
    start: int
    end: int
    line: int
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class _Block:
    start: int
    end: int
    kind: str  # text, code or heading
    level: int = 0
    title: str = ""


def chunk_text(text: str, *, markdown: bool) -> Iterator[Chunk]:
    """Yield the passages of a text in order. They do not overlap, and together hold all of it but blank edges."""
    position, line, counted = 0, 1, 0
    for start, end, title in _ranges(text, markdown):
        while start < end and text[start].isspace():
            start += 1
        while end > start and text[end - 1].isspace():
            end -= 1
        if start == end:
            continue
        line += text.count("\n", counted, start)
        counted = start
        yield Chunk(position, start, end, line, title, text[start:end])
        position += 1


def _ranges(text: str, markdown: bool) -> Iterator[tuple[int, int, str]]:
    headings: list[tuple[int, str]] = []
    title = ""
    start = end = 0
    has_body = False
    for block in _blocks(text, markdown):
        size = _size(text, block.start, block.end)
        if block.kind == "heading":
            if has_body or end - start > CHUNK_BYTES:
                yield start, end, title
                start, has_body = block.start, False
            while headings and headings[-1][0] >= block.level:
                headings.pop()
            headings.append((block.level, block.title))
            title = " > ".join(name for _, name in headings if name)
            end = block.end
            continue
        if text[block.start : block.end].isspace():
            end = block.end
            continue
        if has_body and _size(text, start, end) + size > CHUNK_BYTES:
            yield start, end, title
            start = block.start
        if size > (_FENCE_BYTES if block.kind == "code" else CHUNK_BYTES):
            pieces = list(_split(text, block.start, block.end))
            for _, cut in pieces[:-1]:
                yield start, cut, title
                start = cut
        end, has_body = block.end, True
    yield start, end, title


def _size(text: str, start: int, end: int) -> int:
    return len(text[start:end].encode("utf-8", "surrogatepass"))


def _lines(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    while start < len(text):
        end = text.find("\n", start) + 1 or len(text)
        yield start, end
        start = end


def _blocks(text: str, markdown: bool) -> Iterator[_Block]:
    """Yield blocks that tile the text; blank lines belong to the block before them."""
    start, kind = 0, "text"
    fence = ""
    front_matter = False
    blank = True  # whether the line before was blank
    one_line: tuple[int, int] | None = None  # a paragraph of one line so far, which an underline makes a heading
    for begin, end in _lines(text):
        if not markdown:
            if blank and begin > start and text[begin:end].strip():
                yield _Block(start, begin, kind)
                start = begin
            blank = not text[begin:end].strip()
            continue
        line = text[begin : min(end, begin + 1000)]  # nothing that marks a line is longer
        if fence or front_matter:
            stripped = line.strip()
            closes = stripped == "---" if front_matter else len(stripped) >= len(fence) and not stripped.strip(fence[0])
            if closes and stripped:
                yield _Block(start, end, kind)
                start, kind, fence, front_matter, blank, one_line = end, "text", "", False, True, None
            continue
        if begin == 0 and line.strip() == "---" and "\n---" in text[end - 1 : end + 10_000]:
            front_matter = True
            continue
        opening = _FENCE.match(line)
        if opening:
            if begin > start:
                yield _Block(start, begin, kind)
            start, kind, fence = begin, "code", opening[1]
            continue
        heading = _HEADING.match(line) if end - begin < 1000 else None
        if heading:
            if begin > start:
                yield _Block(start, begin, kind)
            yield _Block(
                begin, end, "heading", len(heading[1]), _CLOSING.sub("", line[heading.end() :].strip()).strip()
            )
            start, blank, one_line = end, True, None
            continue
        underline = _UNDERLINE.match(line) if one_line else None
        if underline and one_line:
            level = 1 if underline[1][0] == "=" else 2
            yield _Block(one_line[0], end, "heading", level, text[slice(*one_line)].strip())
            start, blank, one_line = end, True, None
            continue
        if not line.strip():
            blank, one_line = True, None
            continue
        if blank and begin > start:
            yield _Block(start, begin, kind)
            start = begin
        one_line = (begin, end) if blank and end - begin < 200 else None
        blank = False
    if start < len(text):
        yield _Block(start, len(text), kind)


def _split(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Cut a block that is too long after a line or sentence, else at a space, else where it must be."""
    while start < end:
        window = text[start : min(end, start + CHUNK_BYTES)]
        room = len(window.encode("utf-8", "surrogatepass")[:CHUNK_BYTES].decode("utf-8", "ignore")) or 1
        if start + room >= end:
            yield start, end
            return
        cut = 0
        for pattern in (_SENTENCE_END, _SPACE):
            cuts = [found.end() for found in pattern.finditer(window, room // 2, room)]
            if cuts:
                cut = cuts[-1]
                break
        cut = cut or room
        yield start, start + cut
        start += cut
