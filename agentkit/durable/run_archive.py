"""Archive of ended runs: a file of JSON lines, with the journal of each run, written before the runs are deleted."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from agentkit.run.journal.journal import Journal
from agentkit.runs.run_errors import DurableError
from agentkit.runs.run_record import ENDED, RunRecord, RunState
from agentkit_prompts.system.file_locks import locked, unlock
from agentkit_prompts.system.flushed_files import flush_names
from agentkit_prompts.system.private_files import private_file

_FORMAT = 1
_START = b'{"format": '
"""Start of each line."""
_TEXTS = ("run_id", "agent", "version", "tenant", "user")
_TIMES = ("created_at", "updated_at")


@dataclass(frozen=True, slots=True)
class ArchivedRun:
    """A run of an archive. Times are seconds since 1970."""

    run_id: str
    agent: str
    version: str
    tenant: str
    user: str
    state: RunState
    created_at: float
    updated_at: float
    tags: tuple[str, ...]
    journal: Journal | None
    """None if the run ended before it started."""


class RunArchive:
    """Appends runs to a file that only its owner can access.

    The lines are on the disk when `add` returns, so that runs can be deleted afterwards. A run that was added twice,
    because the process ended before the run was deleted, is read once.

    Raises:
        DurableError: The file cannot be opened, is no archive, or another process writes it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        private_file(path)
        try:
            self._file: IO[bytes] = path.open("r+b")
        except (OSError, ValueError) as error:  # ValueError: the path contains a null character
            raise _error(path, f"cannot be opened ({error})") from error
        if not locked(self._file.fileno()):
            self._file.close()
            raise _error(path, "is in use by another process")
        try:
            self._remove_torn_line()
        except BaseException:
            self.close()
            raise

    def _remove_torn_line(self) -> None:
        """Remove the start of a line whose writer was killed: its run was not deleted."""
        first = self._file.readline()
        if first.endswith(b"\n"):
            _archived(self.path, 1, first)
        elif first[: len(_START)] != _START[: len(first)]:
            raise _error(self.path, "is no archive of runs")
        end = _end_of_lines(self._file)
        self._file.truncate(end)
        self._file.seek(end)
        # After a power failure, deleted runs are only in this file.
        flush_names(self.path.parent)

    def add(self, records: Sequence[RunRecord], journals: Sequence[str]) -> None:
        """Append ended runs with the texts of their journals, and wait until they are on the disk.

        Raises:
            DurableError: The file cannot be written.
        """
        lines = []
        for record, journal in zip(records, journals, strict=True):
            run = {name: getattr(record, name) for name in (*_TEXTS, "state", *_TIMES)}
            lines.append(json.dumps({"format": _FORMAT, "run": {**run, "tags": [*record.tags]}, "journal": journal}))
        try:
            self._file.write("".join([f"{line}\n" for line in lines]).encode())
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise _error(self.path, f"cannot be written ({error.strerror}); nothing more was deleted") from error

    def close(self) -> None:
        """Close the file."""
        unlock(self._file.fileno())
        self._file.close()


def _end_of_lines(file: IO[bytes]) -> int:
    """Return the position after the last line end, which is searched from the end of the file."""
    at = file.seek(0, os.SEEK_END)
    while at > 0:
        start = max(at - 65_536, 0)
        file.seek(start)
        newline = file.read(at - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        at = start
    return 0


def read_archive(path: str | Path) -> Iterator[ArchivedRun]:
    """Yield the runs of an archive in the order in which they were added, each once.

    Raises:
        DurableError: The file cannot be read, or a line is no archived run; the error contains its number. The start of
            a last line is ignored.
    """
    path = Path(path)
    ids = set[str]()
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    return
                run = _archived(path, number, line)
                if run.run_id not in ids:
                    ids.add(run.run_id)
                    yield run
    except OSError as error:
        raise _error(path, f"cannot be read ({error})") from error


def _archived(path: Path, number: int, line: bytes) -> ArchivedRun:
    try:
        data = json.loads(line)
        if data["format"] != _FORMAT:
            raise _error(path, f"has the format {data['format']!r:.20} in line {number}, expected {_FORMAT}")
        run, text = data["run"], data["journal"]
        values: dict[str, Any] = {name: run[name] for name in (*_TEXTS, "state", *_TIMES)}
        tags = run["tags"]
        is_valid = all(isinstance(values[name], str) for name in _TEXTS) and values["state"] in ENDED
        is_valid = is_valid and all(type(values[name]) in (int, float) for name in _TIMES)
        if not is_valid or not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
            raise ValueError("a value has another type")
        journal = Journal.loads(text) if text else None
        return ArchivedRun(**values, tags=tuple(tags), journal=journal)
    except DurableError:
        raise
    except (LookupError, RecursionError, TypeError, ValueError) as error:
        raise _error(path, f"is no archive of runs: line {number} cannot be read ({error!s:.100})") from error


def _error(path: Path, problem: str) -> DurableError:
    return DurableError(f"the archive {path} {problem}", name="archive")
