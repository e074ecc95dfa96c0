"""`Folder`: safe access to files below one folder, which no name and no link can leave.

Each step of a path is opened by its name relative to the previous folder, without following links, so that a link that
replaces a folder between a check and its use is not followed.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from agentkit_prompts.errors import check_types
from agentkit_prompts.limits import MAX_PATH_CHARS
from agentkit_tools.errors import ToolDefinitionError, ToolError

MAX_DEPTH = 32
"""Maximum levels of folders that are walked."""
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FILE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_NOT_RELATIVE = re.compile(r"/|.:|[^\\]*\\", re.DOTALL)
"""Start of an absolute path or of a Windows path."""
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
_NEEDED = {os.open, os.stat, os.mkdir, os.unlink, os.rename}


class Entry(NamedTuple):
    """Entry of a folder."""

    path: str
    """Path from the root, with `/` between the names."""
    kind: str
    """`file`, `folder`, `link` or `special`."""
    size: int
    """Bytes of a file; 0 for other kinds."""

    def matches(self, pattern: str) -> bool:
        """True if the name matches a pattern of the shell."""
        return fnmatch.fnmatchcase(self.path.rpartition("/")[2], pattern)


class Folder:
    """Regular files below `root`, of at most `max_bytes` each.

    Raises:
        ToolDefinitionError: `root` is not a folder, `max_bytes` is not positive, or the operating system cannot
            open files relative to a folder (Windows).
    """

    def __init__(self, root: str | os.PathLike[str], *, hidden: bool = False, max_bytes: int = 1_000_000) -> None:
        if not os.supports_dir_fd >= _NEEDED or os.scandir not in os.supports_fd:
            raise ToolDefinitionError("file tools need an operating system that opens files relative to a folder")
        check_types(
            ToolDefinitionError,
            "file tools",
            root=(root, (str, os.PathLike), "the path of a folder"),
            hidden=(hidden, bool, "True or False"),
            max_bytes=(max_bytes, int, "a whole number of bytes"),
        )
        if max_bytes < 1:
            raise ToolDefinitionError(f"file tools: max_bytes={max_bytes!r} must be 1 or more", names=["max_bytes"])
        try:
            if root == "":
                raise ValueError("an empty text, such as an unset variable, would be the working folder")
            self.root = Path(root).resolve(strict=True)
            os.close(os.open(self.root, _FOLDER))
        except (OSError, ValueError, RuntimeError) as error:
            text = f"file tools: {os.fspath(root)!r} is not a folder that can be read"
            raise ToolDefinitionError(text, names=["root"]) from error
        self.hidden = hidden
        self.max_bytes = max_bytes

    def read(self, path: str) -> bytes:
        """Return the bytes of a file.

        Raises:
            ToolError: The path leads outside, is not a regular file, or the file is too large.
        """
        *folders, name = self._steps(path, "a file")
        with self._explained(path), self._inside(folders) as parent:
            # Check before opening: opening a device can have an effect.
            self._check(path, os.stat(name, dir_fd=parent, follow_symlinks=False))
            with os.fdopen(os.open(name, os.O_RDONLY | _FILE, dir_fd=parent), "rb") as file:
                # Check the opened file, because another file can have replaced the checked file.
                self._check(path, os.fstat(file.fileno()))
                data = file.read(self.max_bytes + 1)
        if len(data) > self.max_bytes:
            raise ToolError(f"{path} has more than {self.max_bytes:,} bytes: too large to be read")
        return data

    def write(self, path: str, data: bytes, *, overwrite: bool = False) -> None:
        """Write a complete file, and create its folders. An existing file is replaced atomically.

        Raises:
            ToolError: See `read`; or the name exists and `overwrite` is false.
        """
        if len(data) > self.max_bytes:
            raise ToolError(f"the content has {len(data):,} bytes, at most {self.max_bytes:,} are written")
        *folders, name = self._steps(path, "a file")
        with self._explained(path), self._inside(folders, create=True) as parent:
            try:
                status = os.stat(name, dir_fd=parent, follow_symlinks=False)
            except FileNotFoundError:
                _write(name, data, parent)
                return
            if not overwrite:
                raise ToolError(f"{path} exists: set overwrite, or choose another name")
            self._check(path, status)
            # The new file replaces the old file in one step, so that no reader receives a part of it.
            new_name = f".{secrets.token_hex(8)}.part"
            _write(new_name, data, parent, mode=status.st_mode & 0o777)
            try:
                os.rename(new_name, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                os.unlink(new_name, dir_fd=parent)
                raise

    def entries(self, path: str, *, deep: bool = False) -> Iterator[Entry]:
        """Yield the entries of a folder, sorted by name; with `deep` also the entries of inner folders (32 levels).

        Raises:
            ToolError: The path leads outside, or is not a folder.
        """
        steps = self._steps(path, "a folder")
        with self._explained(path), self._inside(steps) as folder:
            yield from self._listed(folder, "".join(f"{step}/" for step in steps), MAX_DEPTH if deep else 0)

    def texts(self, path: str, pattern: str) -> Iterator[tuple[str, str | None]]:
        """Yield the paths and texts of the files below a folder whose names match `pattern`.

        The text is None if a file is too large or is not text.

        Raises:
            ToolError: The path leads outside, or is not a folder.
        """
        for entry in self.entries(path, deep=True):
            if entry.kind == "file" and entry.matches(pattern):
                try:
                    yield entry.path, as_text(self.read(entry.path))
                except ToolError:
                    yield entry.path, None

    def _steps(self, path: str, expected: str) -> list[str]:
        return path_steps(path, expected, hidden=self.hidden)

    @contextmanager
    def _inside(self, folders: list[str], *, create: bool = False) -> Iterator[int]:
        """Open the folder at a path of names, and yield its file descriptor."""
        folder = os.open(self.root, _FOLDER)
        try:
            for name in folders:
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=folder)
                # Each step is opened relative to the previous folder, so that no link is followed.
                inner = os.open(name, _FOLDER, dir_fd=folder)
                os.close(folder)
                folder = inner
            yield folder
        finally:
            os.close(folder)

    def _check(self, path: str, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise ToolError(f"{path} is not a file but a {_kind(status)}")
        if status.st_nlink > 1:
            raise ToolError(
                f"{path} cannot be used: it has a second name (a hard link), possibly outside of this folder"
            )

    def _listed(self, folder: int, prefix: str, levels: int) -> Iterator[Entry]:
        with os.scandir(folder) as items:
            names = sorted(item.name for item in items if self.hidden or not item.name.startswith("."))
        for name in names:
            # Skip an entry that was removed meanwhile or cannot be opened.
            with suppress(OSError):
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                kind = _kind(status)
                yield Entry(prefix + name, kind, status.st_size if kind == "file" else 0)
                if kind == "folder" and levels:
                    inside = os.open(name, _FOLDER, dir_fd=folder)
                    try:
                        yield from self._listed(inside, f"{prefix}{name}/", levels - 1)
                    finally:
                        os.close(inside)

    @contextmanager
    def _explained(self, path: str) -> Iterator[None]:
        """Convert an error of the system to an error about `path`, so that the tool reveals no other path."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or type(error).__name__
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                reason = "links are not followed, and files are no folders"
            raise ToolError(f"{path}: {reason}") from error


def path_steps(path: str, expected: str, *, hidden: bool = False) -> list[str]:
    """Return the names in a path.

    A path that some platform could interpret as another place is refused before any file is opened.

    Args:
        path: The path, relative to a folder.
        expected: `a file` or `a folder`.
        hidden: True to allow names that start with a dot.

    Raises:
        ToolError: The path could lead out of the folder, or is no path of a file.
    """
    steps = [step for step in path.split("/") if step not in ("", ".")]
    is_folder = not steps or path.endswith(("/", "/."))
    problems = {
        f"it is longer than {MAX_PATH_CHARS} characters": len(path) > MAX_PATH_CHARS,
        "it must be relative to the folder, with / between the names": _NOT_RELATIVE.match(path),
        "it has control characters": not path.isprintable(),
        "'..' leads out of the folder": ".." in steps,
        "names that start with '.' are hidden": not hidden and any(step.startswith(".") for step in steps),
        "it names a folder": expected == "a file" and is_folder,
    }
    for problem, is_present in problems.items():
        if is_present:
            raise ToolError(f"{path[:100]!r} is not {expected} of this folder: {problem}")
    return steps


def as_text(data: bytes) -> str | None:
    """Return the text of a file; None if it is not UTF-8 or contains NUL."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    if "\0" in text:
        return None
    return text


def _kind(status: os.stat_result) -> str:
    return _KINDS.get(stat.S_IFMT(status.st_mode), "special")


def _write(name: str, data: bytes, parent: int, *, mode: int | None = None) -> None:
    """Write a new file; remove it after an error. A file with a mode replaces another file: it is flushed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE
    file = os.open(name, flags, 0o666 if mode is None else mode, dir_fd=parent)
    try:
        with os.fdopen(file, "wb") as out:
            if mode is not None:
                os.fchmod(file, mode)
            out.write(data)
            if mode is not None:
                # Without this, a power failure could leave the replaced file empty.
                out.flush()
                os.fsync(file)
    except BaseException:
        os.unlink(name, dir_fd=parent)
        raise
