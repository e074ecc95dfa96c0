"""Table of the formats of files: endings of names, and readers. A new format is a row, and a name of `Format`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias

from agentkit_memory.ingest.readers.csv_table import csv_blocks
from agentkit_memory.ingest.readers.file_stream import FileStream
from agentkit_memory.ingest.readers.html import html_blocks
from agentkit_memory.ingest.readers.json_lines import record_blocks
from agentkit_memory.ingest.readers.section_start import SectionStart
from agentkit_memory.ingest.readers.separate_process import isolated_blocks
from agentkit_memory.ingest.readers.text_and_markdown import text_blocks
from agentkit_prompts.pages.page_blocks import Block

Format: TypeAlias = Literal[
    "text", "markdown", "html", "csv", "records", "pdf", "docx", "xlsx", "pptx", "epub", "eml", "image"
]
_Reader: TypeAlias = Callable[[FileStream], Iterator[Block | SectionStart]]


class FileFormat(NamedTuple):
    """A format of files."""

    name: Format
    endings: tuple[str, ...]
    """Endings of names, in lower case."""
    read: _Reader | None = None
    """Reader of a file; None for images, whose text is an alt text."""


def _text_blocks(reading: FileStream) -> Iterator[Block]:
    return text_blocks(reading.text(), markdown=False)


def _markdown_blocks(reading: FileStream) -> Iterator[Block]:
    return text_blocks(reading.text(), markdown=True)


_ROWS = (
    FileFormat("text", (".txt", ".text", ".rst", ".log"), _text_blocks),
    FileFormat("csv", (".csv", ".tsv"), csv_blocks),
    FileFormat("markdown", (".md", ".markdown", ".mdown", ".mkd", ".mdx"), _markdown_blocks),
    FileFormat("html", (".html", ".htm", ".xhtml"), html_blocks),
    FileFormat("records", (".jsonl", ".ndjson"), record_blocks),
    FileFormat("pdf", (".pdf",), isolated_blocks),
    FileFormat("docx", (".docx", ".docm", ".dotx"), isolated_blocks),
    FileFormat("xlsx", (".xlsx", ".xlsm"), isolated_blocks),
    FileFormat("pptx", (".pptx", ".pptm", ".ppsx"), isolated_blocks),
    FileFormat("epub", (".epub",), isolated_blocks),
    FileFormat("eml", (".eml",), isolated_blocks),
    FileFormat("image", (".png", ".jpg", ".jpeg", ".gif", ".webp")),
)

FORMATS: Mapping[str, Format] = {ending: row.name for row in _ROWS for ending in row.endings}
"""Formats by the ending of a name. A named file with another ending is read as text. In folders, files with other
endings are skipped and counted, and images without alt texts too."""

READERS: Mapping[str, _Reader] = {row.name: row.read for row in _ROWS if row.read is not None}
"""Readers by format."""
