"""`FactWorker`: reads turns with an extractor and stores their facts; any number of workers may run at once.

The queue of turns consists of rows of the outbox, in a space without points. One worker at a time reads the turns of a
scope, in the order of each conversation, so that a newer statement can replace facts of older statements. Facts are
stored in the transaction that acknowledges their turns: after an earlier crash the model is called again, but no fact
is stored twice and no turn is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple

from sqlalchemy import BindParameter, Connection, bindparam, delete, func, insert, literal, or_, select, update

from agentkit_memory.database.engine import Database
from agentkit_memory.database.rows import decode_rows
from agentkit_memory.database.tables import branches, items, scopes, vector_spaces, vector_state
from agentkit_memory.errors import InvalidArgument, StoreCorrupt
from agentkit_memory.facts.drafts import Extract, FactDraft, Turn, check_draft, type_error, type_problems
from agentkit_memory.facts.fact_reading import ends_of, newest_facts
from agentkit_memory.facts.fact_rows import Facts
from agentkit_memory.process.failpoints import failpoint
from agentkit_memory.scope import NAMES, Scope
from agentkit_memory.store.item_rows import TURN, is_current
from agentkit_memory.store.item_text import ITEM_TEXT
from agentkit_memory.store.outbox import DONE, FAILED, HELD, MAX_LEASE, RELEASE, hold_spaces, retry_pause, worker_name
from agentkit_memory.store.records import StoredFact
from agentkit_memory.store.scope_rows import hold_scope
from agentkit_memory.store.spaces import FACTS
from agentkit_prompts.ranking.bm25 import BM25

_LOG = logging.getLogger("agentkit.memory")

_MAX_TRIES = 3
"""Maximum invalid answers about one turn; then the turn is given up."""
_MAX_READ = 500
"""Number of newest facts of a scope among which related facts are searched for."""
_MAX_KNOWN = 40
"""Maximum known facts in the input of an extractor: one half by BM25, the other half the newest."""
_MAX_CHARACTERS = 20_000
"""Maximum characters of turns that are read together; a longer turn is read alone."""

_MAX_BEFORE = 4
"""Maximum earlier turns that are passed again as context."""

_state = vector_state.c
_pending = (_state.space == FACTS, _state.want != _state.have)
_now: BindParameter[float] = bindparam("now")
_waits = (_state.leased_until > _now) & (_state.leased_until <= _now + MAX_LEASE)
_readable = (
    _state.want > 0,
    items.c.kind == TURN,
    is_current(),
    or_(items.c.valid_to.is_(None), items.c.valid_to > _now),
)
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
_TURN = (
    *items.c["id", "speaker", "said_at", "version", "position", "role"],
    # A corrupt text does not block other texts.
    func.coalesce(ITEM_TEXT, "").label("text"),
)
_WINDOW = (
    select(_state.want, _state.attempts, _waits.label("waits"), *_TURN)
    .select_from(_JOINED)
    .where(*_pending, *_readable, items.c.branch_id == bindparam("branch"))
    .order_by(items.c.position, items.c.start)
    .limit(bindparam("most"))
)
_BEFORE = (
    select(*_TURN)
    .where(items.c.branch_id == bindparam("branch"), items.c.position < bindparam("first"), items.c.kind == TURN)
    .where(is_current())
    .order_by(items.c.position.desc(), items.c.start.desc())
    .limit(bindparam("most"))
)
_is_listed = (_state.space == FACTS, _state.item_id.in_(bindparam("ids", expanding=True)))
_LEASE = update(vector_state).where(*_is_listed).values(leased_by=bindparam("me"), leased_until=bindparam("until"))
_LOCK_BRANCH = select(branches.c.id).where(branches.c.id == bindparam("branch")).with_for_update()
_VERSIONS = select(items.c.id, items.c.version).where(items.c.id.in_(bindparam("ids", expanding=True)))
_SCOPE = select(*scopes.c[NAMES]).where(scopes.c.id == bindparam("scope"))
_FORGET = delete(vector_state).where(_state.space == FACTS, _state.want < 0)
_DELETED_TURN = select(_state.item_id).where(_state.space == FACTS, _state.want < 0).limit(1)
_TURNS = select(items.c.id, literal(FACTS), literal(1), literal(0), items.c.scope_id).where(
    items.c.kind == TURN,
    is_current(),
    ~select(_state.item_id).where(_state.item_id == items.c.id, _state.space == FACTS).exists(),
)
_BACKFILL = insert(vector_state).from_select(["item_id", "space", "want", "have", "scope_id"], _TURNS)
_QUEUE = select(vector_spaces.c.space).where(vector_spaces.c.space == FACTS)


@dataclass(frozen=True, slots=True)
class _Task:
    """A turn to read, at its current version."""

    turn: Turn
    want: int
    version: int
    attempts: int


@dataclass(frozen=True, slots=True)
class _Window:
    """Turns of one conversation that are read together, and earlier turns as their context."""

    scope: Scope
    scope_id: int
    branch_id: int
    before: tuple[_Task, ...]
    tasks: tuple[_Task, ...]

    @property
    def turns(self) -> tuple[Turn, ...]:
        """All turns, in order."""
        return tuple(task.turn for task in (*self.before, *self.tasks))


class _Conversation(NamedTuple):
    """A conversation with turns to read."""

    scope: Scope
    scope_id: int
    branch_id: int


class FactWorker:
    """Extracts facts from turns, at most `most` at once. After `lease` seconds, other workers may take these turns.

    `extract` is called in the thread that calls `run_once`, and must take less time than a lease.
    """

    def __init__(self, database: Database, extract: Extract, *, most: int = 8, lease: float = 300.0) -> None:
        self._database = database
        self._extract = extract
        self._most = most
        self._lease = lease
        self._who = {"this": FACTS, "me": worker_name()}
        self._is_queued = False

    def run_once(self) -> int:
        """Read the next turns of a conversation, store the facts in them, and return the number of turns.

        If the extractor raises an error, the turns stay in the queue and are tried again after growing pauses. After an
        invalid answer, each turn is read alone. After some invalid answers about one turn, the valid drafts of the last
        answer are stored, and the turn is given up. Turns that are given up, and invalid drafts, are logged.
        """
        if not self._is_queued:
            _queue_turns(self._database)
            self._is_queued = True
        window = self._take()
        if window is None:
            return 0
        try:
            failpoint("facts.leased")
            self._read(window)
        except BaseException:
            self._database.change(lambda connection: connection.execute(RELEASE, self._who))
            raise
        return len(window.tasks)

    def _read(self, window: _Window) -> None:
        """Call the extractor with leased turns, and store its answer or queue the turns again."""
        known_facts = self._known_facts(window)
        try:
            drafts = list(self._extract(window.turns, known_facts))
        except (KeyboardInterrupt, SystemExit):
            raise
        # A panic of a library in Rust, such as a tokenizer, is not an `Exception`.
        except BaseException as error:
            self._handle_failure(window, error)
            return
        invalid = type_error(drafts)
        if invalid is not None and not _is_last(window):
            self._handle_failure(window, invalid)
            return
        failpoint("facts.asked")
        valid = [each for each in drafts if not type_problems(each)]

        def write(connection: Connection) -> None:
            self._store(connection, window, known_facts, valid, invalid)
            failpoint("facts.written")

        self._database.change(write)
        failpoint("facts.committed")

    def _take(self) -> _Window | None:
        """Lease the next turns of a conversation; None if all turns are read or leased."""
        now = self._database.clock()
        with self._database.read() as connection:
            deleted_turn = connection.scalar(_DELETED_TURN)
            conversation = _next_conversation(connection, now)
        if deleted_turn is None and conversation is None:
            return None

        def take(connection: Connection) -> _Window | None:
            if deleted_turn is not None:
                # The facts of deleted turns were deleted with the turns.
                connection.execute(_FORGET)
            if conversation is None:
                return None
            return self._lease_window(connection, now, conversation)

        return self._database.change(take)

    def _lease_window(self, connection: Connection, now: float, conversation: _Conversation) -> _Window | None:
        """Lease the next turns of a conversation; None if another worker leased turns of its scope first."""
        hold_scope(connection, conversation.scope_id)
        if connection.execute(_HELD_IN, {"now": now, "scope": conversation.scope_id}).first() is not None:
            return None
        bound = {"now": now, "branch": conversation.branch_id, "most": self._most}
        rows = _read_together(connection.execute(_WINDOW, bound).all())
        if not rows:
            return None
        ids = [row.id for row in rows]
        connection.execute(_LEASE, {"ids": ids, "me": self._who["me"], "until": now + self._lease})
        bound = {"branch": conversation.branch_id, "first": rows[0].position, "most": _MAX_BEFORE}
        before = [_task(row, new=False) for row in reversed(connection.execute(_BEFORE, bound).all())]
        tasks = [_task(row, row.want, row.attempts) for row in rows]
        return _Window(conversation.scope, conversation.scope_id, conversation.branch_id, tuple(before), tuple(tasks))

    def _settle(self, connection: Connection, window: _Window) -> tuple[list[_Task], set[str]]:
        """Lock the scope and the conversation until the transaction ends, and read the changes since `_take`.

        Returns:
            The tasks that this worker still leases, and the ids of unchanged turns.
        """
        hold_scope(connection, window.scope_id)
        # With this lock, a redaction or a deletion is either before or after this transaction.
        connection.execute(_LOCK_BRANCH, {"branch": window.branch_id})
        targets = {row.item_id: row.want for row in connection.execute(HELD, self._who)}
        tasks = (*window.before, *window.tasks)
        versions = dict(connection.execute(_VERSIONS, {"ids": [task.turn.id for task in tasks]}).all())
        leased = [task for task in window.tasks if targets.get(task.turn.id) == task.want]
        unchanged = {task.turn.id for task in tasks if versions.get(task.turn.id) == task.version}
        lost = {task.turn.id for task in window.tasks} - {task.turn.id for task in leased}
        return leased, unchanged - lost

    def _mark_read(self, connection: Connection, tasks: Sequence[_Task], problem: str | None = None) -> None:
        """Mark turns as read or, with a problem, as given up; release the other leases of this worker."""
        if tasks:
            rows = [{"item": task.turn.id, "this": FACTS, "done": task.want, "error": problem} for task in tasks]
            connection.execute(DONE, rows)
        connection.execute(RELEASE, self._who)

    def _requeue(self, connection: Connection, tasks: Sequence[_Task], problem: str, seconds: float) -> None:
        """Queue turns again, after a pause of some seconds."""
        paused_until = None
        if seconds:
            paused_until = self._database.clock() + seconds
        values = {"this": FACTS, "again": paused_until, "error": problem[:1000]}
        if tasks:
            connection.execute(FAILED, [values | {"item": task.turn.id, "times": task.attempts + 1} for task in tasks])
        connection.execute(RELEASE, self._who)

    def _known_facts(self, window: _Window) -> list[StoredFact]:
        """Return facts of the scope as context: facts that share terms with the turns, and the newest facts."""
        with self._database.read() as connection:
            newest = newest_facts(connection, window.scope_id, self._database.clock(), _MAX_READ)
        if len(newest) <= _MAX_KNOWN:
            return newest[::-1]
        scores = BM25(fact.text for fact in newest).scores(" ".join(turn.text for turn in window.turns))
        related = sorted(range(len(newest)), key=lambda index: (-scores[index], index))[: _MAX_KNOWN // 2]
        unrelated = [index for index in range(len(newest)) if index not in related][: _MAX_KNOWN - len(related)]
        return [newest[index] for index in sorted((*related, *unrelated), reverse=True)]

    def _store(
        self,
        connection: Connection,
        window: _Window,
        known: Sequence[StoredFact],
        drafts: Sequence[FactDraft],
        invalid: InvalidArgument | None,
    ) -> None:
        """Store the valid drafts of an answer, and acknowledge the turns; after an `invalid` answer, give them up."""
        leased, unchanged = self._settle(connection, window)
        facts = Facts(self._database, window.scope)
        turns = {turn.id: turn for turn in window.turns}
        ends = self._ends_by_text(connection, window.scope_id)
        for draft in drafts:
            try:
                check_draft(draft, turns, [fact.id for fact in known])
                # A source may have been redacted or erased while the model was reading.
                if unchanged.issuperset(draft.sources):
                    self._store_draft(connection, facts, draft, ends)
            except (InvalidArgument, StoreCorrupt) as error:
                _LOG.warning("%s: %s", self._database.where, error)
        if invalid is None:
            self._mark_read(connection, leased)
        else:
            self._give_up(connection, window, leased, invalid)

    @staticmethod
    def _store_draft(connection: Connection, facts: Facts, draft: FactDraft, ends: dict[str, float]) -> None:
        """Store a draft, and its end in `ends`, unless a fact with the same text is valid at least as long."""
        draft = replace(draft, text=draft.text.strip())
        text, (end,) = draft.text.casefold(), ends_of(connection, [(draft.valid_to, draft.sources)])
        if ends.get(text, -inf) >= end and not draft.supersedes:
            return
        facts.write(connection, draft)
        ends[text] = end

    def _ends_by_text(self, connection: Connection, scope_id: int) -> dict[str, float]:
        """Return the latest end of validity of the newest facts of a scope, by their casefolded texts."""
        newest = newest_facts(connection, scope_id, self._database.clock(), _MAX_READ)
        ends = ends_of(connection, [(fact.valid_to, fact.sources) for fact in newest])
        latest: dict[str, float] = {}
        for fact, end in zip(newest, ends, strict=True):
            text = fact.text.strip().casefold()
            latest[text] = max(end, latest.get(text, end))
        return latest

    def _give_up(self, connection: Connection, window: _Window, tasks: Sequence[_Task], error: InvalidArgument) -> None:
        self._mark_read(connection, tasks, _stored_problem(window, error))
        for task in tasks:
            _LOG.warning(
                "%s: the extraction of facts from turn %s was given up: %s",
                self._database.where,
                task.turn.id,
                _described(error),
            )

    def _handle_failure(self, window: _Window, error: BaseException) -> None:
        def write(connection: Connection) -> None:
            leased, _ = self._settle(connection, window)
            if isinstance(error, InvalidArgument) and len(window.tasks) > 1:
                # The next calls read one turn each, to find the turns that cause invalid answers.
                self._requeue(connection, leased, _stored_problem(window, error), 0)
            elif isinstance(error, InvalidArgument) and _is_last(window):
                self._give_up(connection, window, leased, error)
            else:
                tries = max(task.attempts for task in window.tasks)
                self._requeue(connection, leased, _stored_problem(window, error), retry_pause(tries))
                _LOG.info("%s: facts are tried again later: %s", self._database.where, _described(error))

        self._database.change(write)


def _queue_turns(database: Database) -> None:
    """Create the queue with every stored turn, unless the queue exists."""
    with database.read() as connection:
        if connection.scalar(_QUEUE) is not None:
            return
    with database.write() as connection:
        hold_spaces(connection, change=True)
        # Another worker may have created the queue meanwhile.
        if connection.scalar(_QUEUE) is None:
            row = {"space": FACTS, "index_id": "", "state": FACTS, "created_at": database.clock()}
            connection.execute(insert(vector_spaces).values(**row))
            connection.execute(_BACKFILL)


def _next_conversation(connection: Connection, now: float) -> _Conversation | None:
    """Return the conversation whose turns are read next; None if all turns are read, leased or in a pause."""
    busy = connection.execute(_BUSY, {"now": now}).all()
    paused = sorted({row.branch_id for row in busy})
    left_out = sorted({row.scope_id for row in busy if row.held})
    while True:
        row = connection.execute(_NEXT, {"now": now, "scopes": left_out, "branches": paused}).one_or_none()
        if row is None:
            return None
        scope = _scope_of(connection, row.scope_id)
        if scope is not None:
            return _Conversation(scope, *row)
        # A scope whose row is corrupt does not block other scopes.
        left_out.append(row.scope_id)


def _read_together(rows: Sequence[Any]) -> Sequence[Any]:
    """Return the first of these turns, as many as are read together; none if the first turn is leased or in a pause."""
    size = 0
    for number, row in enumerate(rows):
        size += len(row.text)
        if row.waits:
            return rows[:number]
        # A turn that failed is read alone, and the turns after it wait.
        if number and (row.attempts or rows[0].attempts or size > _MAX_CHARACTERS):
            return rows[:number]
    return rows


def _scope_of(connection: Connection, scope: int) -> Scope | None:
    """Return the scope with a number; None if its row is corrupt or missing."""
    for row in decode_rows(connection, _SCOPE, {"scope": scope}, scopes.c.tenant).sound:
        with suppress(InvalidArgument):
            return Scope(*row)
    return None


def _task(row: Any, want: int = 0, attempts: int = 0, *, new: bool = True) -> _Task:
    return _Task(Turn(row.id, row.speaker, row.text, row.said_at, new, row.role), want, row.version, attempts)


def _is_last(window: _Window) -> bool:
    """Return True if a turn is given up after one more invalid answer."""
    return len(window.tasks) == 1 and window.tasks[0].attempts + 1 >= _MAX_TRIES


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _stored_problem(window: _Window, error: BaseException) -> str:
    """Return the description of an error that is stored with each turn: it must not quote another turn."""
    count = len(window.turns)
    if count == 1:
        return _described(error)
    return f"{type(error).__name__} while {count} turns were read; see the log"
