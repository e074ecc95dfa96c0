"""The rows of a whole store: read in one snapshot, or written into an empty store of either database."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from sqlalchemy import (
    ColumnElement,
    Connection,
    ForeignKey,
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
from agentkit_memory.database.readable_rows import texts_as_they_are
from agentkit_memory.database.stored_values import expected_instead
from agentkit_memory.database.tables import (
    METADATA,
    branches,
    conversations,
    recall_logs,
    vector_spaces,
    vector_state,
)
from agentkit_memory.errors import EmbedderError, NotFound, StoreCorrupt, StoreError
from agentkit_memory.process.failpoints import failpoint
from agentkit_memory.store.outbox import hold_spaces, reset
from agentkit_memory.store.spaces import FACTS, Space, active_space, known_spaces
from agentkit_memory.terms.bm25_vectors import SPACE

__all__ = ["Batch", "fill", "read_rows"]

Batch: TypeAlias = tuple[Table, list[Mapping[str, Any]]]
"""Some rows of a table, by the names of its columns."""

_LOG = logging.getLogger("agentkit.memory")
_BATCH = 500
# What is about an index stays behind: the index is built anew beside the rows. Which turns facts were taken from is
# kept in the outbox, too, and comes along.
_CLEARED: Mapping[str, Mapping[str, object]] = {
    "vector_spaces": {"index_id": "", "writes": 0},
    "vector_state": {"leased_by": None, "leased_until": None},
}
_LEFT_OUT = {"vector_spaces": vector_spaces.c.state != "retired", "vector_state": vector_state.c.space == FACTS}


def read_rows(connection: Connection) -> Iterator[Batch]:
    """Yield every row that is not about an index, owners before what belongs to them.

    A row that is damaged, so that no other store takes it, is left out with what belongs to it, and logged: the others
    are not to be lost with it.

    Args:
        connection: A snapshot.
    """
    damaged: dict[str, int] = {}
    example = ""
    gone: dict[str, set[object]] = {}  # ids of rows that were left out, by their tables
    for table in METADATA.sorted_tables:
        owners = [next(iter(key.elements)) for key in table.foreign_key_constraints]
        rows = select(table, *(_is_owned(each).label(f"owned {n}") for n, each in enumerate(owners)))
        if table.name in _LEFT_OUT:
            rows = rows.where(_LEFT_OUT[table.name])
        rows = rows.order_by(*table.primary_key)
        for some in _pages(connection, rows):
            sound: list[Mapping[str, Any]] = []
            for values in some:
                row: Mapping[str, Any] = dict(zip(table.columns.keys(), values, strict=False))
                lost = [
                    each.parent.name
                    for each, owned in zip(owners, values[len(row) :], strict=True)
                    if not owned or row[each.parent.name] in gone.get(each.column.table.name, ())
                ]
                problem = f"its {lost[0]} is that of no row, or of a damaged one" if lost else _problem(table, row)
                if not problem:
                    sound.append({**row, **_CLEARED.get(table.name, {})})
                    continue
                keys = [row[each.name] for each in table.primary_key]
                gone.setdefault(table.name, set()).add(keys[0])
                damaged[table.name] = damaged.get(table.name, 0) + 1
                example = example or f"{table.name} {', '.join(f'{key!r:.60}' for key in keys)} ({problem})"
            if sound:
                yield table, sound
    if damaged:
        counts = ", ".join(f"{count} of {name}" for name, count in damaged.items())
        _LOG.warning("damaged rows were left out: %s; the first is %s", counts, example)


def _pages(connection: Connection, rows: Select[Any]) -> Iterator[Sequence[Row[Any]]]:
    with texts_as_they_are(connection):
        pages = connection.execution_options(stream_results=True).execute(rows).partitions(_BATCH)
    while True:
        with texts_as_they_are(connection):
            some = next(pages, None)
        if some is None:
            return
        yield some


def _is_owned(key: ForeignKey) -> ColumnElement[bool]:
    owner = key.column.table.alias("owner")
    return or_(key.parent.is_(None), select(owner).where(owner.c[key.column.name] == key.parent).exists())


def _problem(table: Table, row: Mapping[str, object]) -> str:
    for column in table.columns:
        if expected := expected_instead(column, row[column.name]):
            return f"its {column.name} is {row[column.name]!r:.40}, expected {expected}"
    return ""


def fill(database: Database, batches: Iterable[Batch], source: str) -> dict[str, int]:
    """Write rows into an empty store, in one transaction, and queue all of its items for an index.

    Args:
        database: The empty store.
        batches: Owners before what belongs to them.
        source: Where the rows come from, for errors.

    Returns:
        How many rows were written, per table.

    Raises:
        StoreError: The store is not empty. Nothing was written.
        EmbedderError: The store was opened with another model than the rows were read by.
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
            _count_on(connection)
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
    kept = [table for table in METADATA.sorted_tables if table not in about_index]
    held = [table.name for table in kept if connection.execute(select(*table.primary_key).limit(1)).first()]
    if held:
        raise StoreError(
            f"{where}: this store holds rows already (in {', '.join(held)}), so nothing was written: restore into an "
            "empty one, a new folder or a new database",
            name="rows",
            value=", ".join(held),
        )


def _check_model(before: Space, now: Space, source: str) -> None:
    if before.model and before.model != now.model:
        by = f"model {now.model!r}" if now.model else "BM25 alone"
        raise EmbedderError(
            f"{source}: it was read by {by}, this store was opened with model {before.model!r}; nothing was written: "
            "open it without that embedder, restore, and change the model afterwards",
            name="embedder",
            value=before.model,
        )


def _count_on(connection: Connection) -> None:
    """Let a server number new rows after those that were written; SQLite does by itself."""
    if connection.dialect.name == "sqlite":
        return
    for table in (conversations, branches, recall_logs):
        highest = connection.scalar(select(func.max(table.c.id)))
        if highest is not None:
            sequence = func.pg_get_serial_sequence(table.name, "id")
            connection.execute(select(func.setval(cast(sequence, REGCLASS), highest)))
