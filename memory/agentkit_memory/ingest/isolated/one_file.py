"""The program of the separate process: it reads one file from stdin, and writes its rows to stdout.

A hostile file can take any time or memory, or crash the process that reads it, which must not be the caller's process.
"""

from __future__ import annotations

import sys
from importlib import import_module

from agentkit_memory.ingest.isolated.written_rows import Unreadable, described, write

_MAX_MEMORY = 1 << 30
"""Maximum bytes of address space."""

MODULES = {
    "docx": "word_document",
    "eml": "email_message",
    "epub": "epub_book",
    "pdf": "pdf_pages",
    "pptx": "presentation",
    "xlsx": "workbook",
}
"""Modules of this folder by format. Each has a function `read(stream)`, which writes rows."""


def main(content_format: str) -> None:
    """Write the rows of the file, then ["end"]. If the file cannot be read at all, write ["no", WHY]."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # The system does not support such limits.
    except (ImportError, OSError, ValueError):
        pass
    try:
        import_module(f"agentkit_memory.ingest.isolated.{MODULES[content_format]}").read(sys.stdin.buffer)
    except Unreadable as problem:
        write("no", str(problem))
    except MemoryError:
        write("no", "takes too much memory to read: it may be a zip bomb")
    except RecursionError:
        write("no", "has parts that are nested too deeply to read: it may be an attack")
    except Exception as error:
        name = content_format.upper()
        article = "an" if name[0] in "EX" else "a"
        write("no", f"is corrupt, or not {article} {name} ({described(error)})")
    else:
        write("end")
