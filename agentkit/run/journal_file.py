"""Keeps a journal while its run goes on, so that it outlives the process."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import TypeAlias

from agentkit.errors import JournalError
from agentkit.run.journal import Journal

__all__ = ["Keep", "Keeper", "keeping"]

Keep: TypeAlias = Path | str | Callable[[str], object]
"""A file, or a function that is given each line of a journal, in a thread, before the run does anything else."""


class Keeper:
    """Lines that are written in order, in threads, so that no other run waits for the disk."""

    __slots__ = ("_lines", "_lock", "_write")

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._lines: deque[str] = deque()
        self._lock = Lock()

    def add(self, line: str) -> None:
        """Add a line to those that are to be written."""
        self._lines.append(line)

    def begin(self) -> None:
        """Begin to write them; what fails now fails again when they are waited for."""
        with suppress(RuntimeError):  # the loop is about to end: who ends it writes them
            asyncio.get_running_loop().run_in_executor(None, self._try)

    async def written(self) -> None:
        """Wait until all of them are written. Raises what the writer does."""
        if self._lines:
            await asyncio.to_thread(self.write)

    def write(self) -> None:
        """Write them, from any thread."""
        with self._lock:
            while self._lines:
                self._write(self._lines[0])
                self._lines.popleft()

    def _try(self) -> None:
        with suppress(Exception):
            self.write()


@contextmanager
def keeping(journal: Journal, keep: Keep, *, goes_on: bool) -> Iterator[Keeper]:
    """Keep a journal until the end of the block.

    Args:
        journal: What is kept.
        keep: Where it is kept.
        goes_on: Whether the file holds the beginning of the journal; a last line that was cut is overwritten.

    Raises:
        JournalError: The file is not empty, and the run is a new one.
        OSError: The file cannot be written.
    """
    if not isinstance(keep, Path | str):
        keeper = Keeper(keep)
        journal.kept_by(keeper.add)
        with _to_the_end(keeper):
            yield keeper
        return
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

        keeper = Keeper(write)
        journal.kept_by(keeper.add, lines=text.count(b"\n"))
        with _to_the_end(keeper):
            yield keeper


@contextmanager
def _to_the_end(keeper: Keeper) -> Iterator[None]:
    """Write what is left when the block ends, however it does."""
    try:
        yield
    except BaseException as error:
        try:
            keeper.write()
        except Exception as failure:
            if failure is not error:
                error.add_note(f"The end of the journal could not be written: {type(failure).__name__}: {failure}")
        raise
    keeper.write()
