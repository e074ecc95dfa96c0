"""Exports: all rows of a store as JSON lines, equal for SQLite and PostgreSQL.

The first line names the format, and the last line contains the number of rows and a digest of the lines before it.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Column, Float, LargeBinary, Table

from agentkit_memory.admin.new_files import file_problem, new_file
from agentkit_memory.admin.table_rows import Batch, read_rows
from agentkit_memory.database.engine import Database
from agentkit_memory.database.migrate import REVISION
from agentkit_memory.database.rows import expected_value
from agentkit_memory.database.tables import METADATA
from agentkit_memory.errors import InvalidArgument, StoreCorrupt, StoreVersion
from agentkit_memory.process.failpoints import failpoint
from agentkit_memory.store.item_rows import in_batches
from agentkit_prompts.system.regular_files import open_regular

EXPORT_START = b'{"agentkit-memory-export": '
"""First bytes of an export."""

_FORMAT = 1
_NAME = "agentkit-memory-export"
_MAX_PROBLEMS = 10
"""Maximum number of problems in an error message."""


class _Line(NamedTuple):
    """A row of an export, or the problem of its line."""

    number: int
    table: Table
    row: Mapping[str, Any]
    problem: str = ""
    """Problem of the line; empty if it is valid."""
    name: str = ""
    """Names of the invalid or missing columns."""

    def __str__(self) -> str:
        return f"line {self.number} {self.problem}"


def write_export(database: Database, path: Path) -> int:
    """Write an export and return the number of its rows; see `Admin.export`."""
    rows = 0
    with new_file(path) as draft:
        digest = hashlib.sha256()
        with draft.open("wb") as file, database.snapshot() as connection:

            def write_line(value: Mapping[str, object]) -> None:
                separators = None
                # Rows are compact. The header has the spaces of `EXPORT_START`.
                if "row" in value:
                    separators = (",", ":")
                encoded = json.dumps(value, ensure_ascii=False, separators=separators).encode("utf-8") + b"\n"
                digest.update(encoded)
                file.write(encoded)

            write_line({_NAME: _FORMAT, "revision": REVISION, "at": database.clock()})
            for table, batch in read_rows(connection):
                for row in batch:
                    write_line({"table": table.name, "row": {name: _json_value(value) for name, value in row.items()}})
                rows += len(batch)
                failpoint("export.rows")
            file.write(json.dumps({"rows": rows, "sha256": digest.hexdigest()}).encode() + b"\n")
        failpoint("export.ended")
    return rows


def _json_value(value: object) -> object:
    if isinstance(value, bytes | memoryview):
        return b64encode(value).decode("ascii")
    return value


def exported_rows(path: Path) -> Callable[[], Iterator[Batch]]:
    """Check a whole export, and return a function that reads its rows.

    Raises:
        StoreCorrupt: The export is cut or corrupt; the error lists up to ten problems with their lines.
        StoreVersion: Another version of agentkit wrote it.
    """
    try:
        _check_digest(path)
        invalid = [line for line in _lines(path) if line.problem]
    except OSError as error:
        raise file_problem(path, error) from error
    if invalid:
        problems = "; ".join(map(str, invalid[:_MAX_PROBLEMS]))
        if len(invalid) > _MAX_PROBLEMS:
            problems += f" and {len(invalid) - _MAX_PROBLEMS} more"
        raise StoreCorrupt(
            f"{path}: {problems}; nothing was written: export it again",
            path=str(path),
            name=invalid[0].name or None,
            line=invalid[0].number,
            problems=[(f"line {line.number}", line.problem) for line in invalid],
        )
    return lambda: _batches(path)


def _batches(path: Path) -> Iterator[Batch]:
    for table, lines in groupby(_lines(path), attrgetter("table")):
        for batch in in_batches(lines):
            yield table, [line.row for line in batch]


def _check_digest(path: Path) -> None:
    digest, number, last = hashlib.sha256(), 0, b""
    with open_regular(path) as file:
        for number, line in enumerate(file, 1):
            if number == 1:
                _check_header(path, line)
            else:
                digest.update(last)
            last = line
    if number < 2 or not last.endswith(b"\n"):
        raise _cut(path, number)
    try:
        end = json.loads(last)
        rows, stored = end["rows"], end["sha256"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise _cut(path, number) from None
    if rows != number - 2 or stored != digest.hexdigest():
        raise _corrupt(path, "its digest does not match its lines")


def _cut(path: Path, number: int) -> StoreCorrupt:
    return _corrupt(path, f"its last line {number} is not the end of an export, so it was cut or is not an export")


def _corrupt(path: Path, reason: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"{path}: this export is corrupt ({reason}); nothing was written: use another copy, or export the store again",
        path=str(path),
    )


def _check_header(path: Path, line: bytes) -> None:
    try:
        header = json.loads(line)
        version, revision = header[_NAME], header["revision"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise _cut(path, 1) from None
    if version != _FORMAT or revision != REVISION:
        raise StoreVersion(
            f"{path}: an export in format {version!r:.20} at revision {revision!r:.20}; this agentkit reads format "
            f"{_FORMAT} at revision {REVISION!r}: restore it with the agentkit that wrote it, and open that store",
            path=str(path),
            name="format",
            value=str(version),
        )


def _lines(path: Path) -> Iterator[_Line]:
    """Yield the rows of an export, and the lines that are not valid rows."""
    with open_regular(path) as file:
        next(file)
        line = next(file)
        # The last line is the digest: a line is a row only if another line follows.
        for number, following in enumerate(file, 2):
            yield _line(number, line)
            line = following


def _line(number: int, line: bytes) -> _Line:
    # The table of a line with a problem is not used.
    any_table = METADATA.sorted_tables[0]
    try:
        value = json.loads(line)
        table = METADATA.tables[value["table"]]
        row = {name: _read(table, name, each) for name, each in value["row"].items()}
    except InvalidArgument as error:
        return _Line(number, any_table, {}, str(error), str(error.name))
    except (ValueError, RecursionError):
        return _Line(number, any_table, {}, "is not JSON")
    except (TypeError, AttributeError):
        return _Line(number, any_table, {}, "is not a row of a table")
    except KeyError as error:
        return _Line(number, any_table, {}, f"names no table of this version ({error})", "table")
    missing = ", ".join([each.name for each in table.columns if _is_required(each) and each.name not in row])
    if missing:
        return _Line(number, any_table, {}, f"has no {missing}", missing)
    return _Line(number, table, row)


def _is_required(column: Column[Any]) -> bool:
    return not column.nullable and column.server_default is None


def _read(table: Table, name: str, value: object) -> object:
    """Return the value of a column from its JSON value.

    Raises:
        InvalidArgument: The column is unknown, or the value has another type. The message continues "line N".
    """
    column = table.columns.get(name)
    if column is None:
        raise InvalidArgument(f"has a column {name!r:.40} that table {table.name!r} does not have", name=name)
    decoded = value
    if isinstance(column.type, LargeBinary) and isinstance(value, str):
        with suppress(ValueError):
            decoded = b64decode(value, validate=True)
    expected = expected_value(column, decoded)
    if not expected:
        # JSON may contain 5 instead of 5.0.
        if isinstance(column.type, Float) and isinstance(decoded, int):
            return float(decoded)
        return decoded
    if expected == "bytes":
        expected = "bytes in base64"
    raise InvalidArgument(f"has {value!r:.40} as {table.name}.{name}, expected {expected}", name=name)
