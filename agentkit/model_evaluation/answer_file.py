"""The answers of an evaluation in a file of JSON lines, one for each request, each written when it arrives."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic_core import from_json, to_json

from agentkit_prompts.errors import InContextError
from agentkit_prompts.system.file_locks import locked, unlock
from agentkit_prompts.system.private_files import private_file
from agentkit_prompts.system.regular_files import check_regular

__all__ = ["AnswerFile", "AnswerLine", "Key", "as_json"]

Key = tuple[int, int]
"""Row, and turn of a dialogue or number of a label."""
AnswerLine = dict[str, Any]
"""A line: `row`, `part`, `prompt`, and what came of it."""

_FORMAT = 1
_START = b'{"agentkit_evaluation":'


def as_json(value: object) -> bytes:
    """Return a value as JSON on one line; what JSON has no word for as text."""
    try:
        return to_json(value, fallback=str)
    except ValueError:
        # The text has half of a surrogate pair.
        return json.dumps(value, default=str).encode()


def _read_json(line: bytes) -> Any:
    try:
        return from_json(line)
    except ValueError:
        # The line is damaged, or has half of a surrogate pair.
        return json.loads(line)


class AnswerFile:
    """A file that one evaluation writes to, at a time.

    A last line that was cut, as when the process was killed, is taken off; every other line has to be whole. A file
    that holds no answer yet is begun anew.

    Args:
        path: Made if missing.
        about: What the answers depend on beside the prompts, such as the model; it has to be the same each time.

    Raises:
        InContextError: It is of another evaluation or damaged, cannot be written, or another process writes to it.
    """

    def __init__(self, path: str | os.PathLike[str], about: dict[str, Any]) -> None:
        self.path = Path(path)
        try:
            self._file = _open_file(self.path)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InContextError(f"out: {path}: {reason}; name a file that can be written", path=str(path)) from error
        self._number = self._file.fileno()
        try:
            if not locked(self._number):
                text = f"{path}: another process writes to it; wait for it, or name another file"
                raise InContextError(text, path=str(path))
            self.known = self._read(about)
        except BaseException:
            self._file.close()
            raise

    def _read(self, about: dict[str, Any]) -> dict[Key, AnswerLine]:
        data = self._file.readall()
        whole = data.rfind(b"\n") + 1
        if not whole and not (data.startswith(_START) or _START.startswith(data)):
            # A file of another program is never cut.
            raise self._foreign_file_error()
        found: dict[Key, AnswerLine] = {}
        lines = data[:whole].split(b"\n")[:-1]
        head = as_json({"agentkit_evaluation": _FORMAT, **about})
        for number, line in enumerate(lines, 1):
            try:
                entry = _read_json(line)
                if number == 1:
                    self._check(entry, _read_json(head), has_answers=len(lines) > 1)
                    continue
                found[entry["row"], entry["part"]] = entry
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                if isinstance(error, InContextError):
                    raise
                raise InContextError(
                    f"{self.path}, line {number}: is no line of an evaluation ({error}); repair or remove the line",
                    path=str(self.path),
                    line=number,
                ) from error
        kept = 0
        if found:
            kept = whole
        self._file.truncate(kept)
        self._file.seek(kept)
        if not found:
            self.write(head)
        return found

    def _check(self, entry: Any, head: dict[str, Any], *, has_answers: bool) -> None:
        if not isinstance(entry, dict) or "agentkit_evaluation" not in entry:
            raise self._foreign_file_error()
        if entry["agentkit_evaluation"] != _FORMAT:
            text = f"{self.path}: is of format {entry['agentkit_evaluation']!r}, expected {_FORMAT}"
            raise InContextError(text, path=str(self.path), line=1)
        other = [
            (name, f"{name} was {entry.get(name)!r:.80} and is {head.get(name)!r:.80}")
            for name in dict.fromkeys((*entry, *head))
            if entry.get(name) != head.get(name)
        ]
        if other and has_answers:
            raise InContextError(
                f"{self.path}: holds the answers of another evaluation: {'; '.join([text for _, text in other])}; "
                "name another file",
                path=str(self.path),
                problems=other,
            )

    def _foreign_file_error(self) -> InContextError:
        text = f"{self.path}: contains something else than an evaluation; name another file"
        return InContextError(text, path=str(self.path))

    def write(self, line: bytes) -> None:
        """Write a line; what is written stays when this process is killed."""
        written = os.write(self._number, line + b"\n")
        # A full disk writes a part only.
        while written <= len(line):
            written += os.write(self._number, (line + b"\n")[written:])

    def close(self) -> None:
        """Let others write."""
        with suppress(OSError), self._file:
            os.fsync(self._file.fileno())
            unlock(self._file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _open_file(path: Path) -> FileIO:
    """Open a file, a new one too, that nobody else may read.

    Raises:
        OSError: It cannot be opened, or is not a regular file.
        ValueError: No file can have this name.
    """
    private_file(path)
    file = FileIO(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600), "r+")
    try:
        check_regular(file.fileno())
    except OSError:
        file.close()
        raise
    return file
