"""`file_tools`: read, list, search and write text files below one folder."""

from __future__ import annotations

import fnmatch
import json
import os
from collections.abc import Iterator
from typing import Annotated

from agentkit_prompts.limits import MAX_FILES
from agentkit_tools.errors import ToolError
from agentkit_tools.ready.folder import Entry, Folder, as_text
from agentkit_tools.tool import Tool
from agentkit_tools.toolsets.toolset import Toolset

__all__ = ["file_tools"]

_FILE = "Path of the file from the root folder, such as docs/notes.md."
_FOLDER = 'Path of the folder from the root folder; "." is the root folder.'

_MAX_LINES = 2_000
_MAX_ENTRIES = 1_000
_MAX_HITS = 200
_MAX_LINE = 500
_MAX_PATTERN = 200


def file_tools(
    root: str | os.PathLike[str],
    *,
    write: bool = False,
    hidden: bool = False,
    max_bytes: int = 1_000_000,
    timeout: float = 30.0,
) -> Toolset:
    """Return tools for the text files below `root`: `read_file`, `list_files`, `search_files`, and `write_file` too.

    No path leads out: `..`, absolute and Windows paths are refused, symbolic links are not followed, files with a
    second name (hard links) and special files are not opened, and what is exchanged while a tool runs is not followed
    either. The tools cannot delete, rename, run or change the mode of a file, and there is no limit on how many files
    `write_file` makes. Works on Linux and macOS.

    Args:
        root: The folder; what its own path goes through is trusted.
        write: Whether `write_file` is among the tools.
        hidden: Whether names that begin with "." (`.env`, `.git`) are there for the tools.
        max_bytes: Size of the largest file that is read, searched or written.
        timeout: Seconds a call may take.

    Raises:
        ToolDefinitionError: `root` is not a folder, or the operating system cannot do this safely.
    """
    folder = Folder(root, hidden=hidden, max_bytes=max_bytes)
    tools = [_reader(folder), _lister(folder), _searcher(folder)]
    if write:
        tools.append(_writer(folder))
    return Toolset(tools).governed(timeout=timeout)


def _reader(folder: Folder) -> Tool:
    def read_file(
        path: Annotated[str, _FILE],
        first_line: Annotated[int, "Number of the line to begin with, counted from 1."] = 1,
        lines: Annotated[int, "How many lines."] = _MAX_LINES,
    ) -> str:
        if first_line < 1 or lines < 1:
            raise ToolError("first_line and lines are 1 or more")
        text = as_text(folder.read(path))
        if text is None:
            raise ToolError(f"{path} is not UTF-8 text, and cannot be shown")
        found = text.splitlines(keepends=True)
        end = first_line - 1 + min(lines, _MAX_LINES)
        shown = "".join(found[first_line - 1 : end])
        if first_line == 1 and end >= len(found):
            return shown
        if first_line > len(found):
            raise ToolError(f"{path} has {len(found)} lines")
        note = f"[lines {first_line} to {min(end, len(found))} of {len(found)}]"
        if not shown.endswith("\n"):
            shown += "\n"
        return shown + note

    about = "Read a text file, at most 2,000 lines at once. Cannot read binary files, links, or what is outside."
    return Tool.from_function(read_file, description=about)


def _lister(folder: Folder) -> Tool:
    def list_files(
        path: Annotated[str, _FOLDER] = ".",
        pattern: Annotated[str, "Only names that match, such as *.md; * stands for any characters, ? for one."] = "*",
        recursive: Annotated[bool, "Whether to list the folders inside too."] = False,
    ) -> str:
        _check(pattern)
        listed: list[str] = []
        for seen, entry in enumerate(folder.entries(path, deep=recursive)):
            # Entries that do not match take time as well.
            if len(listed) == _MAX_ENTRIES or seen == MAX_FILES:
                listed.append(f"[there is more: only the first {len(listed):,} are listed, name a folder inside]")
                break
            if fnmatch.fnmatchcase(entry.path.rpartition("/")[2], pattern):
                listed.append(_line(entry))
        return "\n".join(listed) or "nothing"

    about = 'List a folder: its files with their sizes, its folders with a "/". Cannot look inside of links.'
    return Tool.from_function(list_files, description=about)


def _searcher(folder: Folder) -> Tool:
    def search_files(
        text: Annotated[str, "What to look for, literally, in one line."],
        path: Annotated[str, _FOLDER] = ".",
        pattern: Annotated[str, "Only files whose name matches, such as *.py."] = "*",
        match_case: Annotated[bool, "Whether capital and small letters differ."] = False,
    ) -> str:
        _check(pattern)
        if not text or "\n" in text:
            raise ToolError("text is what to look for in one line: not empty, and without line breaks")
        hits: list[str] = []
        unread = 0
        for number, (name, content) in enumerate(folder.texts(path, pattern)):
            if number == MAX_FILES:
                hits.append(f"[only the first {MAX_FILES:,} files were searched: name a folder inside]")
                break
            if content is None:
                unread += 1
                continue
            for line_number, line in _matches(content, text, match_case=match_case):
                hits.append(f"{_name(name)}:{line_number}: {line.strip()[:_MAX_LINE]}")
            if len(hits) > _MAX_HITS:
                # One hit more than the limit shows that the list is incomplete.
                hits[_MAX_HITS:] = [f"[there is more: only the first {_MAX_HITS} lines are shown]"]
                break
        if unread:
            hits.append(f"[{unread} files were not searched: not text, or too large]")
        return "\n".join(hits) or "no line contains it"

    about = "Find the lines that contain a text, in all files below a folder. Cannot search with regular expressions."
    return Tool.from_function(search_files, description=about)


def _writer(folder: Folder) -> Tool:
    def write_file(
        path: Annotated[str, _FILE],
        content: Annotated[str, "The whole new text of the file."],
        overwrite: Annotated[bool, "Whether a file of that name may be replaced."] = False,
    ) -> str:
        data = content.encode()
        folder.write(path, data, overwrite=overwrite)
        return f"wrote {len(data):,} bytes to {path}"

    about = "Write a text file as a whole, making the folders it is in. Cannot append, delete, rename or follow links."
    return Tool.from_function(write_file, description=about, sequential=True)


def _matches(content: str, text: str, *, match_case: bool) -> Iterator[tuple[int, str]]:
    """Yield the lines that contain `text`, with their numbers."""
    compared = content
    if not match_case:
        text, compared = text.casefold(), content.casefold()
    # Most files do not contain the text: this skips them without splitting them into lines.
    if text not in compared:
        return
    for number, line in enumerate(content.splitlines(), 1):
        compared = line
        if not match_case:
            compared = line.casefold()
        if text in compared:
            yield number, line


def _check(pattern: str) -> None:
    if len(pattern) > _MAX_PATTERN:
        raise ToolError(f"a pattern has at most {_MAX_PATTERN} characters")


def _line(entry: Entry) -> str:
    name = _name(entry.path)
    if entry.kind == "file":
        return f"{name} ({entry.size:,} bytes)"
    if entry.kind == "folder":
        return f"{name}/"
    return f"{name} ({entry.kind}, cannot be opened)"


def _name(path: str) -> str:
    """A name that could be taken for another line is quoted."""
    if path.isprintable():
        return path
    return json.dumps(path)
