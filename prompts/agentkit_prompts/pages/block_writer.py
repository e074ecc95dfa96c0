"""`BlockWriter`: collects the text of a page, and writes blocks of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from agentkit_prompts.pages.list_items import ListItems
from agentkit_prompts.pages.page_blocks import MAX_PART, MAX_TITLE, Block, BlockKind
from agentkit_prompts.pages.scripts_of_text import reference_mark, subscript, superscript
from agentkit_prompts.pages.table_rows import CELL, TableRows

_MAX_CAPTURE = 1000
"""Maximum characters of raised, lowered or ruby text. Longer text is an element without an end."""
_TITLE_PARTS = re.compile(r" [|·•»«:/–—-]++ ")
_NOTE = re.compile(r"(?:^|\s)(?:foot|end)?note|reference|fnref|cite_ref")


class _Script(NamedTuple):
    """Raised or lowered text, whose form depends on the next character."""

    tag: str
    content: str
    before: str
    is_note: bool


@dataclass(slots=True)
class _Capture:
    """Text of an element that is complete at its end."""

    tag: str
    before: str
    is_note: bool = False
    is_continued: bool = False
    """True if ruby text starts directly after other ruby text."""
    texts: list[str] = field(default_factory=list)
    size: int = 0


class BlockWriter:
    """The block that is being read, and the complete blocks."""

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._texts: list[str] = []
        self._size = 0
        self._last = ""
        self._kind: BlockKind = "text"
        self._level = 0
        self._continues = False
        self._lists: list[ListItems] = []
        self._tables: list[TableRows] = []
        self._code = 0
        self._captures: list[_Capture] = []
        self._script: _Script | None = None
        self._is_after_formula = self._is_after_line = False
        self._link = ""
        self._readings: list[tuple[str, str]] = []
        self._is_after_ruby = False
        self._title = ""
        self._has_title = self._has_heading = False

    def _start_row(self) -> None:
        self._end_row()
        self._add("\n")
        self._tables[-1].start_row(len(self._texts))

    def _start_cell(self, attributes: Mapping[str, str]) -> None:
        self._release()
        self._add_readings()
        table = self._tables[-1]
        if not table.is_open:
            self._start_row()
        if table.is_split:
            if self._texts and self._last != "\n":
                self._add(CELL)
            return
        table.start_cell(len(self._texts), attributes)
        self._last = ""

    def _end_row(self) -> None:
        if not self._tables or not self._tables[-1].is_open:
            return
        self._release()
        self._add_readings()
        table = self._tables[-1]
        line = table.end_row(self._texts)
        if line is None:
            return
        removed = self._texts[table.row :]
        del self._texts[table.row :]
        self._size -= sum(map(len, removed))
        self._add(line)

    def _start_capture(self, tag: str, attributes: Mapping[str, str]) -> None:
        if tag == "rt" and self._captures and self._captures[-1].tag == "rt":
            # The reading before has no end tag.
            self._end_capture("rt")
        if tag in ("sup", "sub"):
            self._settle("")
        names = f"{attributes.get('class', '')} {attributes.get('id', '')}"
        is_note = bool(self._link or _NOTE.search(names))
        self._captures.append(_Capture(tag, self._last, is_note, self._is_after_ruby))

    def _end_capture(self, tag: str) -> None:
        if not self._captures or self._captures[-1].tag != tag:
            return
        self._settle("")
        capture = self._captures.pop()
        content = " ".join("".join(capture.texts).split())
        self._last = capture.before
        if not content:
            return
        if tag == "title":
            self._end_title(content)
        elif tag == "rt":
            self._add_reading(content)
        elif tag == "ruby":
            self._end_ruby(content, is_continued=capture.is_continued)
        else:
            self._script = _Script(tag, content, capture.before, capture.is_note)

    def _end_title(self, title: str) -> None:
        if self._title or self._blocks or self._has_title or self._texts:
            self._add(title)
            self._break()
        else:
            self._title = title[:MAX_TITLE]

    def _add_reading(self, reading: str) -> None:
        """Store a reading of the ruby text around it."""
        if not any(character.isalnum() for character in reading):
            # Dots that emphasise the text.
            return
        if self._captures and self._captures[-1].tag == "ruby":
            self._readings.append(("", reading))
        else:
            self._add(f"({reading})")

    def _end_ruby(self, base: str, *, is_continued: bool) -> None:
        """Add the text, and join the readings of its parts and of the ruby text directly before it."""
        at = len(self._readings)
        while at and not self._readings[at - 1][0]:
            at -= 1
        reading = "".join(reading for _, reading in self._readings[at:])
        del self._readings[at:]
        self._add(base)
        if not reading:
            return
        if is_continued and self._readings:
            first, start = self._readings.pop()
            base, reading = first + base, start + reading
        self._readings.append((base, reading))
        self._is_after_ruby = True

    def _add_readings(self) -> None:
        """Add the readings of ruby text to the end of the paragraph: within it, they would divide words."""
        if not self._readings:
            return
        readings = list(dict.fromkeys(f"{base}: {reading}" for base, reading in self._readings if base))
        self._readings = []
        if readings:
            self._add(f" ({'; '.join(readings)})")

    # Blocks.

    def _context(self) -> BlockKind:
        if self._code:
            return "code"
        if self._tables:
            return "table"
        if self._lists:
            return "list"
        return "text"

    def _end_block(self) -> None:
        """Emit the current block, if it has text."""
        if self._texts or self._tables or self._captures or self._readings or self._script is not None:
            self._release()
            self._emit("\n\n")
        self._kind, self._level, self._continues = self._context(), 0, False

    def _is_space_redundant(self) -> bool:
        """True if space at this place changes no text: at the start of a block, or after space."""
        if self._script is not None:
            return False
        return self._last in (" ", "\n") or (not self._texts and not self._captures and not self._continues)

    def _end_at_edge(self) -> None:
        """End the block at the edges of lists and tables that are not nested."""
        if not self._lists and not self._tables and not self._code:
            self._end_block()

    def _break(self) -> None:
        if self._code:
            if self._last not in ("", "\n"):
                self._add("\n")
                self._is_after_line = True
        elif self._lists or self._tables or self._kind == "heading":
            self._release()
            self._add_readings()
            self._add(" ")
        else:
            self._end_block()

    def _release(self) -> None:
        """Add the text of elements without an end tag, and of the last raised or lowered text."""
        self._settle("")
        while self._captures:
            capture = self._captures.pop(0)
            for text in capture.texts:
                self._append(text)

    def _settle(self, after: str) -> None:
        """Add the last raised or lowered text, when the character after it is known."""
        if self._script is None:
            return
        script, self._script = self._script, None
        if script.is_note:
            text = reference_mark(script.content)
        elif script.tag == "sup":
            text = superscript(script.content, script.before, after)
        else:
            text = subscript(script.content, script.before, after)
        self._append(text)

    def _add(self, text: str) -> None:
        if not text:
            return
        if self._script is not None:
            self._settle(text[0])
        self._is_after_formula = self._is_after_formula and text.isspace()
        self._is_after_ruby = self._is_after_line = False
        self._append(text)

    def _append(self, text: str) -> None:
        self._last = text[-1]
        if self._captures:
            capture = self._captures[-1]
            capture.texts.append(text)
            capture.size += len(text)
            if capture.size > _MAX_CAPTURE:
                self._release()
            return
        self._texts.append(text)
        self._size += len(text)
        if self._size >= MAX_PART:
            if self._kind == "heading":
                self._kind = "text"
            self._emit("")
            self._continues = True

    def _emit(self, end: str) -> None:
        title = ""
        if self._kind == "heading":
            title = " ".join("".join(self._texts).split())[:MAX_TITLE]
        if end:
            self._add_readings()
        text = "".join(self._texts)
        self._texts, self._size, self._last = [], 0, ""
        for table in self._tables:
            table.split()
        if not text.strip(" \t\r\n\x1f\xa0"):
            return
        if self._kind != "code":
            text = _tidy(text, open_at_start=self._continues, open_at_end=not end)
        elif end:
            text = text.strip("\n")
        self._add_title(title)
        self._blocks.append(Block(text + end, self._kind, self._level, title, self._continues))

    def _add_title(self, heading: str) -> None:
        """Add the title of the page before its first block, without the words of its first heading."""
        if self._has_heading:
            return
        is_heading = self._kind == "heading"
        self._has_heading = is_heading
        if not self._title or (self._has_title and not is_heading):
            return
        rest = _without_part(self._title, heading)
        if not self._has_title or rest != self._title:
            self._blocks.append(Block("", "heading", 0, rest))
        self._has_title = True


def _without_part(title: str, heading: str) -> str:
    """Return the title of a page without a heading of the page that it contains, such as `Shop` for `Tea - Shop`."""
    words = " ".join(heading.split()).casefold()
    if not words:
        return title
    if title.casefold() == words:
        return ""
    parts = _TITLE_PARTS.split(title)
    rest = [part for part in parts if part.casefold() != words]
    if len(rest) == len(parts):
        return title
    return " - ".join(rest)


def _tidy(text: str, *, open_at_start: bool, open_at_end: bool) -> str:
    """Return the text without redundant space; tabs are the indentation of list items."""
    lines = []
    for line in text.split("\n"):
        if CELL in line:
            if not line.replace(CELL, "").isspace():
                lines.append(" | ".join(" ".join(cell.split()) for cell in line.split(CELL)).strip())
        elif words := " ".join(line.split()):
            lines.append("  " * (len(line) - len(line.lstrip("\t"))) + words)
    tidy = "\n".join(lines)
    # The parts of a block are joined later, so that the space between two parts must stay.
    if open_at_start and text[0] in " \n":
        tidy = text[0] + tidy
    if open_at_end and text[-1].isspace():
        tidy += " "
    return tidy
