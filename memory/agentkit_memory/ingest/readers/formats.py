"""The reader of each format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from agentkit_memory.ingest.find_files import Format
from agentkit_memory.ingest.readers.blocks import Block, Part, text_blocks
from agentkit_memory.ingest.readers.file_stream import FileStream
from agentkit_memory.ingest.readers.html import html_blocks
from agentkit_memory.ingest.readers.json_lines import record_blocks
from agentkit_memory.ingest.readers.pdf import pdf_blocks

__all__ = ["READERS", "Reader"]

Reader: TypeAlias = Callable[[FileStream], Iterator[Block | Part]]

READERS: Mapping[Format, Reader] = {
    "text": lambda reading: text_blocks(reading.text(), markdown=False),
    "markdown": lambda reading: text_blocks(reading.text(), markdown=True),
    "html": html_blocks,
    "pdf": pdf_blocks,
    "records": record_blocks,
}
"""A new format is a row here, and its endings in `find_files.FORMATS`."""
