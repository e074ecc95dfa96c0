"""Keeps a journal while its run goes on, so that it outlives the process."""

from __future__ import annotations

import os
from asyncio import CancelledError
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import TypeAlias

from agentkit.errors import JournalError, RunBusy
from agentkit.ground.threads import begin_in_thread, ended, in_thread
from agentkit.run.journal.journal import Journal, inner_line
from agentkit_prompts.system.file_locks import locked, unlock
from agentkit_prompts.system.regular_files import check_regular
from agentkit_tools.errors import describe_error

__all__ = ["Keep", "Keeper", "keeping"]


class Keeper:
    """Lines that are written in order, in threads, so that no other run waits for the disk.

    Args:
        write: Is given each line; those of agents inside as lines of the run.
        close: Is called when there are no more.

    Attributes:
        is_taken: Whether another process goes on with the run: nothing more is done in this one.
        count: How many lines were written.
    """

    __slots__ = ("_close", "_lines", "_lock", "_write", "count", "is_taken")

    def __init__(self, write: Callable[[str], object], close: Callable[[], object] = lambda: None) -> None:
        self._write = write
        self._close = close
        self.is_taken = False
        self.count = 0
        self._lines: deque[tuple[str, tuple[str, ...]]] = deque()
        self._lock = Lock()

    def add(self, line: str, calls: tuple[str, ...] = ()) -> None:
        """Add a line to those that are to be written; `calls` lead to the agent inside that wrote it."""
        self._lines.append((line, calls))

    def begin(self) -> None:
        """Begin to write them; what fails now fails again when they are waited for."""
        begin_in_thread(self.write)

    async def written(self) -> None:
        """Wait until all of them are written. Raises what the writer does."""
        if self._lines:
            await in_thread(self.write)

    def check(self) -> None:
        """Refuse to go on where the run may belong to another process; what is kept in a file belongs to this one."""

    def write(self) -> None:
        """Write them, from any thread."""
        with self._lock:
            while self._lines:
                self._write(inner_line(*self._lines[0]))
                self._lines.popleft()
                self.count += 1

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
        known: What the run goes on from, where it is no new one. What its file holds of it is not written again; a
            last line that was cut is overwritten.

    Raises:
        RunBusy: The run is going on already, and its journal is kept in that file.
        JournalError: The file holds another journal, or is that of a run that went on since it was read; or JSON cannot
            hold what the run was asked with.
        OSError: The file cannot be written.
    """
    if isinstance(keep, Keeper):
        keeper = keep
    elif not isinstance(keep, Path | str):
        if not callable(keep):
            raise JournalError(
                f"journal: expected a file to keep it in, or a function of its lines, got {keep!r:.40}",
                name="journal",
                value=type(keep).__name__,
            )
        keeper = Keeper(keep)
    else:
        opening = begin_in_thread(_opened, keep, known)
        try:
            await ended(opening)
        except BaseException:
            opening.add_done_callback(_close_unused)
            raise
        keeper = opening.result()
    file = Path(keep).absolute() if isinstance(keep, Path | str) else None
    before = 0 if known is None else known.lines
    try:
        journal.kept_by(keeper.add, is_new=known is None)
        if file is not None and known is not None and known.file is None:
            for line in known.dumps().splitlines(keepends=True):
                keeper.add(line)
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
                if before + keeper.count:
                    journal.file, journal.lines = file, before + keeper.count
        except CancelledError:
            raise
        except BaseException as failure:
            if failure is not error:
                error.add_note(f"The end of the journal could not be written: {describe_error(failure)}")
        raise
    await in_thread(keeper.close)
    journal.file, journal.lines = file, before + keeper.count


def _opened(keep: Path | str, known: Journal | None) -> Keeper:
    """Open the file of a journal, and have it to oneself."""
    from agentkit_prompts.system.private_files import private_file

    goes_on = known is not None and known.file is not None
    if not goes_on:
        private_file(Path(keep))
    try:
        opened = os.open(keep, os.O_RDWR | (0 if goes_on else os.O_CREAT), 0o600)
    except FileNotFoundError:
        if not goes_on:
            raise
        raise JournalError(
            f"{keep}: the file of the journal is gone: resume Journal.loads(journal.dumps())",
            path=str(keep),
            value="gone",
        ) from None
    file = os.fdopen(opened, "r+b", buffering=0)
    try:
        if not locked(file.fileno()):
            if goes_on and known is not None:
                raise RunBusy(known.run_id)
            raise JournalError(f"{keep}: another run is keeping its journal there now", path=str(keep), value="busy")
        _check_regular(keep, file.fileno())
        text = file.readall()
        if goes_on and known is not None and text.count(b"\n") != known.lines:
            raise JournalError(
                f"{keep}: it has changed since it was read, another run went on with it: read it again",
                path=str(keep),
                value="changed",
            )
        if text and not goes_on:
            raise JournalError(
                f"{keep}: there is a journal already: resume it (`agent.resume`, or "
                "`agentkit run --resume FILE`), or name another file for this run",
                path=str(keep),
                value="exists",
            )
    except BaseException:
        file.close()
        raise
    end = text.rfind(b"\n") + 1

    def write(line: str) -> None:
        nonlocal end
        data, sent = line.encode("ascii"), 0
        file.seek(end)  # what failed before is written over
        file.truncate()
        while sent < len(data):
            sent += file.write(data[sent:])
        os.fsync(file.fileno())
        end += sent

    def close() -> None:
        with file:
            unlock(file.fileno())

    return Keeper(write, close)


def _check_regular(keep: Path | str, file: int) -> None:
    try:
        check_regular(file)
    except OSError as error:
        raise OSError(f"journal {str(keep)!r:.200}: {error}") from error


def _close_unused(opening: Future[Keeper]) -> None:
    """Close a file that was opened too late."""
    with suppress(BaseException):
        opening.result().close()
