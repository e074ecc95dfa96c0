"""`RunStore`: runs with their journals, decisions and events, in SQLite, PostgreSQL or memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DatabaseError, IntegrityError

from agentkit.errors import AgentDefinitionError
from agentkit.run.journal.journal import Journal, inner_line
from agentkit.run.parts.decisions import Decision
from agentkit.runs.run_database import (
    RunDatabase,
    decisions_table,
    events_table,
    lines_table,
    runs_table,
    sqlite_engine,
)
from agentkit.runs.run_decisions import Decided, ask_calls, calls_of, not_decided, store_decisions
from agentkit.runs.run_errors import AttemptEnded, RunNotFound, RunStoreError
from agentkit.runs.run_record import ENDED, RunEvent, RunRecord, RunState, RunsWanted, WaitingCall
from agentkit.runs.run_rows import (
    DAMAGED,
    ended_row,
    event_of,
    json_text,
    record_of,
    run_row,
)
from agentkit.runs.usage_counts import UsageCounts
from agentkit_prompts.errors import check_types
from agentkit_prompts.system.file_locks import locked
from agentkit_prompts.system.private_files import private_file, private_folder

__all__ = ["MAX_KEPT", "Attempt", "RunStore"]

MAX_KEPT = 5_000
"""Ended runs that are kept of all tenants together, unless another number is given."""
_MAX_IN_MEMORY = 256_000_000
_MAX_ON_DISK = 8_000_000_000
"""Maximum characters of all journals together; above that the oldest half of the ended runs is deleted."""
_PRUNE_EVERY = 200
"""Runs after which the oldest runs are deleted."""
_runs, _lines, _decisions, _events = runs_table, lines_table, decisions_table, events_table


@dataclass(slots=True)
class Attempt:
    """The attempt that may store lines and the end of a run, until another attempt begins or the run is cancelled."""

    run_id: str
    fence: str
    lines: int
    """Number of the next line of its journal."""


class RunStore:
    """Stores runs. Methods block; async code calls them in threads, and any number of threads may.

    Args:
        target: The SQLite file, created if it is missing, which only this object uses then; or the connections of a
            database that others use too. None keeps the runs in memory, as long as the object lives.
        keep: How many ended runs to keep of all tenants together; the oldest are deleted first. None for all.

    Raises:
        RunStoreError: The database has another format, is no database of runs, or another server uses the file.

    Attributes:
        usage: What tenants used.
    """

    def __init__(self, target: Path | sa.Engine | None = None, *, keep: int | None = MAX_KEPT) -> None:
        check_types(
            AgentDefinitionError,
            "RunStore",
            target=(target, (Path, sa.Engine, type(None)), "a Path, an engine, or None"),
            keep=(keep, (int, type(None)), "a number of runs, or None"),
        )
        self._keep = keep
        self._lock_file: int | None = None
        self._added = self._characters = 0
        self._max_characters = _MAX_IN_MEMORY if target is None else _MAX_ON_DISK
        name = str(target) if isinstance(target, Path) else "the database of the runs"
        if isinstance(target, sa.Engine):
            engine = target
        else:
            if target is not None:
                self._lock_file = _locked_file(target)
            engine = sqlite_engine(None if target is None else str(target))
        self._owned = None if isinstance(target, sa.Engine) else engine
        try:
            self._database = RunDatabase(engine, name)
        except DatabaseError as error:
            self.close()
            raise RunStoreError(f"{name}: cannot be opened as the database of runs: {error.orig}", path=name) from error
        except RunStoreError:
            self.close()
            raise
        self._work, self._now = self._database.work, self._database.now
        self.usage = UsageCounts(self._database)

    def close(self) -> None:
        """Close the connections and the file, unless the connections were given. Closing twice is allowed."""
        if self._owned is not None:
            self._owned.dispose()
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    # Runs

    def add(self, record: RunRecord, journal: str = "") -> RunRecord:
        """Store a new run, with its journal if it has one, and return it.

        If the tenant has a run of the same `key`, that run is returned and nothing is stored.
        """

        def insert(connection: sa.Connection) -> None:
            connection.execute(sa.insert(_runs).values(**run_row(record)))
            lines = journal.splitlines(keepends=True)
            if lines:
                rows = [{"run": record.run_id, "number": number, "line": line} for number, line in enumerate(lines)]
                connection.execute(sa.insert(_lines), rows)
            ask_calls(connection, self._now, record, None)

        try:
            self._work(insert)
        except IntegrityError:
            if record.key is not None and (known := self.find(record.tenant, record.key)) is not None:
                return known
            raise
        self._added += 1
        self._characters += len(journal)
        if self._added % _PRUNE_EVERY == 0:
            self._prune(self._keep)
        if self._characters > self._max_characters:
            self._shrink()
        return record

    def get(self, run_id: str, *, tenant: str | None = None) -> RunRecord:
        """Return a run.

        Raises:
            RunNotFound: There is no such run, or it is a run of another tenant.
        """
        query = sa.select(_runs).where(_runs.c.run_id == run_id)
        found = self._records(query if tenant is None else query.where(_runs.c.tenant == tenant))
        if not found:
            raise RunNotFound(run_id)
        return found[0]

    def find(self, tenant: str, key: str) -> RunRecord | None:
        """Return the run that a tenant started with an idempotency key, or None."""
        found = self._records(sa.select(_runs).where(_runs.c.tenant == tenant, _runs.c.key == key))
        return found[0] if found else None

    def page(self, wanted: RunsWanted) -> list[RunRecord]:
        """Return runs, the newest first.

        Raises:
            RunNotFound: There is no run with the id `before`.
        """
        # Runs that are selected by id are few: they are found by it, and sorted.
        number = _runs.c.number if wanted.ids is None else _runs.c.number + 0
        query = sa.select(_runs).order_by(number.desc()).limit(wanted.limit)
        for name in ("tenant", "agent", "session", "user", "state"):
            if (value := getattr(wanted, name)) is not None:
                query = query.where(_runs.c[name] == value)
        if wanted.ids is not None:
            query = query.where(_runs.c.run_id.in_(wanted.ids))
        if wanted.before is not None:
            before = sa.select(_runs.c.number).where(_runs.c.run_id == wanted.before)
            if wanted.tenant is not None:
                before = before.where(_runs.c.tenant == wanted.tenant)
            first = self._work(lambda connection: connection.scalar(before))
            if first is None:
                raise RunNotFound(wanted.before)
            query = query.where(_runs.c.number < first)
        return self._records(query)

    def delete(self, run_id: str) -> None:
        """Delete a run with all that is stored of it; no error if there is none."""
        self._work(lambda connection: _delete(connection, [run_id]))

    def _records(self, query: sa.Select[Any]) -> list[RunRecord]:
        def read(connection: sa.Connection) -> list[RunRecord]:
            rows = connection.execute(query).mappings().all()
            waiting: dict[str, list[WaitingCall]] = {}
            if ids := [row["run_id"] for row in rows if row["state"] == "waiting"]:
                for run_id, call in calls_of(connection, ids):
                    if call.decision is None:
                        waiting.setdefault(run_id, []).append(call)
            return [record_of(row, waiting.get(row["run_id"], ())) for row in rows]

        return self._work(read)

    # Attempts

    def begin_attempt(self, run_id: str) -> Attempt | None:
        """Begin to execute a queued run; None if it is not queued."""
        fence = os.urandom(12).hex()
        row = _runs.c
        # Repeated if the connection was lost: then it may have begun already.
        is_free = sa.or_(row.state == "queued", row.fence == fence)
        begun = sa.update(_runs).where(row.run_id == run_id, is_free)
        begun = begun.values(state="running", fence=fence, attempts=row.attempts + 1, updated_at=self._now)

        def begin(connection: sa.Connection) -> Attempt | None:
            if not connection.execute(begun).rowcount:
                return None
            last = connection.scalar(sa.select(sa.func.max(_lines.c.number)).where(_lines.c.run == run_id))
            return Attempt(run_id, fence, 0 if last is None else last + 1)

        return self._work(begin)

    def add_lines(self, attempt: Attempt, lines: Sequence[tuple[str, tuple[str, ...]]]) -> None:
        """Store lines of a journal, each with the calls that lead to its agent: all of them or none.

        Raises:
            AttemptEnded: The attempt may not store anything.
        """
        rows = [(attempt.lines + at, inner_line(*one)) for at, one in enumerate(lines)]

        def add(connection: sa.Connection) -> None:
            self._check(connection, attempt)
            known = sa.select(_lines.c.number).where(_lines.c.run == attempt.run_id, _lines.c.number >= attempt.lines)
            # After a lost connection they may be stored already.
            stored = set(connection.scalars(known))
            fresh = [{"run": attempt.run_id, "number": at, "line": line} for at, line in rows if at not in stored]
            if fresh:
                connection.execute(sa.insert(_lines), fresh)

        self._work(add)
        attempt.lines += len(rows)
        self._characters += sum(len(line) for _, line in rows)

    def end_attempt(self, attempt: Attempt, record: RunRecord, *, timeout: float | None = None) -> None:
        """Store how an attempt ended: the run ended, waits with its calls, or is queued again.

        Args:
            attempt: The attempt.
            record: The run as it is now.
            timeout: Seconds after which calls that wait are denied; None for never.

        Raises:
            AttemptEnded: The attempt may not store anything.
        """
        ended = sa.update(_runs).where(_runs.c.run_id == attempt.run_id, _runs.c.fence == attempt.fence)

        def end(connection: sa.Connection) -> None:
            if not connection.execute(ended.values(**ended_row(record), fence=None)).rowcount:
                self._refuse(connection, attempt)
            ask_calls(connection, self._now, record, timeout)

        self._work(end)

    def cancel(self, run_id: str) -> bool:
        """Cancel a run; False if it has ended."""
        cancelled = sa.update(_runs).where(_runs.c.run_id == run_id, _runs.c.state.not_in(sorted(ENDED)))
        values = {"state": "cancelled", "fence": None, "updated_at": self._now}
        return self._work(lambda connection: connection.execute(cancelled.values(**values)).rowcount > 0)

    def requeue_interrupted(self) -> list[RunRecord]:
        """Queue the runs again that a stopped server executed, and return its queued runs, the oldest first.

        Damaged runs are left out: they stay queued until they are cancelled.
        """
        values = {"state": "queued", "fence": None, "updated_at": self._now}
        is_own = _runs.c.executor == "process"
        interrupted = sa.update(_runs).where(_runs.c.state == "running", is_own).values(**values)
        self._work(lambda connection: connection.execute(interrupted))
        queued = sa.select(_runs).where(_runs.c.state == "queued", is_own).order_by(_runs.c.number)
        return [record for record in self._records(queued) if record.error != DAMAGED]

    def _check(self, connection: sa.Connection, attempt: Attempt) -> None:
        """Lock a run for this transaction, and refuse to store anything of an attempt that has ended."""
        own = sa.update(_runs).where(_runs.c.run_id == attempt.run_id, _runs.c.fence == attempt.fence)
        if not connection.execute(own.values(fence=attempt.fence)).rowcount:
            self._refuse(connection, attempt)

    def _refuse(self, connection: sa.Connection, attempt: Attempt) -> None:
        state = connection.scalar(sa.select(_runs.c.state).where(_runs.c.run_id == attempt.run_id))
        raise AttemptEnded(attempt.run_id, is_cancelled=state == "cancelled")

    # Decisions

    def calls(self, run_id: str) -> list[WaitingCall]:
        """Return the calls of a run that wait or waited, in the order in which they were asked."""
        return self._work(lambda connection: [call for _, call in calls_of(connection, [run_id])])

    def decisions(self, run_id: str, journal: Journal) -> dict[str, Decision]:
        """Return the decisions about calls of a run that its journal does not have yet, by the ids of the calls."""
        known = journal.decisions
        return {
            call.call_id: call.decision
            for call in self.calls(run_id)
            if call.decision is not None and call.call_id not in known
        }

    def decide(self, run_id: str, made: Decided, by: str = "") -> RunState:
        """Store decisions about calls of a waiting run, all or none, and queue the run if none is missing.

        Args:
            run_id: The run.
            made: Decisions by the ids of the calls; None for all other calls that wait.
            by: Who decided.

        Returns:
            The state of the run: `queued`, or `waiting` for other decisions.

        Raises:
            ApprovalError: No such call waits, or it was decided already; nothing was stored.
            RunNotFound: There is no such run.
        """

        def store(connection: sa.Connection) -> RunState | None:
            if not store_decisions(connection, self._now, run_id, made, by):
                connection.rollback()
                return None
            row = _runs.c
            waits = sa.exists().where(_decisions.c.run == run_id, _decisions.c.decision.is_(None))
            queued = sa.update(_runs).where(row.run_id == run_id, row.state == "waiting", ~waits)
            is_queued = connection.execute(queued.values(state="queued", updated_at=self._now)).rowcount
            return "queued" if is_queued else "waiting"

        state = self._work(store)
        if state is None:
            raise not_decided(run_id, self.get(run_id).state, self.calls(run_id), made)
        return state

    # Journals and events

    def journal_text(self, run_id: str) -> str:
        """Return the journal of a run as `Journal.loads` reads it; empty if the run has not begun."""
        query = sa.select(_lines.c.line).where(_lines.c.run == run_id).order_by(_lines.c.number)
        return self._work(lambda connection: "".join(connection.scalars(query)))

    def journal(self, run_id: str) -> Journal | None:
        """Return the journal of a run; None if the run has not begun.

        Raises:
            JournalError: The journal cannot be read.
        """
        text = self.journal_text(run_id)
        return Journal.loads(text) if "\n" in text else None

    def add_events(self, run_id: str, events: Sequence[RunEvent]) -> None:
        """Store events of a run, after those that it has."""
        rows = [{"run": run_id, "seq": seq, "kind": kind, "data": json_text(data)} for seq, kind, data in events]
        if rows:
            self._work(lambda connection: connection.execute(sa.insert(_events), rows))

    def events(self, run_id: str, *, after: int = 0, limit: int = 1000) -> list[RunEvent]:
        """Return the first events of a run after the number `after`."""
        query = sa.select(_events.c.seq, _events.c.kind, _events.c.data).order_by(_events.c.seq).limit(limit)
        query = query.where(_events.c.run == run_id, _events.c.seq > after)
        return self._work(lambda connection: [event_of(row) for row in connection.execute(query)])

    def last_event(self, run_id: str) -> int:
        """Return the number of the last event of a run; 0 if it has none."""
        query = sa.select(sa.func.max(_events.c.seq)).where(_events.c.run == run_id)
        return self._work(lambda connection: connection.scalar(query)) or 0

    # How many runs are kept

    def _shrink(self) -> None:
        """Delete the oldest half of the ended runs: the journals are larger than they may be."""
        ended = sa.select(sa.func.count()).where(_runs.c.state.in_(sorted(ENDED)))
        self._prune((self._work(lambda connection: connection.scalar(ended)) or 0) // 2)
        size = sa.select(sa.func.sum(sa.func.length(_lines.c.line)))
        self._characters = self._work(lambda connection: connection.scalar(size)) or 0

    def _prune(self, keep: int | None) -> None:
        """Delete the oldest ended runs, all but `keep`."""
        if keep is None:
            return
        ended = sa.select(_runs.c.run_id).where(_runs.c.state.in_(sorted(ENDED)))
        old = ended.order_by(_runs.c.number.desc()).limit(-1 if self._database.is_sqlite else None).offset(keep)
        self._work(lambda connection: _delete(connection, list(connection.scalars(old))))


def _locked_file(path: Path) -> int:
    """Create a file, and lock it: two servers would both continue its runs.

    Raises:
        RunStoreError: Another process has it.
    """
    private_folder(path.parent)
    private_file(path)
    lock = path.with_name(f"{path.name}.lock")
    private_file(lock)
    file = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    if not locked(file):
        os.close(file)
        raise RunStoreError(
            f"{path}: another server keeps its runs there: stop it, or serve with another --home",
            path=str(path),
            value="busy",
        )
    return file


def _delete(connection: sa.Connection, run_ids: Sequence[str]) -> None:
    for column in (_events.c.run, _lines.c.run, _decisions.c.run, _runs.c.run_id):
        for at in range(0, len(run_ids), _PRUNE_EVERY):
            connection.execute(sa.delete(column.table).where(column.in_(run_ids[at : at + _PRUNE_EVERY])))
