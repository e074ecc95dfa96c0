"""Reader of HTML files: the blocks of a page as a person sees it."""

from __future__ import annotations

from collections.abc import Iterator

from agentkit_memory.errors import IngestError
from agentkit_memory.ingest.readers.file_stream import PIECE, FileStream
from agentkit_prompts.pages.encodings import declared_encoding
from agentkit_prompts.pages.page_blocks import Block
from agentkit_prompts.pages.page_reader import LongTagError, page_blocks

__all__ = ["html_blocks"]


def html_blocks(reading: FileStream) -> Iterator[Block]:
    """Yield the blocks of a page.

    Raises:
        IngestError: lxml is not installed, or a tag or comment is too long.
    """
    head = reading.stream.read(PIECE)
    reading.stream.seek(0)
    try:
        yield from page_blocks(reading.text(declared_encoding(head)))
    except ImportError as error:
        raise IngestError(reading.file.source, "HTML needs lxml: install the extra `ingest`") from error
    except LongTagError as error:
        raise IngestError(reading.file.source, str(error), name="tag", value=error.position) from error
