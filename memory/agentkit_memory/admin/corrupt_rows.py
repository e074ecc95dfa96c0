"""Search for the corrupt rows of a store (`Admin.verify`), and their move to a file (`Admin.repair`)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    LargeBinary,
    Table,
    Text,
    cast,
    delete,
    insert,
    literal,
    select,
    update,
)
from sqlalchemy.types import NullType

from agentkit_memory.admin.new_files import new_file
from agentkit_memory.admin.table_rows import RowProblem, read_pages
from agentkit_memory.checks import is_whole
from agentkit_memory.conversations.branch import EDIT
from agentkit_memory.conversations.message_rows import dump, read_body
from agentkit_memory.conversations.turns import REDACTED
from agentkit_memory.database.engine import Database
from agentkit_memory.database.rows import column_problem, is_decoded, is_decoded_text, raw_rows
from agentkit_memory.database.tables import (
    METADATA,
    branches,
    document_chunks,
    documents,
    item_sources,
    items,
    messages,
)
from agentkit_memory.errors import StoreCorrupt
from agentkit_memory.store.item_removal import forget_items
from agentkit_memory.store.item_rows import in_batches
from agentkit_memory.store.metadata import read_metadata
from agentkit_memory.store.recall_logs import LOG_READERS
from agentkit_memory.store.records import TURN
from agentkit_memory.store.stored_item import ROLES
from agentkit_prompts.context.messages import MESSAGE_FORMAT, Message

_READERS: Mapping[str, Mapping[str, Callable[[Any], object]]] = {
    "documents": {"meta": read_metadata},
    "items": {"meta": read_metadata},
    "document_chunks": {"meta": read_metadata},
    "recall_logs": LOG_READERS,
    "messages": {"body": read_body},
    "branch_notes": {"body": json.loads},
    "erasures": {"counts": json.loads},
}
"""Readers of columns, by table and column; a reader raises an error if the content is corrupt."""

_MESSAGE_NUMBERS = select(messages.c.seq)
_UNKNOWN_HASH = "removed"
"""Content hash of a document that lost a chunk: it differs from every hash, so that the next ingestion writes it."""


class _MovedRow(NamedTuple):
    """A row that was written to the file. It is removed from the table unless it has changed since it was read."""

    key: Mapping[str, Any]
    """Primary key of the row."""
    owner: Any
    """Document of an item or a chunk, or branch of a message; None for other rows."""
    digest: int


def file_problems(database: Database) -> tuple[str, ...]:
    """Return up to 100 problems that `PRAGMA integrity_check` finds in a SQLite file; none for PostgreSQL."""
    if not database.is_sqlite:
        return ()
    try:
        with database.read() as connection:
            lines = connection.exec_driver_sql("PRAGMA integrity_check").scalars().all()
    except StoreCorrupt as error:
        return (str(error),)
    return tuple([str(each) for each in lines if each != "ok"])


def corrupt_rows(connection: Connection) -> Iterator[RowProblem]:
    """Yield every corrupt row, and the rows that belong to corrupt rows."""
    for table, sound, corrupt in read_pages(connection):
        yield from corrupt
        for row in sound:
            column, problem = _content_problem(table, row)
            if problem:
                yield RowProblem(table, row, column, problem)


def _content_problem(table: Table, row: Mapping[str, Any]) -> tuple[str, str]:
    """Return the column whose content is corrupt, and its problem; empty texts if the content is sound."""
    if table is messages and row["format"] > MESSAGE_FORMAT:
        # A newer version wrote the message: this version cannot decide if it is corrupt.
        return "", ""
    if table is items and row["kind"] == TURN and row["role"] not in ROLES:
        return "role", f"is {row['role']!r:.40}"
    for column, read in _READERS.get(table.name, {}).items():
        try:
            read(row[column])
        except RecursionError:
            return column, "nests too deeply"
        except ValueError as error:
            return column, str(error).splitlines()[0][:200]
    return "", ""


def move_corrupt_rows(database: Database, path: Path) -> int:
    """Write corrupt rows to a new file of JSON lines, then remove them; return the number of written rows.

    The item of a corrupt chunk or message, and the facts that were taken from a corrupt item, are moved too. A corrupt
    message becomes a redacted message, so that the numbers of the other messages stay valid. A document that lost a
    chunk is written again by the next ingestion of its file. If the process ends before all rows are removed, the next
    repair moves the remaining rows.

    Raises:
        StoreUnavailable: The file exists, it cannot be created, or the disk is full. Nothing was removed.
    """
    moved: dict[Table, list[_MovedRow]] = {}
    with new_file(path) as draft, draft.open("w", encoding="utf-8") as file, database.snapshot() as connection:
        for corrupt in _with_dependents(connection, corrupt_rows(connection)):
            row = {name: _json_value(value) for name, value in corrupt.row.items()}
            problem = f"its {corrupt.column} {corrupt.problem}"
            file.write(json.dumps({"table": corrupt.table.name, "problem": problem, "row": row}) + "\n")
            moved.setdefault(corrupt.table, []).append(_moved(corrupt.table, corrupt.row))
    removed_owners = {each.key["id"] for table in (branches, documents) for each in moved.get(table, ())}
    for table in reversed(METADATA.sorted_tables):
        # Rows are removed before their owners, which a foreign key requires.
        for batch in _batches(table, moved.get(table, ())):
            database.change(partial(_remove, table, batch, removed_owners, database.clock()))
    return sum(map(len, moved.values()))


def _batches(table: Table, rows: Sequence[_MovedRow]) -> Iterator[Sequence[_MovedRow]]:
    """Yield the rows in batches. Messages of a branch with corrupt numbers are one batch, so that it fills all gaps."""
    numbered: list[_MovedRow] = []
    unnumbered: dict[object, list[_MovedRow]] = {}
    for row in rows:
        if table is messages and not is_whole(row.key["seq"]):
            unnumbered.setdefault(row.owner, []).append(row)
        else:
            numbered.append(row)
    yield from in_batches(numbered)
    yield from unnumbered.values()


def _moved(table: Table, row: Mapping[str, Any]) -> _MovedRow:
    owner = {items: "document_id", document_chunks: "document_id", messages: "branch_id"}.get(table)
    key = {column.name: row[column.name] for column in table.primary_key}
    digest = hash(tuple(row.values()))
    if owner is None:
        return _MovedRow(key, None, digest)
    return _MovedRow(key, row[owner], digest)


def _with_dependents(connection: Connection, corrupt: Iterator[RowProblem]) -> Iterator[RowProblem]:
    """Yield corrupt rows, the items of corrupt chunks and messages, and the facts that were taken from these items."""
    seen = _CorruptKeys(set(), set(), {})
    for each in corrupt:
        seen.add(each)
        yield each
    yield from _items_of_rows(connection, seen)
    yield from _facts_of(connection, seen.items)


class _CorruptKeys(NamedTuple):
    """Keys of the corrupt rows so far."""

    items: set[object]
    """Ids of items."""
    chunk_items: set[str]
    """Ids of the items of chunks."""
    messages: dict[object, list[object]]
    """Numbers of messages, by their branches."""

    def add(self, corrupt: RowProblem) -> None:
        """Add the key of a row."""
        table, row = corrupt.table, corrupt.row
        if table is items:
            self.items.add(row["id"])
        elif table is document_chunks and is_decoded_text(row["item_id"]):
            self.chunk_items.add(row["item_id"])
        elif table is messages:
            self.messages.setdefault(row["branch_id"], []).append(row["seq"])


def _items_of_rows(connection: Connection, seen: _CorruptKeys) -> Iterator[RowProblem]:
    """Yield the items of corrupt chunks and messages, and add their ids to `seen`."""
    for row in _rows_of(connection, seen.chunk_items - seen.items):
        seen.items.add(row.id)
        yield RowProblem(items, row._asdict(), "document_id", "has a corrupt chunk")
    for branch, numbers in seen.messages.items():
        for row in _turns_of(connection, branch, numbers):
            if row.id not in seen.items:
                seen.items.add(row.id)
                yield RowProblem(items, row._asdict(), "position", "is of a corrupt message")


def _facts_of(connection: Connection, ids: set[object]) -> Iterator[RowProblem]:
    """Yield the facts that were taken from items, directly or through other facts, and add their ids to `ids`."""
    unvisited: set[object] = {each for each in ids if is_decoded(each)}
    while unvisited:
        facts: set[object] = set()
        for batch in in_batches(sorted(unvisited, key=str)):
            derived = select(item_sources.c.item_id).where(item_sources.c.source_id.in_(batch))
            facts.update(row.item_id for row in raw_rows(connection, derived, {}) if is_decoded(row.item_id))
        unvisited = facts - ids
        ids |= unvisited
        for row in _rows_of(connection, unvisited):
            yield RowProblem(items, row._asdict(), "source", "is a corrupt item")


def _rows_of(connection: Connection, ids: Collection[object]) -> Iterator[Any]:
    """Yield the rows of items, with undecoded texts."""
    for batch in in_batches(sorted(ids, key=str)):
        yield from raw_rows(connection, select(items).where(items.c.id.in_(batch)), {})


def _turns_of(connection: Connection, branch: object, corrupt_numbers: Sequence[object]) -> Iterator[Any]:
    """Yield the items of corrupt messages, including messages whose numbers are corrupt."""
    if not is_decoded(branch):
        return
    stored = Counter(
        row.seq for row in raw_rows(connection, _MESSAGE_NUMBERS.where(messages.c.branch_id == branch), {})
    )
    # A message with a corrupt number leaves a gap in the numbers: its item has the number of the gap.
    stored.subtract(corrupt_numbers)
    for batch in in_batches(_gaps(connection, branch, +stored, len(corrupt_numbers))):
        turns = select(items).where(items.c.branch_id == branch, items.c.position.in_(batch))
        yield from raw_rows(connection, turns, {})


def _json_value(value: object) -> object:
    """Return the JSON value of a column: bytes, and text that is not UTF-8, become hexadecimal digits."""
    if isinstance(value, bytes | memoryview):
        return {"bytes": value.hex()}
    if isinstance(value, str) and not is_decoded(value):
        return {"text": value.encode("utf-8", "surrogateescape").hex()}
    return value


def _remove(
    table: Table, batch: Sequence[_MovedRow], removed_owners: Collection[object], now: float, connection: Connection
) -> None:
    """Delete the rows that have not changed since they were read, and repair their documents and branches.

    Args:
        table: Table of the rows.
        batch: The rows.
        removed_owners: Ids of the branches and documents that are removed too, and need no repair.
        now: The time, in seconds since 1970.
        connection: Connection in a transaction.
    """
    owners: dict[Any, list[_MovedRow]] = {}
    for moved in batch:
        owner = moved.owner
        needs_repair = owner is not None and owner not in removed_owners and is_decoded(owner)
        if _delete_unchanged(connection, table, moved) and needs_repair:
            owners.setdefault(owner, []).append(moved)
    if table in (items, document_chunks):
        for batch in in_batches(owners):
            incomplete = update(documents).where(documents.c.id.in_(batch), documents.c.content_hash != "")
            connection.execute(incomplete.values(content_hash=_UNKNOWN_HASH, stamp=""))
    elif table is messages:
        for branch, removed in owners.items():
            _fill_gaps(connection, branch, now, [moved.key["seq"] for moved in removed])


def _delete_unchanged(connection: Connection, table: Table, moved: _MovedRow) -> bool:
    """Delete a row, and an item from the index too; return False if the row has changed since it was read."""
    this = [_equals(table, name, value) for name, value in moved.key.items()]
    stored = raw_rows(connection, select(table).where(*this), {})
    if not stored or hash(tuple(stored[0])) != moved.digest:
        return False
    if table is items and is_decoded(moved.key["id"]):
        forget_items(connection, [moved.key["id"]])
    connection.execute(delete(table).where(*this))
    return True


def _equals(table: Table, name: str, value: object) -> ColumnElement[bool]:
    """Return the condition that a column contains a value, which may be of any type."""
    column = table.c[name]
    if not column_problem(column, value):
        return column == value
    if isinstance(value, str):
        return column == cast(literal(value.encode("utf-8", "surrogateescape"), LargeBinary()), Text())
    return column == literal(value, NullType())


def _gaps(connection: Connection, branch: object, stored: Collection[object], removed: int) -> list[int]:
    """Return the numbers of a branch that no stored message has; no number if the range of the branch is corrupt.

    Args:
        connection: Connection to read with.
        branch: Id of the branch.
        stored: Numbers of its messages.
        removed: Number of messages that are missing.
    """
    bounds = _range_of(connection, branch)
    if bounds is None:
        return []
    first, last = bounds
    # More gaps than missing messages: the range is corrupt, and may have billions of numbers.
    if last - first + 1 > len(stored) + removed:
        return []
    return [seq for seq in range(first, last + 1) if seq not in stored]


def _range_of(connection: Connection, branch: object) -> tuple[int, int] | None:
    """Return the first and the last number of the messages of a branch; None if its row is missing or corrupt."""
    state = raw_rows(connection, select(branches).where(branches.c.id == branch), {})
    if not state or not is_whole(state[0].fork_seq) or not is_whole(state[0].head_seq):
        return None
    return state[0].fork_seq + 1, state[0].head_seq


def _fill_gaps(connection: Connection, branch: int, now: float, removed: Sequence[object]) -> None:
    """Replace the messages that were removed from a branch, with these numbers, by redacted messages."""
    bounds = _range_of(connection, branch)
    gaps = [seq for seq in removed if bounds is not None and is_whole(seq, *bounds)]
    if len(gaps) < len(removed):
        # A corrupt number is not the number of the gap, which is found among all numbers of the branch.
        stored = {row.seq for row in raw_rows(connection, _MESSAGE_NUMBERS.where(messages.c.branch_id == branch), {})}
        gaps = _gaps(connection, branch, stored, len(removed))
    if not gaps:
        return
    body = dump("", Message("user", REDACTED))
    common = {"branch_id": branch, "format": MESSAGE_FORMAT, "body": body, "created_at": now, "redacted_at": now}
    connection.execute(insert(messages), [{"seq": seq, **common} for seq in gaps])
    conversation = connection.scalar(select(branches.c.conversation_id).where(branches.c.id == branch))
    connection.execute(EDIT, {"conversation": conversation})
    # A worker may have written items of these messages after the rows were read.
    turns = select(items.c.id).where(items.c.branch_id == branch, items.c.position.in_(gaps))
    forget_items(connection, connection.scalars(turns).all())
