"""The rows of a whole store: read in one snapshot, or written into an empty store."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Row,
    Select,
    Table,
    cast,
    delete,
    func,
    insert,
    or_,
    select,
)
from sqlalchemy.dialects.postgresql import REGCLASS
from sqlalchemy.exc import IntegrityError

from agentkit_memory.database.engine import Database
from agentkit_memory.database.rows import column_problem, raw_texts
from agentkit_memory.database.tables import (
    METADATA,
    branches,
    conversations,
    items,
    recall_logs,
    vector_spaces,
    vector_state,
)
from agentkit_memory.errors import EmbedderError, NotFound, StoreCorrupt, StoreError
from agentkit_memory.process.failpoints import failpoint
from agentkit_memory.store.outbox import hold_spaces, reset
from agentkit_memory.store.spaces import FACTS, Space, active_space, known_spaces
from agentkit_memory.terms.bm25_vectors import SPACE

Batch: TypeAlias = tuple[Table, list[Mapping[str, Any]]]
"""A table, and some of its rows by the names of their columns."""

_LOG = logging.getLogger("agentkit.memory")
_BATCH = 500
_CLEARED: Mapping[str, Mapping[str, object]] = {
    "vector_spaces": {"index_id": "", "writes": 0},
    "vector_state": {"leased_by": None, "leased_until": None},
}
"""Values of columns, by table, that describe an index or a worker of the old store."""
_ALL_ROWS: Mapping[str, ColumnElement[bool]] = MappingProxyType({})
# The outbox of an index is not copied, since the index is built again from the rows. The queue of the fact workers,
# which is in the same table, is copied.
_COPIED = {"vector_spaces": vector_spaces.c.state != "retired", "vector_state": vector_state.c.space == FACTS}
"""Conditions of the rows to copy, by table; all rows of the other tables are copied."""


class RowProblem(NamedTuple):
    """A corrupt row, or a row that belongs to a corrupt row."""

    table: Table
    row: Mapping[str, Any]
    column: str
    problem: str
    """Problem of the value in the column."""


class Page(NamedTuple):
    """Some rows of a table, decoded."""

    table: Table
    sound: list[Mapping[str, Any]]
    corrupt: list[RowProblem]


def read_rows(connection: Connection) -> Iterator[Batch]:
    """Yield every row except the state of the index, owners before the rows that belong to them.

    Corrupt rows, which no other store accepts, are left out with the rows that belong to them, and logged.

    Args:
        connection: Connection of a snapshot.
    """
    counts: Counter[str] = Counter()
    example = ""
    for table, sound, corrupt in read_pages(connection, _COPIED):
        if sound:
            yield table, [{**row, **_CLEARED.get(table.name, {})} for row in sound]
        counts[table.name] += len(corrupt)
        if corrupt and not example:
            example = f"{table.name} {keys_of(corrupt[0])} (its {corrupt[0].column} {corrupt[0].problem})"
    if example:
        left_out = ", ".join(f"{count} of {name}" for name, count in counts.items() if count)
        _LOG.warning("corrupt rows were left out: %s; the first is %s", left_out, example)


def read_pages(connection: Connection, conditions: Mapping[str, ColumnElement[bool]] = _ALL_ROWS) -> Iterator[Page]:
    """Yield all rows in pages, owners before the rows that belong to them.

    Args:
        connection: Connection of a snapshot.
        conditions: Conditions of the rows to read, by the name of their table.
    """
    # Ids of corrupt rows, by their tables: rows that belong to a corrupt row count as corrupt.
    corrupt_ids: dict[str, set[object]] = {}
    for table in METADATA.sorted_tables:
        owners = [(key.parent, key.column) for key in sorted(table.foreign_keys, key=lambda key: key.parent.name)]
        if table is items:
            # Items have no foreign key to branches, because the items of a deleted branch are removed in steps.
            owners.append((items.c.branch_id, branches.c.id))
        rows = select(table, *(_is_owned(*each).label(f"owned {n}") for n, each in enumerate(owners)))
        if table.name in conditions:
            rows = rows.where(conditions[table.name])
        for batch in _batches(connection, rows.order_by(*table.primary_key)):
            page = Page(table, [], [])
            for values in batch:
                row: Mapping[str, Any] = dict(zip(table.columns.keys(), values, strict=False))
                column, problem = _problem(table, row)
                for (child, owner), is_owned in zip(owners, values[len(row) :], strict=True):
                    if not is_owned or row[child.name] in corrupt_ids.get(owner.table.name, ()):
                        column, problem = child.name, "belongs to a missing or corrupt row"
                if problem:
                    corrupt_ids.setdefault(table.name, set()).add(row[next(iter(table.primary_key)).name])
                    page.corrupt.append(RowProblem(table, row, column, problem))
                else:
                    page.sound.append(row)
            yield page


def keys_of(corrupt: RowProblem) -> str:
    """Return the primary key of a row as text."""
    return ", ".join(f"{corrupt.row[each.name]!a:.60}" for each in corrupt.table.primary_key)


def _batches(connection: Connection, rows: Select[Any]) -> Iterator[Sequence[Row[Any]]]:
    """Yield batches of rows with undecoded texts; the caller reads texts normally between two batches."""
    with raw_texts(connection):
        batches = connection.execution_options(stream_results=True).execute(rows).partitions(_BATCH)
    while True:
        with raw_texts(connection):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def _is_owned(child: ColumnElement[Any], owner: Column[Any]) -> ColumnElement[bool]:
    """Return the condition that the owner of a row exists, or that the row has no owner."""
    owners = owner.table.alias("owner")
    return or_(child.is_(None), select(owners).where(owners.c[owner.name] == child).exists())


def _problem(table: Table, row: Mapping[str, object]) -> tuple[str, str]:
    """Return the first column with an invalid value, and the problem; empty texts if all values are valid."""
    for column in table.columns:
        if problem := column_problem(column, row[column.name]):
            return column.name, problem
    return "", ""


def fill(database: Database, batches: Iterable[Batch], source: str) -> dict[str, int]:
    """Write rows into an empty store, in one transaction, and queue all items for the index.

    Args:
        database: The empty store.
        batches: Rows, owners before the rows that belong to them.
        source: Source of the rows, for errors.

    Returns:
        Number of rows that were written, per table.

    Raises:
        StoreError: The store is not empty. Nothing was written.
        EmbedderError: The store was opened with another model than the model of the rows.
        StoreCorrupt: The rows do not fit together.
    """
    counts: dict[str, int] = {}
    try:
        with database.write(may_clash=True) as connection:
            hold_spaces(connection, change=True)
            _check_empty(connection, database.where)
            before = active_space(connection)
            connection.execute(delete(vector_state))
            connection.execute(delete(vector_spaces))
            for table, rows in batches:
                connection.execute(insert(table), rows)
                counts[table.name] = counts.get(table.name, 0) + len(rows)
            _check_model(before, active_space(connection), source)
            _advance_sequences(connection)
            for space in known_spaces(connection, "active", "building") or [Space(SPACE)]:
                reset(connection, space.name, database.clock())
            failpoint("restore.written")
    except (IntegrityError, NotFound) as error:
        cause = str(getattr(error, "orig", None) or error).splitlines()[0][:200]
        raise StoreCorrupt(
            f"{source}: its rows do not fit together ({cause}); nothing was written: use another copy",
            path=str(source),
            name="rows",
        ) from error
    failpoint("restore.committed")
    return counts


def _check_empty(connection: Connection, where: str) -> None:
    about_index = (vector_spaces, vector_state)
    tables = [table for table in METADATA.sorted_tables if table not in about_index]
    filled = [table.name for table in tables if connection.execute(select(*table.primary_key).limit(1)).first()]
    if filled:
        raise StoreError(
            f"{where}: this store is not empty (rows in {', '.join(filled)}), so nothing was written: restore into an "
            "empty store, a new folder or a new database",
            name="rows",
            value=", ".join(filled),
        )


def _check_model(before: Space, now: Space, source: str) -> None:
    if before.model and before.model != now.model:
        model = "BM25 alone"
        if now.model:
            model = f"model {now.model!r}"
        raise EmbedderError(
            f"{source}: its rows use {model}, this store was opened with model {before.model!r}; nothing was written: "
            "open it without that embedder, restore, and change the model afterwards",
            name="embedder",
            value=before.model,
        )


def _advance_sequences(connection: Connection) -> None:
    """Set the sequences of PostgreSQL to the highest ids that were written. SQLite needs no change."""
    if connection.dialect.name == "sqlite":
        return
    for table in (conversations, branches, recall_logs):
        highest = connection.scalar(select(func.max(table.c.id)))
        if highest is not None:
            sequence = func.pg_get_serial_sequence(table.name, "id")
            connection.execute(select(func.setval(cast(sequence, REGCLASS), highest)))
