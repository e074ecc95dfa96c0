"""`ScratchFiles`: files of a task, which agents and their inner agents share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Annotated, Any

from agentkit_prompts.context.messages import ToolCall
from agentkit_prompts.errors import brief
from agentkit_tools.calling.tool_policy import check_counts
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.errors import ToolDefinitionError, ToolError
from agentkit_tools.ready.file_tools import Files
from agentkit_tools.ready.folder import Folder, as_text
from agentkit_tools.ready.memory_folder import MemoryFolder
from agentkit_tools.tool import Tool
from agentkit_tools.tool_context import ToolContext
from agentkit_tools.toolsets.toolset import ToolLike, Toolset
from agentkit_tools.toolsets.wrapped_tool import Proceed, WrappedTool
from agentkit_tools.toolsets.wrappers import LatestEntries, Length, Start, part_of_text

_FILE = "Path of the file, such as notes/sources.md."
_FOLDER = 'Path of the folder; "." is the root folder.'
_READ = "Read a part of a file of this task."
_LIST = "List the files of this task, with their sizes."
_SEARCH = "Find the lines that contain a text, in the files of this task."
_WRITE = "Write a complete file of this task: notes, or text for another agent. Other agents of the task can read it."
_MAX_OWNERS = 1_000
"""Maximum users whose files are in memory."""


class ScratchFiles(Toolset):
    """Files of a task: `read_file`, `list_files`, `search_files` and `write_file`, in memory or below a folder.

    Pass the same object to an agent and to the agents that are its tools: they share the files. The runs of different
    tenants and users have separate files. With `saving`, a long result of a tool becomes a file.

    Files in memory end with the process, and exist for the 1,000 latest users. A durable run needs a folder, which all
    workers can read.

    Args:
        folder: Folder of the files; it is created. None: the files are in memory.
        max_bytes: Maximum size of a file.

    Raises:
        ToolDefinitionError: `folder` is no folder and cannot be created, or `max_bytes` is below 1.
    """

    __slots__ = ("_lock", "_max_bytes", "_memory", "_root")

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, max_bytes: int = 1_000_000) -> None:
        check_counts("ScratchFiles", max_bytes=(max_bytes, 1))
        self._max_bytes = max_bytes
        self._memory = LatestEntries[tuple[str, str], MemoryFolder](_MAX_OWNERS)
        self._lock = Lock()
        self._root: Path | None = None
        if folder is not None:
            # An empty text, such as an unset variable, would be the working folder.
            if not isinstance(folder, str | os.PathLike) or folder == "":
                raise ToolDefinitionError(f"ScratchFiles: folder: expected a path, got {brief(folder)}")
            self._root = Path(folder)
            self._folder_of("local", "")
        tools: list[Tool] = [
            Tool(self._read_file, name="read_file", description=_READ),
            Tool(self._list_files, name="list_files", description=_LIST),
            Tool(self._search_files, name="search_files", description=_SEARCH),
            Tool(self._write_file, name="write_file", description=_WRITE, sequential=True),
        ]
        super().__init__(tools)

    def text(self, path: str, *, tenant: str = "local", user: str = "") -> str:
        """Return the text of a file, for programs; `tenant` and `user` of the run that wrote the file.

        Raises:
            ToolError: The file is missing, or is not text.
        """
        text = as_text(self._files_of(tenant, user).read(path))
        if text is None:
            raise ToolError(f"{path} is not UTF-8 text, and cannot be shown")
        return text

    def saving(self, tools: Iterable[ToolLike], *, over: int = 8_000, start: int = 1_000) -> Toolset:
        """Return tools whose long results become files: the model receives the name and the start of the file.

        The result of a final tool is returned unchanged, and a result that fits no file, such as a result above the
        maximum size.

        Args:
            tools: The tools, such as agents as tools.
            over: Results of at most this number of characters are returned unchanged.
            start: Number of characters at the start of a long result that the model receives.

        Raises:
            ToolDefinitionError: A number is out of range, or an item is not a tool.
        """
        check_counts("ScratchFiles.saving", over=(over, 1), start=(start, 0))

        async def around(proceed: Proceed, call: ToolCall, context: ToolContext[Any]) -> ToolResult:
            result = await proceed(call, context)
            text = result.whole or result.content
            if not result.ok or not isinstance(text, str) or len(text) <= over:
                return result
            # Equal for each attempt of a call: after a crash, the call writes the same file again.
            path = f"results/{call.name}-{context.idempotency_key[:12]}.txt"
            try:
                await asyncio.to_thread(self._save, context, path, text)
            except ToolError:
                return result
            more = f'read_file(path="{path}", start={start})'
            note = f"[The result has {len(text):,} characters. Read more of it with {more}.]"
            return replace(result, content=f"{text[:start]}\n{note}", whole=None)

        # The result of a final tool is the answer of the run, which must be complete.
        return Toolset([tool if tool.policy.final else WrappedTool(tool, around) for tool in Toolset(tools)])

    def _save(self, context: ToolContext[Any], path: str, text: str) -> None:
        data = text.encode("utf-8", "replace")
        self._files_of(context.tenant, context.user).write(path, data, overwrite=True)

    def _files_of(self, tenant: str, user: str) -> Folder | MemoryFolder:
        if self._root is not None:
            return self._folder_of(tenant, user)
        with self._lock:
            if (tenant, user) not in self._memory:
                self._memory[tenant, user] = MemoryFolder(self._max_bytes)
            return self._memory[tenant, user]

    def _folder_of(self, tenant: str, user: str) -> Folder:
        """Return the folder of a user, which is a hidden folder for all users but the local user."""
        assert self._root is not None
        root = self._root
        if (tenant, user) != ("local", ""):
            # A hash: names of tenants and users can contain any character, and file systems can ignore case.
            root /= f".{blake2b(repr((tenant, user)).encode(), digest_size=16).hexdigest()}"
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            text = f"ScratchFiles: {os.fspath(self._root)!r} cannot be created: {error.strerror or error}"
            raise ToolDefinitionError(text, names=["folder"]) from error
        return Folder(root, max_bytes=self._max_bytes)

    # The tools

    def _read_file(
        self, context: ToolContext, path: Annotated[str, _FILE], start: Start = 0, length: Length = 4_000
    ) -> str:
        return part_of_text(self.text(path, tenant=context.tenant, user=context.user) or " ", start, length)

    def _list_files(
        self,
        context: ToolContext,
        path: Annotated[str, _FOLDER] = ".",
        pattern: Annotated[str, "Only names that match, such as *.md."] = "*",
    ) -> str:
        return Files(self._files_of(context.tenant, context.user)).list_files(path, pattern, recursive=True)

    def _search_files(
        self,
        context: ToolContext,
        text: Annotated[str, "Text to find in a line, not a regular expression."],
        path: Annotated[str, _FOLDER] = ".",
        pattern: Annotated[str, "Only files whose name matches, such as *.md."] = "*",
    ) -> str:
        return Files(self._files_of(context.tenant, context.user)).search_files(text, path, pattern)

    def _write_file(
        self,
        context: ToolContext,
        path: Annotated[str, _FILE],
        content: Annotated[str, "The complete new text of the file."],
        overwrite: Annotated[bool, "True to replace an existing file."] = False,
    ) -> str:
        return Files(self._files_of(context.tenant, context.user)).write_file(path, content, overwrite)
