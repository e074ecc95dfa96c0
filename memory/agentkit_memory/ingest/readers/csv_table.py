"""Reader of CSV and TSV: the records of a file are the rows of a table, and the names of the columns are its head."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator

from agentkit_memory.ingest.readers.file_stream import FileStream
from agentkit_memory.ingest.readers.text_and_markdown import with_newlines
from agentkit_prompts.pages.page_blocks import MAX_PART, Block

_MAX_RECORD = 1024 * 1024
"""Characters after which a record ends although a quotation mark is open: the mark is a part of a text."""
_MAX_HEAD = 10_000
"""Maximum characters of the names of the columns."""
_DELIMITERS = ",;\t|"
_QUOTED = re.compile(rf'(?:^|[{_DELIMITERS}]) *"')
"""Start of a cell that is between quotation marks."""
_VALUE = re.compile(r"[-+(]?[$€£¥]?[0-9][0-9 .,:/%eE+-]*[)%€]?|true|false|null|none|n/?a", re.IGNORECASE)
"""Cells that are values and not names of columns, except years."""
_YEAR = re.compile(r"(?:1[89]|20|21)[0-9]{2}")


def csv_blocks(reading: FileStream) -> Iterator[Block]:
    """Yield the table of a file in parts, without gaps. The text of cells, of any length, is not changed."""
    head = None
    lines: list[str] = []
    size, continues = 0, False
    for record in _records(with_newlines(reading.text())):
        if head is None and record.strip() and not record.startswith("sep="):
            head = _head(record)
        lines.append(record)
        size += len(record)
        if size >= MAX_PART:
            yield Block("".join(lines), "table", continues=continues, head=head or "")
            lines, size, continues = [], 0, True
    if lines:
        yield Block("".join(lines), "table", continues=continues, head=head or "")


def _records(pieces: Iterable[str]) -> Iterator[str]:
    """Yield records with their newlines. A newline between quotation marks belongs to a cell."""
    record: list[str] = []
    size, marks = 0, 0
    for piece in pieces:
        for line in _lines(piece):
            record.append(line)
            size += len(line)
            # In a cell that does not start with a mark, a mark is text, such as an inch.
            if marks % 2 or _QUOTED.search(line):
                marks += line.count('"')
            if line.endswith("\n") and (marks % 2 == 0 or size > _MAX_RECORD):
                yield "".join(record)
                record, size, marks = [], 0, 0
    if record:
        yield "".join(record)


def _lines(piece: str) -> Iterator[str]:
    start = 0
    while start < len(piece):
        end = piece.find("\n", start) + 1 or len(piece)
        yield piece[start:end]
        start = end


def _head(record: str) -> str:
    """Return the first record if it contains names of columns, else empty text."""
    if len(record) > _MAX_HEAD:
        return ""
    delimiter = max(_DELIMITERS, key=record.count)
    line = record.replace("\r", " ").replace("\n", " ")
    cells = next(csv.reader([line], delimiter=delimiter), [])
    texts = [cell.strip() for cell in cells if cell.strip()]
    if not texts or all(_YEAR.fullmatch(text) for text in texts):
        return ""
    if any(_VALUE.fullmatch(text) and not _YEAR.fullmatch(text) for text in texts):
        return ""
    return record if record.endswith("\n") else record + "\n"
