"""The outbox: the target state of the index, written in the transaction that writes the items.

Code that writes items calls `enqueue` or `withdraw` in the same transaction. Workers then bring the index to the target
state (`index/index_worker.py`), or extract facts from turns (`facts/fact_worker.py`).

A worker leases rows: `leased_by` is the name of the worker, and `leased_until` the end of the lease. If `leased_by` is
NULL, `leased_until` is the earliest time of the next try of a failed row.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    Connection,
    String,
    bindparam,
    delete,
    func,
    insert,
    literal_column,
    null,
    or_,
    select,
    text,
    update,
)

from agentkit_memory.database.engine import Database, upserts
from agentkit_memory.database.prepared import PreparedWrite
from agentkit_memory.database.tables import items, vector_spaces, vector_state
from agentkit_memory.store.spaces import FACTS
from agentkit_memory.terms.bm25_vectors import SPACE

MAX_LEASE = 86_400.0
"""Maximum seconds of a lease. A lease with a later end was created before the clock was set back, and is void."""

_MAX_PAUSE = 300.0
"""Maximum seconds between two tries of a failed row."""

WORTH_INDEXING = 2048
"""Number of items to index at once without a model: a flush takes as long for few items as for many."""

_SPACES_LOCK = 0x61676E7370
"""Key of the advisory lock, an arbitrary number that is the same in every process."""

_state = vector_state.c
_WRITTEN = (
    select(vector_spaces.c.space)
    .where(vector_spaces.c.state.in_(("active", "building")))
    .order_by(vector_spaces.c.space)
)
_READ_FOR_FACTS = select(vector_spaces.c.space).where(vector_spaces.c.state == FACTS)
# The problem is cleared too, since it may quote the old text.
_NO_FAILURE: dict[str, Any] = {"attempts": literal_column("0"), "problem": null()}
_NEXT = {"want": func.abs(_state.want) + literal_column("1"), **_NO_FAILURE}
_ADD = PreparedWrite(upserts(vector_state, _NEXT))
_WITHDRAW = (
    update(vector_state)
    .where(_state.item_id == bindparam("item"), _state.want > 0)
    .values(want=-(_state.want + 1), **_NO_FAILURE)
)
_this_space = _state.space == bindparam("this")
_active_space = select(vector_spaces.c.space).where(vector_spaces.c.state == "active").limit(1).scalar_subquery()
_PENDING = select(func.count()).where(_state.space == func.coalesce(_active_space, SPACE), _state.want != _state.have)
MISSING = select(
    items.c.id, bindparam("this", type_=String), literal_column("1"), literal_column("0"), items.c.scope_id
).where(
    items.c.superseded_by.is_(None),
    or_(items.c.valid_to.is_(None), items.c.valid_to > bindparam("now")),
    ~select(_state.item_id).where(_state.item_id == items.c.id, _this_space).exists(),
)
_BACKFILL = insert(vector_state).from_select(["item_id", "space", "want", "have", "scope_id"], MISSING)
_DROP_TOMBSTONES = delete(vector_state).where(_this_space, _state.want < 0)
_NOTHING_INDEXED = (
    update(vector_state)
    .where(_this_space)
    .values(have=0, leased_by=bindparam("me"), leased_until=bindparam("until"), attempts=0, problem=None)
)

# Leases. Every statement is about one space (`this`), and one worker (`me`) or one `item`.
_mine = (_this_space, _state.want != _state.have, _state.leased_by == bindparam("me"))
_one = (_this_space, _state.item_id == bindparam("item"))

HELD = select(_state.item_id, _state.want).where(*_mine).order_by(_state.item_id).with_for_update()
"""The rows that a worker still leases, locked until the transaction ends."""
RENEW = update(vector_state).where(*_mine).values(leased_until=bindparam("until"))
"""Extends the leases of a worker."""
RELEASE = update(vector_state).where(*_mine).values(leased_by=None, leased_until=None)
"""Ends the leases of a worker."""
ALL_DONE = update(vector_state).where(*_mine).values(have=_state.want, leased_by=None, leased_until=None, **_NO_FAILURE)
"""Marks the target versions of all rows that a worker leases as indexed."""
DONE = (
    update(vector_state)
    .where(*_one)
    .values(have=bindparam("done"), attempts=0, problem=bindparam("error"), leased_by=None, leased_until=None)
)
"""Marks the target version as indexed or, with an error, as failed for good."""
FAILED = (
    update(vector_state)
    .where(*_one)
    .values(leased_by=None, leased_until=bindparam("again"), attempts=bindparam("times"), problem=bindparam("error"))
)
"""Marks a row for another try, not before `again`."""


def worker_name() -> str:
    """Return a new name of a worker. It is short: SQLite splits the pages of rows that grow by a lease, for good."""
    return secrets.token_urlsafe(4)


def hold_spaces(connection: Connection, *, change: bool = False) -> None:
    """Lock the set of spaces until the transaction ends; with `change`, exclusively.

    Without this lock, an item that is written while a space is being added could be missing in the queue of the space.
    SQLite needs no lock, because it has one writer at a time.
    """
    if connection.dialect.name == "sqlite":
        return
    lock = "pg_advisory_xact_lock_shared"
    if change:
        lock = "pg_advisory_xact_lock"
    connection.execute(text(f"SELECT {lock}(:key)"), {"key": _SPACES_LOCK})


def enqueue(connection: Connection, item_ids: Sequence[str], scope: int, *, turns: bool = False) -> None:
    """Queue new or changed items of a scope for every index.

    An item whose removal is still pending gets the next version. Turns are queued for the extraction of facts too, if
    the queue of a fact worker exists.
    """
    if not item_ids:
        return
    hold_spaces(connection)
    spaces = list(connection.scalars(_WRITTEN)) or [SPACE]
    if turns:
        spaces += connection.scalars(_READ_FOR_FACTS)
    # Every writer locks rows in this order, so that no deadlock is possible.
    ordered = sorted(item_ids)
    row = {"want": 1, "have": 0, "scope_id": scope}
    rows = [{"item_id": item, "space": space, **row} for space in spaces for item in ordered]
    _ADD.execute(connection, rows)


def withdraw(connection: Connection, item_ids: Sequence[str]) -> None:
    """Queue items for removal from every index: deleted, superseded and expired items."""
    if item_ids:
        connection.execute(_WITHDRAW, [{"item": item} for item in sorted(item_ids, key=str)])


def pending(database: Database) -> int:
    """Return the number of items that wait for the index of the active space."""
    with database.read() as connection:
        return int(connection.scalar(_PENDING) or 0)


def backfill(connection: Connection, space: str, now: float) -> None:
    """Queue every recallable item without a row for a space."""
    connection.execute(_BACKFILL, {"this": space, "now": now})


def requeue(connection: Connection, space: str, until: float) -> None:
    """Queue all items of a space whose index will be emptied; no worker leases them before the time `until`."""
    connection.execute(_NOTHING_INDEXED, {"this": space, "me": worker_name(), "until": until})


def reset(connection: Connection, space: str, now: float) -> None:
    """Queue all items again for a space whose index is empty."""
    connection.execute(_DROP_TOMBSTONES, {"this": space})
    connection.execute(_NOTHING_INDEXED, {"this": space, "me": None, "until": None})
    backfill(connection, space, now)


def retry_pause(attempts: int) -> float:
    """Return the seconds until the next try after `attempts` failures: 1, 2, 4, ... up to five minutes."""
    return min(2.0 ** min(attempts, 20), _MAX_PAUSE)
