"""`erase`: removes a subject from SQL and from every index, and returns the proof that nothing is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkit_memory.erasure.subject_rows import Request, begin, clear, finish, open_requests, rescan, seal, tombstones
from agentkit_memory.errors import StoreError, StoreLocked
from agentkit_memory.store.records import Erasure

if TYPE_CHECKING:
    from agentkit_memory.index.indexes import Indexes
    from agentkit_memory.scope import Scope
    from agentkit_memory.store.engine import Database

__all__ = ["erase", "resume"]

_SERVER = "the server keeps old versions of rows until it cleans its tables up (VACUUM), and backups for longer"
_INDEX = "the server of the index keeps removed points, without their texts, until it cleans its segments up"


def erase(database: Database, indexes: Indexes, subject: Scope) -> Erasure:
    """Remove a subject everywhere and return the proof. What cannot be done now is done when the store is opened."""
    return _carry_out(database, indexes, begin(database, subject))


def resume(database: Database, indexes: Indexes) -> list[Erasure]:
    """Go on with interrupted erasures."""
    return [_carry_out(database, indexes, request) for request in open_requests(database)]


def _carry_out(database: Database, indexes: Indexes, request: Request) -> Erasure:
    removed = clear(database, request)
    notes: list[str] = []
    spaces = indexes.spaces("active", "building")
    with database.read() as connection:
        found, numbers = rescan(connection, request)
    points: int | None
    try:
        points = sum(indexes.catch_up(space).count(numbers) for space in spaces)
        left = indexes.sweep()
        if left:
            points = None
            notes.append(f"another process still has the index of a former model open ({', '.join(left)})")
    except StoreError as error:  # busy, away or broken: its owner removes the points later
        points = None
        notes.append(str(error))
    with database.read() as connection:
        waiting = tombstones(connection, [space.name for space in spaces])
    compacted = False
    if any(found.values()):
        notes.append("another writer still adds to the subject's scopes: erase it again once that has ended")
    elif points == 0 and not waiting:
        seal(database, request)
        compacted = _compact(database, indexes, notes)
        finish(database, request)
    return Erasure(request.id, removed, found, points, waiting, compacted, "; ".join(dict.fromkeys(notes)))


def _compact(database: Database, indexes: Indexes, notes: list[str]) -> bool:
    try:
        rewritten = indexes.compact()
        if not rewritten:
            notes.append(_INDEX)
    except StoreError as error:
        rewritten = False
        notes.append(f"{error}; removed points, without their texts, are still in its files: call compact() later")
    return _compact_database(database, notes) and rewritten


def _compact_database(database: Database, notes: list[str]) -> bool:
    if not database.is_sqlite:
        notes.append(_SERVER)
        return False
    try:
        if database.compact():
            return True
        notes.append("a reader kept the log of the database from being emptied: call compact() later")
    except StoreLocked as error:
        notes.append(f"{error}; deleted bytes may still be in the file: call compact() later")
    return False
