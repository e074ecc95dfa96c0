"""PDF to blocks, page by page. What reads it is a process of its own, limited in memory and time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Timer

from agentkit_memory.errors import IngestError
from agentkit_memory.ingest.readers.blocks import MOST_TITLE, Block, Part, text_blocks
from agentkit_memory.ingest.readers.file_stream import Reading

__all__ = ["pdf_blocks"]

MOST_SECONDS = 60.0
"""Time that one page may take."""
FILE_SECONDS, MB_SECONDS = 120.0, 60.0
"""Time that all pages may take: some, and more for every megabyte of the file."""
FILE_TEXT, BYTE_TEXT = 2_000_000, 32
"""Characters that all pages may have: some, and more for every byte. Pages can share what they show, so that a small
file has as much text as it likes; text that is compressed once is some five times as long."""

_WORKER = Path(__file__).with_name("pdf_worker.py")


def pdf_blocks(reading: Reading) -> Iterator[Block | Part]:
    """Yield every page as a part. Those that cannot be read are noted as problems of the file.

    Raises:
        IngestError: The file is encrypted, damaged as a whole, has no text, or more of it than its size explains; or
            takes too long.
    """
    for _ in reading.pieces():  # for the hash; the process reads it for itself, here and there
        pass
    reading.stream.seek(0)
    title, page, empty = "", 0, True
    for row in _rows(reading):
        match row:
            case ["no", why]:
                raise IngestError(reading.file.source, f"{why}")
            case ["title", str() as said]:
                title = " ".join(said.split())[:MOST_TITLE]
            case ["bad", int() as number, why]:
                reading.problem(f"page {number} cannot be read ({why})")
            case ["page", int() as number, str() as text] if not reading.refused:
                if number != page:
                    page = number
                    yield Part(json.dumps({"page": page}), title)
                empty = empty and not text.strip()
                yield from text_blocks([text], markdown=False)
    if empty and not reading.refused:
        raise IngestError(reading.file.source, "holds no text, only images perhaps; make it text with OCR first")
    reading.stream.seek(0, os.SEEK_END)  # the process shares the place, and all was counted


def _rows(reading: Reading) -> Iterator[list[object]]:
    """Yield what the process says, ending it if it says nothing for too long, or too much.

    Time is what is waited for it: storing what it said takes none of that.
    """
    size = os.fstat(reading.stream.fileno()).st_size
    most_seconds, most_text = FILE_SECONDS + MB_SECONDS * size / 1e6, FILE_TEXT + BYTE_TEXT * size
    command = [sys.executable, "-P", "-X", "utf8", str(_WORKER)]
    late = False
    waited, told = 0.0, 0

    def stop() -> None:
        nonlocal late
        late = True
        process.kill()

    with subprocess.Popen(
        command, stdin=reading.stream, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8"
    ) as process:
        assert process.stdout is not None
        complete = False
        try:
            while True:
                timer = Timer(min(MOST_SECONDS, most_seconds - waited), stop)
                timer.daemon = True
                began = time.monotonic()
                timer.start()
                try:
                    line = process.stdout.readline()
                finally:
                    timer.cancel()
                    waited += time.monotonic() - began
                if not line.endswith("\n"):
                    break
                row = json.loads(line)
                told += len(row[-1]) if row[0] == "page" else 0
                if told > most_text or waited >= most_seconds:
                    break
                complete = complete or row[0] in ("end", "no")
                yield row
        finally:
            process.kill()
    if told > most_text:
        raise IngestError(
            reading.file.source,
            f"has more than {most_text:,} characters of text, too many for its {size:,} bytes: it may be a bomb",
        )
    if waited >= most_seconds:
        raise IngestError(
            reading.file.source,
            f"takes more than {most_seconds:,.0f} seconds to read, too many for its {size:,} bytes; split it",
        )
    if late:
        raise IngestError(reading.file.source, f"has a page that takes more than {MOST_SECONDS:g} seconds to read")
    if not complete:
        raise IngestError(reading.file.source, f"made its reader fail (exit code {process.returncode}); it is damaged")
