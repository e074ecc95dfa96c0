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

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

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
def keeping(journal: Journal, keep: Keep, known: Journal | None = None) -> Iterator[Keeper]:
    """Keep a journal until the end of the block.

    Args:
        journal: What is kept.
        keep: Where it is kept.
        known: What the file holds of it, where the run goes on; a last line that was cut is overwritten.

    Raises:
        JournalError: The file is not empty, and the run is a new one; or another run keeps its journal there.
        OSError: The file cannot be written.
    """
    if not isinstance(keep, Path | str):
        if not callable(keep):
            raise JournalError(f"journal: expected a file to keep it in, or a function of its lines, got {keep!r:.40}")
        keeper = Keeper(keep)
        journal.kept_by(keeper.add, is_new=True)
        with _to_the_end(keeper):
            yield keeper
        return
    with os.fdopen(os.open(keep, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
        if not _locked(file.fileno()):
            raise JournalError(f"{keep}: another run is keeping its journal there now")
        text = file.read()
        if known is not None and text.count(b"\n") != known.lines:
            raise JournalError(f"{keep}: it has changed since it was read, another run went on with it: read it again")
        if text and known is None:
            raise JournalError(f"{keep}: there is a journal already: resume it, or name another file for the new run")
        whole = text.rfind(b"\n") + 1
        file.truncate(whole)
        file.seek(whole)

        def write(line: str) -> None:
            file.write(line.encode("ascii"))
            file.flush()
            os.fsync(file.fileno())

        keeper = Keeper(write)
        journal.kept_by(keeper.add, is_new=known is None)
        try:
            with _to_the_end(keeper):
                yield keeper
        finally:
            _unlock(file.fileno())


def _locked(file: int) -> bool:
    """Have a file to oneself until it is closed; return False when another run has it, in any process."""
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            return True
    return True


def _unlock(file: int) -> None:
    """Let others have a file: closing it is not enough where a process that was forked meanwhile has it open."""
    if fcntl is not None:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)


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
