"""Recallable items: a `chunk` of a document, a `turn` of a conversation or a `fact`, always read under a scope."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from sqlite3 import OperationalError as SQLiteError
from typing import Any, TypeVar

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Select,
    Subquery,
    and_,
    bindparam,
    cast,
    exists,
    func,
    or_,
    select,
    union_all,
    update,
)
from sqlalchemy.exc import OperationalError

from agentkit_memory.database.driver_errors import is_undecodable
from agentkit_memory.database.prepared import Prepared
from agentkit_memory.database.tables import (
    branches,
    conversations,
    document_chunks,
    documents,
    item_sources,
    items,
    vector_state,
)
from agentkit_memory.store.item_text import ITEM_TEXT
from agentkit_memory.store.records import CHUNK, FACT, IMAGE, TURN
from agentkit_memory.store.scope_rows import required
from agentkit_memory.store.stored_item import StoredItem, are_sound, check_item

__all__ = [
    "CHANGE",
    "CHUNK",
    "FACT",
    "IMAGE",
    "NAMESPACE",
    "PLACE",
    "SHOWN_CHUNK",
    "TURN",
    "content_hash",
    "in_batches",
    "is_current",
    "is_valid_now",
    "place_column",
    "read_around",
    "read_ids",
    "read_items",
    "read_newest",
    "read_pending",
    "storable",
    "text_columns",
]

NAMESPACE = uuid.UUID("6b1c9d1e-4c63-5d0e-9d0b-3a6b8c2f7e51")
"""Namespace of the ids of documents and items: the same content has the same id in every store."""

_BATCH = 500
"""Maximum ids in one statement, within the limit of every version of SQLite."""

T = TypeVar("T")

PLACE = ("position", "start", "end", "line", "meta")
"""Columns of a chunk that are stored per generation of its document, not in the row of the item."""
SHOWN_CHUNK = and_(document_chunks.c.item_id == items.c.id, document_chunks.c.generation == documents.c.generation)
"""Condition that joins an item with its chunk in the published generation of the document."""


def place_column(name: str) -> ColumnElement[Any]:
    """Return a column of `PLACE`: of the chunk or, for other items, of the row of the item."""
    return func.coalesce(document_chunks.c[name], items.c[name]).label(name)


_COLUMNS = (
    select(
        *items.c["id", "kind", "scope_id"],
        ITEM_TEXT,
        items.c.title,
        *map(place_column, ("position", "start", "end", "line")),
        func.coalesce(items.c.document_id, ""),
        func.coalesce(documents.c.source, ""),
        func.coalesce(documents.c.uri, ""),
        items.c.branch_id,
        func.coalesce(conversations.c.name, ""),
        func.coalesce(branches.c.name, ""),
        *items.c["speaker", "role", "said_at", "created_at"],
        place_column("meta"),
    )
    .select_from(items)
    .outerjoin(documents, documents.c.id == items.c.document_id)
    .outerjoin(document_chunks, SHOWN_CHUNK)
    .outerjoin(branches, branches.c.id == items.c.branch_id)
    .outerjoin(conversations, conversations.c.id == branches.c.conversation_id)
)
# With `+ 0`, SQLite reads these few rows by their keys, instead of the whole scope by its index.
_ITEM = _COLUMNS.where((items.c.scope_id + 0).in_(bindparam("scopes", expanding=True)))


def is_current() -> ColumnElement[bool]:
    """Return the condition that an item belongs into an index, because no other item superseded it."""
    return items.c.superseded_by.is_(None)


_source = items.alias("source")


def is_valid_now() -> ColumnElement[bool]:
    """Return the condition that an item is valid `now`: it has started, and neither it nor a source has expired."""
    expired_source = (
        exists()
        .where(item_sources.c.item_id == items.c.id, _source.c.id == item_sources.c.source_id)
        .where(_source.c.valid_to <= bindparam("now"))
    )
    return and_(
        or_(items.c.valid_from.is_(None), items.c.valid_from <= bindparam("now")),
        or_(items.c.valid_to.is_(None), items.c.valid_to > bindparam("now")),
        or_(items.c.kind != FACT, ~expired_source),
    )


# Chunks of generations that are not published are left out.
_SHOWN = or_(items.c.document_id.is_(None), document_chunks.c.item_id.is_not(None))
_VALID = (is_current(), _SHOWN, is_valid_now())


_unsettled = (vector_state.c.space == bindparam("space"), vector_state.c.want != vector_state.c.have)
_OF_SCOPES = _COLUMNS.where(items.c.scope_id.in_(bindparam("scopes", expanding=True)))
_NEWEST_FIRST = (items.c.created_at.desc(), items.c.id)
_waits = (
    select(vector_state.c.item_id)
    .where(*_unsettled, vector_state.c.scope_id.in_(bindparam("scopes", expanding=True)), vector_state.c.want > 0)
    .limit(bindparam("looked_at"))
    .subquery("waits")
)
_PENDING = Prepared(
    _ITEM.join(_waits, _waits.c.item_id == items.c.id).where(*_VALID).order_by(*_NEWEST_FIRST).limit(bindparam("most"))
)
_THESE = items.c.id.in_(bindparam("ids", expanding=True))
_READ = Prepared(_ITEM.where(_THESE, *_VALID))
_READ_SETTLED = Prepared(_READ.selects[0].where(~exists().where(vector_state.c.item_id == items.c.id, *_unsettled)))
_seed = items.alias("seed")
# The sum of a corrupt position, which may be the maximum of its type, must not overflow.
_place = cast(_seed.c.position, BigInteger)
# A turn near two seeds is returned twice.
_AROUND = Prepared(
    _ITEM.join(
        _seed,
        and_(
            items.c.branch_id == _seed.c.branch_id,
            items.c.position.between(_place - bindparam("reach"), _place + bindparam("reach")),
        ),
    ).where(
        _seed.c.id.in_(bindparam("seeds", expanding=True)),
        items.c.position != _seed.c.position,
        # Of a long turn, only the first part is returned.
        items.c.start == 0,
        *_VALID,
    )
)
_READ_WITH_AROUND = Prepared(*_READ.selects, *_AROUND.selects)
_AT_PLACES = Prepared(
    _ITEM.where(
        items.c.branch_id.in_(bindparam("branches", expanding=True)),
        items.c.position.in_(bindparam("positions", expanding=True)),
        items.c.start == 0,
        *_VALID,
    )
)
CHANGE = update(items).where(items.c.id == bindparam("item"))
"""Statement that changes one `item`; complete it with `values`."""


def read_items(
    connection: Connection,
    ids: Sequence[str],
    scope_ids: Sequence[int] | None,
    now: float,
    unreadable: dict[str, str] | None = None,
    *,
    settled_in: str | None = None,
    seeds: Sequence[str] = (),
    reach: int = 0,
) -> list[StoredItem]:
    """Return the items that are in the scopes, valid now and not superseded.

    Args:
        connection: Connection to read with.
        ids: Ids of items.
        scope_ids: Numbers of the scopes that may be read.
        now: Time of the question.
        unreadable: Receives the problem of each corrupt row, which is left out, by the id of the item.
        settled_in: Name of a space whose waiting items are left out, because its index may contain older versions.
        seeds: Ids of items. If an item is a turn, the turns up to `reach` positions away are returned too. Cannot be
            combined with `settled_in`.
        reach: Maximum distance of the neighbours of seeds.

    Raises:
        InvalidArgument: The scopes are missing.
    """
    bound: dict[str, object] = {"scopes": required(scope_ids), "now": now, "ids": list(ids)}
    if settled_in is not None:
        return _readable(connection, _READ_SETTLED, bound | {"space": settled_in}, unreadable)
    if seeds:
        rows = _readable(connection, _READ_WITH_AROUND, bound | {"seeds": list(seeds), "reach": reach}, unreadable)
        return [*{item.id: item for item in rows}.values()]
    return _readable(connection, _READ, bound, unreadable)


def read_pending(
    connection: Connection,
    space: str,
    scope_ids: Sequence[int],
    now: float,
    most: int,
    unreadable: dict[str, str] | None = None,
) -> list[StoredItem]:
    """Return at most `most` of the newest items that wait for the index of a space; see `read_items`.

    At most `2 * most` rows of the outbox are read.
    """
    bound: dict[str, object] = {"space": space, "scopes": required(scope_ids), "now": now}
    bound |= {"most": most, "looked_at": 2 * most}
    return _readable(connection, _PENDING, bound, unreadable)


def read_newest(
    connection: Connection,
    scope_ids: Sequence[int],
    now: float,
    most: int,
    unreadable: dict[str, str] | None = None,
    where: Sequence[ColumnElement[bool]] = (),
) -> list[StoredItem]:
    """Return at most `most` of the newest items of some scopes that meet the conditions; see `read_items`.

    Without conditions, an index finds the newest items of each scope; with conditions, all items are read.
    """
    bound: dict[str, object] = {"scopes": required(scope_ids), "now": now, "most": most}
    if not scope_ids:
        return []
    statement = _OF_SCOPES.where(*where, *_VALID)
    if not where:
        recent = union_all(*[select(_newest_of(scope, most).c.id) for scope in scope_ids]).subquery("recent")
        statement = _ITEM.join(recent, recent.c.id == items.c.id)
    newest = statement.order_by(*_NEWEST_FIRST).limit(bindparam("most"))
    return _readable(connection, newest, bound, unreadable)


def read_ids(
    connection: Connection,
    scope_ids: Sequence[int],
    most: int,
    where: Sequence[ColumnElement[bool]],
    *,
    by_scope: bool = True,
) -> list[str] | None:
    """Return the ids of all items of some scopes that meet the conditions, including items that are not valid.

    Return None for more than `most` ids, or if the driver cannot decode an id. Without `by_scope`, SQLite finds the
    rows by an index for the conditions instead of the index of the scope.
    """
    scope: ColumnElement[int] = items.c.scope_id
    if not by_scope:
        scope = items.c.scope_id + 0
    query = select(items.c.id).where(scope.in_(bindparam("scopes", expanding=True)), *where).limit(most + 1)
    try:
        ids = [*connection.scalars(query, {"scopes": required(scope_ids)})]
    except (OperationalError, SQLiteError) as error:
        if not is_undecodable(error):
            raise
        return None
    if len(ids) > most:
        return None
    return ids


def _newest_of(scope: int, most: int) -> Subquery:
    """Return the subquery of the ids of the newest valid items of a scope, which an index has in this order."""
    joined = select(items.c.id).select_from(items).outerjoin(documents, documents.c.id == items.c.document_id)
    newest = (
        joined.outerjoin(document_chunks, SHOWN_CHUNK)
        .where(items.c.scope_id == scope, *_VALID)
        .order_by(items.c.created_at.desc())
    )
    return newest.limit(most).subquery()


def _readable(
    connection: Connection, statement: Prepared | Select[Any], bound: dict[str, Any], unreadable: dict[str, str] | None
) -> list[StoredItem]:
    """Return the items of a statement without corrupt rows, whose problems are added to `unreadable`."""
    if unreadable is None:
        unreadable = {}
    try:
        rows = _execute(connection, statement, bound)
    except (OperationalError, SQLiteError) as error:
        if not is_undecodable(error):
            raise
        return _read_one_by_one(connection, statement, bound, unreadable)
    read = [*map(StoredItem._make, rows)]
    # Usually all rows are sound, and one check of all columns is much faster than a check per item.
    if are_sound(read):
        return read
    sound = []
    for item in read:
        try:
            check_item(item)
        except ValueError as error:
            unreadable[str(item.id)] = str(error)
        else:
            sound.append(item)
    return sound


def _execute(
    connection: Connection, statement: Prepared | Select[Any], bound: dict[str, Any]
) -> Sequence[Sequence[Any]]:
    if isinstance(statement, Prepared):
        return statement.rows(connection, bound)
    return connection.execute(statement, bound).all()


def _read_one_by_one(
    connection: Connection, statement: Prepared | Select[Any], bound: dict[str, Any], unreadable: dict[str, str]
) -> list[StoredItem]:
    """Return the items of a statement, reading each item separately, because the driver cannot decode one of them."""
    if statement is _READ and len(bound["ids"]) == 1:
        unreadable[bound["ids"][0]] = "it is not UTF-8 text"
        return []
    selects: Iterable[Select[Any]] = (statement,) if isinstance(statement, Select) else statement.selects
    ids = [each for batch in selects for each in connection.scalars(batch.with_only_columns(items.c.id), bound)]
    single = {name: bound[name] for name in ("scopes", "now")}
    return [item for each in ids for item in _readable(connection, _READ, single | {"ids": [each]}, unreadable)]


def read_around(
    connection: Connection,
    turns: Sequence[StoredItem],
    scope_ids: Sequence[int] | None,
    now: float,
    reach: int = 1,
    unreadable: dict[str, str] | None = None,
    *,
    stored: bool = True,
) -> list[StoredItem]:
    """Return the neighbours of turns in their branches, without these turns.

    Corrupt rows are left out, see `read_items`. `stored` is True if all turns have rows of items; otherwise, turns of
    other branches at the same positions may be returned too.

    Raises:
        InvalidArgument: The scopes are missing.
    """
    bound: dict[str, object] = {"scopes": required(scope_ids), "now": now}
    if not turns:
        return []
    if stored:
        seeds = [each.id for each in turns]
        near = _readable(connection, _AROUND, bound | {"reach": reach, "seeds": seeds}, unreadable)
        return [item for item in {item.id: item for item in near}.values() if item.id not in seeds]
    branch_ids = {each.branch_id for each in turns if each.branch_id is not None}
    positions = {each.position + step for each in turns for step in range(-reach, reach + 1)}
    bound |= {"branches": sorted(branch_ids), "positions": sorted(positions)}
    return _readable(connection, _AT_PLACES, bound, unreadable)


def content_hash(text: str) -> str:
    """Return the hash of a text, which is the name of its vector."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def text_columns(text: str, start: int = 0) -> dict[str, object]:
    """Return the columns of a fact, a turn, or the part of a long turn that starts at `start`."""
    place = {"start": start, "end": start + len(text), "line": 0}
    return {"title": "", "text": text, "content_hash": "", **place}


def storable(text: str) -> str:
    """Return a text that a database can store: NULs and unpaired surrogates are replaced by U+FFFD."""
    if "\0" in text or not text.isascii():
        text = text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def in_batches(values: Iterable[T], size: int = _BATCH) -> Iterator[list[T]]:
    """Yield the values in lists of at most `size`, by default the limit of a statement."""
    rest = iter(values)
    while batch := list(islice(rest, size)):
        yield batch
