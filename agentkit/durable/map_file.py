"""`MapFile`: the file of the answers of a map, which goes on behind those that are there."""

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

__all__ = ["MapFile"]

_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""They do not wait for the other end of a pipe."""


class MapFile:
    """One line of JSON for each run of a map, in order. Nobody else writes it until it is closed.

    Args:
        path: The file. A last line that was cut is written again.
        ids: Ids of the runs, in order.

    Raises:
        DurableError: It has something else, which stays as it is; it cannot be written; or a map is writing it.

    Attributes:
        written: How many answers it has.
        failed: How many of them are errors.
    """

    def __init__(self, path: Path, ids: Sequence[str]) -> None:
        self._path = path
        self.written = self.failed = 0
        private_file(path)
        try:
            self._file = os.open(path, _FLAGS, 0o600)
        except (OSError, ValueError) as error:
            raise self._refused(error) from error
        try:
            self._read(ids)
        except OSError as error:
            self.close()
            raise self._refused(error) from error
        except BaseException:
            self.close()
            raise

    def add(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Write answers behind those that are there.

        Raises:
            DurableError: The disk is full, or gone; the map goes on where it was once there is room.
        """
        try:
            for line in lines:
                text = memoryview(f"{json.dumps(line)}\n".encode())
                while text:
                    text = text[os.write(self._file, text) :]
                self.written += 1
                self.failed += "error" in line
        except OSError as error:
            raise self._refused(error) from error

    def close(self) -> None:
        """Let others write it."""
        unlock(self._file)
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _read(self, ids: Sequence[str]) -> None:
        """Go behind the answers that are there, and take a last line away that was cut."""
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            raise DurableError(
                f"{self._path}: expected a regular file, got a folder, a pipe or a device: name another one",
                path=str(self._path),
                value="no file",
            )
        if not locked(self._file):
            raise DurableError(
                f"{self._path}: a map is writing it: wait until it has ended, or stop it",
                path=str(self._path),
                value="busy",
            )
        whole = 0
        with os.fdopen(os.dup(self._file), "rb") as lines:
            for line in lines:
                wanted = ids[self.written] if self.written < len(ids) else None
                if not line.endswith(b"\n") and wanted is not None and _is_part(line, wanted):
                    break
                found = _parsed(line)
                if wanted is None or not line.endswith(b"\n") or found.get("run_id") != wanted:
                    expected = "no more" if wanted is None else f"the answer of run {wanted!r}"
                    raise DurableError(
                        f"{self._path}, line {self.written + 1}: expected {expected}, got "
                        f"{line[:60].decode('utf-8', 'replace')!r}: it is the file of something else, or of another "
                        "map: name another one",
                        path=str(self._path),
                        line=self.written + 1,
                    )
                self.written += 1
                self.failed += "error" in found
                whole += len(line)
        if os.fstat(self._file).st_size > whole:
            os.ftruncate(self._file, whole)
        os.lseek(self._file, whole, os.SEEK_SET)

    def _refused(self, error: Exception) -> DurableError:
        what = (error.strerror if isinstance(error, OSError) else None) or error
        return DurableError(
            f"{self._path}: the answers cannot be written: {what}: see to it, and ask for the map again: it goes on "
            "where it was",
            path=str(self._path),
            value=str(what),
        )


def _is_part(line: bytes, run_id: str) -> bool:
    """Whether this is how the answer of a run begins; a machine that stopped leaves zeros behind it."""
    line, begun = line.rstrip(b"\0"), json.dumps({"run_id": run_id})[:-1].encode()
    return begun.startswith(line) or line.startswith(begun + b",")


def _parsed(line: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
