"""Reader of text and Markdown, which never stores a whole text in memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain

from agentkit_memory.ingest.readers.blocks import MAX_TITLE, PART, Block, Kind

__all__ = ["text_blocks"]

# Characters: a longer line is cut.
_MAX_LINE = 4096
# Characters of a line that can be markup, such as a heading.
_MAX_MARK = 1000
_MAX_FRONT_MATTER = 10_000

_HEADING = re.compile(r" {0,3}(#{1,6})(?![^\s])")
_CLOSING = re.compile(r"(?:^|\s)#+$")
_UNDERLINE = re.compile(r"\A {0,3}(=++|-++)[ \t]*+\r?\n?\Z")
_UNDERLINE_LEVELS = {"=": 1, "-": 2}
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

    def add(self, line: str) -> list[Block]:
        """Add a line; return the part of the block that the line fills, if any."""
        self.lines.append(line)
        self.size += len(line)
        if self.size < PART:
            return []
        part = Block("".join(self.lines), self.kind, continues=self.continues)
        self.lines, self.size, self.continues = [], 0, True
        return [part]

    def end(self, kind: Kind = "text") -> list[Block]:
        """Return the block, if it has lines, and start the next block, of a kind."""
        blocks = []
        if self.lines:
            blocks.append(Block("".join(self.lines), self.kind, continues=self.continues))
        self.kind, self.lines, self.size, self.continues = kind, [], 0, False
        return blocks


def text_blocks(pieces: Iterable[str], *, markdown: bool) -> Iterator[Block]:
    """Yield the blocks of a text without gaps; they do not depend on its pieces."""
    if markdown:
        return _markdown(_lines(pieces))
    return _plain(_lines(pieces))


def _lines(pieces: Iterable[str]) -> Iterator[str]:
    """Yield lines with their ends. A line without a newline at its end continues in the next line."""
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
    reader = _MarkdownReader()
    for line in lines:
        yield from reader.read(line)
    yield from reader.draft.end()


class _MarkdownReader:
    """Reads lines of Markdown into blocks."""

    def __init__(self) -> None:
        self.draft = _Draft()
        # Opening fence of the code that is being read.
        self._fence = ""
        self._is_after_blank = True
        # First line of the paragraph, if an underline would make it a heading.
        self._only_line = ""
        # False for the rest of a line that was cut.
        self._starts = True

    def read(self, line: str) -> list[Block]:
        """Return the blocks that end with a line."""
        starts, self._starts = self._starts, line.endswith("\n")
        mark = ""
        if starts:
            mark = line[:_MAX_MARK]
        if self._fence:
            return self._read_code(line, mark)
        if line.isspace():
            self._is_after_blank, self._only_line = self._is_after_blank or starts, ""
            return self.draft.add(line)
        if opening := _FENCE.match(mark):
            self._fence = opening[1]
            return [*self.draft.end("code"), *self.draft.add(line)]
        if len(line) < _MAX_MARK and (heading := _HEADING.match(mark)):
            words = _CLOSING.sub("", line[heading.end() :].strip()).strip()
            self._is_after_blank, self._only_line = True, ""
            return [*self.draft.end(), Block(line, "heading", len(heading[1]), words[:MAX_TITLE])]
        if self._only_line and (underline := _UNDERLINE.match(mark)):
            return [self._underlined(line, _UNDERLINE_LEVELS[underline[1][0]])]
        return self._read_text(line, mark, starts=starts)

    def _read_code(self, line: str, mark: str) -> list[Block]:
        blocks = self.draft.add(line)
        bare = mark.strip()
        if len(bare) < len(self._fence) or bare.strip(self._fence[0]):
            return blocks
        self._fence, self._is_after_blank, self._only_line = "", True, ""
        return [*blocks, *self.draft.end()]

    def _underlined(self, line: str, level: int) -> Block:
        """Return a heading of the paragraph before this line and the line."""
        title = self._only_line
        self.draft = _Draft()
        self._is_after_blank, self._only_line = True, ""
        return Block(title + line, "heading", level, title.strip())

    def _read_text(self, line: str, mark: str, *, starts: bool) -> list[Block]:
        self._only_line = ""
        blocks: list[Block] = []
        if self._is_after_blank and starts:
            blocks = self.draft.end(_kind_of(mark))
            if len(line) < MAX_TITLE:
                self._only_line = line
        self._is_after_blank = False
        return [*blocks, *self.draft.add(line)]


def _kind_of(mark: str) -> Kind:
    """Return the kind of the block that starts with a line."""
    if _ITEM.match(mark):
        return "list"
    if _ROW.match(mark):
        return "table"
    return "text"


def _split_front_matter(lines: Iterator[str]) -> tuple[str, Iterator[str]]:
    """Return the front matter, if a text starts with front matter, and the lines after it."""
    head: list[str] = []
    size = 0
    for line in lines:
        head.append(line)
        size += len(line)
        rule = len(line) < _MAX_MARK and line.strip() == "---" and line.startswith("---")
        if len(head) == 1:
            if not rule:
                break
        elif rule:
            return "".join(head), lines
        elif size > _MAX_FRONT_MATTER:
            break
    return "", chain(head, lines)
