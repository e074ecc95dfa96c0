"""Stores a journal during its run, so that the run can be resumed after the process was killed."""

from __future__ import annotations

import os
from asyncio import CancelledError
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from io import FileIO
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
    """Writes lines of a journal in order, in threads, so that no other run waits for the disk.

    Args:
        write: Receives each line; lines of inner agents as lines of the run.
        close: Is called after the last line.

    Attributes:
        is_taken: True if another process continues the run: this process performs no further step.
        count: Number of written lines.
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
        """Add a line to the queue; `calls` are the ids of the calls that lead to the inner agent whose line it is."""
        self._lines.append((line, calls))

    def begin(self) -> None:
        """Start to write the lines; `written` raises the error if this fails."""
        begin_in_thread(self.write)

    async def written(self) -> None:
        """Wait until all lines are written. Raises the errors of the writer."""
        if self._lines:
            await in_thread(self.write)

    def check(self) -> None:
        """Refuse to continue if the run may belong to another process; the run of a file belongs to this process."""

    def write(self) -> None:
        """Write the lines, from any thread."""
        with self._lock:
            while self._lines:
                self._write(inner_line(*self._lines[0]))
                self._lines.popleft()
                self.count += 1

    def close(self) -> None:
        """Write the remaining lines, and close the destination."""
        try:
            self.write()
        finally:
            self._close()


Keep: TypeAlias = Path | str | Callable[[str], object] | Keeper
"""Destination of a journal: a file, a `Keeper`, or a function that receives each line in a thread."""


@asynccontextmanager
async def keeping(journal: Journal, keep: Keep, known: Journal | None = None) -> AsyncIterator[Keeper]:
    """Store a journal until the end of the block, and write the remaining lines even if the block raises.

    Args:
        journal: The journal.
        keep: Its destination.
        known: Journal of a resumed run; None for a new run. Lines that its file has are not written again; a last line
            that was cut short is overwritten.

    Raises:
        RunBusy: The run is in progress, and its journal is stored in the same file.
        JournalError: The file has another journal, or the run continued since the file was read; or JSON cannot
            represent the context of the run.
        OSError: The file cannot be written.
    """
    keeper = await _keeper(keep, known)
    file, before = None, 0
    if isinstance(keep, Path | str):
        file = Path(keep).absolute()
    if known is not None:
        before = known.lines
    try:
        journal.write_to(keeper.add, is_new=known is None)
        if file is not None and known is not None and known.file is None:
            for line in known.dumps().splitlines(keepends=True):
                keeper.add(line)
        yield keeper
    except BaseException as error:
        try:
            if await _closed(keeper, error) and before + keeper.count:
                journal.file, journal.lines = file, before + keeper.count
        except CancelledError:
            raise
        except BaseException as failure:
            if failure is not error:
                error.add_note(f"The end of the journal could not be written: {describe_error(failure)}")
        raise
    await in_thread(keeper.close)
    journal.file, journal.lines = file, before + keeper.count


async def _keeper(keep: Keep, known: Journal | None) -> Keeper:
    """Return the writer of a journal, and open its file if the destination is a file."""
    if isinstance(keep, Keeper):
        return keep
    if isinstance(keep, Path | str):
        opening = begin_in_thread(_opened, keep, known)
        try:
            await ended(opening)
        except BaseException:
            opening.add_done_callback(_close_unused)
            raise
        return opening.result()
    if not callable(keep):
        raise JournalError(
            f"journal: expected a file, or a function that receives lines, got {keep!r:.40}",
            name="journal",
            value=type(keep).__name__,
        )
    return Keeper(keep)


async def _closed(keeper: Keeper, error: BaseException) -> bool:
    """Close the writer of a run that ended with an error; False if the writer hangs."""
    closing = begin_in_thread(keeper.close)
    # A generator that is closed must not await.
    if not isinstance(error, GeneratorExit):
        await ended(closing, is_last=True)
    if not closing.done():
        error.add_note("The end of the journal is not written yet: the writer hangs.")
        return False
    closing.result()
    return True


def _opened(keep: Path | str, known: Journal | None) -> Keeper:
    """Open and lock the file of a journal."""
    from agentkit_prompts.system.private_files import private_file

    resumed = known
    if known is not None and known.file is None:
        resumed = None  # the journal of the resumed run has no file yet
    flags = os.O_RDWR
    if resumed is None:
        private_file(Path(keep))
        flags |= os.O_CREAT
    try:
        opened = os.open(keep, flags, 0o600)
    except FileNotFoundError:
        if resumed is None:
            raise
        raise JournalError(
            f"{keep}: the file of the journal is missing: resume Journal.loads(journal.dumps())",
            path=str(keep),
            value="gone",
        ) from None
    file = os.fdopen(opened, "r+b", buffering=0)
    try:
        text = _locked_text(file, keep, resumed)
    except BaseException:
        file.close()
        raise
    end = text.rfind(b"\n") + 1

    def write(line: str) -> None:
        nonlocal end
        data, sent = line.encode("ascii"), 0
        # A write that failed may have left a part of its line.
        file.seek(end)
        file.truncate()
        while sent < len(data):
            sent += file.write(data[sent:])
        os.fsync(file.fileno())
        end += sent

    def close() -> None:
        with file:
            unlock(file.fileno())

    return Keeper(write, close)


def _locked_text(file: FileIO, keep: Path | str, resumed: Journal | None) -> bytes:
    """Lock the file of a journal, and return its text.

    Raises:
        RunBusy: The resumed run is in progress.
        JournalError: The file has another journal, or is in use.
    """
    if not locked(file.fileno()):
        if resumed is not None:
            raise RunBusy(resumed.run_id)
        raise JournalError(f"{keep}: another run stores its journal in this file now", path=str(keep), value="busy")
    _check_regular(keep, file.fileno())
    text = file.readall()
    if resumed is None and text:
        raise JournalError(
            f"{keep}: the file has a journal already: resume it (`agent.resume`, or "
            "`agentkit run --resume FILE`), or name another file for this run",
            path=str(keep),
            value="exists",
        )
    if resumed is not None and text.count(b"\n") != resumed.lines:
        raise JournalError(
            f"{keep}: the file has changed since it was read, because another run continued it: read it again",
            path=str(keep),
            value="changed",
        )
    return text


def _check_regular(keep: Path | str, file: int) -> None:
    try:
        check_regular(file)
    except OSError as error:
        raise OSError(f"journal {str(keep)!r:.200}: {error}") from error


def _close_unused(opening: Future[Keeper]) -> None:
    """Close a file that was opened after its run had ended."""
    with suppress(BaseException):
        opening.result().close()
