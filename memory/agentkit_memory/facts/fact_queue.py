"""The queue of turns to extract facts from: rows of the outbox in a space without points.

One worker at a time reads the turns of a scope, in the order of each conversation, so that a newer statement can
replace facts of older ones.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BindParameter, Connection, bindparam, delete, insert, literal, or_, select, update

from agentkit_memory.facts.drafts import Turn
from agentkit_memory.scope import NAMES, Scope
from agentkit_memory.store.engine import Database
from agentkit_memory.store.item_rows import TURN, wanted
from agentkit_memory.store.outbox import DONE, FAILED, HELD, MAX_LEASE, RELEASE, hold_spaces
from agentkit_memory.store.scopes import hold_scope
from agentkit_memory.store.spaces import FACTS
from agentkit_memory.store.tables import branches, items, scopes, vector_spaces, vector_state

__all__ = ["Queue", "Task", "Window", "ask_for_facts"]

_MAX_CHARACTERS = 20_000
"""Of the turns of one window; a longer turn is read alone."""

_state = vector_state.c
_pending = (_state.space == FACTS, _state.want != _state.have)
_now: BindParameter[float] = bindparam("now")
_waits = (_state.leased_until > _now) & (_state.leased_until <= _now + MAX_LEASE)
_readable = (_state.want > 0, items.c.kind == TURN, wanted(), or_(items.c.valid_to.is_(None), items.c.valid_to > _now))
_JOINED = vector_state.join(items, items.c.id == _state.item_id)
_BUSY = (
    select(items.c.scope_id, items.c.branch_id, _state.leased_by.is_not(None).label("held"))
    .select_from(_JOINED)
    .where(*_pending, _waits)
    .distinct()
)
_NEXT = (
    select(items.c.scope_id, items.c.branch_id)
    .select_from(_JOINED)
    .where(
        *_pending,
        *_readable,
        items.c.scope_id.not_in(bindparam("scopes", expanding=True)),
        items.c.branch_id.not_in(bindparam("branches", expanding=True)),
    )
    .order_by(_state.item_id)
    .limit(1)
)
_HELD_IN = _BUSY.where(items.c.scope_id == bindparam("scope"), _state.leased_by.is_not(None))
_TURN = items.c["id", "speaker", "text", "said_at", "version", "position"]
_WINDOW = (
    select(_state.want, _state.attempts, _waits.label("waits"), *_TURN)
    .select_from(_JOINED)
    .where(*_pending, *_readable, items.c.branch_id == bindparam("branch"))
    .order_by(items.c.position)
    .limit(bindparam("most"))
)
_BEFORE = (
    select(*_TURN)
    .where(items.c.branch_id == bindparam("branch"), items.c.position < bindparam("first"), items.c.kind == TURN)
    .where(wanted())
    .order_by(items.c.position.desc())
    .limit(bindparam("most"))
)
_these = (_state.space == FACTS, _state.item_id.in_(bindparam("ids", expanding=True)))
_LEASE = update(vector_state).where(*_these).values(leased_by=bindparam("me"), leased_until=bindparam("until"))
_HOLD = select(branches.c.id).where(branches.c.id == bindparam("branch")).with_for_update()
_VERSIONS = select(items.c.id, items.c.version).where(items.c.id.in_(bindparam("ids", expanding=True)))
_SCOPE = select(*scopes.c[NAMES]).where(scopes.c.id == bindparam("scope"))
_FORGET = delete(vector_state).where(_state.space == FACTS, _state.want < 0)
_GONE = select(_state.item_id).where(_state.space == FACTS, _state.want < 0).limit(1)
_TURNS = select(items.c.id, literal(FACTS), literal(1), literal(0)).where(
    items.c.kind == TURN,
    wanted(),
    ~select(_state.item_id).where(_state.item_id == items.c.id, _state.space == FACTS).exists(),
)
_BACKFILL = insert(vector_state).from_select(["item_id", "space", "want", "have"], _TURNS)
_KNOWN = select(vector_spaces.c.space).where(vector_spaces.c.space == FACTS)


@dataclass(frozen=True, slots=True)
class Task:
    """A turn to be read, at its current version."""

    turn: Turn
    want: int
    version: int
    attempts: int


@dataclass(frozen=True, slots=True)
class Window:
    """Turns of one conversation that are read together, and those before them."""

    scope: Scope
    scope_id: int
    branch_id: int
    before: tuple[Task, ...]
    tasks: tuple[Task, ...]

    @property
    def turns(self) -> tuple[Turn, ...]:
        """All of them, in order."""
        return tuple(task.turn for task in (*self.before, *self.tasks))


def ask_for_facts(database: Database) -> None:
    """Queue every turn for extraction, those that were stored before too."""
    with database.read() as connection:
        known = connection.scalar(_KNOWN)
    if known is None:
        with database.write() as connection:
            hold_spaces(connection, change=True)
            if connection.scalar(_KNOWN) is None:
                row = {"space": FACTS, "index_id": "", "state": FACTS, "created_at": database.clock()}
                connection.execute(insert(vector_spaces).values(**row))
                connection.execute(_BACKFILL)


class Queue:
    """One worker's view of the queue: at most `most` turns together, with `before` others as their context."""

    def __init__(self, database: Database, *, most: int = 8, before: int = 4, lease: float = 300.0) -> None:
        self.name = str(uuid.uuid4())
        self._who = {"this": FACTS, "me": self.name}
        self._database = database
        self._most = most
        self._before = before
        self._lease = lease

    def take(self) -> Window | None:
        """Lease the next turns of some conversation; None when all are read or leased."""
        now = self._database.clock()
        with self._database.read() as connection:
            gone = connection.scalar(_GONE)
            busy = connection.execute(_BUSY, {"now": now}).all()
            held = sorted({row.scope_id for row in busy if row.held})
            paused = sorted({row.branch_id for row in busy})
            found = connection.execute(_NEXT, {"now": now, "scopes": held, "branches": paused}).one_or_none()
        if gone is None and found is None:
            return None
        with self._database.write() as connection:
            if gone is not None:  # their facts were deleted with them
                connection.execute(_FORGET)
            return None if found is None else self._hold(connection, now, *found)

    def _hold(self, connection: Connection, now: float, scope: int, branch: int) -> Window | None:
        hold_scope(connection, scope)
        if connection.execute(_HELD_IN, {"now": now, "scope": scope}).first() is not None:
            return None  # another worker was faster
        rows = connection.execute(_WINDOW, {"now": now, "branch": branch, "most": self._most}).all()
        size = 0
        taken: list[Any] = []
        for row in rows:
            size += len(row.text)
            # A turn that failed is read alone, and those after it wait.
            if row.waits or (taken and (row.attempts or taken[0].attempts or size > _MAX_CHARACTERS)):
                break
            taken.append(row)
        if not taken:
            return None
        ids = [row.id for row in taken]
        connection.execute(_LEASE, {"ids": ids, "me": self.name, "until": now + self._lease})
        bound = {"branch": branch, "first": taken[0].position, "most": self._before}
        before = [_task(row, new=False) for row in reversed(connection.execute(_BEFORE, bound).all())]
        tasks = [_task(row, row.want, row.attempts) for row in taken]
        names = connection.execute(_SCOPE, {"scope": scope}).one()
        return Window(Scope(*names), scope, branch, tuple(before), tuple(tasks))

    def settle(self, connection: Connection, window: Window) -> tuple[list[Task], set[str]]:
        """Lock the scope and the conversation until the transaction ends, and look what has changed since `take`.

        Returns:
            The tasks that this worker still holds, and ids of the turns that are unchanged.
        """
        hold_scope(connection, window.scope_id)
        connection.execute(_HOLD, {"branch": window.branch_id})  # a redaction or a deletion comes before or after
        mine = {row.item_id: row.want for row in connection.execute(HELD, self._who)}
        read = (*window.before, *window.tasks)
        now = dict(connection.execute(_VERSIONS, {"ids": [task.turn.id for task in read]}).all())
        still = [task for task in window.tasks if mine.get(task.turn.id) == task.want]
        same = {task.turn.id for task in read if now.get(task.turn.id) == task.version}
        taken_over = {task.turn.id for task in window.tasks} - {task.turn.id for task in still}
        return still, same - taken_over

    def done(self, connection: Connection, tasks: Sequence[Task], problem: str | None = None) -> None:
        """Mark the turns as read or, with a problem, as given up; and release what else this worker holds."""
        if tasks:
            rows = [{"item": task.turn.id, "this": FACTS, "done": task.want, "error": problem} for task in tasks]
            connection.execute(DONE, rows)
        connection.execute(RELEASE, self._who)

    def again(self, connection: Connection, tasks: Sequence[Task], problem: str, seconds: float) -> None:
        """Queue the turns again, with a pause in seconds."""
        until = self._database.clock() + seconds if seconds else None
        if tasks:
            rows = [
                {"item": task.turn.id, "this": FACTS, "again": until}
                | {"times": task.attempts + 1, "error": problem[:1000]}
                for task in tasks
            ]
            connection.execute(FAILED, rows)
        connection.execute(RELEASE, self._who)

    def release(self) -> None:
        """Release everything at once."""
        with self._database.write() as connection:
            connection.execute(RELEASE, self._who)


def _task(row: Any, want: int = 0, attempts: int = 0, *, new: bool = True) -> Task:
    return Task(Turn(row.id, row.speaker, row.text, row.said_at, new), want, row.version, attempts)
