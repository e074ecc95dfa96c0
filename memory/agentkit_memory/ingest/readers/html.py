"""Reader of HTML files: the blocks of a page as a person sees it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agentkit_memory.errors import IngestError
from agentkit_memory.ingest.readers.file_stream import PIECE, FileStream
from agentkit_prompts.extras import install
from agentkit_prompts.pages.encodings import declared_encoding
from agentkit_prompts.pages.page_blocks import Block
from agentkit_prompts.pages.page_reader import LongTagError, page_blocks


def html_blocks(reading: FileStream) -> Iterator[Block]:
    """Yield the blocks of an HTML file.

    Raises:
        IngestError: See `blocks_of_page`.
    """
    head = reading.stream.read(PIECE)
    reading.stream.seek(0)
    yield from blocks_of_page(reading.text(declared_encoding(head)), reading.file.source)


def blocks_of_page(pieces: Iterable[str], source: str) -> Iterator[Block]:
    """Yield the blocks of a page that is given in pieces.

    Raises:
        IngestError: lxml is not installed, or a tag or comment is too long.
    """
    try:
        yield from page_blocks(pieces)
    except ImportError as error:
        raise IngestError(source, f"HTML needs lxml: {install('ingest')}") from error
    except LongTagError as error:
        raise IngestError(source, str(error), name="tag", value=error.position) from error
