"""Reads text and Markdown into blocks, in pieces: neither is ever held as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain

from agentkit_memory.ingest.readers.blocks import MAX_TITLE, PART, Block, Kind

__all__ = ["text_blocks"]

_MAX_LINE = 4096  # characters: a longer line is cut
_MAX_MARK = 1000  # characters of a line that can make it a heading or the like
_MAX_FRONT_MATTER = 10_000

_HEADING = re.compile(r" {0,3}(#{1,6})(?![^\s])")
_CLOSING = re.compile(r"(?:^|\s)#+$")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*\r?\n?\Z")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ITEM = re.compile(r" {0,3}(?:[-*+]|\d{1,9}[.)])[ \t]")
_ROW = re.compile(r" {0,3}\|")


class _Draft:
    """The block that is being read."""

    def __init__(self) -> None:
        self.kind: Kind = "text"
        self.lines: list[str] = []
        self.size = 0
        self.continues = False

    def add(self, line: str) -> Iterator[Block]:
        self.lines.append(line)
        self.size += len(line)
        if self.size >= PART:
            yield Block("".join(self.lines), self.kind, continues=self.continues)
            self.lines, self.size, self.continues = [], 0, True

    def end(self, kind: Kind = "text") -> Iterator[Block]:
        """End the block, if there is one; the next is of the given kind."""
        if self.lines:
            yield Block("".join(self.lines), self.kind, continues=self.continues)
        self.kind, self.lines, self.size, self.continues = kind, [], 0, False


def text_blocks(pieces: Iterable[str], *, markdown: bool) -> Iterator[Block]:
    """Yield the blocks that tile a text; how it was cut into pieces makes no difference."""
    return _markdown(_lines(pieces)) if markdown else _plain(_lines(pieces))


def _lines(pieces: Iterable[str]) -> Iterator[str]:
    """Yield lines with their ends. What does not end in a newline goes on in the next."""
    rest = ""
    for piece in pieces:
        rest += piece
        start = 0
        while True:
            end = rest.find("\n", start, start + _MAX_LINE) + 1
            if not end:
                if len(rest) - start < _MAX_LINE:
                    break
                end = start + _MAX_LINE
            yield rest[start:end]
            start = end
        rest = rest[start:]
    if rest:
        yield rest


def _plain(lines: Iterator[str]) -> Iterator[Block]:
    draft = _Draft()
    blank = fresh = True
    for line in lines:
        if line.isspace():
            blank = blank or fresh
        else:
            if blank and fresh:
                yield from draft.end()
            blank = False
        fresh = line.endswith("\n")
        yield from draft.add(line)
    yield from draft.end()


def _markdown(lines: Iterator[str]) -> Iterator[Block]:
    front_matter, lines = _split_front_matter(lines)
    if front_matter:
        yield Block(front_matter)
    draft = _Draft()
    fence = ""
    blank = True  # whether the line before was blank
    alone = ""  # a paragraph of one line so far, which an underline makes a heading
    starts = True  # whether this is the beginning of a line
    for line in lines:
        fresh, starts = starts, line.endswith("\n")
        mark = line[:_MAX_MARK] if fresh else ""
        if fence:
            yield from draft.add(line)
            bare = mark.strip()
            if len(bare) >= len(fence) and not bare.strip(fence[0]):
                yield from draft.end()
                fence, blank, alone = "", True, ""
        elif line.isspace():
            blank, alone = blank or fresh, ""
            yield from draft.add(line)
        elif opening := _FENCE.match(mark):
            yield from draft.end("code")
            yield from draft.add(line)
            fence = opening[1]
        elif len(line) < _MAX_MARK and (heading := _HEADING.match(mark)):
            yield from draft.end()
            words = _CLOSING.sub("", line[heading.end() :].strip()).strip()
            yield Block(line, "heading", len(heading[1]), words[:MAX_TITLE])
            blank, alone = True, ""
        elif alone and (underline := _UNDERLINE.match(mark)):
            level = 1 if underline[1][0] == "=" else 2
            draft = _Draft()
            yield Block(alone + line, "heading", level, alone.strip())
            blank, alone = True, ""
        else:
            alone = ""
            if blank and fresh:
                yield from draft.end("list" if _ITEM.match(mark) else "table" if _ROW.match(mark) else "text")
                alone = line if len(line) < MAX_TITLE else ""
            blank = False
            yield from draft.add(line)
    yield from draft.end()


def _split_front_matter(lines: Iterator[str]) -> tuple[str, Iterator[str]]:
    """Return the front matter, if a text begins with one, and the lines after it."""
    held: list[str] = []
    size = 0
    for line in lines:
        held.append(line)
        size += len(line)
        rule = len(line) < _MAX_MARK and line.strip() == "---" and line.startswith("---")
        if len(held) == 1:
            if not rule:
                break
        elif rule:
            return "".join(held), lines
        elif size > _MAX_FRONT_MATTER:
            break
    return "", chain(held, lines)
