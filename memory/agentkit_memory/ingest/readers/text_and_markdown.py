"""Reader of text and Markdown, which never stores a whole text in memory."""

from __future__ import annotations

import html
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

import yaml

from agentkit_prompts.pages.page_blocks import MAX_PART, MAX_TITLE, Block, BlockKind
from agentkit_prompts.strict_yaml import StrictLoader

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
_HTML_HEADING = re.compile(r" {0,3}<h([1-6])(?=[\s>])", re.IGNORECASE)
_MAX_HTML_HEADING = 4000
"""Maximum characters of a heading that is written as an HTML element, of one or several lines."""
_RAW = (
    (re.compile(r" {0,3}<!--"), re.compile(r"-->")),
    (
        re.compile(r" {0,3}<(?:pre|script|style|textarea)(?=[\s>])", re.IGNORECASE),
        re.compile(r"</(?:pre|script|style|textarea)>", re.IGNORECASE),
    ),
)
"""Starts and ends of HTML in which no line is Markdown."""
_TAG = re.compile(r"<!--.*?-->|<[^<>]*>?", re.DOTALL)
_ALT = re.compile(r"<img\s[^<>]*?\balt\s*=\s*[\"']([^\"'<>]*)", re.IGNORECASE)
_TITLE_LINE = re.compile(r"^title[ \t]*[:=][ \t]*[\"']?([^\n\"']+)", re.MULTILINE | re.IGNORECASE)
_RULES = ("---", "+++")
"""Lines around front matter in YAML or TOML."""
_LONE_RETURN = re.compile(r"\r(?!\n)")


class _Draft:
    """The block that is being read."""

    def __init__(self) -> None:
        self.kind: BlockKind = "text"
        self.lines: list[str] = []
        self.size = 0
        self.continues = False
        self.head = ""

    def add(self, line: str) -> list[Block]:
        """Add a line; return the part of the block that the line fills, if any."""
        self.lines.append(line)
        self.size += len(line)
        if self.size < MAX_PART:
            return []
        part = self._block()
        self.lines, self.size, self.continues = [], 0, True
        return [part]

    def end(self, kind: BlockKind = "text") -> list[Block]:
        """Return the block, if it has lines, and start the next block, with a kind."""
        blocks = []
        if self.lines:
            blocks.append(self._block())
        self.kind, self.lines, self.size, self.continues, self.head = kind, [], 0, False, ""
        return blocks

    def _block(self) -> Block:
        if self.kind == "table" and not self.continues and len(self.lines) > 1 and _is_rule_row(self.lines[1]):
            self.head = "".join(self.lines[:2])
        return Block("".join(self.lines), self.kind, continues=self.continues, head=self.head)


def text_blocks(pieces: Iterable[str], *, markdown: bool) -> Iterator[Block]:
    """Yield the blocks of a text, without gaps. The blocks do not depend on the division of the text into pieces."""
    if markdown:
        return _markdown(_lines(pieces))
    return _plain(_lines(pieces))


def with_newlines(pieces: Iterable[str]) -> Iterator[str]:
    """Yield a text whose lines end with a newline: a carriage return that no newline follows becomes a newline.

    The length of the text does not change.
    """
    rest = ""
    for piece in pieces:
        text = rest + piece
        # The next piece may start with the newline of the last line.
        rest = text[len(text.removesuffix("\r")) :]
        text = text.removesuffix("\r")
        if "\r" in text:
            text = _LONE_RETURN.sub("\n", text)
        yield text
    if rest:
        yield "\n"


def _lines(pieces: Iterable[str]) -> Iterator[str]:
    """Yield lines with their newlines. A long line is cut: its first pieces have no newline."""
    rest = ""
    for piece in with_newlines(pieces):
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
        yield _front_matter_block(front_matter)
    reader = _MarkdownReader()
    for line in lines:
        yield from reader.read(line)
    yield from reader.end()


class _MarkdownReader:
    """Reads lines of Markdown into blocks."""

    def __init__(self) -> None:
        self.draft = _Draft()
        # Lines of an HTML heading that has not ended.
        self._html_heading: list[str] = []
        # End of the current comment or raw HTML element, else None.
        self._raw_end: re.Pattern[str] | None = None
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
        if self._raw_end is not None:
            if self._raw_end.search(line):
                self._raw_end = None
            return self.draft.add(line)
        if self._html_heading or _HTML_HEADING.match(markup):
            return self._read_html_heading(line)
        if line.isspace():
            self._is_after_blank, self._only_line = self._is_after_blank or is_line_start, ""
            return self.draft.add(line)
        return self._read_markup(line, markup, is_line_start=is_line_start)

    def _read_markup(self, line: str, markup: str, *, is_line_start: bool) -> list[Block]:
        """Return the blocks that end with a line outside of code and HTML."""
        if opening := _FENCE.match(markup):
            self._fence = opening[1]
            return [*self.draft.end("code"), *self.draft.add(line)]
        if len(line) < _MAX_MARKUP and (heading := _HEADING.match(markup)):
            words = _CLOSING.sub("", line[heading.end() :].strip()).strip()
            self._is_after_blank, self._only_line = True, ""
            return [*self.draft.end(), Block(line, "heading", len(heading[1]), words[:MAX_TITLE])]
        self._raw_end = _open_raw_end(line, markup)
        if "|" in self._only_line and "|" in markup and _is_rule_row(line):
            self.draft.kind = "table"
        if self._only_line and (underline := _UNDERLINE.match(markup)):
            return [self._underlined(line, _UNDERLINE_LEVELS[underline[1][0]])]
        return self._read_text(line, markup, is_line_start=is_line_start)

    def _read_html_heading(self, line: str) -> list[Block]:
        """Collect the lines of a heading; return the heading when it ends."""
        lines = [*self._html_heading, line]
        text = "".join(lines)
        level = text.lstrip()[2]
        end = re.search(rf"</h{level}\s*>", text, re.IGNORECASE)
        blocks: list[Block] = []
        if end is not None:
            self._html_heading, self._is_after_blank, self._only_line = [], True, ""
            title = _html_words(text[: end.start()])
            return [*self.draft.end(), Block(text, "heading", int(level), title)]
        if line.isspace() or len(text) > _MAX_HTML_HEADING:
            # The element is not closed: it is text.
            self._html_heading, self._is_after_blank, self._only_line = [], True, ""
            for each in lines:
                blocks += self.draft.add(each)
            return blocks
        self._html_heading = lines
        return []

    def end(self) -> list[Block]:
        """Return the blocks at the end of the text."""
        blocks: list[Block] = []
        for line in self._html_heading:
            blocks += self.draft.add(line)
        return [*blocks, *self.draft.end()]

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


def _open_raw_end(line: str, markup: str) -> re.Pattern[str] | None:
    """Return the end of the comment or raw HTML element that a line starts and does not end, or None."""
    for start, end in _RAW:
        if (opening := start.match(markup)) and not end.search(line, opening.end()):
            return end
    return None


def _kind_of(markup: str) -> BlockKind:
    """Return the kind of the block that starts with a line."""
    if _ITEM.match(markup):
        return "list"
    if _ROW.match(markup):
        return "table"
    return "text"


def _is_rule_row(line: str) -> bool:
    """Return True for the row between the names of the columns of a table and its other rows."""
    cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
    return len(line) < _MAX_LINE and all("-" in cell and not cell.strip(":-") for cell in cells)


def _html_words(markup: str) -> str:
    """Return the words of an HTML heading; the alt text of its images if it has no other text."""
    words = " ".join(html.unescape(_TAG.sub(" ", markup)).split())
    if not words:
        words = " ".join(html.unescape(match[1]) for match in _ALT.finditer(markup)).strip()
    return words[:MAX_TITLE]


def _front_matter_block(text: str) -> Block:
    """Return the front matter; if it names a title, as a heading above all other headings."""
    title = " ".join(_front_matter_title(text).split())[:MAX_TITLE]
    if not title:
        return Block(text)
    return Block(text, "heading", 0, title)


def _front_matter_title(text: str) -> str:
    fence, *lines = text.splitlines()
    content = "\n".join(lines[:-1])
    try:
        if fence.strip() == "+++":
            fields: object = tomllib.loads(content)
        else:
            fields = yaml.load(content, StrictLoader)
    # Templates are often not valid YAML before they are filled.
    except (ValueError, RecursionError, yaml.YAMLError):
        match = _TITLE_LINE.search(content)
        return match[1] if match else ""
    if isinstance(fields, Mapping):
        for name in ("title", "Title"):
            if isinstance(fields.get(name), str | int | float):
                return str(fields[name])
    return ""


def _split_front_matter(lines: Iterator[str]) -> tuple[str, Iterator[str]]:
    """Return the front matter of a text, else empty text, and the lines after the front matter."""
    head: list[str] = []
    size = 0
    for line in lines:
        head.append(line)
        size += len(line)
        rule = ""
        if len(line) < _MAX_MARKUP:
            rule = line.rstrip()
        if len(head) == 1:
            if rule not in _RULES:
                break
        elif rule == head[0].rstrip() or (rule == "..." and head[0].startswith("---")):
            return "".join(head), lines
        elif size > _MAX_FRONT_MATTER:
            break
    return "", chain(head, lines)
