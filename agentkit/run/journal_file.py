"""Keeps a journal while its run goes on, so that it outlives the process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TypeAlias

from agentkit.errors import JournalError
from agentkit.run.journal import Journal

__all__ = ["Keep", "kept"]

_NOTHING = nullcontext()
Keep: TypeAlias = Path | Callable[[str], object]
"""A file, or a function that is given each line of a journal as soon as there is one."""


def kept(journal: Journal, keep: Keep | None, *, goes_on: bool) -> AbstractContextManager[object]:
    """Keep a journal until the end of the block; each line is on disk before the run goes on.

    Args:
        journal: What is kept.
        keep: Where it is kept; None for nowhere.
        goes_on: Whether the file holds the beginning of the journal; a last line that was cut is overwritten.

    Raises:
        JournalError: The file is not empty, and the run is a new one.
        OSError: The file cannot be written.
    """
    if isinstance(keep, Path):
        return _in_file(journal, keep, goes_on)
    if keep is not None:
        journal.kept_by(keep)
    return _NOTHING


@contextmanager
def _in_file(journal: Journal, keep: Path, goes_on: bool) -> Iterator[None]:
    with os.fdopen(os.open(keep, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
        text = file.read()
        if text and not goes_on:
            raise JournalError(f"{keep}: there is a journal already: resume it, or name another file for the new run")
        whole = text.rfind(b"\n") + 1
        file.truncate(whole)
        file.seek(whole)

        def write(line: str) -> None:
            file.write(line.encode("ascii"))
            file.flush()
            os.fsync(file.fileno())

        journal.kept_by(write, lines=text.count(b"\n"))
        yield
