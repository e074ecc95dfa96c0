"""`Folder`: files below one folder, opened so that no name and no link leads out of it.

Every step of a path is opened by its name relative to the folder before it, and never through a link: what is swapped
for a link between a check and its use is not followed either.
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

__all__ = ["Entry", "Folder", "as_text"]

_MAX_DEPTH = 32
"""Folders inside folders that are walked."""
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FILE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_NOT_RELATIVE = re.compile(r"/|.:|[^\\]*\\", re.DOTALL)
"""The beginning of an absolute path, or a path of Windows."""
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
_NEEDED = {os.open, os.stat, os.mkdir, os.unlink, os.rename}


class Entry(NamedTuple):
    """Something in a folder."""

    path: str
    """From the root, with `/` between the steps."""
    kind: str
    """`file`, `folder`, or what else it is: `link`, `special`."""
    size: int
    """Bytes of a file."""

    def matches(self, pattern: str) -> bool:
        """True if the name matches a pattern of the shell."""
        return fnmatch.fnmatchcase(self.path.rpartition("/")[2], pattern)


class Folder:
    """The regular files below `root`, of at most `max_bytes` each.

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
            ToolError: The path leads out, or to no regular file, or to one that is too large.
        """
        *folders, name = self._steps(path, "a file")
        with self._explained(path), self._inside(folders) as parent:
            # Check before opening: opening a device can have an effect.
            self._check(path, os.stat(name, dir_fd=parent, follow_symlinks=False))
            with os.fdopen(os.open(name, os.O_RDONLY | _FILE, dir_fd=parent), "rb") as file:
                # Check the opened file: the name may have been exchanged since.
                self._check(path, os.fstat(file.fileno()))
                data = file.read(self.max_bytes + 1)
        if len(data) > self.max_bytes:
            raise ToolError(f"{path} has more than {self.max_bytes:,} bytes: too large to be read")
        return data

    def write(self, path: str, data: bytes, *, overwrite: bool = False) -> None:
        """Write a file as a whole, making the folders it is in. A file that is replaced is exchanged at once.

        Raises:
            ToolError: As for `read`, or there is something of that name and `overwrite` is false.
        """
        if len(data) > self.max_bytes:
            raise ToolError(f"the content has {len(data):,} bytes, at most {self.max_bytes:,} are written")
        *folders, name = self._steps(path, "a file")
        with self._explained(path), self._inside(folders, make=True) as parent:
            try:
                found = os.stat(name, dir_fd=parent, follow_symlinks=False)
            except FileNotFoundError:
                _write(name, data, parent)
                return
            if not overwrite:
                raise ToolError(f"{path} exists: set overwrite, or choose another name")
            self._check(path, found)
            # A new file that replaces the old one in one step: a reader never sees half of it.
            beside = f".{secrets.token_hex(8)}.part"
            _write(beside, data, parent, mode=found.st_mode & 0o777)
            os.rename(beside, name, src_dir_fd=parent, dst_dir_fd=parent)

    def entries(self, path: str, *, deep: bool = False) -> Iterator[Entry]:
        """Yield what is in a folder, sorted by name; with `deep` also what is in the folders inside, 32 levels down.

        Raises:
            ToolError: The path leads out, or to no folder.
        """
        steps = self._steps(path, "a folder")
        with self._explained(path), self._inside(steps) as folder:
            yield from self._listed(folder, "".join(f"{step}/" for step in steps), _MAX_DEPTH if deep else 0)

    def texts(self, path: str, pattern: str) -> Iterator[tuple[str, str | None]]:
        """Yield path and text of every file below a folder whose name matches; None where it is not text, or too large.

        Raises:
            ToolError: The path leads out, or to no folder.
        """
        for entry in self.entries(path, deep=True):
            if entry.kind == "file" and entry.matches(pattern):
                try:
                    yield entry.path, as_text(self.read(entry.path))
                except ToolError:
                    yield entry.path, None

    def _steps(self, path: str, what: str) -> list[str]:
        """Return the names a path goes through.

        Whatever a platform could read as another place is refused by what it looks like, before anything is opened.
        """
        steps = [step for step in path.split("/") if step not in ("", ".")]
        is_folder = not steps or path.endswith(("/", "/."))
        problems = {
            f"it is longer than {MAX_PATH_CHARS} characters": len(path) > MAX_PATH_CHARS,
            "give it relative to the folder, with / between the names": _NOT_RELATIVE.match(path),
            "it has control characters": not path.isprintable(),
            "'..' leads out of the folder": ".." in steps,
            "names that begin with '.' are hidden": not self.hidden and any(step.startswith(".") for step in steps),
            "it names a folder": what == "a file" and is_folder,
        }
        for problem, is_present in problems.items():
            if is_present:
                raise ToolError(f"{path[:100]!r} is not {what} of this folder: {problem}")
        return steps

    @contextmanager
    def _inside(self, folders: list[str], *, make: bool = False) -> Iterator[int]:
        """Open the folder that is reached by these names, one after the other."""
        at = os.open(self.root, _FOLDER)
        try:
            for name in folders:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=at)
                # Each step is opened relative to the folder before it, so that no link is followed.
                deeper = os.open(name, _FOLDER, dir_fd=at)
                os.close(at)
                at = deeper
            yield at
        finally:
            os.close(at)

    def _check(self, path: str, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode):
            raise ToolError(f"{path} is not a file but a {_kind(found)}")
        if found.st_nlink > 1:
            raise ToolError(f"{path} has a second name (a hard link), maybe outside of this folder: it is not used")

    def _listed(self, folder: int, prefix: str, levels: int) -> Iterator[Entry]:
        with os.scandir(folder) as items:
            names = sorted(item.name for item in items if self.hidden or not item.name.startswith("."))
        for name in names:
            # It was removed meanwhile, or cannot be opened.
            with suppress(OSError):
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                kind = _kind(found)
                yield Entry(prefix + name, kind, found.st_size if kind == "file" else 0)
                if kind == "folder" and levels:
                    inside = os.open(name, _FOLDER, dir_fd=folder)
                    try:
                        yield from self._listed(inside, f"{prefix}{name}/", levels - 1)
                    finally:
                        os.close(inside)

    @contextmanager
    def _explained(self, path: str) -> Iterator[None]:
        """Turn an error of the system into one about the path that was asked for: no other path leaves the tool."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or type(error).__name__
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                reason = "links are not followed, and files are no folders"
            raise ToolError(f"{path}: {reason}") from error


def as_text(data: bytes) -> str | None:
    """Return the text of a file, or None where it is not text: not UTF-8, or with a NUL."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    if "\0" in text:
        return None
    return text


def _kind(found: os.stat_result) -> str:
    return _KINDS.get(stat.S_IFMT(found.st_mode), "special")


def _write(name: str, data: bytes, parent: int, *, mode: int | None = None) -> None:
    """Write a file that must not exist yet; leave nothing behind when that fails."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE
    file = os.open(name, flags, 0o666 if mode is None else mode, dir_fd=parent)
    try:
        with os.fdopen(file, "wb") as out:
            if mode is not None:
                os.fchmod(file, mode)
            out.write(data)
    except BaseException:
        os.unlink(name, dir_fd=parent)
        raise
