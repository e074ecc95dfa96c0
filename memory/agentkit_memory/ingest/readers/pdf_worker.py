"""Reads one PDF from stdin and writes its pages to stdout, one JSON array a line. Runs as a separate process.

A hostile PDF can take any time or memory, or crash the process that reads it, which must not be the caller's process.
"""

from __future__ import annotations

import json
import re
import sys
from typing import BinaryIO

__all__ = ["main"]

_MAX_MEMORY = 1 << 30
"""Maximum bytes of address space."""
_PIECE = 65536
"""Maximum characters of a text in one line."""
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def main() -> None:
    """Write ["title", TEXT], then ["page", NUMBER, TEXT] for pieces of pages or ["bad", NUMBER, WHY], then ["end"].

    If the file cannot be read at all, write ["no", WHY].
    """
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # The system does not support such limits.
    except (ImportError, OSError, ValueError):
        pass
    try:
        _read(sys.stdin.buffer)
    except MemoryError:
        _write("no", "takes too much memory to read: it may be a zip bomb")
    except Exception as error:
        _write("no", f"is corrupt, or not a PDF ({_described(error)})")


def _read(stream: BinaryIO) -> None:
    try:
        import pypdf
        from pypdf.errors import DependencyError
    except ImportError:
        _write("no", "needs pypdf: install the extra `ingest`")
        return
    reader = pypdf.PdfReader(stream)
    try:
        if reader.is_encrypted and not reader.decrypt(""):
            _write("no", "is encrypted; decrypt it first")
            return
    except DependencyError as error:
        _write("no", f"is encrypted in a way that needs another library ({_described(error)})")
        return
    count = len(reader.pages)
    # The other process reads whole lines into memory, so that a long title is cut.
    _write("title", _clean(str((reader.metadata and reader.metadata.title) or "")[:_PIECE]))
    for number in range(1, count + 1):
        try:
            text = _clean(reader.pages[number - 1].extract_text())
        except MemoryError:
            _write("bad", number, "takes too much memory: it may be a zip bomb")
            continue
        except Exception as error:
            _write("bad", number, _described(error))
            continue
        for start in range(0, len(text) or 1, _PIECE):
            _write("page", number, text[start : start + _PIECE])
    _write("end")


def _clean(text: str) -> str:
    return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def _described(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def _write(*row: object) -> None:
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
