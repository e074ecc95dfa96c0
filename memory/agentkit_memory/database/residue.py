"""Search of a SQLite file for deleted bytes.

SQLite overwrites deleted rows, but not the copies that it leaves when it moves rows from one page to another. These
copies are between the cells of a page and the list of cells. The search is a separate process that only reads: a
process that closes a file loses all its locks on that file, including the locks of SQLite.
"""

from __future__ import annotations

import mmap
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

_PART = 24
"""Maximum bytes of the start and of the end of a text to search for."""
_MIN_PART = 8
"""Minimum bytes of a part: shorter parts occur in every store, and identify no person."""
_MAX_SECONDS = 60
"""Maximum seconds of a search; after that, deleted bytes may be left."""
_HEADERS = {2: 12, 5: 12, 10: 8, 13: 8}
"""Bytes of the header of a page of a B-tree, by the kind of the page."""


def parts_of(texts: Iterable[str]) -> set[bytes]:
    """Return the starts and the ends of texts, which SQLite overwrites last; texts below 8 bytes are left out."""
    encoded = [text.encode("utf-8", "replace") for text in texts]
    return {part for each in encoded for part in (each[:_PART], each[-_PART:]) if len(part) >= _MIN_PART}


def may_hold(path: Path, parts: set[bytes]) -> bool:
    """Return True if deleted bytes of a file contain one of these parts, or if the search fails."""
    if not parts:
        return False
    command = [sys.executable, "-I", "-S", __file__, str(path)]
    lines = b"\n".join(part.hex().encode() for part in parts)
    try:
        result = subprocess.run(command, input=lines, capture_output=True, timeout=_MAX_SECONDS, check=False)
    except (OSError, ValueError, subprocess.SubprocessError):
        return True
    return result.stdout != b"clean"


def _gaps(data: mmap.mmap) -> Iterator[bytes]:
    """Yield the bytes between the cells of each page and the list of cells, if they are not zeros."""
    (size,) = struct.unpack_from(">H", data, 16)
    # The file format stores the size 65,536 as 1.
    if size == 1:
        size = 65536
    for page in range(0, len(data), size):
        header_at = page
        # The first page starts with the header of the file.
        if page == 0:
            header_at = 100
        kind, _, cells, start = struct.unpack_from(">BHHH", data, header_at)
        if kind in _HEADERS:
            gap = data[header_at + _HEADERS[kind] + 2 * cells : page + (start or 65536)].strip(b"\0")
            if gap:
                yield gap


def _main() -> None:
    parts = [bytes.fromhex(line.decode()) for line in sys.stdin.buffer.read().splitlines()]
    with open(sys.argv[1], "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:  # noqa: PTH123
        gaps = b"\0".join(_gaps(data))
    result = "clean"
    if any(part in gaps for part in parts):
        result = "found"
    sys.stdout.write(result)


if __name__ == "__main__":
    _main()
