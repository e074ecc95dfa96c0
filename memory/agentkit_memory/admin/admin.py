"""`Admin`: operations on a whole store, for all of its scopes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from agentkit_memory.admin.backups import BACKUP_START, opened_backup, write_backup
from agentkit_memory.admin.corrupt_rows import corrupt_rows, file_problems, move_corrupt_rows
from agentkit_memory.admin.exports import EXPORT_START, exported_rows, write_export
from agentkit_memory.admin.new_files import file_named, file_problem
from agentkit_memory.admin.self_retrieval import unfound_items
from agentkit_memory.admin.table_rows import fill, keys_of, read_rows
from agentkit_memory.admin.usage import usage_of
from agentkit_memory.checks import is_whole
from agentkit_memory.conversations.removal import expire
from agentkit_memory.errors import InvalidArgument, StoreCorrupt
from agentkit_memory.reembed.gate import Gate, Reembedding, ReembedProgress
from agentkit_memory.reembed.reembed import reembed
from agentkit_memory.reembed.switching import abandon, renew
from agentkit_memory.scope import Scope
from agentkit_memory.store.records import CorruptRow, Repair, Usage, Verification
from agentkit_prompts.errors import brief
from agentkit_prompts.ranking.embedder import Embedder
from agentkit_prompts.system.regular_files import open_regular

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from agentkit_memory.conversations.session_file import SessionImport
    from agentkit_memory.open_store import OpenStore

_GATE = Gate()
_SAMPLE = 200
"""Number of items that `verify` searches for by default."""
_MAX_EXAMPLES = 10
"""Maximum number of ids of unfound items in a verification."""
_MAX_NAMED = 1_000
"""Maximum number of corrupt rows that a verification names."""


class Admin:
    """Checks, rebuilds, backs up, moves and measures a store. `Memory.admin` returns it."""

    def __init__(self, store: OpenStore, scope: Scope) -> None:
        self._store = store
        self._scope = scope

    def verify(self, *, sample: int = _SAMPLE) -> Verification:
        """Search for corrupt data, and compare the index with SQL.

        Every row is decoded, a SQLite file is checked with `PRAGMA integrity_check`, and the index is compared point by
        point. If the index is equal to SQL, some items are searched for by their own texts. Nothing is changed, and
        writers and recalls are not blocked.

        Args:
            sample: Number of items to search for; 0 for none.

        Raises:
            InvalidArgument: The sample is invalid.
            StoreError: The database cannot be read.
            IndexUnavailable: Another process owns the index.
        """
        if not is_whole(sample, 0):
            raise InvalidArgument(
                f"verify: expected the number of items to search for, 0 or more, got {brief(sample)}", name="sample"
            )
        indexes = self._store.indexes
        space = indexes.active()
        verification = indexes.verify(space)
        unfound: list[str] = []
        # An index that differs from SQL is reported already, and cannot find its missing items.
        if verification.ok:
            unfound = unfound_items(self._store.database, indexes.get(space), space, sample)
        if unfound:
            examples = {**verification.examples, "unfound": tuple(unfound[:_MAX_EXAMPLES])}
            verification = replace(verification, unfound=len(unfound), examples=examples)
        count, rows = self._store.database.in_snapshot(_count_corrupt)
        problems = file_problems(self._store.database)
        return replace(verification, corrupt=count, corrupt_rows=rows, file_problems=problems)

    def repair(self, *, sample: int = _SAMPLE, removed_to: str | os.PathLike[str] | None = None) -> Repair:
        """Move corrupt rows to a file, index missing and stale items, and remove orphans from the index.

        The index is built again if items are still not found.

        Args:
            sample: Number of items to search for, before and after.
            removed_to: Path of a new file, readable by its owner only, for the corrupt rows: each row is written as a
                line of JSON before it is removed. If no row is corrupt, no file is created. Without a path, corrupt
                rows stay in the store. The file contains the data of users: delete it after use.

        Returns:
            The verifications before and after.

        Raises:
            StoreError, IndexUnavailable: As `verify` does.
            StoreUnavailable: The file exists, or it cannot be written. No row was removed.
        """
        path = None
        if removed_to is not None:
            path = file_named(removed_to)
        before = self.verify(sample=sample)
        removed = 0
        if path is not None and before.corrupt:
            removed = move_corrupt_rows(self._store.database, path)
        # Corrupt rows are moved first: the index is repaired from the items that stay.
        self._store.indexes.repair()
        after = self.verify(sample=sample)
        if after.unfound:
            self.rebuild()
            after = self.verify(sample=sample)
        return Repair(before, after, removed)

    def rebuild(self) -> Verification:
        """Build the index again from SQL, and return a comparison of the new index with SQL.

        Recalls are not blocked; items that are not indexed yet are found by their words. Stored vectors are used again.
        An interrupted rebuild is continued automatically.

        Raises:
            IndexUnavailable: Another process owns the index.
            IndexBroken: The index cannot be emptied or written.
        """
        self._store.indexes.rebuild()
        return self.verify()

    def reembed(
        self,
        embedder: Embedder | str | None,
        *,
        gate: Gate | None = _GATE,
        on_progress: Callable[[ReembedProgress], None] | None = None,
    ) -> Reembedding:
        """Build an index of another model next to the active index, check it, and activate it.

        Recalls are not blocked, and new items are written to both indexes. The call may be interrupted anywhere and
        repeated, by one process at a time; computed vectors are stored. Once the new index is active, this memory uses
        the new embedder. If a check fails, the active index stays, and `Reembedding.why` is the reason.

        Args:
            embedder: The new embedder, or its name; None for BM25 alone.
            gate: Checks that the new index has to pass; None activates the index even if items have no vector yet.
            on_progress: Called after every batch.

        Raises:
            InvalidArgument: The gate is invalid; or a change to another model is not finished: finish or abandon that
                change.
            EmbedderError: The embedder has no `model` name, or fails to return the first vector.
            IndexUnavailable: Another process is changing the model.
        """
        encoder = None
        if embedder is not None:
            encoder = self._store.embedders.add(embedder)
        return reembed(self._store.indexes, self._store.embedders, encoder, gate, self._scope, on_progress)

    def abandon_reembed(self) -> bool:
        """Drop the index that an unfinished `reembed` was building; return True if that index existed."""
        existed = abandon(self._store.database)
        self._store.indexes.sweep()
        return existed

    def compact(self) -> bool:
        """Rewrite a SQLite file and the index without deleted bytes; return True if both contain no deleted bytes now.

        Raises:
            StoreUnavailable: Another process was writing during all tries.
            IndexUnavailable: Another process owns the index.
        """
        rewritten = self._store.database.compact()
        return self._store.indexes.compact() and rewritten

    def expire(self, now: float | None = None) -> dict[str, int]:
        """Delete the expired conversations of all scopes, with their items and facts.

        Args:
            now: The time, in seconds since 1970; by default the time of the clock.

        Returns:
            Number of deleted rows, per table.

        Raises:
            InvalidArgument: The time is invalid.
        """
        if now is None:
            now = self._store.database.clock()
        removed = expire(self._store.database, now)
        self._store.catch_up_later()
        return removed

    def backup(self, path: str | os.PathLike[str]) -> int:
        """Write all rows, as of one moment, to a new file for `restore`.

        Readers and writers are not blocked. The file is written whole or not at all, and readable by its owner only. It
        contains the vectors of the model, but no index, which is rebuilt from the rows.

        Returns:
            Size of the file in bytes.

        Raises:
            StoreUnavailable: The file exists already, it cannot be created, or the disk is full.
            StoreError: Queued writes fail, or the store cannot be read.
        """
        place = file_named(path)
        self._store.database.deferred.settle()
        return write_backup(self._store.database, place)

    def export(self, path: str | os.PathLike[str]) -> int:
        """Write every row to a new file of JSON lines, as of one moment, for `restore` on SQLite or PostgreSQL.

        A corrupt row, which no other store accepts, is left out with the rows that belong to it, and logged.

        Returns:
            Number of rows in the file.

        Raises:
            StoreError: As `backup` does.
        """
        place = file_named(path)
        self._store.database.deferred.settle()
        return write_export(self._store.database, place)

    def restore(self, path: str | os.PathLike[str]) -> dict[str, int]:
        """Read a backup or an export into this store, which must be empty; the index is built afterwards.

        The file is checked first, and its rows are written in one transaction. Corrupt rows in a backup are left out
        with the rows that belong to them, and logged.

        Returns:
            Number of rows that were written, per table.

        Raises:
            StoreCorrupt: The file is cut or corrupt, or is neither a backup nor an export.
            StoreVersion: The backup is from a newer version of agentkit, or the export from another version.
            StoreError: This store is not empty.
            EmbedderError: This store was opened with another model than the model of the rows.
            StoreUnavailable: The file cannot be read, or the disk is full: a backup is copied into the folder of the
                store.
        """
        place, database = file_named(path), self._store.database
        try:
            with open_regular(place) as file:
                start = file.read(max(len(BACKUP_START), len(EXPORT_START)))
        except OSError as error:
            raise file_problem(place, error) from error
        if start.startswith(BACKUP_START):
            with opened_backup(place, database) as copy, copy.snapshot() as connection:
                counts = fill(database, read_rows(connection), str(place))
        elif start.startswith(EXPORT_START):
            counts = fill(database, exported_rows(place)(), str(place))
        else:
            raise StoreCorrupt(
                f"{place}: it is corrupt, or neither a backup nor an export; nothing was written", path=str(place)
            )
        # The rows may come from a store with an older analysis of texts.
        renew(database)
        self._store.indexes.close_all()
        self._store.catch_up_later()
        return counts

    def import_sessions(
        self,
        path: str | os.PathLike[str],
        *,
        scope: Scope | str | None = None,
        on_progress: Callable[[SessionImport], None] | None = None,
    ) -> SessionImport:
        """Append the messages of a file of JSON lines to conversations, which are created if missing.

        A line is an append: `{"session": "trip", "messages": [...]}`, with messages in the format of a provider, as
        `agentkit sessions export` writes them, and optionally a `key` and the time `said_at`. Results of tools are in
        the line of their calls. All lines are checked before the first is stored. The call may be interrupted at any
        point and repeated: each append has a key, by default the number and the content of its line, so that no line is
        stored twice. The messages are indexed afterwards, and found by their words until then.

        Args:
            path: The file.
            scope: Scope of the conversations; by default the scope of this memory, and the user `local`.
            on_progress: Called after every 500 lines, and after the last.

        Raises:
            IngestError: The file cannot be read, or lines are invalid. Nothing was stored.
            AlreadyUsed: A key was used for other messages. The lines before are stored.
            StoreError: The database cannot be written. The lines before are stored.
        """
        from agentkit_memory.conversations.session_file import import_sessions

        owner = self._scope
        if scope is not None:
            owner = Scope.of(scope)
        done = import_sessions(self._store.database, owner.with_default_user(), file_named(path), on_progress)
        self._store.catch_up_later()
        return done

    def usage(self) -> tuple[Usage, ...]:
        """Return the usage of each tenant, ordered by name.

        Raises:
            StoreError: The database cannot be read.
        """
        self._store.database.deferred.settle()
        return usage_of(self._store.database)


def _count_corrupt(connection: Connection) -> tuple[int, tuple[CorruptRow, ...]]:
    """Return the number of corrupt rows, and the first 1,000 rows."""
    count = 0
    rows: list[CorruptRow] = []
    for each in corrupt_rows(connection):
        count += 1
        if count <= _MAX_NAMED:
            rows.append(CorruptRow(each.table.name, keys_of(each), each.column, each.problem))
    return count, tuple(rows)
