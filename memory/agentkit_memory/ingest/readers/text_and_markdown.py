"""Reader of text and Markdown, which never stores a whole text in memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain

from agentkit_memory.ingest.readers.blocks import MAX_PART, MAX_TITLE, Block, Kind

__all__ = ["text_blocks"]

_MAX_LINE = 4096
"""Maximum characters of a line; a longer line is cut."""
_MAX_MARKUP = 1000
"""Maximum characters of a line that can be markup, such as a heading."""
_MAX_FRONT_MATTER = 10_000
"""Maximum characters of front matter."""

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
        if self.size < MAX_PART:
            return []
        part = Block("".join(self.lines), self.kind, continues=self.continues)
        self.lines, self.size, self.continues = [], 0, True
        return [part]

    def end(self, kind: Kind = "text") -> list[Block]:
        """Return the block, if it has lines, and start the next block, with a kind."""
        blocks = []
        if self.lines:
            blocks.append(Block("".join(self.lines), self.kind, continues=self.continues))
        self.kind, self.lines, self.size, self.continues = kind, [], 0, False
        return blocks


def text_blocks(pieces: Iterable[str], *, markdown: bool) -> Iterator[Block]:
    """Yield the blocks of a text, without gaps. The blocks do not depend on the division of the text into pieces."""
    if markdown:
        return _markdown(_lines(pieces))
    return _plain(_lines(pieces))


def _lines(pieces: Iterable[str]) -> Iterator[str]:
    """Yield lines with their newlines. A long line is cut: its first pieces have no newline."""
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
    is_after_blank = is_line_start = True
    for line in lines:
        if line.isspace():
            is_after_blank = is_after_blank or is_line_start
        else:
            if is_after_blank and is_line_start:
                yield from draft.end()
            is_after_blank = False
        is_line_start = line.endswith("\n")
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
        # Opening fence of the current code block, else empty.
        self._fence = ""
        self._is_after_blank = True
        # The line that is the whole paragraph so far: an underline would make it a heading.
        self._only_line = ""
        # False if the next line is the rest of a line that was cut.
        self._is_line_start = True

    def read(self, line: str) -> list[Block]:
        """Return the blocks that end with a line."""
        is_line_start, self._is_line_start = self._is_line_start, line.endswith("\n")
        markup = ""
        if is_line_start:
            markup = line[:_MAX_MARKUP]
        if self._fence:
            return self._read_code(line, markup)
        if line.isspace():
            self._is_after_blank, self._only_line = self._is_after_blank or is_line_start, ""
            return self.draft.add(line)
        if opening := _FENCE.match(markup):
            self._fence = opening[1]
            return [*self.draft.end("code"), *self.draft.add(line)]
        if len(line) < _MAX_MARKUP and (heading := _HEADING.match(markup)):
            words = _CLOSING.sub("", line[heading.end() :].strip()).strip()
            self._is_after_blank, self._only_line = True, ""
            return [*self.draft.end(), Block(line, "heading", len(heading[1]), words[:MAX_TITLE])]
        if self._only_line and (underline := _UNDERLINE.match(markup)):
            return [self._underlined(line, _UNDERLINE_LEVELS[underline[1][0]])]
        return self._read_text(line, markup, is_line_start=is_line_start)

    def _read_code(self, line: str, markup: str) -> list[Block]:
        blocks = self.draft.add(line)
        bare = markup.strip()
        if len(bare) < len(self._fence) or bare.strip(self._fence[0]):
            return blocks
        self._fence, self._is_after_blank, self._only_line = "", True, ""
        return [*blocks, *self.draft.end()]

    def _underlined(self, line: str, level: int) -> Block:
        """Return the heading that consists of the paragraph before an underline, and the underline."""
        title = self._only_line
        self.draft = _Draft()
        self._is_after_blank, self._only_line = True, ""
        return Block(title + line, "heading", level, title.strip())

    def _read_text(self, line: str, markup: str, *, is_line_start: bool) -> list[Block]:
        self._only_line = ""
        blocks: list[Block] = []
        if self._is_after_blank and is_line_start:
            blocks = self.draft.end(_kind_of(markup))
            if len(line) < MAX_TITLE:
                self._only_line = line
        self._is_after_blank = False
        return [*blocks, *self.draft.add(line)]


def _kind_of(markup: str) -> Kind:
    """Return the kind of the block that starts with a line."""
    if _ITEM.match(markup):
        return "list"
    if _ROW.match(markup):
        return "table"
    return "text"


def _split_front_matter(lines: Iterator[str]) -> tuple[str, Iterator[str]]:
    """Return the front matter of a text, else empty text, and the lines after the front matter."""
    head: list[str] = []
    size = 0
    for line in lines:
        head.append(line)
        size += len(line)
        is_rule = len(line) < _MAX_MARKUP and line.strip() == "---" and line.startswith("---")
        if len(head) == 1:
            if not is_rule:
                break
        elif is_rule:
            return "".join(head), lines
        elif size > _MAX_FRONT_MATTER:
            break
    return "", chain(head, lines)
