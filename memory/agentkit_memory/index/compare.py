"""Comparison and repair of an index, point by point, against SQL.

Both sides are read in order of the id, one page at a time, so that memory does not grow with the index.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterator, Sequence
from heapq import merge
from itertools import groupby, islice
from operator import itemgetter
from typing import Literal, NamedTuple, TypeAlias

from sqlalchemy import Connection, Row, bindparam, func, select, update

from agentkit_memory.database.engine import Database, upserts
from agentkit_memory.database.rows import decode_rows, is_decoded_text, raw_rows
from agentkit_memory.database.tables import items, vector_state
from agentkit_memory.index.vector_index import VectorIndex
from agentkit_memory.process.failpoints import failpoint
from agentkit_memory.store.item_rows import in_batches
from agentkit_memory.store.outbox import MISSING, backfill, hold_spaces
from agentkit_memory.store.records import Verification
from agentkit_memory.store.spaces import find_space, no_longer_read

_Kind: TypeAlias = Literal["missing", "stale", "orphan"]

_PAGE = 2000
"""Maximum rows that are read at once."""
_DIFFERENCES = 50_000
"""Maximum differences that are confirmed at once: the whole index is read again to confirm them."""
_EXAMPLES = 10
"""Maximum ids of each kind of difference in a verification."""

_state = vector_state.c
_this_space = _state.space == bindparam("this")
_columns = (_state.item_id, _state.want, _state.have, items.c.id.is_not(None).label("exists"))
_ROWS = (
    select(*_columns)
    .outerjoin(items, items.c.id == _state.item_id)
    .where(_this_space, _state.item_id > bindparam("after"))
    .order_by(_state.item_id)
    .limit(bindparam("most"))
)
_CURRENT_ROWS = (
    select(*_columns)
    .outerjoin(items, items.c.id == _state.item_id)
    .where(_this_space, _state.item_id.in_(bindparam("ids", expanding=True)))
)
_UNQUEUED = MISSING.with_only_columns(items.c.id, maintain_column_froms=True)
_COUNTS = select(
    func.count(), func.count().filter(_state.want != _state.have), func.count().filter(_state.problem.is_not(None))
).where(_this_space)
_PROBLEMS = (
    select(_state.item_id, _state.problem)
    .where(_this_space, _state.want != _state.have, _state.problem.is_not(None))
    .order_by(_state.item_id)
    .limit(_EXAMPLES)
)
_one = (_state.item_id == bindparam("item"), _this_space)
_REQUEUE = update(vector_state).where(*_one, _state.want == bindparam("seen"))
_MISSING_POINT = _REQUEUE.values(have=0)
_STALE_POINT = _REQUEUE.values(have=0, want=bindparam("next"))
_ORPHAN_ROW = _REQUEUE.values(want=bindparam("next"))
_TOMBSTONE = upserts(vector_state)


_Row: TypeAlias = Row[str, int, int, bool]
"""Row of `_columns`."""


class _Difference(NamedTuple):
    """A difference between a point of the index and its outbox row."""

    kind: _Kind
    id: str
    version: int
    """Version of the point; 0 if the point is missing."""
    row: _Row | None


class _Tally:
    """The number of differences by kind, and the first ids of each kind."""

    def __init__(self) -> None:
        self.counts: Counter[_Kind] = Counter()
        self.examples: dict[str, tuple[str, ...]] = defaultdict(tuple)

    def add(self, kind: _Kind, ids: Sequence[str]) -> None:
        """Count differences of one kind."""
        self.counts[kind] += len(ids)
        if ids:
            self.examples[kind] = (*self.examples[kind], *ids)[:_EXAMPLES]


def compare(database: Database, index: VectorIndex, space: str, now: float, *, repairing: bool = False) -> Verification:
    """Compare the index of a space with SQL; with `repairing`, queue the differences in the outbox.

    Raises:
        StoreClosed: The model was changed meanwhile. Nothing is queued for a space that is no longer read.
    """
    tally = _Tally()
    with database.read() as connection:
        rows, waiting, failing = connection.execute(_COUNTS, {"this": space}).one()
        missing = decode_rows(connection, _UNQUEUED, {"this": space, "now": now}, items.c.id).sound
        unqueued = [row.id for row in missing]
        failing_rows = decode_rows(connection, _PROBLEMS, {"this": space}, _state.item_id).sound
        problems = {row.item_id: row.problem for row in failing_rows}
    tally.add("missing", unqueued)
    if repairing and unqueued:
        with database.write() as connection:
            _hold(connection, database, space)
            backfill(connection, space, now)
    differences = _differences(database, index, space, set(unqueued))
    while batch := list(islice(differences, _DIFFERENCES)):
        confirmed = _confirmed(database, index, space, batch)
        for each in confirmed:
            tally.add(each.kind, [each.id])
        if not repairing:
            continue
        for part in in_batches(confirmed, _PAGE):
            with database.write() as connection:
                _hold(connection, database, space)
                _queue(connection, space, part)
    if repairing:
        failpoint("repair.queued")
    return Verification(
        space,
        items=rows + len(unqueued),
        points=index.count(),
        pending=waiting,
        failing=failing,
        missing=tally.counts["missing"],
        stale=tally.counts["stale"],
        orphans=tally.counts["orphan"],
        examples=dict(tally.examples),
        problems=problems,
    )


def _hold(connection: Connection, database: Database, space: str) -> None:
    """Prevent a change of the model until the transaction ends: rows of a dropped space would never be deleted.

    Raises:
        StoreClosed: The space is no longer read.
    """
    hold_spaces(connection)
    stored = find_space(connection, space)
    if stored is None or stored.state == "retired":
        raise no_longer_read(database.where, space)


def _rows(database: Database, space: str) -> Iterator[_Row]:
    after = ""
    while True:
        with database.read() as connection:
            page = raw_rows(connection, _ROWS, {"this": space, "after": after, "most": _PAGE})
        # Rows whose id is not text are skipped: no index accepts such an id.
        named = [row for row in page if is_decoded_text(row.item_id)]
        yield from [row for row in named if isinstance(row.want, int) and isinstance(row.have, int)]
        if len(page) < _PAGE or not named:
            return
        after = named[-1].item_id


def _differences(database: Database, index: VectorIndex, space: str, unqueued: Container[str]) -> Iterator[_Difference]:
    """Yield the differences, without missing rows of `unqueued` items, which are counted already."""
    points = ((item, version, None) for item, version in index.versions())
    rows = ((row.item_id, 0, row) for row in _rows(database, space))
    # Points and rows are in order of the id, so that a point and its row follow each other.
    for item, pair in groupby(merge(points, rows, key=itemgetter(0)), itemgetter(0)):
        version, row = 0, None
        for _, of_point, of_row in pair:
            version, row = version or of_point, row or of_row
        kind = _kind(version, row)
        if kind is not None and (row is not None or item not in unqueued):
            yield _Difference(kind, item, version, row)


def _kind(version: int, row: _Row | None) -> _Kind | None:
    """Return the kind of difference between a point (version 0: missing) and its row (None: missing), or None."""
    if row is None:
        return "orphan"
    # A worker does not replace a point whose version is above the target version, even if the row is pending.
    if version > row.want > 0:
        return "stale"
    if row.want != row.have:
        # A worker is about to write or remove the point.
        return None
    if row.want < 0 or not row.exists:
        return "orphan"
    if not version:
        return "missing"
    if version != row.want:
        return "stale"
    return None


def _confirmed(
    database: Database, index: VectorIndex, space: str, differences: Sequence[_Difference]
) -> list[_Difference]:
    """Return the differences that have not changed in SQL or in the index since they were read.

    A worker writes a point before it acknowledges its row, and removes a point before it deletes its row.
    """
    differences = _still_different(index, differences)
    current: dict[str, _Row] = {}
    for part in in_batches(differences, _PAGE):
        with database.read() as connection:
            rows = raw_rows(connection, _CURRENT_ROWS, {"this": space, "ids": [each.id for each in part]})
        current |= {row.item_id: row for row in rows}
    confirmed = [each for each in differences if current.get(each.id) == each.row]
    # A worker may have removed points without a row meanwhile.
    versions = _versions_of(index, {each.id for each in confirmed if each.row is None})
    return [each for each in confirmed if each.row is not None or each.id in versions]


def _still_different(index: VectorIndex, differences: Sequence[_Difference]) -> list[_Difference]:
    """Return the differences without points that are up to date now.

    A worker may have written a point after its page was read, and acknowledged it before the page of its row was read.
    """
    wanted = {each.id: each.row.want for each in differences if each.row is not None and each.kind != "orphan"}
    written = _versions_of(index, wanted)
    return [each for each in differences if each.id not in wanted or written.get(each.id) != wanted[each.id]]


def _versions_of(index: VectorIndex, ids: Collection[str]) -> dict[str, int]:
    """Return the versions of the points with these ids."""
    if not ids:
        # The whole index is read to find any id.
        return {}
    return {item: version for item, version in index.versions() if item in ids}


def _queue(connection: Connection, space: str, differences: Sequence[_Difference]) -> None:
    """Queue the repair of differences in the outbox, except rows that have changed meanwhile."""
    missing, stale, orphan_rows, orphan_points = [], [], [], []
    for each in differences:
        row: dict[str, object] = {"item": each.id, "this": space}
        if each.row is None:
            orphan_points.append(
                {"item_id": each.id, "space": space, "want": -(each.version + 1), "have": max(each.version, 1)}
            )
        elif each.kind == "orphan":
            orphan_rows.append(row | {"seen": each.row.want, "next": -(abs(each.row.want) + 1)})
        elif each.kind == "stale":
            stale.append(row | {"seen": each.row.want, "next": max(each.row.want, each.version) + 1})
        else:
            missing.append(row | {"seen": each.row.want})
    for statement, rows in (
        (_MISSING_POINT, missing),
        (_STALE_POINT, stale),
        (_ORPHAN_ROW, orphan_rows),
        (_TOMBSTONE[connection.dialect.name], orphan_points),
    ):
        if rows:
            connection.execute(statement, rows)
