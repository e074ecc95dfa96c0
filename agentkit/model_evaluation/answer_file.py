"""`AnswerFile`: the answers of an evaluation in a file of JSON lines, one line per request."""

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
from agentkit_prompts.system.regular_files import check_regular, read_regular

Key = tuple[int, int]
"""Row, and turn of a dialogue or number of a label."""
AnswerLine = dict[str, Any]
"""A line: `row`, `part`, `prompt`, and the answer or the log probabilities."""

_FORMAT = 1
_START = b'{"agentkit_evaluation":'


def as_json(value: object) -> bytes:
    """Return a value as JSON on one line; values without a JSON type are converted to text."""
    try:
        return to_json(value, fallback=str)
    except ValueError:
        # The text contains a lone surrogate, which only `json` writes.
        return json.dumps(value, default=str).encode()


def _read_json(line: bytes) -> Any:
    try:
        return from_json(line)
    except ValueError:
        # The line is corrupt, or contains a lone surrogate, which only `json` reads.
        return json.loads(line)


class AnswerFile:
    """The file of answers of one evaluation, locked against other processes.

    An incomplete last line, such as after a kill of the process, is removed; all other lines must be complete. A file
    of another evaluation is overwritten if it has no answers.

    Args:
        path: Path of the file, which is created if missing.
        conditions: Conditions of the answers besides the prompts, such as the model; they must be the same in each run.

    Raises:
        InContextError: The file belongs to another evaluation, is corrupt, cannot be written, or is locked by another
            process.
    """

    def __init__(self, path: str | os.PathLike[str], conditions: dict[str, Any]) -> None:
        self.path = Path(path)
        try:
            self._file = _open_file(self.path)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InContextError(f"out: {path}: {reason}; pass a file that can be written", path=str(path)) from error
        self._number = self._file.fileno()
        try:
            if not locked(self._number):
                text = f"{path}: another process writes to the file; wait for that process, or pass another file"
                raise InContextError(text, path=str(path))
            self.answers = self._read(conditions)
        except BaseException:
            self._file.close()
            raise

    def _read(self, conditions: dict[str, Any]) -> dict[Key, AnswerLine]:
        data = self._file.readall()
        size = data.rfind(b"\n") + 1
        if not size and not (data.startswith(_START) or _START.startswith(data)):
            # A file of another program must not be truncated.
            raise _foreign_file_error(self.path)
        head = as_json({"agentkit_evaluation": _FORMAT, **conditions})
        stored_head, answers = _parsed(data[:size], self.path)
        if answers:
            self._check(stored_head, _read_json(head))
        else:
            size = 0
        self._file.truncate(size)
        self._file.seek(size)
        if not answers:
            self.write(head)
        return answers

    def _check(self, entry: dict[str, Any], head: dict[str, Any]) -> None:
        problems = [
            (name, f"{name} was {entry.get(name)!r:.80} and is {head.get(name)!r:.80}")
            for name in dict.fromkeys((*entry, *head))
            if entry.get(name) != head.get(name)
        ]
        if problems:
            raise InContextError(
                f"{self.path}: contains the answers of another evaluation: "
                f"{'; '.join([text for _, text in problems])}; pass another file",
                path=str(self.path),
                problems=problems,
            )

    def write(self, line: bytes) -> None:
        """Write a line without buffering, so that it survives a kill of this process."""
        size = os.write(self._number, line + b"\n")
        # The system may write only a part of the line.
        while size <= len(line):
            size += os.write(self._number, (line + b"\n")[size:])

    def close(self) -> None:
        """Close and unlock the file."""
        with suppress(OSError), self._file:
            os.fsync(self._file.fileno())
            unlock(self._file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _open_file(path: Path) -> FileIO:
    """Open a file for writing, or create a file that only its owner can read.

    Raises:
        OSError: The file cannot be opened, or is not a regular file.
        ValueError: The name is invalid.
    """
    private_file(path)
    file = FileIO(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600), "r+")
    try:
        check_regular(file.fileno())
    except OSError:
        file.close()
        raise
    return file


def is_answer_file(path: Path) -> bool:
    """True if a file starts as a file of an evaluation.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        return file.read(len(_START)) == _START


def read_answers(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[Key, AnswerLine]]:
    """Return the conditions and the answers of a file, also while another process writes to the file.

    Raises:
        InContextError: The file cannot be read, or is not a file of an evaluation.
    """
    try:
        data = read_regular(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InContextError(f"{path}: cannot be read: {reason}", path=str(path)) from error
    conditions, answers = _parsed(data[: data.rfind(b"\n") + 1], Path(path))
    if not conditions:
        raise _foreign_file_error(path)
    return conditions, answers


def _parsed(data: bytes, path: Path) -> tuple[dict[str, Any], dict[Key, AnswerLine]]:
    """Return the first line and the answers of whole lines."""
    head: dict[str, Any] = {}
    answers: dict[Key, AnswerLine] = {}
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        try:
            entry = _read_json(line)
            if number == 1:
                head = _checked_head(entry, path)
                continue
            key = entry["row"], entry["part"]
            if not all(type(number) is int for number in key):
                raise TypeError(f"row and part: expected whole numbers, got {key!r:.60}")
            answers[key] = entry
        except InContextError:
            raise
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            if number == 1:
                raise _foreign_file_error(path) from error
            raise InContextError(
                f"{path}, line {number}: not a line of an evaluation ({error}); repair or remove the line",
                path=str(path),
                line=number,
            ) from error
    return head, answers


def _checked_head(entry: Any, path: Path) -> dict[str, Any]:
    if not isinstance(entry, dict) or "agentkit_evaluation" not in entry:
        raise _foreign_file_error(path)
    if entry["agentkit_evaluation"] != _FORMAT:
        text = f"{path}: has the format {entry['agentkit_evaluation']!r}, expected {_FORMAT}"
        raise InContextError(text, path=str(path), line=1)
    return entry


def _foreign_file_error(path: str | os.PathLike[str]) -> InContextError:
    return InContextError(f"{path}: not a file of an evaluation; pass another file", path=str(path))
