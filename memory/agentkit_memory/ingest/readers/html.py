"""Reader of HTML: headings, paragraphs, lists, tables and code, without scripts, styles and navigation.

The parser is lxml, of the extra `ingest`. It receives pieces, and builds no tree.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from agentkit_memory.errors import IngestError
from agentkit_memory.ingest.readers.blocks import MAX_PART, MAX_TITLE, Block, Kind
from agentkit_memory.ingest.readers.file_stream import FileStream

__all__ = ["html_blocks"]

_MAX_TAG = 8 * 1024 * 1024
"""Maximum bytes of one tag or comment, which the parser stores in memory."""

_SKIPPED = frozenset(
    {"script", "style", "template", "noscript", "nav", "svg", "math", "iframe", "object", "embed", "canvas", "audio"}
    | {"video", "select", "datalist", "button", "textarea", "dialog"}
)
_BREAKS = frozenset(
    {"html", "head", "body", "p", "div", "section", "article", "main", "header", "footer", "aside", "address", "hr"}
    | {"blockquote", "dl", "dt", "dd", "figure", "figcaption", "form", "fieldset", "legend", "details", "summary"}
    | {"caption", "center", "hgroup", "search", "menu"}
)
_HEADINGS = {"title": 1, **{f"h{level}": level for level in range(1, 7)}}
_NESTED: Mapping[str, Kind] = {"ul": "list", "ol": "list", "table": "table", "pre": "code"}
_SPACE = re.compile(r"[ \t\r\n\f\x0b]+")
_CHARSET = re.compile(rb"<meta[^>]{1,200}?charset\s*+=\s*+[\"']?+\s*+([A-Za-z0-9_:.-]{1,40})", re.IGNORECASE)
_LEGACY_ENCODING = re.compile(
    r"(?:windows-|cp)(?:125[0-8]|874)|iso-8859-(?:[2-9]|1[0-6])|koi8-[ru]|gb2312|gbk|gb18030|big5|shift_jis|euc-jp|euc-kr"
)
_WESTERN = frozenset({"iso-8859-1", "latin1", "latin-1", "ascii", "us-ascii", "l1"})


def html_blocks(reading: FileStream) -> Iterator[Block]:
    """Yield the blocks of a page.

    Raises:
        IngestError: lxml is not installed, or a tag or comment is too long.
    """
    try:
        from lxml import etree  # pyright: ignore[reportAttributeAccessIssue] - it has no types
    except ImportError as error:
        raise IngestError(reading.file.source, "HTML needs lxml: install the extra `ingest`") from error

    page = _Page()
    parser = etree.HTMLParser(target=page, encoding="utf-8", remove_comments=True)
    # Bytes since the last event of the parser, and all bytes.
    silent = fed = 0
    for text in reading.text(_encoding(reading)):
        data = text.encode()
        fed += len(data)
        before = page.events
        if data:
            parser.feed(data)
        silent += len(data)
        if page.events > before:
            silent = 0
        if silent > _MAX_TAG:
            limit = _MAX_TAG // 2**20
            raise IngestError(
                reading.file.source,
                f"has a tag or comment of more than {limit} MiB before byte {fed}; repair it",
                name="tag",
                value=fed,
            )
        yield from page.take()
    if fed:
        parser.close()
    page.end_block()
    yield from page.take()


def _encoding(reading: FileStream) -> str:
    """Return the encoding that the page declares in its first bytes, or UTF-8."""
    head = reading.stream.read(2048)
    reading.stream.seek(0)
    match = _CHARSET.search(head)
    if match is None:
        return "utf-8"
    name = match[1].decode("ascii").lower()
    if name in _WESTERN:
        # Browsers read these encodings as windows-1252.
        return "windows-1252"
    if _LEGACY_ENCODING.fullmatch(name):
        return name
    return "utf-8"


class _Page:
    """Target of the parser: the parser calls it with tags and text, and it collects blocks."""

    def __init__(self) -> None:
        self.events = 0
        self._blocks: list[Block] = []
        self._texts: list[str] = []
        self._size = 0
        self._kind: Kind = "text"
        self._level = 0
        self._continues = False
        # Number of open elements within a skipped element, including the skipped element.
        self._skipped = 0
        # Number of open lists, tables and code elements.
        self._depth: Counter[Kind] = Counter()

    def take(self) -> list[Block]:
        blocks, self._blocks = self._blocks, []
        return blocks

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self.events += 1
        if self._skipped or _is_skipped(tag, attributes):
            self._skipped += 1
        elif tag in _HEADINGS:
            self.end_block()
            self._kind, self._level = "heading", _HEADINGS[tag]
        elif tag == "br":
            self._add("\n")
        elif tag == "img":
            self._add(attributes.get("alt", ""))
        elif tag in _NESTED:
            self._end_at_edge(tag)
            self._depth[_NESTED[tag]] += 1
            self._kind = self._context()
        elif tag in ("li", "tr", "td", "th"):
            self._start_entry(tag)
        elif tag in _BREAKS and not self._depth["code"]:
            self._break()

    def _start_entry(self, tag: str) -> None:
        """Start an item of a list, or a row or cell of a table."""
        if tag == "li":
            self._add("\n" + "\t" * min(self._depth["list"] - 1, 8) + "- ")
        elif tag == "tr":
            self._add("\n")
        elif self._texts and not self._texts[-1].endswith("\n"):
            self._add(" | ")

    def end(self, tag: str) -> None:
        self.events += 1
        if self._skipped:
            self._skipped -= 1
        elif tag in _NESTED:
            kind = _NESTED[tag]
            self._depth[kind] = max(0, self._depth[kind] - 1)
            self._end_at_edge(tag)
        elif tag in _HEADINGS:
            self.end_block()
        elif tag in _BREAKS and not self._depth["code"]:
            self._break()

    def data(self, text: str) -> None:
        self.events += 1
        if self._skipped:
            return
        if not self._depth["code"]:
            text = _SPACE.sub(" ", text)
        for start in range(0, len(text), MAX_PART):
            self._add(text[start : start + MAX_PART])

    def close(self) -> None:
        """End of the page; lxml requires the method."""

    def end_block(self) -> None:
        """Emit the current block, if it has text."""
        self._emit("\n\n")
        self._kind, self._level, self._continues = self._context(), 0, False

    def _context(self) -> Kind:
        inner: tuple[Kind, ...] = ("code", "table", "list")
        for kind in inner:
            if self._depth[kind]:
                return kind
        return "text"

    def _end_at_edge(self, tag: str) -> None:
        """End the block at the edges of code, and of lists and tables that are not nested."""
        if tag == "pre" or not self._depth["list"] + self._depth["table"]:
            self.end_block()

    def _break(self) -> None:
        if self._depth["list"] + self._depth["table"] or self._kind == "heading":
            self._add(" ")
        else:
            self.end_block()

    def _add(self, text: str) -> None:
        if not text:
            return
        self._texts.append(text)
        self._size += len(text)
        if self._size >= MAX_PART:
            if self._kind == "heading":
                self._kind = "text"
            self._emit("")
            self._continues = True

    def _emit(self, end: str) -> None:
        text = "".join(self._texts)
        self._texts, self._size = [], 0
        if not text.strip():
            return
        if self._kind != "code":
            text = _tidy(text, open_at_start=self._continues, open_at_end=not end)
        elif end:
            text = text.strip("\n")
        title = ""
        if self._kind == "heading":
            title = " ".join(text.split())[:MAX_TITLE]
        self._blocks.append(Block(text + end, self._kind, self._level, title, self._continues))


def _tidy(text: str, *, open_at_start: bool, open_at_end: bool) -> str:
    """Return the text without redundant space; tabs are the indentation of list items."""
    lines = []
    for line in text.split("\n"):
        if words := " ".join(line.split()):
            lines.append("  " * (len(line) - len(line.lstrip("\t"))) + words)
    tidy = "\n".join(lines)
    # The parts of a block are joined later, so that the space between two parts must stay.
    if open_at_start and text[0] in " \n":
        tidy = text[0] + tidy
    if open_at_end and text[-1].isspace():
        tidy += " "
    return tidy


def _is_skipped(tag: str, attributes: Mapping[str, str]) -> bool:
    return (
        tag in _SKIPPED
        or "hidden" in attributes
        or attributes.get("aria-hidden") == "true"
        or attributes.get("role") == "navigation"
    )
