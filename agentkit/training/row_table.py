"""`RowTable`: the rows of an export until they are written, in a temporary file; and their file, as JSON or Parquet."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agentkit.training.training_errors import ExportError
from agentkit_prompts.extras import install
from agentkit_prompts.system.file_locks import temporary_lock
from agentkit_prompts.system.flushed_files import replace_files
from agentkit_prompts.system.private_files import private_file

_BATCH = 500
"""Number of rows of a Parquet file that are in memory together."""
_PARQUET = ".parquet"
_NUMBERS = ("input_ids", "labels", "assistant_masks")
_TEXTS = ("text", "tools", "origin", "input")
"""Columns of a Parquet file with text; objects are JSON text."""
_MESSAGES = ("messages", "prompt", "chosen", "rejected", "preferred_output", "non_preferred_output")


def _line(data: Mapping[str, Any]) -> str:
    """Return data as a line of JSON."""
    # A lone surrogate has no UTF-8.
    return json.dumps(data, ensure_ascii=False).encode("utf-8", "replace").decode() + "\n"


def check_file(path: Path) -> None:
    """Refuse a file that cannot be written.

    Raises:
        ExportError: The folder is missing, the name is a folder, or Parquet needs a library that is not installed.
    """
    if path.is_dir() or not path.parent.is_dir():
        problem = "is a folder" if path.is_dir() else f"the folder {path.parent} does not exist"
        raise ExportError(f"out: {path}: {problem}; pass a file in an existing folder", path=str(path), name="out")
    if path.suffix == _PARQUET:
        try:
            import pyarrow.parquet  # noqa: F401  # checks that it is installed
        except ImportError as error:
            raise ExportError(f"out: {path}: Parquet needs pyarrow: {install('parquet')}", name="out") from error


class RowTable:
    """Rows with their sources, in a file next to the result, which only its owner can read.

    Args:
        path: Path of the result: JSON lines, or Parquet if its name ends in `.parquet`.
        has_origin: True if a row contains its source; if False, the sources are in a separate file of JSON lines.

    Raises:
        ExportError: The file cannot be written.
    """

    def __init__(self, path: Path, *, has_origin: bool) -> None:
        self._path, self._has_origin = path, has_origin
        self._origins = path.with_name(f"{path.name}.origins.jsonl")
        self._spool = path.with_name(f".{path.name}.part")
        self._new = path.with_name(f".{path.name}.new")
        self._new_origins = path.with_name(f".{path.name}.origins.new")
        self._is_erased: list[Callable[[], bool]] = []
        """Function of each row; see `TrainingExample.is_erased`."""
        try:
            # Locked until the end: two exports into one file must not replace the files of each other.
            file = temporary_lock(self._spool)
            if file is None:
                raise ExportError(
                    f"out: {path}: another export writes this file; wait for its end, or pass another file",
                    path=str(path),
                    name="out",
                )
            self._file = os.fdopen(file, "r+", encoding="utf-8")
            # A process that was killed can have left rows.
            self._file.truncate(0)
        except OSError as error:
            raise self._error(error) from error

    def add(self, row: Mapping[str, Any], origin: Mapping[str, Any], is_erased: Callable[[], bool]) -> None:
        """Add a row."""
        try:
            self._file.write(json.dumps([row, origin], ensure_ascii=True) + "\n")
        except OSError as error:
            raise self._error(error) from error
        self._is_erased.append(is_erased)

    def finish(self) -> tuple[int, int]:
        """Write the file.

        Returns:
            The number of rows, and the number of rows that were left out because their source was erased meanwhile.

        Raises:
            ExportError: The file cannot be written; no file was replaced.
        """
        try:
            self._file.flush()
            # Sources can be erased while other rows are composed: all are checked again after the last row.
            erased = {at for at, is_erased in enumerate(self._is_erased) if is_erased()}
            self._write(erased)
            drafts = {self._new: self._path}
            if not self._has_origin:
                drafts[self._new_origins] = self._origins
            replace_files(drafts)
        except OSError as error:
            raise self._error(error) from error
        return len(self._is_erased) - len(erased), len(erased)

    def _rows(self, erased: set[int]) -> Iterator[dict[str, Any]]:
        """Yield the rows whose sources still exist, and write the separate file of the sources."""
        with self._spool.open(encoding="utf-8") as spool:
            entries = (json.loads(line) for at, line in enumerate(spool) if at not in erased)
            if self._has_origin:
                for row, origin in entries:
                    yield {**row, "origin": origin}
                return
            private_file(self._new_origins)
            with self._new_origins.open("w", encoding="utf-8") as file:
                for row, origin in entries:
                    file.write(_line(origin))
                    yield row

    def _write(self, erased: set[int]) -> None:
        private_file(self._new)
        rows = self._rows(erased)
        if self._path.suffix == _PARQUET:
            _write_parquet(self._new, rows)
            return
        with self._new.open("w", encoding="utf-8") as file:
            for row in rows:
                file.write(_line(row))

    def _error(self, error: OSError) -> ExportError:
        return ExportError(
            f"out: {self._path}: {error.strerror or error}; pass a file in a writable folder with space",
            path=str(self._path),
            name="out",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for path in (self._new, self._new_origins, self._spool):
            with suppress(OSError):
                path.unlink(missing_ok=True)
        with suppress(OSError):
            self._file.close()


def _write_parquet(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    """Write rows as Parquet. Objects without a fixed form, such as arguments and schemas, are JSON text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    first = next(rows, None)
    if first is None:
        first_rows: list[dict[str, Any]] = []
        columns: tuple[str, ...] = ("messages", "origin")
    else:
        first_rows, columns = [first], tuple(first)
    if first is not None and "tools" not in columns:
        columns = (*columns, "tools")
    function = pa.struct([("name", pa.string()), ("arguments", pa.string())])
    call = pa.struct([("id", pa.string()), ("type", pa.string()), ("function", function)])
    message = pa.struct(
        [
            *[(name, pa.string()) for name in ("role", "content", "name", "tool_call_id", "reasoning_content")],
            ("tool_calls", pa.list_(call)),
            ("weight", pa.int8()),
        ]
    )
    types = {
        **dict.fromkeys(_MESSAGES, pa.list_(message)),
        **dict.fromkeys(_TEXTS, pa.string()),
        **dict.fromkeys(_NUMBERS, pa.list_(pa.int32())),
        "loss_spans": pa.list_(pa.list_(pa.int32())),
        "log_probabilities": pa.list_(pa.float32()),
        "weights": pa.list_(pa.float32()),
    }
    schema = pa.schema([(name, types[name]) for name in columns])
    with pq.ParquetWriter(path, schema) as writer:
        batch = [*first_rows, *islice(rows, _BATCH - 1)]
        while batch:
            writer.write_table(pa.Table.from_pylist([_arrow_row(row, columns) for row in batch], schema=schema))
            batch = list(islice(rows, _BATCH))


def _arrow_row(row: Mapping[str, Any], columns: tuple[str, ...]) -> dict[str, Any]:
    converted: dict[str, Any] = {}
    for name in columns:
        value = row.get(name)
        if name in _MESSAGES and value is not None:
            value = [_arrow_message(message) for message in value]
        elif name in _TEXTS and value is not None and not isinstance(value, str):
            value = json.dumps(value)
        converted[name] = value
    return converted


def _arrow_message(message: Mapping[str, Any]) -> dict[str, Any]:
    converted = dict(message)
    if message.get("tool_calls"):
        converted["tool_calls"] = [_arrow_call(call) for call in message["tool_calls"]]
    return converted


def _arrow_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = dict(call["function"])
    if not isinstance(function["arguments"], str):
        function["arguments"] = json.dumps(function["arguments"])
    return {**call, "function": function}
