"""Reader of PDF, page by page, in a separate process with limited memory and time."""

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

from agentkit_memory.errors import IngestError
from agentkit_memory.ingest.readers.blocks import MAX_TITLE, Block, SectionStart
from agentkit_memory.ingest.readers.file_stream import FileStream
from agentkit_memory.ingest.readers.text_and_markdown import text_blocks

__all__ = ["pdf_blocks"]

MAX_PAGE_SECONDS = 60.0
"""Maximum seconds of one page."""
MAX_FILE_SECONDS, SECONDS_PER_MB = 120.0, 60.0
"""Maximum seconds of all pages: a base, plus an amount per megabyte of the file."""
MAX_FILE_TEXT, CHARS_PER_BYTE = 2_000_000, 32
"""Maximum characters of all pages: a base, plus an amount per byte. Pages can share content, so a small file can have
any amount of text; normally text is about five times its compressed size."""

_WORKER = Path(__file__).with_name("pdf_worker.py")


def pdf_blocks(reading: FileStream) -> Iterator[Block | SectionStart]:
    """Yield a section for each page, followed by its blocks. Unreadable pages are reported as problems of the file.

    Raises:
        IngestError: The file is encrypted, corrupt as a whole, has no text or too much for its size, or takes too long.
    """
    # This pass computes the hash. The separate process reads the file itself, in any order.
    for _ in reading.pieces():
        pass
    reading.stream.seek(0)
    title, page, empty = "", 0, True
    for row in _worker_messages(reading):
        match row:
            case ["no", why]:
                raise IngestError(reading.file.source, f"{why}")
            case ["title", str() as text]:
                title = " ".join(text.split())[:MAX_TITLE]
            case ["bad", int() as number, why]:
                reading.problem(f"page {number} cannot be read ({why})")
            case ["page", int() as number, str() as text] if not reading.refused:
                if number != page:
                    page = number
                    yield SectionStart(json.dumps({"page": page}), title)
                empty = empty and not text.strip()
                yield from text_blocks([text], markdown=False)
    if empty and not reading.refused:
        raise IngestError(reading.file.source, "contains no text, perhaps only images; convert it with OCR first")
    # The process shares the file position; all bytes are hashed already.
    reading.stream.seek(0, os.SEEK_END)


def _worker_messages(reading: FileStream) -> Iterator[list[object]]:
    """Yield the rows that the process writes, and kill the process if it takes too long or writes too much.

    Only the time that this process waits for the other process counts.

    Raises:
        IngestError: The process was killed, or exited without a last row.
    """
    size = os.fstat(reading.stream.fileno()).st_size
    max_seconds, max_text = MAX_FILE_SECONDS + SECONDS_PER_MB * size / 1e6, MAX_FILE_TEXT + CHARS_PER_BYTE * size
    command = [sys.executable, "-P", "-X", "utf8", str(_WORKER)]
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
                if row[0] == "page":
                    text_chars += len(row[-1])
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
        problem = f"has a page that takes more than {MAX_PAGE_SECONDS:g} seconds to read"
    elif not complete:
        problem = f"crashed its reader (exit code {process.returncode}); it is corrupt"
    else:
        return
    raise IngestError(reading.file.source, problem)
