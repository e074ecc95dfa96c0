"""Brings the vector index to the state that SQL wants.

`vector_state` is written in the transaction that writes the item: whoever writes items calls `enqueue` or `withdraw`,
and nobody else adds rows. The index is written and flushed first and the row acknowledged after it, so a crash in
between repeats a write and never loses one.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import (
    Connection,
    Select,
    bindparam,
    delete,
    func,
    insert,
    literal,
    literal_column,
    select,
    text,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from agentkit_memory.errors import IndexBusy
from agentkit_memory.index.base import Point, VectorIndex
from agentkit_memory.index.bm25 import SPACE, document_vector, indexed_text
from agentkit_memory.store.engine import Database
from agentkit_memory.store.tables import items, vector_spaces, vector_state

__all__ = ["attach", "catch_up", "enqueue", "hold_spaces", "pending", "withdraw", "written_spaces"]

_SPACES_LOCK = 0x61676E7370  # any number all of us agree on

_WRITTEN = (
    select(vector_spaces.c.space)
    .where(vector_spaces.c.state.in_(("active", "building")))
    .order_by(vector_spaces.c.space)
)
_NEXT = {"want": func.abs(vector_state.c.want) + 1}
_ADD = {
    "sqlite": sqlite.insert(vector_state).on_conflict_do_update(index_elements=["item_id", "space"], set_=_NEXT),
    "postgresql": postgresql.insert(vector_state).on_conflict_do_update(
        index_elements=["item_id", "space"], set_=_NEXT
    ),
}
_WITHDRAW = update(vector_state).where(vector_state.c.want > 0).values(want=-(vector_state.c.want + 1))
_WITHDRAW_ONE = _WITHDRAW.where(vector_state.c.item_id == bindparam("item"))

_BATCH = 512

_waiting = (vector_state.c.space == SPACE, vector_state.c.want != vector_state.c.have)
_PENDING = (
    select(vector_state.c.item_id, vector_state.c.want, items.c.title, items.c.text, items.c.scope_id)
    .outerjoin(items, items.c.id == vector_state.c.item_id)
    .where(*_waiting)
    .order_by(vector_state.c.item_id)
    .limit(_BATCH)
)
_OWNER = select(vector_spaces.c.index_id).where(vector_spaces.c.space == SPACE)
_COUNT = select(func.count()).select_from(vector_state).where(*_waiting)
_HELD = select(func.count()).select_from(vector_state).where(vector_state.c.space == SPACE, vector_state.c.have > 0)
_this = (vector_state.c.item_id == bindparam("item"), vector_state.c.space == SPACE)
_ACKNOWLEDGE = update(vector_state).where(*_this).values(have=bindparam("done"))
_FORGET = delete(vector_state).where(
    *_this, vector_state.c.want == bindparam("done"), vector_state.c.have == bindparam("done")
)


def hold_spaces(connection: Connection, *, change: bool = False) -> None:
    """Keep the set of spaces as it is until the transaction ends or, with `change`, be the only one to change it.

    Without it, an item could be written beside a space that is being added, and never reach it. SQLite has one writer
    at a time anyway.
    """
    if connection.dialect.name != "sqlite":
        lock = "pg_advisory_xact_lock" if change else "pg_advisory_xact_lock_shared"
        connection.execute(text(f"SELECT {lock}(:key)"), {"key": _SPACES_LOCK})


def written_spaces(connection: Connection) -> list[str]:
    """Return the spaces that every item belongs to: the active one and those being built."""
    return list(connection.scalars(_WRITTEN)) or [SPACE]


def enqueue(connection: Connection, item_ids: Sequence[str]) -> None:
    """Ask for the items to be indexed as they are now: they are new, or what is indexed of them has changed.

    An item whose removal is still waiting gets the next version.
    """
    if item_ids:
        hold_spaces(connection)
        spaces = written_spaces(connection)
        rows = [{"item_id": item, "space": space, "want": 1, "have": 0} for space in spaces for item in item_ids]
        connection.execute(_ADD[connection.dialect.name], rows)


def withdraw(connection: Connection, items: Sequence[str] | Select[tuple[str]]) -> None:
    """Ask for the items to be forgotten by every index: they are deleted, superseded or no longer to be found.

    Args:
        connection: Where the items are written; call it before they are deleted if `items` selects from them.
        items: Their ids, or a SELECT of them.
    """
    if isinstance(items, Select):
        connection.execute(_WITHDRAW.where(vector_state.c.item_id.in_(items)))
    elif items:
        connection.execute(_WITHDRAW_ONE, [{"item": item} for item in items])


def pending(database: Database) -> int:
    """Return how many items the index does not yet hold as it should."""
    with database.read() as connection:
        return int(connection.scalar(_COUNT) or 0)


def attach(database: Database, index: VectorIndex) -> None:
    """Make `vector_state` speak of this index; if it spoke of another or a damaged one, all is indexed anew."""
    with database.read() as connection:
        ours = connection.scalar(_OWNER) == index.id
        held = connection.scalar(_HELD) or 0
        waiting = connection.scalar(_COUNT) or 0
    points = index.count()
    # A crash before the acknowledgement leaves more done than is written down, but never more than was waiting.
    if ours and held - waiting <= points <= held + waiting:
        return
    if ours or points:
        index.clear()
    with database.write() as connection:
        connection.execute(delete(vector_state).where(vector_state.c.space == SPACE, vector_state.c.want < 0))
        connection.execute(update(vector_state).where(vector_state.c.space == SPACE).values(have=0))
        missing = select(items.c.id, literal(SPACE), literal_column("1"), literal_column("0")).where(
            ~select(vector_state.c.item_id)
            .where(vector_state.c.item_id == items.c.id, vector_state.c.space == SPACE)
            .exists()
        )
        connection.execute(insert(vector_state).from_select(["item_id", "space", "want", "have"], missing))
        connection.execute(delete(vector_spaces).where(vector_spaces.c.space == SPACE))
        connection.execute(insert(vector_spaces).values(space=SPACE, index_id=index.id))


def catch_up(database: Database, index: VectorIndex) -> int:
    """Bring the index to the wanted state and return how many items that took.

    Raises:
        IndexBusy: The database is served by another index folder now.
    """
    total = 0
    while True:
        with database.read() as connection:
            if connection.scalar(_OWNER) != index.id:
                raise IndexBusy(
                    f"{database.where}: another process built an index of it in another folder, so this one is out of "
                    "date; let one folder serve one database, and open the memory again"
                )
            rows = connection.execute(_PENDING).all()
        if not rows:
            return total
        points: list[Point] = []
        gone: list[str] = []
        for item, want, title, said, scope_id in rows:
            if want > 0 and said is not None:
                points.append(Point(item, want, scope_id, document_vector(indexed_text(title, said))))
            else:
                gone.append(item)
        index.upsert(points)
        index.delete(gone)
        index.flush()
        done = [{"item": row.item_id, "done": row.want} for row in rows]
        with database.write() as connection:
            connection.execute(_ACKNOWLEDGE, done)
            removed = [each for each in done if each["done"] < 0]
            if removed:
                connection.execute(_FORGET, removed)
        total += len(rows)
