"""Storage of a journal during its run, so that the run can be resumed if the process is killed."""

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


class JournalWriter:
    """Writes lines of a journal in order, in threads, so that other runs of the event loop do not wait for the disk.

    Args:
        write: Receives each line; a line of an inner agent as a line of the run, see `inner_line`.
        close: Called after the last line.

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
        """Refuse to continue if the run may belong to another process; never the case for files and functions."""

    def write(self) -> None:
        """Write the lines, from any thread."""
        with self._lock:
            while self._lines:
                # Removed after the write, so that a line whose write failed is written again.
                self._write(inner_line(*self._lines[0]))
                self._lines.popleft()
                self.count += 1

    def close(self) -> None:
        """Write the remaining lines, and close the destination."""
        try:
            self.write()
        finally:
            self._close()


JournalTarget: TypeAlias = Path | str | Callable[[str], object] | JournalWriter
"""Destination of a journal: a file, a `JournalWriter`, or a function that receives each line in a thread."""


@asynccontextmanager
async def journal_writer(
    journal: Journal, target: JournalTarget, earlier: Journal | None = None
) -> AsyncIterator[JournalWriter]:
    """Store a journal during a `with` block, and write the remaining lines even if the block raises.

    Args:
        journal: The journal.
        target: Destination of the lines.
        earlier: Journal of a resumed run; None for a new run. Lines that its file contains are not written again; an
            incomplete last line is overwritten.

    Raises:
        RunBusy: The run is in progress, and its journal is stored in the same file.
        JournalError: The file has another journal, or the run continued since the file was read; or JSON cannot
            represent the context of the run.
        OSError: The file cannot be written.
    """
    writer = await _open_writer(target, earlier)
    file, lines_before = None, 0
    if isinstance(target, Path | str):
        file = Path(target).absolute()
    if earlier is not None:
        lines_before = earlier.lines
    try:
        journal.write_to(writer.add, is_new=earlier is None)
        if file is not None and earlier is not None and earlier.file is None:
            for line in earlier.dumps().splitlines(keepends=True):
                writer.add(line)
        yield writer
    except BaseException as error:
        try:
            if await _try_close(writer, error) and lines_before + writer.count:
                journal.file, journal.lines = file, lines_before + writer.count
        except CancelledError:
            raise
        except BaseException as failure:
            if failure is not error:
                error.add_note(f"The end of the journal could not be written: {describe_error(failure)}")
        raise
    closing = begin_in_thread(writer.close)
    try:
        # A cancelled run waits too: until then, its file is locked.
        await ended(closing)
    finally:
        if closing.done() and closing.exception() is None:
            journal.file, journal.lines = file, lines_before + writer.count
    closing.result()


async def _open_writer(target: JournalTarget, earlier: Journal | None) -> JournalWriter:
    """Return the writer of a journal, and open its file if the destination is a file."""
    if isinstance(target, JournalWriter):
        return target
    if isinstance(target, Path | str):
        opening = begin_in_thread(_file_writer, target, earlier)
        try:
            await ended(opening)
        except BaseException:
            # A thread cannot be interrupted: after it has opened the file, the callback closes and unlocks the file.
            opening.add_done_callback(_close_unused)
            raise
        return opening.result()
    if not callable(target):
        raise JournalError(
            f"journal: expected a file, or a function that receives lines, got {target!r:.40}",
            name="journal",
            value=type(target).__name__,
        )
    return JournalWriter(target)


async def _try_close(writer: JournalWriter, error: BaseException) -> bool:
    """Close the writer of a run that ended with an error; False if the writer hangs."""
    closing = begin_in_thread(writer.close)
    # A generator that is closed must not await.
    if not isinstance(error, GeneratorExit):
        await ended(closing, is_last=True)
    if not closing.done():
        error.add_note("The end of the journal is not written yet: the writer hangs.")
        return False
    closing.result()
    return True


def _file_writer(target: Path | str, earlier: Journal | None) -> JournalWriter:
    """Open and lock the file of a journal."""
    from agentkit_prompts.system.private_files import private_file

    resumed = earlier
    if earlier is not None and earlier.file is None:
        resumed = None  # the journal of the resumed run has no file yet
    flags = os.O_RDWR
    if resumed is None:
        private_file(Path(target))
        flags |= os.O_CREAT
    try:
        opened = os.open(target, flags, 0o600)
    except FileNotFoundError:
        if resumed is None:
            raise
        raise JournalError(
            f"{target}: the file of the journal is missing: resume Journal.loads(journal.dumps())",
            path=str(target),
            value="gone",
        ) from None
    file = os.fdopen(opened, "r+b", buffering=0)
    try:
        text = _locked_text(file, target, resumed)
    except BaseException:
        file.close()
        raise
    end = text.rfind(b"\n") + 1

    def write(line: str) -> None:
        nonlocal end
        data, sent = line.encode("ascii"), 0
        # An earlier write that failed can have left a part of its line.
        try:
            file.seek(end)
            file.truncate()
            while sent < len(data):
                sent += file.write(data[sent:])
            # The next step can have effects that a power failure does not undo.
            os.fsync(file.fileno())
        except OSError as error:
            # The error of the system names no file.
            raise OSError(error.errno, error.strerror, str(target)) from error
        end += sent

    def close() -> None:
        with file:
            unlock(file.fileno())

    return JournalWriter(write, close)


def _locked_text(file: FileIO, target: Path | str, resumed: Journal | None) -> bytes:
    """Lock the file of a journal, and return its text.

    Raises:
        RunBusy: The resumed run is in progress.
        JournalError: The file has another journal, or is in use.
    """
    if not locked(file.fileno()):
        if resumed is not None:
            raise RunBusy(resumed.run_id)
        raise JournalError(f"{target}: another run stores its journal in this file now", path=str(target), value="busy")
    _check_regular(target, file.fileno())
    text = file.readall()
    if resumed is None and text:
        raise JournalError(
            f"{target}: the file has a journal already: resume it (`agent.resume`, or "
            "`agentkit run --resume FILE`), or name another file for this run",
            path=str(target),
            value="exists",
        )
    if resumed is not None and text.count(b"\n") != resumed.lines:
        raise JournalError(
            f"{target}: the file has changed since it was read, because another run continued it: read it again",
            path=str(target),
            value="changed",
        )
    return text


def _check_regular(target: Path | str, file: int) -> None:
    try:
        check_regular(file)
    except OSError as error:
        raise OSError(f"journal {str(target)!r:.200}: {error}") from error


def _close_unused(opening: Future[JournalWriter]) -> None:
    """Close a file that was opened after the end of its run."""
    with suppress(BaseException):
        opening.result().close()
