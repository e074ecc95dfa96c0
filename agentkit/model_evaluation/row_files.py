"""Reader of dataset rows from files: JSON lines, JSON or CSV, one file per split."""

from __future__ import annotations

import csv
import io
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

from pydantic_core import from_json

from agentkit_prompts.errors import InContextError
from agentkit_prompts.system.regular_files import is_folder, read_regular_text

_Rows = list[dict[str, Any]]
_MAX_CELL = 2**31 - 1
"""Characters of a cell, which no file that is read exceeds."""
_CELL_LIMIT = Lock()
_MAX_FILE = 2_000_000_000
"""Maximum bytes of one file."""
_MAX_LISTED = 5
"""Maximum number of problems in an error message."""
_MAX_PROBLEMS = 1_000
"""Maximum number of problems in the attribute `problems` of an error."""
_MAX_PROBLEM = 300
"""Maximum characters of one problem in an error message."""


def load_rows(path: str | os.PathLike[str], *, root: Path | None = None) -> _Rows | dict[str, _Rows]:
    """Return the rows of a file, or the rows of each split.

    Args:
        path: A file with one row per line (`.jsonl`), with a list of rows (`.json`), or with a header and rows (`.csv`,
            `.tsv`; every value is text). A `.json` file may also contain an object of splits by name. In a folder each
            file is a split with the name of the file.
        root: Folder, as a path without links, that must contain all files after links are resolved; None: any folder.

    Raises:
        InContextError: A file cannot be read, or contains invalid rows. The error lists the lines.
    """
    source = Path(path)
    if is_folder(source):
        return {file.stem: _checked_rows(_read(file, root), str(file)) for file in _split_files(source)}
    data = _read(source, root)
    if isinstance(data, dict):
        return {name: _checked_rows(rows, f"{source}: split {name!r}") for name, rows in data.items()}
    return _checked_rows(data, str(source))


def _split_files(folder: Path) -> list[Path]:
    """Return the files of the splits in a folder."""
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() in _READERS)
    if not files:
        text = f"{folder}: no file of rows in the folder; expected {', '.join(_READERS)}"
        raise InContextError(text, path=str(folder))
    duplicates = ", ".join(sorted([name for name, count in Counter(file.stem for file in files).items() if count > 1]))
    if duplicates:
        raise InContextError(f"{folder}: several files of the split {duplicates}", path=str(folder), name=duplicates)
    return files


def _read(file: Path, root: Path | None) -> Any:
    read = _READERS.get(file.suffix.lower())
    if read is None:
        if not os.path.lexists(file):
            raise InContextError(f"{file}: the file or folder does not exist; check the path", path=str(file))
        text = f"{file}: expected the name of a file that ends in {', '.join(_READERS)}"
        raise InContextError(text, path=str(file), value=file.suffix)
    try:
        text = read_regular_text(file, _MAX_FILE, folder=root)
    except FileNotFoundError as error:
        raise InContextError(f"{file}: the file does not exist; check the path", path=str(file)) from error
    except (OSError, ValueError) as error:
        raise InContextError(f"{file}: cannot be read ({error})", path=str(file)) from error
    return read(text, file)


def _checked_rows(rows: Any, where: str) -> _Rows:
    if not isinstance(rows, list):
        text = f"{where}: expected a list of rows, got {type(rows).__name__}"
        raise InContextError(text, path=where, value=type(rows).__name__)
    problems = [
        (f"row {number}", f"row {number} is a {type(row).__name__}")
        for number, row in enumerate(rows)
        if not isinstance(row, dict)
    ]
    if problems:
        raise _file_error(where, problems, "expected objects with a value for each column: ")
    if not rows:
        raise InContextError(f"{where}: no rows", path=where, name="rows")
    return rows


def _json_lines_rows(text: str, file: Path) -> _Rows:
    rows: _Rows = []
    problems: list[tuple[str, str]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = _json_data(line)
        except ValueError as error:
            problems.append((f"line {number}", f"line {number} is not JSON ({error})"))
            continue
        if isinstance(row, dict):
            rows.append(row)
        else:
            text = f"line {number} is a {type(row).__name__}, expected an object"
            problems.append((f"line {number}", text))
    if problems:
        raise _file_error(str(file), problems)
    return rows


def _json_rows(text: str, file: Path) -> Any:
    try:
        return _json_data(text)
    except ValueError as error:
        raise InContextError(f"{file}: is not JSON ({error})", path=str(file), name="JSON") from error


def _json_data(text: str) -> Any:
    """Return JSON data.

    Raises:
        ValueError: The text is not JSON, or an object contains a duplicate name.
    """
    data = from_json(text)
    # If the numbers of colons and of names are equal, no name is a duplicate: the slower check is not needed.
    if not isinstance(data, dict) or text.count(":") > len(data):
        json.loads(text, object_pairs_hook=_check_names)
    return data


def _check_names(pairs: list[tuple[str, Any]]) -> None:
    if len({name for name, _ in pairs}) < len(pairs):
        duplicates = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]
        raise ValueError(f"duplicate name {_joined_list(duplicates, ', ')}, with one value lost")


def _table_rows(text: str, file: Path) -> _Rows:
    dialect = "excel"
    if file.suffix.lower() == ".tsv":
        dialect = "excel-tab"
    reader = csv.reader(io.StringIO(text, newline=""), dialect, strict=True)
    rows: _Rows = []
    problems: list[tuple[str, str]] = []
    try:
        with _cells_of_any_length():
            names = next(reader, [])
            problems += _column_problems(names)
            for cells in reader:
                if len(cells) == len(names):
                    rows.append(dict(zip(names, cells, strict=True)))
                elif cells:
                    text = f"line {reader.line_num} has {len(cells)} cells, expected {len(names)}"
                    problems.append((f"line {reader.line_num}", text))
    except csv.Error as error:
        problems.append((f"line {reader.line_num}", f"line {reader.line_num}: {error}"))
    if problems:
        raise _file_error(str(file), problems)
    return rows


@contextmanager
def _cells_of_any_length() -> Iterator[None]:
    """Remove the limit of cells of the module `csv`, which is one for all threads."""
    with _CELL_LIMIT:
        limit = csv.field_size_limit(_MAX_CELL)
        try:
            yield
        finally:
            csv.field_size_limit(limit)


def _column_problems(names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the problems of column names."""
    unnamed = [str(number) for number, name in enumerate(names, 1) if not name.strip()]
    if unnamed:
        yield f"column {unnamed[0]}", f"column {_joined_list(unnamed, ', ')} has no name"
    duplicates = sorted([name for name, count in Counter(names).items() if count > 1 and name.strip()])
    if duplicates:
        yield (
            f"column {duplicates[0][:_MAX_PROBLEM]}",
            f"several columns have the name {_joined_list(duplicates, ', ')}",
        )


def _file_error(path: str, problems: list[tuple[str, str]], expected: str = "") -> InContextError:
    """Return the error that lists the problems of a file."""
    listed = _joined_list([text for _, text in problems])
    return InContextError(f"{path}: {expected}{listed}", path=path, problems=problems[:_MAX_PROBLEMS])


def _joined_list(problems: list[str], between: str = "; ") -> str:
    listed = [problem[:_MAX_PROBLEM] for problem in problems[:_MAX_LISTED]]
    if len(problems) > _MAX_LISTED:
        listed.append(f"and {len(problems) - _MAX_LISTED:,} more")
    return between.join(listed)


_READERS: Mapping[str, Callable[[str, Path], Any]] = {
    ".jsonl": _json_lines_rows,
    ".json": _json_rows,
    ".csv": _table_rows,
    ".tsv": _table_rows,
}
