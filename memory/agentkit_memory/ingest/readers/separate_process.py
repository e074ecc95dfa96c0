"""Reader of formats that a separate process parses, with limited memory and time: PDF, Office files, EPUB, e-mail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Timer
from typing import IO, cast

import agentkit_memory
import agentkit_prompts
from agentkit_memory.errors import IngestError
from agentkit_memory.ingest.readers.file_stream import FileStream
from agentkit_memory.ingest.readers.html import blocks_of_page
from agentkit_memory.ingest.readers.section_start import SectionStart
from agentkit_memory.ingest.readers.text_and_markdown import text_blocks
from agentkit_prompts.pages.page_blocks import MAX_TITLE, Block, BlockKind

MAX_PAGE_SECONDS = 60.0
"""Maximum seconds between two rows of the process: of one page or part."""
MAX_FILE_SECONDS, SECONDS_PER_MB = 120.0, 60.0
"""Maximum seconds of the whole file: a base, plus an amount per megabyte of the file."""
MAX_FILE_TEXT, CHARS_PER_BYTE = 2_000_000, 32
"""Maximum characters of all pages: a base, plus an amount per byte. Pages can share content, so a small file can have
any amount of text; normally text is about five times its compressed size."""

_PROGRAM = """if True:
    import sys
    sys.path += sys.argv[2:]
    from agentkit_memory.ingest.isolated.one_file import main
    main(sys.argv[1])
"""
_WORKER = ("-c", _PROGRAM)
"""Arguments of Python that start the reader, before the format and the folders of the packages."""
_FOLDERS = tuple(str(Path(package.__path__[0]).parent) for package in (agentkit_memory, agentkit_prompts))
"""Folders that the reader imports from if the packages are not installed."""


def isolated_blocks(reading: FileStream) -> Iterator[Block | SectionStart]:
    """Yield a section for each page, slide, sheet, chapter or message of a file, followed by its blocks.

    Corrupt parts are reported as problems of the file, and parts without text as gaps.

    Raises:
        IngestError: The file is encrypted, corrupt as a whole, has too much text for its size, or takes too long.
    """
    # This pass computes the hash. The separate process reads the file itself, in any order.
    for _ in reading.pieces():
        pass
    reading.stream.seek(0)
    yield from _Rows(reading).blocks()
    # The process shares the file position; all bytes are hashed already.
    reading.stream.seek(0, os.SEEK_END)


class _Rows:
    """Reads the rows of the process into blocks; `isolated.written_rows` describes the rows."""

    def __init__(self, reading: FileStream) -> None:
        self._reading = reading
        self._title = ""
        self._html: list[str] = []

    def blocks(self) -> Iterator[Block | SectionStart]:
        for row in _worker_rows(self._reading):
            if row[0] == "no":
                raise IngestError(self._reading.file.source, f"{row[1]}")
            if not self._report(row) and not self._reading.refused:
                yield from self._blocks_of(row)

    def _report(self, row: list[object]) -> bool:
        """Report a row without text; return False for the other rows."""
        match row:
            case ["problem", str() as text]:
                self._reading.problem(text)
            case ["gap", str() as name, (int() | str()) as place, str() as why]:
                self._reading.gap(name, place, why)
            case _:
                return False
        return True

    def _blocks_of(self, row: list[object]) -> Iterator[Block | SectionStart]:
        match row:
            case ["title", str() as text]:
                # Some formats have no sections.
                self._title = " ".join(text.split())[:MAX_TITLE]
                yield SectionStart(title=self._title)
            case ["section", dict() as names]:
                yield SectionStart(json.dumps(names), self._title)
            case ["text", str() as text]:
                yield from text_blocks([text], markdown=False)
            case ["html", str() as text]:
                yield from self._page(text)
            case ["block", kind, str() as text, int() as level, str() as head, bool() as continues]:
                title = ""
                if kind == "heading":
                    title = " ".join(text.split())[:MAX_TITLE]
                yield Block(text, cast("BlockKind", kind), level, title, continues, head)

    def _page(self, piece: str) -> Iterator[Block]:
        """Collect the pieces of an HTML page; yield its blocks after the last piece, which is empty."""
        if piece:
            self._html.append(piece)
            return
        pieces, self._html = self._html, []
        yield from blocks_of_page(pieces, self._reading.file.source)


def _worker_rows(reading: FileStream) -> Iterator[list[object]]:
    """Yield the rows that the process writes, and kill the process if it takes too long or writes too much.

    Only the time that this process waits for the other process counts.

    Raises:
        IngestError: The process was killed, or exited without a last row.
    """
    size = os.fstat(reading.stream.fileno()).st_size
    max_seconds, max_text = MAX_FILE_SECONDS + SECONDS_PER_MB * size / 1e6, MAX_FILE_TEXT + CHARS_PER_BYTE * size
    command = [sys.executable, "-P", "-X", "utf8", *_WORKER, reading.file.format, *_FOLDERS]
    page_timed_out = False
    waited, text_chars = 0.0, 0

    def stop() -> None:
        nonlocal page_timed_out
        page_timed_out = True
        process.kill()

    with subprocess.Popen(
        command, stdin=reading.stream, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8"
    ) as process:
        output = cast("IO[str]", process.stdout)
        complete = False
        try:
            while True:
                timer = Timer(min(MAX_PAGE_SECONDS, max_seconds - waited), stop)
                timer.daemon = True
                started = time.monotonic()
                timer.start()
                try:
                    line = output.readline()
                finally:
                    timer.cancel()
                    waited += time.monotonic() - started
                if not line.endswith("\n"):
                    break
                row = json.loads(line)
                text_chars += sum(len(each) for each in row if isinstance(each, str))
                if text_chars > max_text or waited >= max_seconds:
                    break
                complete = complete or row[0] in ("end", "no")
                yield row
        finally:
            process.kill()
    if text_chars > max_text:
        problem = f"has more than {max_text:,} characters of text, too many for its {size:,} bytes: it may be a bomb"
    elif waited >= max_seconds:
        problem = f"takes more than {max_seconds:,.0f} seconds to read, too many for its {size:,} bytes; split it"
    elif page_timed_out:
        problem = (
            f"has a page or part that takes more than {MAX_PAGE_SECONDS:g} seconds to read; split it, or save it again"
        )
    elif not complete:
        problem = f"crashed its reader (exit code {process.returncode}); it is corrupt"
    else:
        return
    raise IngestError(reading.file.source, problem)
