"""Files that end: a pipe or a device could keep a reader waiting, or give it bytes, for ever."""

from __future__ import annotations

import os
import stat
from io import BufferedReader
from pathlib import Path

__all__ = ["check_regular", "is_folder", "open_regular", "read_regular", "read_regular_text"]

_MAX_BYTES = 1 << 30
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOCTTY", 0)


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a file for reading.

    Raises:
        OSError: It cannot be opened, is no regular file, or no file can have its name.
    """
    try:
        file = os.open(path, _FLAGS)  # which does not wait for the other end of a pipe
    except ValueError as error:
        raise OSError(f"no file can have this name: {error}") from None
    try:
        check_regular(file)
        return os.fdopen(file, "rb")
    except BaseException:
        os.close(file)
        raise


def check_regular(file: int) -> None:
    """Refuse an open file, by its number, that is no regular one.

    Raises:
        OSError: It is a folder, a pipe, a device or a socket.
    """
    if not stat.S_ISREG(os.fstat(file).st_mode):
        raise OSError("it is not a regular file")


def is_folder(path: Path) -> bool:
    """Return whether there is a folder of this name; a name that no file can have is that of none."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def read_regular(path: str | os.PathLike[str], limit: int = _MAX_BYTES) -> bytes:
    """Return the bytes of a file.

    Raises:
        OSError: It cannot be read, is no regular file, or has more than `limit` bytes.
    """
    with open_regular(path) as file:
        data = file.read(limit + 1) if os.fstat(file.fileno()).st_size <= limit else None
    if data is None or len(data) > limit:
        raise OSError(f"it has more than the {limit:,} bytes that are read")
    return data


def read_regular_text(path: str | os.PathLike[str], limit: int = _MAX_BYTES) -> str:
    """Return the text of a file in UTF-8, without a mark at its beginning, its lines ended by a newline.

    Raises:
        OSError: As `read_regular`.
        UnicodeDecodeError: It is not UTF-8 text.
    """
    text = read_regular(path, limit).decode("utf-8-sig")
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
