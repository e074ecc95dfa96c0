"""`erase`: the removal of a subject from SQL and from every index, with the proof that nothing is left.

Rows are removed in small steps that a crash may interrupt, and counted again for the proof.
"""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Connection, FromClause, bindparam, delete, func, select, update

from agentkit_memory.checks import is_whole
from agentkit_memory.conversations.removal import delete_conversations
from agentkit_memory.database.engine import Database
from agentkit_memory.database.migrate import TABLES, rows_of
from agentkit_memory.database.residue import parts_of
from agentkit_memory.database.rows import decode_rows, raw_rows
from agentkit_memory.database.tables import (
    METADATA,
    branches,
    conversations,
    documents,
    erasures,
    items,
    recall_logs,
    scopes,
    vector_state,
)
from agentkit_memory.errors import InvalidArgument, NotFound, StoreCorrupt, StoreError, StoreUnavailable
from agentkit_memory.index.indexes import Indexes
from agentkit_memory.process.failpoints import failpoint
from agentkit_memory.scope import MAX_NAME, NAMES, Scope
from agentkit_memory.store.item_removal import Forgotten, forget_items
from agentkit_memory.store.records import Erasure
from agentkit_memory.store.scope_rows import covered_ids
from agentkit_prompts.system.acting_objects import other_tables

_LOG = logging.getLogger("agentkit.memory")
_BATCH = 500
_CONVERSATIONS = 50
"""Maximum number of conversations that are hidden in one transaction."""
_MAX_PASSES = 10
"""Maximum passes over the scopes of the subject while another writer adds rows."""

_row = erasures.c.id == bindparam("erasure")
_UNFINISHED = (
    select(erasures.c.id, erasures.c.counts, *erasures.c[NAMES])
    .where(erasures.c.finished_at.is_(None))
    .order_by(erasures.c.requested_at, erasures.c.id)
)
_COUNTS = select(erasures.c.counts).where(_row)
_SET_COUNTS = update(erasures).where(_row).values(counts=bindparam("removed"))
_ITEMS = select(items.c.id).where(items.c.scope_id == bindparam("scope")).limit(_BATCH)
# Without an order: sorting all remaining conversations for each batch would take quadratic time.
_SOME_CONVERSATIONS = (
    select(conversations.c.id).where(conversations.c.scope_id == bindparam("scope")).limit(_CONVERSATIONS)
)
_TEXTS = {documents: documents.c.uri, recall_logs: recall_logs.c.query}
"""Tables with personal text besides items and conversations, and the column with the text."""
_SCOPE = delete(scopes).where(scopes.c.id == bindparam("scope"))
# Notes of a proof about remaining work.
_SERVER = "old versions of rows stay in the server until it cleans its tables (VACUUM), and longer in backups"
_INDEX = "removed points stay in the server of the index, without their texts, until it cleans its files"
_LATER = "call admin.compact() later"
_READER = f"a reader prevented the truncation of the log of the database: {_LATER}"
_SEGMENTS = (
    f"removed points, without their texts, are in the files of a large index until these are rewritten: {_LATER}"
)
# A chunk has two owners. The first is its item, by which a recall finds the chunk. A chunk without a document, the
# second owner, may belong to another subject: it is only deleted with its item.
_OWNERLESS = {
    table: owners[0].parent.not_in(select(owners[0].column))
    for table in METADATA.sorted_tables
    if (owners := [key for column in table.c for key in column.foreign_keys if key.ondelete and not column.nullable])
}
"""Tables whose rows are deleted with an owner, and the condition that the (first) owner was deleted."""
_IS_WAITING_REMOVAL = (vector_state.c.want < 0) & (vector_state.c.want != vector_state.c.have)
_WITHOUT_BRANCH = items.c.branch_id.is_not(None) & items.c.branch_id.not_in(select(branches.c.id))
_FEW_POINTS = 20_000
"""Maximum number of remaining points at which the files of an index are rewritten in any case."""
_MAX_LEFT = 20
"""Maximum number of remaining points per removed point at which the files of a larger index are rewritten."""
_MAX_TEXTS = 2000
"""Maximum parts of texts to search for; with more parts, the database file is rewritten without a search."""


@dataclass(slots=True)
class _Request:
    """An erasure that was requested and is not finished."""

    id: str
    subject: Scope
    cleared: bool = False
    """True if the rows of the subject were removed before: rows that are in its scopes now are newer, and stay."""
    sealed: bool = False
    """True if nothing was left, so that the names of the subject are replaced by digests."""
    texts: set[bytes] | None = None
    """Parts of removed texts, for a search of the database file; None if the texts are unknown or too many."""

    def add_texts(self, texts: Sequence[str]) -> None:
        """Add the parts of removed texts, or set `texts` to None if they become too many."""
        if self.texts is not None:
            self.texts |= parts_of(texts)
            if len(self.texts) > _MAX_TEXTS:
                self.texts = None


def erase(database: Database, indexes: Indexes, subject: Scope) -> Erasure:
    """Remove a subject everywhere and return the proof. The next opening of the store finishes the remaining work."""
    return _carry_out(database, indexes, _begin(database, subject))


def resume(database: Database, indexes: Indexes) -> list[Erasure]:
    """Finish interrupted erasures."""
    return [_carry_out(database, indexes, request) for request in _open_requests(database)]


def _carry_out(database: Database, indexes: Indexes, request: _Request) -> Erasure:
    """Remove the rows, points and deleted bytes of a subject, and return the proof."""
    # Recall logs of the subject that are still queued are written first, so that they are removed too.
    database.deferred.settle()
    removed = _clear(database, request)
    _remove_ownerless(database)
    notes: list[str] = []
    spaces = indexes.spaces("active", "building")
    with database.read() as connection:
        remaining, scope_ids = _rescan(connection, request)
        unchecked = _unchecked_tables(database, connection)
    if unchecked:
        notes.append(f"tables that agentkit did not create were not checked: {', '.join(map(repr, unchecked)):.300}")
    points: int | None = None
    try:
        counted = sum(indexes.catch_up(space, removals=True).count(scope_ids) for space in spaces)
        undropped = indexes.sweep()
        if undropped:
            notes.append(
                f"the index of a former model is left ({', '.join(undropped)}): another process has it open, or a disk "
                "is full"
            )
        else:
            points = counted
    except StoreError as error:
        # The index is busy, not available or broken: the next user of the index removes the points.
        notes.append(str(error))
    in_written_spaces = vector_state.c.space.in_([space.name for space in spaces])
    # Waiting removals of other scopes are counted too.
    with database.read() as connection:
        waiting = _count(connection, vector_state, in_written_spaces & _IS_WAITING_REMOVAL)
    compacted = False
    if any(remaining.values()):
        notes.append("another writer still adds to the scopes of the subject: erase it again after the writer stops")
    elif points == 0 and not waiting:
        _seal(database, request)
        compacted = _overwrite(database, indexes, request, notes)
        finished = update(erasures).where(erasures.c.id == request.id).values(finished_at=database.clock())
        database.change(lambda connection: connection.execute(finished))
    note = "; ".join(dict.fromkeys(notes))
    return Erasure(request.id, removed, remaining, points, waiting, compacted, note, unchecked)


def _unchecked_tables(database: Database, connection: Connection) -> tuple[str, ...]:
    """Return the tables of a SQLite file that other programs created; () for a server, which several programs share."""
    if not database.is_sqlite:
        return ()
    return tuple(other_tables(partial(rows_of, connection), TABLES))


def _overwrite(database: Database, indexes: Indexes, request: _Request, notes: list[str]) -> bool:
    """Remove the deleted bytes of the subject from the files; return True if none are left. Add the rest to `notes`.

    SQLite overwrites deleted rows. The database file is only rewritten if a search finds a removed text, or if too many
    texts were removed for a search.
    """
    rewritten = emptied = False
    try:
        if not _is_cheap_to_compact(database, indexes, request):
            notes.append(_SEGMENTS)
        elif not (rewritten := indexes.compact()):
            notes.append(_INDEX)
    except StoreError as error:
        notes.append(f"{error}; removed points, without their texts, are still in its files: {_LATER}")
    try:
        emptied = database.empty_log()
        if emptied and (request.texts is None or database.may_hold(request.texts)):
            emptied = database.compact()
        if not database.is_sqlite:
            notes.append(_SERVER)
        elif not emptied:
            notes.append(_READER)
    except StoreUnavailable as error:
        notes.append(f"{error}; deleted bytes may still be in the file: {_LATER}")
    return rewritten and emptied


def _is_cheap_to_compact(database: Database, indexes: Indexes, request: _Request) -> bool:
    """Return True if compacting the indexes is cheap relative to the number of removed points."""
    with database.read() as connection:
        removed: int = _progress(connection, request)["removed"].get("items", 0)
    remaining = sum(indexes.get(space).count() for space in indexes.spaces("active", "building"))
    return remaining <= max(_FEW_POINTS, removed * _MAX_LEFT)


def _begin(database: Database, subject: Scope) -> _Request:
    """Store a request to erase a subject, and return it; an unfinished request for the subject is used again."""
    existing = next((each for each in _open_requests(database) if each.subject == subject), None)
    request = _Request(str(uuid.uuid4()), subject, texts=set())
    if existing is not None:
        # The texts that the first request removed are unknown now.
        request = _Request(existing.id, subject)

    def write(connection: Connection) -> None:
        if existing is not None:
            # Rows that were stored since the first request are erased too.
            _store_progress(connection, request, cleared=False)
            return
        names = dict(zip(NAMES, subject.names, strict=True))
        row = {"id": request.id, "requested_at": database.clock(), "counts": "{}", **names}
        connection.execute(database.insert(erasures).values(row).on_conflict_do_nothing())

    database.change(write)
    if existing is None:
        failpoint("erasure.begun")
    return request


def _open_requests(database: Database) -> list[_Request]:
    """Return the erasures that are not finished, oldest first."""
    requests: list[_Request] = []
    with database.read() as connection:
        rows, errors = decode_rows(connection, _UNFINISHED, {}, erasures.c.id)
    corrupt = [error.row for error in errors]
    for row in rows:
        try:
            counts, subject = json.loads(row.counts), Scope(row.tenant, row.user, row.session, row.agent)
            scope_ids = [*counts.get("removed", {}).values(), *counts.get("scopes", [])]
            if not all(map(is_whole, scope_ids)):
                raise TypeError("it has the wrong types")
        except (InvalidArgument, ValueError, TypeError, AttributeError, RecursionError):
            corrupt.append(row.id)
        else:
            cleared, sealed = bool(counts.get("cleared")), bool(counts.get("sealed"))
            requests.append(_Request(row.id, subject, cleared=cleared, sealed=sealed))
    for each in corrupt:
        _LOG.warning("%s: erasure %r is corrupt and is not resumed: erase its subject again", database.where, each)
    return requests


def _clear(database: Database, request: _Request) -> dict[str, int]:
    """Remove the rows of the subject in small transactions; return the number of removed rows, per table.

    The same transactions withdraw the items from the index. Rows that were stored after a finished removal stay.

    Raises:
        StoreCorrupt: Rows that are found cannot be deleted.
    """

    def find(connection: Connection) -> list[int]:
        scope_ids = covered_ids(connection, request.subject)
        if not scope_ids:
            _store_progress(connection, request, cleared=True)
        return scope_ids

    for _ in range(_MAX_PASSES):
        if request.cleared:
            break
        scope_ids = database.change(find)
        if not scope_ids:
            break
        for number in scope_ids:
            # The current number of rows limits the number of steps: another writer may add rows for ever.
            for _ in range(_max_steps(database, number)):
                if not _step(database, request, number):
                    break
                failpoint("erasure.step")
    with database.read() as connection:
        removed: dict[str, int] = _progress(connection, request)["removed"]
        return removed


def _max_steps(database: Database, scope: int) -> int:
    """Return the number of steps that remove all current rows of a scope, and the scope itself."""
    with database.read() as connection:
        counts = [_count(connection, table, table.c.scope_id == scope) for table in (items, conversations)]
    return counts[0] // _BATCH + counts[1] + 2


def _step(database: Database, request: _Request, scope: int) -> bool:
    """Remove a batch of rows of a scope, and the scope after its last row; return True if more rows may be left."""

    def record(connection: Connection, removed: Mapping[str, int], forgotten: Forgotten) -> None:
        before = _progress(connection, request)
        total = Counter(before["removed"]) + Counter(removed)
        _store_progress(connection, request, removed=total, scopes=sorted({*before["scopes"], scope}))
        request.add_texts(forgotten.texts)

    def write(connection: Connection) -> tuple[Sequence[int], dict[str, int]]:
        """Remove a batch of items or, without items and conversations, the scope with its other rows.

        Returns:
            The next conversations to delete, if no items are left, and the number of removed rows per table.
        """
        forgotten = Forgotten()
        numbers: Sequence[int] = ()
        removed = _remove_items(connection, scope, forgotten)
        if removed is None:
            numbers = connection.scalars(_SOME_CONVERSATIONS, {"scope": scope}).all()
            removed = {}
            if not numbers:
                removed = _remove_scope(connection, scope, forgotten)
        record(connection, removed, forgotten)
        return numbers, removed

    try:
        numbers, removed = database.change(write)
        if numbers:
            removed = delete_conversations(database, numbers, record)
    except NotFound:
        # Another writer added to the scope meanwhile: the next pass removes the new rows.
        return False
    if "scopes" in removed:
        return False
    # In a SQLite file, no other process can have removed the rows in between.
    if not any(removed.values()) and database.is_sqlite:
        raise StoreCorrupt(
            f"{database.where}: rows that are found cannot be deleted, so an index of the file is corrupt: "
            "restore a backup, or run `sqlite3 FILE .recover`; rows that were erased before stay erased",
            path=database.where,
            name="index",
        )
    return True


def _remove_items(connection: Connection, scope: int, forgotten: Forgotten) -> dict[str, int] | None:
    """Remove a batch of items of a scope; return the number of removed rows per table, or None without items."""
    ids = connection.scalars(_ITEMS, {"scope": scope}).all()
    if not ids:
        return None
    removed = forget_items(connection, ids, forgotten)
    return {"items": removed, "embeddings": forgotten.embeddings}


def _remove_scope(connection: Connection, scope: int, forgotten: Forgotten) -> dict[str, int]:
    """Remove a scope without items and conversations, with its other rows; return the numbers of rows per table."""
    removed: dict[str, int] = {}
    for table, column in _TEXTS.items():
        in_scope = table.c.scope_id == scope
        texts = [text for (text,) in raw_rows(connection, select(column).where(in_scope), {})]
        forgotten.texts += [each for each in texts if isinstance(each, str)]
        removed[table.name] = connection.execute(delete(table).where(in_scope)).rowcount
    removed["scopes"] = connection.execute(_SCOPE, {"scope": scope}).rowcount
    return removed


def _progress(connection: Connection, request: _Request) -> dict[str, Any]:
    """Return the stored progress: the number of removed rows per table, and the ids of the scopes."""
    stored: dict[str, Any] = json.loads(connection.scalar(_COUNTS, {"erasure": request.id}) or "{}")
    return {"removed": {}, "scopes": [], **stored}


def _store_progress(connection: Connection, request: _Request, **changes: object) -> None:
    counts = json.dumps(_progress(connection, request) | changes)
    connection.execute(_SET_COUNTS, {"erasure": request.id, "removed": counts})


def _rescan(connection: Connection, request: _Request) -> tuple[dict[str, int], list[int]]:
    """Return the number of rows of the subject, and of rows without an owner, per table; and the ids of its scopes.

    If the rows were removed before, a scope with rows that were stored later is left out.
    """
    erased, existing = set(_progress(connection, request)["scopes"]), set(covered_ids(connection, request.subject))
    scope_ids = sorted(erased | existing)
    if request.cleared:
        scope_ids = sorted(erased - existing)
    counts = {"scopes": _count(connection, scopes, scopes.c.id.in_(scope_ids))}
    for table in (conversations, documents, items, recall_logs):
        counts[table.name] = _count(connection, table, table.c.scope_id.in_(scope_ids))
    for table, ownerless in _OWNERLESS.items():
        counts[table.name] = _count(connection, table, ownerless)
    counts["items"] += _count(connection, items, _WITHOUT_BRANCH)
    return counts, scope_ids


def _remove_ownerless(database: Database) -> None:
    """Delete the rows without an owner of a corrupt store: they cannot be read, and may belong to the subject."""
    removed: Counter[str] = Counter()
    with database.read() as connection:
        if not any(_count(connection, *each) for each in [*_OWNERLESS.items(), (items, _WITHOUT_BRANCH)]):
            return

    def remove(connection: Connection) -> dict[str, int]:
        return {
            table.name: connection.execute(delete(table).where(ownerless)).rowcount
            for table, ownerless in _OWNERLESS.items()
        }

    def remove_items(connection: Connection) -> int:
        batch = connection.scalars(select(items.c.id).where(_WITHOUT_BRANCH).limit(_BATCH)).all()
        return forget_items(connection, batch)

    removed.update(database.change(remove))
    while more := database.change(remove_items):
        removed["items"] += more
    counts = ", ".join(f"{count} of {name}" for name, count in removed.items() if count)
    _LOG.warning("%s: rows without an owner were deleted: %s", database.where, counts)


def _count(connection: Connection, table: FromClause, where: ColumnElement[bool]) -> int:
    return int(connection.scalar(select(func.count()).select_from(table).where(where)) or 0)


def _seal(database: Database, request: _Request) -> None:
    """Replace the names of the subject by digests, which can be compared with the digest of a known name."""
    if request.sealed:
        return
    names = zip(NAMES, request.subject.names, strict=True)
    digests = {name: digest_of(request.subject, name) for name, value in names if value}
    # If the subject is a part of a tenant, the name of the tenant stays in the store anyway.
    if any(request.subject.names[1:]):
        del digests["tenant"]

    def write(connection: Connection) -> None:
        counts = json.dumps({"removed": _progress(connection, request)["removed"], "sealed": True})
        connection.execute(update(erasures).where(erasures.c.id == request.id).values(counts=counts, **digests))

    database.change(write)
    failpoint("erasure.sealed")


def digest_of(subject: Scope, name: str) -> str:
    """Return the digest that replaces a name of an erased subject."""
    named = f"{name}\0{subject.tenant}\0{getattr(subject, name)}"
    return f"blake2b:{hashlib.blake2b(named.encode(), digest_size=24).hexdigest()}"[:MAX_NAME]
