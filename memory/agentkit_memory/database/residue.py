"""Whether a SQLite file still holds deleted bytes: SQLite overwrites what is deleted, but not the copies that it leaves
behind when it moves rows from one page to another. They lie between the cells of a page and the list of these.

A program of its own, which only reads: a process that closes a file loses all its locks on it, SQLite's too.
"""

from __future__ import annotations

import mmap
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["may_hold", "parts_of"]

_PART = 24
"""Bytes of the beginning and of the end of a text that are looked for."""
_MIN_PART = 8
"""Shorter ones are in any store, and name nobody."""
_MAX_SECONDS = 60
_HEADERS = {2: 12, 5: 12, 10: 8, 13: 8}
"""Kinds of the pages of a tree, and the bytes of their headers."""


def parts_of(texts: Iterable[str]) -> set[bytes]:
    """Return the beginnings and the ends of texts, which are what is left of them longest."""
    encoded = [text.encode("utf-8", "replace") for text in texts]
    return {part for each in encoded for part in (each[:_PART], each[-_PART:]) if len(part) >= _MIN_PART}


def may_hold(path: Path, parts: set[bytes]) -> bool:
    """Whether deleted bytes of a file hold one of these parts; true where that cannot be found out."""
    if not parts:
        return False
    command = [sys.executable, "-I", "-S", __file__, str(path)]
    asked = b"\n".join(part.hex().encode() for part in parts)
    try:
        done = subprocess.run(command, input=asked, capture_output=True, timeout=_MAX_SECONDS, check=False)
    except (OSError, ValueError, subprocess.SubprocessError):
        return True
    return done.stdout != b"clean"


def _gaps(data: mmap.mmap) -> Iterator[bytes]:
    """Yield what the pages hold beside their cells, where it is not zeros."""
    (size,) = struct.unpack_from(">H", data, 16)
    size = 65536 if size == 1 else size
    for page in range(0, len(data), size):
        at = page + 100 if page == 0 else page
        kind, _, cells, start = struct.unpack_from(">BHHH", data, at)
        if kind in _HEADERS:
            gap = data[at + _HEADERS[kind] + 2 * cells : page + (start or 65536)].strip(b"\0")
            if gap:
                yield gap


def _main() -> None:
    parts = [bytes.fromhex(line.decode()) for line in sys.stdin.buffer.read().splitlines()]
    with open(sys.argv[1], "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:  # noqa: PTH123
        left = b"\0".join(_gaps(data))
    sys.stdout.write("found" if any(part in left for part in parts) else "clean")


if __name__ == "__main__":
    _main()
