"""Stored conversations by name, and JSON lines of exports."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from agentkit.cli.options import memory_with
from agentkit.cli.screen import fail, note, plain, put, put_json
from agentkit_memory import Memory
from agentkit_memory.conversations.stored_session import StoredSession
from agentkit_memory.store.records import SessionInfo
from agentkit_prompts.system.flushed_files import whole_file

PAGE = 200
"""Number of conversations per query."""
_MAX_NAMES = 5
"""Maximum number of names in a note."""


def first_of(names: Sequence[str]) -> str:
    """Return the first names of a list, followed by dots if names were left out."""
    printed = [plain(name) for name in names[:_MAX_NAMES]]
    if len(names) > _MAX_NAMES:
        printed.append("...")
    return ", ".join(printed)


def write_lines(lines: Iterator[dict[str, Any]], output: Path | None, as_json: bool) -> None:
    """Write JSON lines to stdout, or to a file that is complete or not written."""
    if output is None:
        for line in lines:
            put(json.dumps(line, ensure_ascii=True, default=str))
        return
    count = 0
    with whole_file(output) as draft, draft.open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
            count += 1
    if as_json:
        put_json({"lines": count, "file": str(output)})
    else:
        note(f"{count} lines written to {output}")


def all_sessions(memory: Memory) -> list[SessionInfo]:
    """Return the conversations that `memory_with` finds, by name."""
    infos = {info.name: info for separate in (True, False) for info in _pages(memory, separate=separate)}
    return [infos[name] for name in sorted(infos)]


def _pages(memory: Memory, *, separate: bool) -> Iterator[SessionInfo]:
    # Only requests without a user have separate conversations.
    if separate and memory.scope.user:
        return
    after = ""
    while page := memory.sessions(after=after, limit=PAGE, separate=separate):
        yield from page
        after = page[-1].name


def existing_session(memory: Memory, name: str) -> StoredSession:
    """Return the conversation with a name; exit with an error if it is not stored."""
    memory = memory_with(memory, name)
    if not memory.sessions(name=name):
        fail(
            f"unknown conversation {name!r}: `agentkit sessions list` lists the conversations; add --agent FILE for "
            "the conversations of `agentkit chat --agent FILE`"
        )
    return memory.session(name)
