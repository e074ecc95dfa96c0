"""Damaged rows of a whole store: named for `Admin.verify`, moved to a file for `Admin.repair`."""

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
from agentkit_memory.conversations.branch import EDIT
from agentkit_memory.conversations.message_rows import dump
from agentkit_memory.conversations.turns import REDACTED
from agentkit_memory.database.engine import Database
from agentkit_memory.database.rows import column_problem, is_text, raw_rows
from agentkit_memory.database.tables import METADATA, branches, documents, item_sources, items, messages
from agentkit_memory.errors import StoreCorrupt
from agentkit_memory.store.item_rows import forget_items, in_batches
from agentkit_memory.store.metadata import read_metadata
from agentkit_memory.store.recall_logs import LOG_READERS
from agentkit_memory.store.records import TURN
from agentkit_memory.store.stored_item import ROLES
from agentkit_prompts.context.messages import MESSAGE_FORMAT, MESSAGES, Message

__all__ = ["corrupt_rows", "file_problems", "move_corrupt_rows"]

_READERS: Mapping[str, Mapping[str, Callable[[Any], object]]] = {
    "documents": {"meta": read_metadata},
    "items": {"meta": read_metadata},
    "chunk_moves": {"meta": read_metadata},
    "recall_logs": LOG_READERS,
    "messages": {"body": MESSAGES.validate_json},
    "branch_notes": {"body": json.loads},
    "erasures": {"counts": json.loads},
}
"""Readers of the columns with JSON, by table; each raises an error if the JSON is damaged."""

_SEQS = select(messages.c.seq)
_UNKNOWN_HASH = "removed"
"""Content hash of a document that lost a chunk: it differs from every hash, so that the next ingestion writes it."""


class _Found(NamedTuple):
    """A row that is to be removed unless it has changed since it was read."""

    row: Mapping[str, Any]
    digest: int


def file_problems(database: Database) -> tuple[str, ...]:
    """Return the problems of a SQLite file that `PRAGMA integrity_check` finds, up to 100."""
    if not database.is_sqlite:
        return ()
    try:
        with database.read() as connection:
            found = connection.exec_driver_sql("PRAGMA integrity_check").scalars().all()
    except StoreCorrupt as error:
        return (str(error),)
    return tuple([str(each) for each in found if each != "ok"])


def corrupt_rows(connection: Connection) -> Iterator[RowProblem]:
    """Yield every damaged row, with the rows that belong to it."""
    for table, sound, corrupt in read_pages(connection):
        yield from corrupt
        for row in sound:
            column, problem = _content_problem(table, row)
            if problem:
                yield RowProblem(table, row, column, problem)


def _content_problem(table: Table, row: Mapping[str, Any]) -> tuple[str, str]:
    """Return the column whose content is damaged, and its problem; empty texts if the content is sound."""
    if table is messages and row["format"] > MESSAGE_FORMAT:
        return "", ""  # a newer version reads it
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
    """Write damaged rows to a new file of JSON lines, then remove them; return their number.

    The facts that were taken from a damaged item are moved with it. A message becomes a redacted message, so that the
    other messages keep their numbers. A document that lost a chunk is written again by the next ingestion of its file.

    Raises:
        StoreUnavailable: The file exists, it cannot be made, or the disk is full. Nothing was removed.
    """
    found: dict[Table, list[_Found]] = {}
    with new_file(path) as draft, draft.open("w", encoding="utf-8") as file, database.snapshot() as connection:
        for corrupt in _with_derived(connection, corrupt_rows(connection)):
            row = {name: _written(value) for name, value in corrupt.row.items()}
            problem = f"its {corrupt.column} {corrupt.problem}"
            file.write(json.dumps({"table": corrupt.table.name, "problem": problem, "row": row}) + "\n")
            found.setdefault(corrupt.table, []).append(_Found(corrupt.row, hash(tuple(corrupt.row.values()))))
    for table in reversed(METADATA.sorted_tables):  # rows before the rows that they belong to
        for batch in in_batches(found.get(table, ())):
            database.change(partial(_remove, table, batch))
    lost = {row["document_id"] for row, _ in found.get(items, ()) if is_text(row["document_id"])}
    gaps = Counter(row["branch_id"] for row, _ in found.get(messages, ()) if is_text(row["branch_id"]))
    database.change(partial(_complete, database.clock(), lost, gaps))
    return sum(map(len, found.values()))


def _with_derived(connection: Connection, corrupt: Iterator[RowProblem]) -> Iterator[RowProblem]:
    """Yield damaged rows, then the facts that were taken from damaged items, which are deleted with them."""
    seen: set[object] = set()
    for each in corrupt:
        if each.table is items:
            seen.add(each.row["id"])
        yield each
    ahead: set[object] = {each for each in seen if is_text(each)}
    while ahead:
        facts: set[object] = set()
        for some in in_batches(sorted(ahead, key=str)):
            derived = select(item_sources.c.item_id).where(item_sources.c.source_id.in_(some))
            facts.update(row.item_id for row in raw_rows(connection, derived, {}) if is_text(row.item_id))
        ahead = facts - seen
        seen |= ahead
        for some in in_batches(sorted(ahead, key=str)):
            for row in raw_rows(connection, select(items).where(items.c.id.in_(some)), {}):
                yield RowProblem(items, row._asdict(), "source", "is a damaged item")


def _written(value: object) -> object:
    """Return a value as JSON can contain it: bytes, and text that is not UTF-8, as hexadecimal digits."""
    if isinstance(value, bytes | memoryview):
        return {"bytes": value.hex()}
    if isinstance(value, str) and not is_text(value):
        return {"text": value.encode("utf-8", "surrogateescape").hex()}
    return value


def _remove(table: Table, found: Sequence[_Found], connection: Connection) -> None:
    """Delete the rows that did not change since they were read; items from the index too, with their facts."""
    for row, digest in found:
        this = [_equals(table, column.name, row[column.name]) for column in table.primary_key]
        stored = raw_rows(connection, select(table).where(*this), {})
        if not stored or hash(tuple(stored[0])) != digest:
            continue
        if table is items and is_text(row["id"]):
            forget_items(connection, [row["id"]])
        connection.execute(delete(table).where(*this))


def _equals(table: Table, name: str, value: object) -> ColumnElement[bool]:
    """Return the condition that a column contains a value, which may be of any type."""
    column = table.c[name]
    if not column_problem(column, value):
        return column == value
    if isinstance(value, str):
        return column == cast(literal(value.encode("utf-8", "surrogateescape"), LargeBinary()), Text())
    return column == literal(value, NullType())


def _complete(now: float, lost: Collection[str], gaps: Mapping[int, int], connection: Connection) -> None:
    """Prepare documents that lost chunks for their next ingestion, and fill the gaps in branches.

    Args:
        now: The time, in seconds since 1970.
        lost: Ids of documents.
        gaps: Numbers of removed messages, by the ids of their branches.
        connection: In a transaction.
    """
    for some in in_batches(lost):
        incomplete = update(documents).where(documents.c.id.in_(some), documents.c.content_hash != "")
        connection.execute(incomplete.values(content_hash=_UNKNOWN_HASH, stamp=""))
    for branch, removed in gaps.items():
        _fill_gaps(connection, branch, now, removed)


def _fill_gaps(connection: Connection, branch: int, now: float, removed: int) -> None:
    """Put redacted messages in the places of the messages that were removed from a branch."""
    state = raw_rows(connection, select(branches).where(branches.c.id == branch), {})
    if not state:
        return
    stored = {row.seq for row in raw_rows(connection, _SEQS.where(messages.c.branch_id == branch), {})}
    first, last = state[0].fork_seq + 1, state[0].head_seq
    if last - first + 1 > len(stored) + removed:  # the number itself is damaged
        return
    gaps = [seq for seq in range(first, last + 1) if seq not in stored]
    if not gaps:
        return
    body = dump("", Message("user", REDACTED))
    common = {"branch_id": branch, "format": MESSAGE_FORMAT, "body": body, "created_at": now, "redacted_at": now}
    connection.execute(insert(messages), [{"seq": seq, **common} for seq in gaps])
    connection.execute(EDIT, {"conversation": state[0].conversation_id})
    turns = select(items.c.id).where(items.c.branch_id == branch, items.c.position.in_(gaps))
    forget_items(connection, connection.scalars(turns).all())
