"""`file_tools`: read, list, search and write text files below one folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

from agentkit_prompts.limits import MAX_ENTRIES, MAX_PATTERN_CHARS
from agentkit_tools.errors import ToolError
from agentkit_tools.ready.folder import Entry, Folder, as_text
from agentkit_tools.tool import Tool
from agentkit_tools.toolsets.toolset import Toolset

if TYPE_CHECKING:
    from agentkit_tools.ready.memory_folder import MemoryFolder

_FILE = "Path of the file from the root folder, such as docs/notes.md."
_FOLDER = 'Path of the folder from the root folder; "." is the root folder.'
_READ = "Read a text file, at most 2,000 lines at once. Cannot read binary files, links, or files outside."
_LIST = 'List a folder: its files with their sizes, its folders with a "/". Cannot follow links.'
_SEARCH = "Find the lines that contain a text, in all files below a folder. Cannot search with regular expressions."
_WRITE = "Write a complete text file, and create its folders. Cannot append, delete, rename or follow links."

_MAX_LINES = 2_000
_MAX_SHOWN = 1_000
_MAX_HITS = 200
_MAX_LINE = 500


def file_tools(
    root: str | os.PathLike[str],
    *,
    write: bool = False,
    hidden: bool = False,
    max_bytes: int = 1_000_000,
    timeout: float = 30.0,
) -> Toolset:
    """Return tools for the text files below `root`: `read_file`, `list_files`, `search_files` and `write_file`.

    No path leads outside of the folder: `..`, absolute paths and Windows paths are refused, symbolic links are not
    followed, also if a folder is replaced by a link during a call, and files with a second name (hard links) and
    special files are not opened. The tools cannot delete, rename or run files or change their mode. The number of files
    that `write_file` creates is not limited. Works on Linux and macOS.

    Args:
        root: Folder of the files. Links in its path are followed.
        write: True to include `write_file`.
        hidden: True to include names that start with "." (`.env`, `.git`).
        max_bytes: Maximum size of a file that is read, searched or written.
        timeout: Maximum seconds of a call.

    Raises:
        ToolDefinitionError: `root` is not a folder, or the operating system does not support safe access to files.
    """
    files = Files(Folder(root, hidden=hidden, max_bytes=max_bytes))
    tools: list[Tool] = [
        Tool(files.read_file, description=_READ),
        Tool(files.list_files, description=_LIST),
        Tool(files.search_files, description=_SEARCH),
    ]
    if write:
        tools.append(Tool(files.write_file, description=_WRITE, sequential=True))
    return Toolset(tools).with_policy(timeout=timeout)


class Files:
    """Functions of the tools, on a folder on disk or in memory."""

    def __init__(self, folder: Folder | MemoryFolder) -> None:
        self._folder = folder

    def read_file(
        self,
        path: Annotated[str, _FILE],
        first_line: Annotated[int, "Number of the first line, counted from 1."] = 1,
        lines: Annotated[int, "Number of lines."] = _MAX_LINES,
    ) -> str:
        if first_line < 1 or lines < 1:
            raise ToolError("first_line and lines must be 1 or more")
        text = as_text(self._folder.read(path))
        if text is None:
            raise ToolError(f"{path} is not UTF-8 text, and cannot be shown")
        all_lines = text.splitlines(keepends=True)
        end = first_line - 1 + min(lines, _MAX_LINES)
        part = "".join(all_lines[first_line - 1 : end])
        if first_line == 1 and end >= len(all_lines):
            return part
        if first_line > len(all_lines):
            raise ToolError(f"{path} has {len(all_lines)} lines")
        note = f"[lines {first_line} to {min(end, len(all_lines))} of {len(all_lines)}]"
        return part.removesuffix("\n") + "\n" + note

    def list_files(
        self,
        path: Annotated[str, _FOLDER] = ".",
        pattern: Annotated[
            str, "Only names that match, such as *.md; * matches any characters, ? one character."
        ] = "*",
        recursive: Annotated[bool, "True to list the folders inside, too."] = False,
    ) -> str:
        _check(pattern)
        listed: list[str] = []
        for count, entry in enumerate(self._folder.entries(path, deep=recursive)):
            # Entries that do not match count too, because they take time.
            if len(listed) == _MAX_SHOWN or count == MAX_ENTRIES:
                listed.append(f"[incomplete: only the first {len(listed):,} are listed; list a folder inside]")
                break
            if entry.matches(pattern):
                listed.append(_line(entry))
        return "\n".join(listed) or "nothing"

    def search_files(
        self,
        text: Annotated[str, "Text to find in a line, not a regular expression."],
        path: Annotated[str, _FOLDER] = ".",
        pattern: Annotated[str, "Only files whose name matches, such as *.py."] = "*",
        match_case: Annotated[bool, "True to distinguish capital and small letters."] = False,
    ) -> str:
        _check(pattern)
        if not text or "\n" in text:
            raise ToolError("text must not be empty or contain line breaks")
        hits: list[str] = []
        unread = 0
        for number, (name, content) in enumerate(self._folder.texts(path, pattern)):
            if number == MAX_ENTRIES:
                hits.append(f"[incomplete: only the first {MAX_ENTRIES:,} files were searched; search a folder inside]")
                break
            if content is None:
                unread += 1
                continue
            # One hit more than the limit shows that the list is incomplete.
            matches = islice(_matches(content, text, match_case=match_case), _MAX_HITS + 1 - len(hits))
            hits += [f"{_name(name)}:{line_number}: {line.strip()[:_MAX_LINE]}" for line_number, line in matches]
            if len(hits) > _MAX_HITS:
                hits[_MAX_HITS:] = [f"[incomplete: only the first {_MAX_HITS} lines are shown]"]
                break
        if not hits:
            hits.append("no line contains the text")
        if unread:
            hits.append(f"[{unread} files were not searched: not text, or too large]")
        return "\n".join(hits)

    def write_file(
        self,
        path: Annotated[str, _FILE],
        content: Annotated[str, "The complete new text of the file."],
        overwrite: Annotated[bool, "True to replace an existing file."] = False,
    ) -> str:
        data = content.encode()
        self._folder.write(path, data, overwrite=overwrite)
        return f"wrote {len(data):,} bytes to {path}"


def _matches(content: str, text: str, *, match_case: bool) -> Iterator[tuple[int, str]]:
    """Yield the lines that contain `text`, with their numbers."""
    fold: Callable[[str], str] = str
    if not match_case:
        fold = str.casefold
    text = fold(text)
    # Most files do not contain the text; this test skips them without splitting them into lines.
    if text in fold(content):
        for number, line in enumerate(content.splitlines(), 1):
            if text in fold(line):
                yield number, line


def _check(pattern: str) -> None:
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ToolError(f"a pattern has at most {MAX_PATTERN_CHARS} characters")


def _line(entry: Entry) -> str:
    name = _name(entry.path)
    if entry.kind == "file":
        return f"{name} ({entry.size:,} bytes)"
    if entry.kind == "folder":
        return f"{name}/"
    return f"{name} ({entry.kind}, cannot be opened)"


def _name(path: str) -> str:
    """Return a path, quoted if it contains a line break or another character that is not printable."""
    if path.isprintable():
        return path
    return json.dumps(path)
