"""Access to regular files only, because reading a pipe or a device might never end."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

_MAX_BYTES = 1 << 30
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0)
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOCTTY", 0)


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a file for reading.

    Raises:
        OSError: The file cannot be opened, is not a regular file, or its name is invalid.
    """
    try:
        # With these flags `open` does not wait for the other end of a pipe.
        file = os.open(path, _FLAGS)
    except ValueError as error:
        raise OSError(f"invalid file name: {error}") from None
    return _regular(file)


def open_inside(path: str | os.PathLike[str], folder: Path) -> BufferedReader:
    """Open a file for reading if its path, after links are resolved, is inside a folder.

    The folders from `folder` to the file are then opened one after the other without following links, so that another
    process cannot replace a folder by a link after the check.

    Raises:
        OSError: As `open_regular`; or the file is outside of the folder.
    """
    try:
        real = Path(os.path.realpath(path))
    except ValueError as error:
        raise OSError(f"invalid file name: {error}") from None
    if not real.is_relative_to(folder):
        raise OSError("it is outside of the folder")
    # Some systems, such as Windows, have no paths relative to an open folder.
    if os.open not in os.supports_dir_fd:
        return open_regular(real)
    at = os.open(folder, _FOLDER)
    try:
        *inner, name = real.relative_to(folder).parts or (".",)
        for step in inner:
            deeper = os.open(step, _FOLDER | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = deeper
        return _regular(os.open(name, _FLAGS | os.O_NOFOLLOW, dir_fd=at))
    finally:
        os.close(at)


def _regular(file: int) -> BufferedReader:
    try:
        check_regular(file)
        return os.fdopen(file, "rb")
    except BaseException:
        os.close(file)
        raise


def check_regular(file: int) -> None:
    """Reject an open file, by file descriptor, that is not a regular file.

    Raises:
        OSError: The file is a folder, a pipe, a device or a socket.
    """
    if not stat.S_ISREG(os.fstat(file).st_mode):
        raise OSError("it is not a regular file")


def is_folder(path: Path) -> bool:
    """True if the path is a folder; False also for an invalid path and for errors."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def read_regular(path: str | os.PathLike[str], limit: int = _MAX_BYTES, *, folder: Path | None = None) -> bytes:
    """Return the bytes of a file, opened with `open_inside` if a folder is passed, else with `open_regular`.

    Raises:
        OSError: The file cannot be read, is not a regular file, or is larger than `limit` bytes.
    """
    with open_regular(path) if folder is None else open_inside(path, folder) as file:
        data = file.read(limit + 1) if os.fstat(file.fileno()).st_size <= limit else None
    if data is None or len(data) > limit:
        raise OSError(f"it has more than the {limit:,} bytes that are read")
    return data


def bounded_lines(file: BufferedReader, limit: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield number and bytes of each line; None instead of a line of more than `limit` bytes without its line feed."""
    number = 0
    while line := file.readline(limit + 1):
        number += 1
        if len(line) <= limit or line.endswith(b"\n"):
            yield number, line
            continue
        while line and not line.endswith(b"\n"):
            line = file.readline(limit)
        yield number, None


def read_regular_text(path: str | os.PathLike[str], limit: int = _MAX_BYTES, *, folder: Path | None = None) -> str:
    """Return the text of a UTF-8 file, without its byte order mark and with line feeds as line ends.

    Raises:
        OSError: As `read_regular`.
        UnicodeDecodeError: The file is not UTF-8 text.
    """
    text = read_regular(path, limit, folder=folder).decode("utf-8-sig")
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
