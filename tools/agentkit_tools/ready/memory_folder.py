"""`MemoryFolder`: files in memory, with the methods of `Folder`."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock

from agentkit_tools.errors import ToolError
from agentkit_tools.ready.folder import MAX_DEPTH, Entry, as_text, path_steps

_MAX_FILES = 1_000
_MAX_TOTAL = 50
"""Maximum bytes of all files together, as a multiple of the maximum of one file."""


class MemoryFolder:
    """Files in memory: at most 1,000 files of at most `max_bytes` each, and of 50 times `max_bytes` together."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._files: dict[str, bytes] = {}
        self._lock = Lock()

    def read(self, path: str) -> bytes:
        """Return the bytes of a file.

        Raises:
            ToolError: No file has the path.
        """
        data = self._files.get("/".join(path_steps(path, "a file")))
        if data is None:
            raise ToolError(f"{path}: no such file")
        return data

    def write(self, path: str, data: bytes, *, overwrite: bool = False) -> None:
        """Write a complete file.

        Raises:
            ToolError: The file exists and `overwrite` is false, the path contains the path of another file or too many
                folders, or the files would be too large or too many.
        """
        if len(data) > self.max_bytes:
            raise ToolError(f"the content has {len(data):,} bytes, at most {self.max_bytes:,} are written")
        steps = path_steps(path, "a file")
        if len(steps) > MAX_DEPTH + 1:
            raise ToolError(f"{path[:100]!r} is in {len(steps) - 1:,} folders, at most {MAX_DEPTH} are possible")
        name = "/".join(steps)
        with self._lock:
            if name in self._files and not overwrite:
                raise ToolError(f"{path} exists: set overwrite, or choose another name")
            outer = {"/".join(steps[:count]) for count in range(1, len(steps))}
            if any(other in outer or other.startswith(f"{name}/") for other in self._files):
                raise ToolError(f"{path}: a part of the path is a file, or the path is a folder")
            total = sum(map(len, self._files.values())) - len(self._files.get(name, b"")) + len(data)
            if total > self.max_bytes * _MAX_TOTAL or (name not in self._files and len(self._files) >= _MAX_FILES):
                raise ToolError(
                    f"at most {_MAX_FILES:,} files with {self.max_bytes * _MAX_TOTAL:,} bytes together are stored: "
                    "overwrite a file"
                )
            self._files[name] = data

    def entries(self, path: str, *, deep: bool = False) -> Iterator[Entry]:
        """Yield the entries of a folder, sorted by name; with `deep` also the entries of inner folders.

        Raises:
            ToolError: No folder has the path.
        """
        steps = path_steps(path, "a folder")
        prefix = "".join([f"{step}/" for step in steps])
        files = {name: len(data) for name, data in list(self._files.items()) if name.startswith(prefix)}
        if steps and not files:
            raise ToolError(f"{path}: no such folder")
        entries: dict[str, Entry] = {}
        for name, size in files.items():
            inner = name[len(prefix) :].split("/")
            for count in range(1, len(inner)):
                folder = prefix + "/".join(inner[:count])
                entries[folder] = Entry(folder, "folder", 0)
            entries[name] = Entry(name, "file", size)
        for name in sorted(entries):
            if deep or "/" not in name[len(prefix) :]:
                yield entries[name]

    def texts(self, path: str, pattern: str) -> Iterator[tuple[str, str | None]]:
        """Yield the paths and texts of the files below a folder whose names match `pattern`.

        Raises:
            ToolError: No folder has the path.
        """
        for entry in self.entries(path, deep=True):
            if entry.kind == "file" and entry.matches(pattern):
                yield entry.path, as_text(self.read(entry.path))
