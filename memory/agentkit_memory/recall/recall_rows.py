"""`RecallRows`: the items that one recall reads from SQL, under its scopes, each once."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection

from agentkit_memory.conversations.turns import read_new_turns
from agentkit_memory.recall.recall_filter import RecallFilter
from agentkit_memory.store.item_rows import read_around, read_items, read_newest, read_pending
from agentkit_memory.store.read_view import MAX_BEHIND, ReadView
from agentkit_memory.store.records import TURN
from agentkit_memory.store.stored_item import StoredItem

MAX_ROWS = 2_000
"""Maximum number of items outside of the index that are scored, the newest first."""
_REACH = 2
"""Maximum distance of a neighbour from a turn."""
_STEPS = range(-_REACH, _REACH + 1)


class RecallRows:
    """The items that one recall has read from SQL.

    Every item is read under the scopes of the reader and valid at the time of the recall. A hit of the index is used
    only after it is confirmed here.
    """

    def __init__(self, view: ReadView, valid_at: float) -> None:
        self.view = view
        self.valid_at = valid_at
        self.unreadable: dict[str, str] = {}
        """Reasons why corrupt rows were left out, by the id of the item."""
        self.waiting: list[StoredItem] = []
        """Items that the index does not contain, newest first; without an index, the newest of all items."""
        self._new_turns: Sequence[StoredItem] = ()
        """Messages of the scopes that are not items yet."""
        self._items: dict[str, StoredItem | None] = {}
        """Items of hits, by id; None for a hit that SQL does not confirm."""
        self._near: list[StoredItem] = []
        self._seeds: set[str] = set()
        """Ids of the items whose neighbours are in `_near`."""
        self.is_settled = not view.pending and not view.behind
        """True if the index contains the current version of every item of the scopes."""

    def read_waiting(
        self, connection: Connection, where: RecallFilter | None, *, has_index: bool, is_reported: bool
    ) -> list[str]:
        """Read the items that the index does not contain; return problems, such as items that were left out.

        Args:
            connection: Connection to read with.
            where: The filter of the recall.
            has_index: False if the newest items of SQL are searched instead of an index.
            is_reported: True if the result reports already that at most `MAX_ROWS` items were searched.
        """
        view, problems = self.view, list[str]()
        waiting, problem = self._read_new_turns(connection, where)
        if view.crowded:
            problems.append(
                f"more than {MAX_BEHIND:,} conversations of all tenants have new messages: only the newest were "
                "searched; a thread of this memory indexes the others"
            )
        waiting += self._read_unindexed(connection, where, has_index)
        # A thread may have written the item of a new message meanwhile: then the item replaces the message.
        self.waiting = [*{item.id: item for item in waiting}.values()]
        if len(self.waiting) >= MAX_ROWS and not is_reported:
            problem = f"more than {MAX_ROWS} items are not indexed yet: only the newest were searched, with BM25"
        if problem:
            problems.append(f"{problem}; a thread of this memory indexes them")
        elif self.waiting and view.space.model and has_index:
            problems.append(f"{len(self.waiting)} new items have no vector yet: they were searched with BM25")
        return problems

    def _read_new_turns(self, connection: Connection, where: RecallFilter | None) -> tuple[list[StoredItem], str]:
        if not self.view.behind:
            return [], ""
        # Reading messages takes long, so that they are not read if the filter excludes all messages.
        if where is not None and where.kinds is not None and TURN not in where.kinds:
            return [], ""
        self._new_turns, problem = read_new_turns(connection, self.view.scope_ids, self.valid_at, MAX_ROWS)
        return [*self._new_turns], problem

    def _read_unindexed(self, connection: Connection, where: RecallFilter | None, has_index: bool) -> list[StoredItem]:
        view = self.view
        if not has_index:
            if not view.scope_ids:
                return []
            conditions = []
            if where is not None:
                conditions = where.rows()
            return self.read_newest(connection, MAX_ROWS, conditions)
        # Messages that were new when the view was read may be waiting items now.
        if not self.is_settled:
            return read_pending(connection, view.space.name, view.scope_ids, self.valid_at, MAX_ROWS, self.unreadable)
        return []

    def read_newest(
        self, connection: Connection, most: int, conditions: Sequence[ColumnElement[bool]]
    ) -> list[StoredItem]:
        """Return the newest items, at most `most`, that meet conditions in SQL."""
        return read_newest(connection, self.view.scope_ids, self.valid_at, most, self.unreadable, conditions)

    def confirm(self, connection: Connection, ids: Sequence[str], around: int) -> list[StoredItem]:
        """Return the items that SQL confirms, in the order of the ids.

        The neighbours of the first `around` items are read in the same statement, as they are usually needed next.
        """
        unread = [each for each in ids if each not in self._items]
        if unread:
            self._read(connection, unread, around)
        # Waiting items are left out, even if they were indexed meanwhile: `waiting` contains their newest versions, and
        # the index may have returned older versions.
        waited = {item.id for item in self.waiting} - {turn.id for turn in self._new_turns}
        items = [self._items[each] for each in ids if each not in waited]
        return [item for item in items if item is not None]

    def _read(self, connection: Connection, ids: Sequence[str], around: int) -> None:
        space, seeds = None, list[str]()
        if not self.is_settled:
            space = self.view.space.name
        elif not self._items:
            # Later reads are for wider rounds, whose hits are mostly worse: their neighbours are rarely needed.
            seeds = [*ids[:around]]
        confirmed = read_items(
            connection,
            ids,
            self.view.scope_ids,
            self.valid_at,
            self.unreadable,
            settled_in=space,
            seeds=seeds,
            reach=_REACH,
        )
        if seeds:
            self._seeds.update(seeds)
            self._near += confirmed
        by_id = {item.id: item for item in confirmed}
        self._items |= {each: by_id.get(each) for each in ids}

    def keep(self, items: Sequence[StoredItem]) -> None:
        """Add items that were read before, so that they need no confirmation."""
        self._items |= {item.id: item for item in items}

    def neighbours(self, connection: Connection, turns: Sequence[StoredItem]) -> list[StoredItem]:
        """Return the messages up to two positions before and after turns; of a long message, the first part."""
        unread = [each for each in turns if each.id not in self._seeds]
        if unread:
            # New turns have no rows of items yet: their neighbours are found by branch and position.
            new = {item.id for item in self._new_turns}
            stored = new.isdisjoint([each.id for each in unread])
            self._near += read_around(
                connection, unread, self.view.scope_ids, self.valid_at, _REACH, self.unreadable, stored=stored
            )
            self._seeds.update([each.id for each in unread])
        places = {(each.branch_id, each.position + step) for each in turns for step in _STEPS}
        near = [*self._near, *self._new_turns]
        return [item for item in near if (item.branch_id, item.position) in places and not item.start]
