"""`MapFile`: the file with the answers of a map, which a later call continues."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agentkit.runs.run_errors import DurableError
from agentkit_prompts.system.file_locks import locked, unlock
from agentkit_prompts.system.private_files import private_file

_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""Flags of `os.open`, with which opening a named pipe does not wait for its reader."""


class MapFile:
    """One line of JSON for each run of a map, in order. The file is locked until it is closed.

    Args:
        path: The file. An incomplete last line is written again.
        ids: Ids of the runs, in order.

    Raises:
        DurableError: The file has other content, which stays unchanged; or it cannot be written; or another map uses
            it.

    Attributes:
        written: Number of answers.
        failed: Number of answers that are errors.
    """

    def __init__(self, path: Path, ids: Sequence[str]) -> None:
        self._path = path
        self.written = self.failed = 0
        private_file(path)
        try:
            self._file = os.open(path, _FLAGS, 0o600)
        except (OSError, ValueError) as error:
            raise self._write_error(error) from error
        try:
            self._read(ids)
        except OSError as error:
            self.close()
            raise self._write_error(error) from error
        except BaseException:
            self.close()
            raise

    def add(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Append answers.

        Raises:
            DurableError: The disk is full or missing. Another call of the map continues the file.
        """
        try:
            for line in lines:
                # `os.write` can write a part, such as the part for which the disk has space.
                text = memoryview(f"{json.dumps(line)}\n".encode())
                while text:
                    text = text[os.write(self._file, text) :]
                self.written += 1
                self.failed += "error" in line
        except OSError as error:
            raise self._write_error(error) from error

    def close(self) -> None:
        """Unlock and close the file."""
        unlock(self._file)
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _read(self, ids: Sequence[str]) -> None:
        """Read the existing answers, and remove an incomplete last line."""
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            raise DurableError(
                f"{self._path}: expected a regular file, got a folder, a pipe or a device: choose another file",
                path=str(self._path),
                value="no file",
            )
        if not locked(self._file):
            raise DurableError(
                f"{self._path}: another map writes this file: wait for its end, or stop it",
                path=str(self._path),
                value="busy",
            )
        answers_size = 0
        with os.fdopen(os.dup(self._file), "rb") as lines:
            for line in lines:
                if self.written == len(ids):
                    raise self._content_error(line, "the end of the file")
                run_id, is_complete = ids[self.written], line.endswith(b"\n")
                # A crash can cut an answer short; other text without a line break is not from a map.
                if not is_complete and _is_part(line, run_id):
                    break
                answer = _parsed(line)
                if not is_complete or answer.get("run_id") != run_id:
                    raise self._content_error(line, f"the answer of run {run_id!r}")
                self.written += 1
                self.failed += "error" in answer
                answers_size += len(line)
        if os.fstat(self._file).st_size > answers_size:
            os.ftruncate(self._file, answers_size)
        os.lseek(self._file, answers_size, os.SEEK_SET)

    def _content_error(self, line: bytes, expected: str) -> DurableError:
        number = self.written + 1
        return DurableError(
            f"{self._path}, line {number}: expected {expected}, got {line[:60].decode('utf-8', 'replace')!r}: the file "
            "belongs to another map, or has other content: choose another file",
            path=str(self._path),
            line=number,
        )

    def _write_error(self, error: Exception) -> DurableError:
        reason: object = error
        if isinstance(error, OSError) and error.strerror:
            reason = error.strerror
        return DurableError(
            f"{self._path}: the answers cannot be written: {reason}: solve this, then call map again, which continues "
            "the file",
            path=str(self._path),
            value=str(reason),
        )


def _is_part(line: bytes, run_id: str) -> bool:
    """True if a line is the start of the answer of a run."""
    # A crash of the machine can append zeros.
    line, start = line.rstrip(b"\0"), json.dumps({"run_id": run_id})[:-1].encode()
    return start.startswith(line) or line.startswith(start + b",")


def _parsed(line: bytes) -> Mapping[str, Any]:
    """Return the JSON object in a line; an empty object if the line contains other data."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(data, dict):
        return {}
    return data
