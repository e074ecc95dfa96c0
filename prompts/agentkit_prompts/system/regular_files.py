"""Files that end: a pipe or a device could keep a reader waiting, or give it bytes, for ever."""

from __future__ import annotations

import os
import stat
from io import BufferedReader
from pathlib import Path

__all__ = ["check_regular", "is_folder", "open_inside", "open_regular", "read_regular", "read_regular_text"]

_MAX_BYTES = 1 << 30
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0)
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOCTTY", 0)


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a file for reading.

    Raises:
        OSError: It cannot be opened, is no regular file, or no file can have its name.
    """
    try:
        # With these flags it does not wait for the other end of a pipe.
        file = os.open(path, _FLAGS)
    except ValueError as error:
        raise OSError(f"no file can have this name: {error}") from None
    return _regular(file)


def open_inside(path: str | os.PathLike[str], folder: Path) -> BufferedReader:
    """Open a file for reading that lies in a folder once all links are followed, whatever is exchanged meanwhile.

    Links are resolved first, and none is followed when the file is opened: one folder after the other, from `folder`
    on, which has no link in its own path.

    Raises:
        OSError: As `open_regular`; or it does not lie in the folder.
    """
    try:
        real = Path(os.path.realpath(path))
    except ValueError as error:
        raise OSError(f"no file can have this name: {error}") from None
    if not real.is_relative_to(folder):
        raise OSError("it does not lie in the folder")
    # Such as Windows, where paths below an open folder do not exist.
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


def read_regular(path: str | os.PathLike[str], limit: int = _MAX_BYTES, *, folder: Path | None = None) -> bytes:
    """Return the bytes of a file, which has to lie in the folder if there is one, as for `open_inside`.

    Raises:
        OSError: It cannot be read, is no regular file, or has more than `limit` bytes.
    """
    with open_regular(path) if folder is None else open_inside(path, folder) as file:
        data = file.read(limit + 1) if os.fstat(file.fileno()).st_size <= limit else None
    if data is None or len(data) > limit:
        raise OSError(f"it has more than the {limit:,} bytes that are read")
    return data


def read_regular_text(path: str | os.PathLike[str], limit: int = _MAX_BYTES, *, folder: Path | None = None) -> str:
    """Return the text of a file in UTF-8, without a mark at its beginning, its lines ended by a newline.

    Raises:
        OSError: As `read_regular`.
        UnicodeDecodeError: It is not UTF-8 text.
    """
    text = read_regular(path, limit, folder=folder).decode("utf-8-sig")
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
