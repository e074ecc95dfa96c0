"""Keeps a journal while its run goes on, so that it outlives the process."""

from __future__ import annotations

import os
from asyncio import CancelledError
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TypeAlias

from agentkit.errors import JournalError
from agentkit.run.journal import Journal
from agentkit.threads import begin_in_thread, ended, in_thread

__all__ = ["Keep", "Keeper", "keeping", "locked", "unlock"]


class Keeper:
    """Lines that are written in order, in threads, so that no other run waits for the disk.

    Attributes:
        is_taken: Whether another process goes on with the run: nothing more is done in this one.
    """

    __slots__ = ("_close", "_lines", "_lock", "_write", "is_taken")

    def __init__(self, write: Callable[[str], object], close: Callable[[], object] = lambda: None) -> None:
        self._write = write
        self._close = close
        self.is_taken = False
        self._lines: deque[str] = deque()
        self._lock = Lock()

    def add(self, line: str) -> None:
        """Add a line to those that are to be written."""
        self._lines.append(line)

    def begin(self) -> None:
        """Begin to write them; what fails now fails again when they are waited for."""
        begin_in_thread(self.write)

    async def written(self) -> None:
        """Wait until all of them are written. Raises what the writer does."""
        if self._lines:
            await in_thread(self.write)

    def write(self) -> None:
        """Write them, from any thread."""
        with self._lock:
            while self._lines:
                self._write(self._lines[0])
                self._lines.popleft()

    def close(self) -> None:
        """Write what is left, and close what they are written to."""
        try:
            self.write()
        finally:
            self._close()


Keep: TypeAlias = Path | str | Callable[[str], object] | Keeper
"""A file, or a function that is given each line of a journal, in a thread, before the run does anything else; or what
keeps the lines itself."""


@asynccontextmanager
async def keeping(journal: Journal, keep: Keep, known: Journal | None = None) -> AsyncIterator[Keeper]:
    """Keep a journal until the end of the block, and write what is left then, however the block ends.

    Args:
        journal: What is kept.
        keep: Where it is kept.
        known: What the file holds of it, where the run goes on; a last line that was cut is overwritten.

    Raises:
        JournalError: The file is not empty, and the run is a new one; or another run keeps its journal there.
        OSError: The file cannot be written.
    """
    if isinstance(keep, Keeper):
        keeper = keep
    elif not isinstance(keep, Path | str):
        if not callable(keep):
            raise JournalError(f"journal: expected a file to keep it in, or a function of its lines, got {keep!r:.40}")
        keeper = Keeper(keep)
    else:
        opening = begin_in_thread(partial(_opened, keep, known))
        try:
            await ended(opening)
        except BaseException:
            opening.add_done_callback(_close_unused)
            raise
        keeper = opening.result()
    journal.kept_by(keeper.add, is_new=known is None)
    try:
        yield keeper
    except BaseException as error:
        closing = begin_in_thread(keeper.close)
        try:
            if not isinstance(error, GeneratorExit):
                await ended(closing, is_last=True)
            if not closing.done():
                error.add_note("The end of the journal is not written yet: the writer hangs.")
            else:
                closing.result()
        except CancelledError:
            raise
        except BaseException as failure:
            if failure is not error:
                error.add_note(f"The end of the journal could not be written: {type(failure).__name__}: {failure}")
        raise
    await in_thread(keeper.close)


def _opened(keep: Path | str, known: Journal | None) -> Keeper:
    """Open the file of a journal, and have it to oneself."""
    file = os.fdopen(os.open(keep, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
    try:
        if not locked(file.fileno()):
            raise JournalError(f"{keep}: another run is keeping its journal there now")
        text = file.read()
        if known is not None and text.count(b"\n") != known.lines:
            raise JournalError(f"{keep}: it has changed since it was read, another run went on with it: read it again")
        if text and known is None:
            raise JournalError(f"{keep}: there is a journal already: resume it, or name another file for the new run")
        whole = text.rfind(b"\n") + 1
        file.truncate(whole)
        file.seek(whole)
    except BaseException:
        file.close()
        raise

    def write(line: str) -> None:
        file.write(line.encode("ascii"))
        file.flush()
        os.fsync(file.fileno())

    def close() -> None:
        with file:
            unlock(file.fileno())

    return Keeper(write, close)


def _close_unused(opening: Future[Keeper]) -> None:
    """Close a file that was opened too late."""
    with suppress(BaseException):
        opening.result().close()


if os.name == "nt":  # pragma: no cover - Windows
    import msvcrt

    _FAR = 0x7FFF_FFFE
    """Where the byte is that is locked: behind what anybody reads, since others may not read what is locked."""

    def _lock(file: int) -> None:
        os.lseek(file, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        except OSError as error:
            raise BlockingIOError from error
        finally:
            os.lseek(file, 0, os.SEEK_SET)

    def unlock(file: int) -> None:
        """Closing the file does it."""

else:
    import fcntl

    def _lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def unlock(file: int) -> None:
        """Let others have a file: closing it is not enough where a process that was forked meanwhile has it open."""
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)


def locked(file: int) -> bool:
    """Have a file to oneself until it is closed; return False when another run has it, in any process."""
    try:
        _lock(file)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
