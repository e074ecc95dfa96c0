"""`RunStore`: runs with their journals, decisions and events, in SQLite, PostgreSQL or memory."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from agentkit.errors import AgentDefinitionError
from agentkit.run.journal.journal import inner_line
from agentkit.runs.event_log import EventLog, store_events
from agentkit.runs.inner_runs import InnerRuns
from agentkit.runs.leg import QueueLeg
from agentkit.runs.run_database import RunDatabase, decisions_table, keys_table, lines_table, runs_table, shown_url
from agentkit.runs.run_decisions import (
    CallDecisions,
    decision_error,
    has_decision,
    store_decisions,
    store_waiting_calls,
)
from agentkit.runs.run_errors import AttemptEnded, DatabaseDamaged, DatabaseUnavailable, RunNotFound, RunStoreError
from agentkit.runs.run_messages import RunMessages, mark_received
from agentkit.runs.run_notices import RunNotices, store_notices
from agentkit.runs.run_queue import queue_again
from agentkit.runs.run_reader import RunReader, can_be_stored
from agentkit.runs.run_record import ENDED, RunEvent, RunRecord, RunState
from agentkit.runs.run_retention import Retention, delete_rows, surplus_runs, young_keys
from agentkit.runs.run_rows import CORRUPT, ended_row, run_row
from agentkit.runs.sqlite_engine import sqlite_engine
from agentkit.runs.store_file import locked_file
from agentkit.runs.stored_attempt import Attempt, has_fence, started_attempt
from agentkit.runs.stored_values import stored_text
from agentkit.runs.tag_rows import store_tags
from agentkit.runs.usage_counts import UsageCounts
from agentkit_prompts.errors import check_types

_MAX_IN_MEMORY = 256_000_000
"""Maximum characters of all journals in memory; each tenant has an equal part."""
_PRUNE_EVERY = 200
"""Number of new runs of a tenant after which its surplus runs are deleted."""
_GROWTH = 8
"""The size of a tenant is checked after its journals have grown by this part of their maximum."""
_MAX_QUEUED_SECONDS = 30.0
"""Maximum seconds that a run of a server with a worker is queued, before the server or a worker starts it."""
_runs, _lines, _decisions = runs_table, lines_table, decisions_table
_IS_RUNNING = _runs.c.state == "running"


@dataclass(slots=True)
class _Growth:
    """Growth of the stored runs of a tenant."""

    runs: int = 0
    """Number of new runs since surplus runs were deleted."""
    characters: int = 0
    """New characters of the journals since the size was checked."""


class _Decided(NamedTuple):
    """The result of stored decisions."""

    state: RunState
    at: float
    """Time of the last decision, by the clock of the database."""


class RunStore(RunReader):
    """Store of runs. Methods block; async code calls them in threads, and any number of threads can call them.

    Args:
        target: The SQLite file, which is created if it is missing, and locked for this object; or the engine of a
            database that other processes can use too. None stores the runs in memory, as long as the object exists.

    Raises:
        RunStoreError: The database has another format, is not a database of runs, or another server uses the file.
            All methods raise its subclass `DatabaseUnavailable` if the database does not respond or refuses a request.

    Attributes:
        usage: Usage of tenants by day.
        events: The events of runs of one process.
        notices: The notices about runs for webhooks.
        messages: The messages that are sent to runs.
        retention: Limits of the stored runs of each tenant; a server sets them by its options.
    """

    def __init__(self, target: Path | sa.Engine | None = None) -> None:
        check_types(
            AgentDefinitionError,
            "RunStore",
            target=(target, (Path, sa.Engine, type(None)), "a Path, an engine, or None"),
        )
        self.retention = Retention()
        self._growth: dict[str, _Growth] = {}
        self._is_in_memory = target is None
        self._lock_file: int | None = None
        self._owned: sa.Engine | None
        name = "the database of the runs"
        if isinstance(target, sa.Engine):
            engine, self._owned, name = target, None, shown_url(target.url)
        elif target is None:
            engine = self._owned = sqlite_engine(None)
        else:
            name = str(target)
            # Locked before it is opened, so that only one process creates and converts the tables.
            self._lock_file = locked_file(target)
            engine = self._owned = sqlite_engine(name)
        try:
            super().__init__(RunDatabase(engine, name))
        except RunStoreError as error:
            if self._owned is not None:
                self._owned.dispose()
                self._owned = None
            self.close()
            # An error of the format or of the content is complete, and the caller of an engine handles its outages.
            if isinstance(error, DatabaseDamaged) or not isinstance(error, DatabaseUnavailable):
                raise
            if isinstance(target, sa.Engine):
                raise
            reason = getattr(error.__cause__, "orig", error.__cause__)
            raise RunStoreError(f"{name}: cannot be opened as the database of runs: {reason}", path=name) from error
        self.usage = UsageCounts(self.database)
        self.events = EventLog(self.database)
        self.notices = RunNotices(self.database)
        self.messages = RunMessages(self.database)

    def close(self) -> None:
        """Close the connections and the file; an engine of the caller stays open. Closing twice is allowed."""
        if self._owned is not None:
            self.database.close()
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    # Runs

    def add(self, record: RunRecord, journal: str = "") -> RunRecord:
        """Store a new run with its journal, and return the run.

        If the user has a run with the same `key`, nothing is stored, and that run is returned.
        """

        def insert(connection: sa.Connection) -> None:
            connection.execute(sa.insert(_runs).values(**run_row(record)))
            store_tags(connection, [record])
            if record.key is not None:
                key = {"tenant": record.tenant, "user": record.user, "key": record.key, "run": record.run_id}
                connection.execute(sa.insert(keys_table).values(**key, created_at=self._now))
            lines = journal.splitlines(keepends=True)
            if lines:
                rows = [{"run": record.run_id, "number": number, "line": line} for number, line in enumerate(lines)]
                connection.execute(sa.insert(_lines), rows)
            store_waiting_calls(connection, self._now, record, None)

        try:
            self._work(insert)
        except IntegrityError:
            # After a lost connection the transaction is retried, and can have stored the run already.
            if not self._is_stored(record):
                if record.key is not None and (stored := self.find(record.tenant, record.user, record.key)) is not None:
                    return stored
                raise
        growth = self._grow(record.tenant, len(journal))
        growth.runs += 1
        size = self._limits().characters
        has_grown = size is not None and growth.characters > size / _GROWTH
        if has_grown or growth.runs >= _PRUNE_EVERY:
            self.prune(record.tenant, with_size=has_grown)
        return record

    def _is_stored(self, record: RunRecord) -> bool:
        """True if the store has this run, not another run with its id."""
        row = _runs.c
        query = sa.select(row.run_id).where(row.run_id == record.run_id, row.created_at == record.created_at)
        return self._work(lambda connection: connection.scalar(query)) is not None

    def delete(self, *run_ids: str) -> None:
        """Delete runs with their lines, events and decisions; unknown ids are ignored."""
        self._work(lambda connection: delete_rows(connection, run_ids))

    # Attempts

    def begin_attempt(self, run_id: str, *, leg: int | None = None, worker: str | None = None) -> Attempt | None:
        """Start an attempt of a queued run; None if the run is not queued, or is in another leg."""
        fence = os.urandom(12).hex()
        return self._work(
            lambda connection: started_attempt(connection, self._now, run_id, fence, leg=leg, worker=worker),
            lambda connection, _: has_fence(connection, run_id, fence),
        )

    def add_lines(self, attempt: Attempt, lines: Sequence[tuple[str, tuple[str, ...]]]) -> None:
        """Store lines of a journal, all or none.

        A line has the ids of the calls that lead to its agent; no ids for a line of the run.

        Raises:
            AttemptEnded: The attempt may not store anything.
        """
        rows: list[dict[str, Any]] = [
            {"run": attempt.run_id, "number": attempt.lines + at, "line": inner_line(line, calls)}
            for at, (line, calls) in enumerate(lines)
        ]

        def add(connection: sa.Connection) -> tuple[InnerRuns, int]:
            unread = self._lock(connection, attempt)
            connection.execute(sa.insert(_lines), rows)
            unread -= mark_received(connection, self._now, attempt.run_id, lines)
            return attempt.inside.store(connection, lines), unread

        def is_stored(connection: sa.Connection, _: tuple[InnerRuns, int]) -> bool:
            query = sa.select(_lines.c.number).where(_lines.c.run == attempt.run_id, _lines.c.number == attempt.lines)
            return has_fence(connection, attempt.run_id, attempt.fence) and connection.scalar(query) is not None

        attempt.inside, attempt.unread = self._work(add, is_stored)
        attempt.lines += len(rows)
        self._grow(attempt.tenant, sum(len(row["line"]) for row in rows))

    def end_attempt(
        self, attempt: Attempt, record: RunRecord, *, timeout: float | None = None, events: Sequence[RunEvent] = ()
    ) -> bool:
        """Store the end of an attempt: the run has ended, waits for decisions, or is queued again.

        Return False if all calls were decided in the meantime, or the run has unread messages: nothing is stored.

        Args:
            attempt: The attempt.
            record: The run as it is now.
            timeout: Seconds after which waiting calls are denied; None for never.
            events: The last events of the attempt, which are stored together with the end.

        Raises:
            AttemptEnded: The attempt may not store anything.
        """
        fence = os.urandom(12).hex()

        def end(connection: sa.Connection) -> bool:
            ended = sa.update(_runs).where(_runs.c.run_id == attempt.run_id, _runs.c.fence == attempt.fence)
            # The clock of a worker can differ from the clock by which old runs are deleted.
            row = {**ended_row(record), "updated_at": self._now, "fence": fence}
            if record.has_ended:
                row["seconds"] = self._now - _runs.c.created_at
            unread = connection.scalar(ended.values(**row).returning(_runs.c.unread))
            if unread is None:
                self._refuse(connection, attempt)
            attempt.unread = unread
            # A run that reached a limit cannot receive messages: they stay unread.
            receives = unread and record.state == "finished" and record.finish_reason != "limit"
            has_ended = not receives and store_waiting_calls(connection, self._now, record, timeout)
            store_events(connection, attempt.run_id, events)
            if not has_ended:
                connection.rollback()
            elif record.state != "queued":
                store_notices(connection, self._now, attempt.run_id, record.state)
            return has_ended

        return self._work(end, lambda connection, _: has_fence(connection, attempt.run_id, fence))

    def cancel(self, run_id: str, reason: str = "") -> bool:
        """Cancel a run; False if it has ended or is unknown. `reason`: text that the model reads."""
        if not can_be_stored(run_id):
            return False
        is_open = sa.and_(_runs.c.state.not_in(sorted(ENDED)), _runs.c.top.is_(None))
        cancelled = sa.update(_runs).where(_runs.c.run_id == run_id, is_open)
        fence = os.urandom(12).hex()
        values = {
            "state": "cancelled",
            "reason": stored_text(reason),
            "fence": fence,
            "updated_at": self._now,
            "seconds": self._now - _runs.c.created_at,
        }

        def cancel(connection: sa.Connection) -> bool:
            if not connection.execute(cancelled.values(**values)).rowcount:
                return False
            store_notices(connection, self._now, run_id, "cancelled")
            return True

        return self._work(cancel, lambda connection, _: has_fence(connection, run_id, fence))

    def requeue_interrupted(self, alive: Collection[str] = ()) -> list[RunRecord]:
        """Queue the runs of stopped servers again, and return all queued runs of servers, the oldest first.

        Corrupt runs are left out: they stay queued until they are cancelled.

        Args:
            alive: Ids of the workers that are alive; the runs of their servers are not queued.
        """
        self._requeue(sa.and_(_IS_RUNNING, sa.or_(_runs.c.worker.is_(None), _runs.c.worker.not_in(alive))))
        queued = sa.select(_runs).where(_runs.c.executor == "process", _runs.c.state == "queued")
        return self._readable_records(queued.order_by(_runs.c.number))

    def requeue_abandoned(self, alive: Collection[str], agents: Collection[str]) -> list[RunRecord]:
        """Queue the runs of stopped servers with a worker again, and return these runs, the oldest first.

        Runs that have been queued for long are included, because the server that queued them stopped too.

        Args:
            alive: Ids of the workers that are alive.
            agents: Names of the agents whose runs are queued.
        """
        is_queued = sa.and_(_runs.c.state == "queued", _runs.c.updated_at < self._now - _MAX_QUEUED_SECONDS)
        # `not_in` of an empty list is true for null: it would include runs of servers without a worker.
        has_stopped = sa.and_(_runs.c.worker.is_not(None), _runs.c.worker.not_in(alive))
        is_abandoned = sa.or_(is_queued, sa.and_(_IS_RUNNING, has_stopped))
        ids = self._requeue(sa.and_(is_abandoned, _runs.c.agent.in_(agents)))
        if not ids:
            return []
        return self._readable_records(sa.select(_runs).where(_runs.c.run_id.in_(ids)).order_by(_runs.c.number))

    def _requeue(self, condition: sa.ColumnElement[bool]) -> list[str]:
        """Queue runs of servers again, and return their ids."""
        is_of_server = _runs.c.executor == "process"
        values = {"state": "queued", "fence": None, "updated_at": self._now}
        queued = sa.update(_runs).where(is_of_server, condition).values(**values).returning(_runs.c.run_id)
        return self._work(lambda connection: list(connection.scalars(queued)))

    def _readable_records(self, query: sa.Select[Any]) -> list[RunRecord]:
        return [record for record in self._records(query) if record.error != CORRUPT]

    def _lock(self, connection: sa.Connection, attempt: Attempt) -> int:
        """Lock a run for this transaction, and return the number of its unread messages.

        Raises:
            AttemptEnded: The attempt may not store anything.
        """
        locked_run = sa.update(_runs).where(_runs.c.run_id == attempt.run_id, _runs.c.fence == attempt.fence)
        unread: int | None = connection.scalar(locked_run.values(fence=attempt.fence).returning(_runs.c.unread))
        if unread is None:
            self._refuse(connection, attempt)
        return unread

    def _refuse(self, connection: sa.Connection, attempt: Attempt) -> NoReturn:
        query = sa.select(_runs.c.state, _runs.c.reason).where(_runs.c.run_id == attempt.run_id)
        run = connection.execute(query).first()
        if run is None or run.state != "cancelled":
            raise AttemptEnded(attempt.run_id, is_cancelled=False)
        raise AttemptEnded(attempt.run_id, is_cancelled=True, cancel_reason=run.reason)

    # Decisions

    def decide(self, run_id: str, decisions: CallDecisions, by: str = "", queue: QueueLeg | None = None) -> RunState:
        """Store decisions about calls of a waiting run, all or none, and queue the run if none is missing.

        Args:
            run_id: The run.
            decisions: Decisions by the ids of the calls; None for all other calls that wait.
            by: Name of the person or the program that decided.
            queue: Queues the run, in the same transaction.

        Returns:
            The state of the run: `queued`, or `waiting` for other decisions.

        Raises:
            ApprovalError: No such call waits, it was decided already, or its time is over; nothing was stored.
            RunNotFound: The run is unknown.
        """
        if not can_be_stored(run_id):
            raise RunNotFound(run_id)

        def is_stored(connection: sa.Connection, decided: _Decided | None) -> bool:
            return decided is not None and has_decision(connection, run_id, decided.at)

        decided = self._work(lambda connection: self._decide(connection, run_id, decisions, by, queue), is_stored)
        if decided is None:
            now = self.database.time()
            raise decision_error(run_id, self.get(run_id).state, self.calls(run_id), decisions, now)
        return decided.state

    def claim(self, run_id: str, decisions: CallDecisions, *, worker: str | None = None) -> Attempt | None:
        """Store decisions and start an attempt; None if no such call waits, or other calls wait too; see `decide`."""
        fence = os.urandom(12).hex()

        # One transaction: a crash between two would leave a queued run that is in no queue.
        def claim(connection: sa.Connection) -> Attempt | None:
            decided = self._decide(connection, run_id, decisions, "", None)
            if decided is None or decided.state != "queued":
                return None
            return started_attempt(connection, self._now, run_id, fence, worker=worker)

        return self._work(claim, lambda connection, _: has_fence(connection, run_id, fence))

    def _decide(
        self, connection: sa.Connection, run_id: str, decisions: CallDecisions, by: str, queue: QueueLeg | None
    ) -> _Decided | None:
        """Store decisions and return the new state; None, with nothing stored, if no such call waits."""
        at = store_decisions(connection, self._now, run_id, decisions, by)
        if at is None:
            connection.rollback()
            return None
        row = _runs.c
        waits = sa.exists().where(_decisions.c.run == run_id, _decisions.c.decision.is_(None))
        condition = sa.and_(row.run_id == run_id, row.state == "waiting", ~waits)
        if queue_again(connection, self._now, condition, queue):
            return _Decided("queued", at)
        return _Decided("waiting", at)

    # The limits of stored runs

    def prune(self, tenant: str | None = None, *, with_size: bool = True) -> None:
        """Delete the surplus runs of a tenant, or of each tenant; see `Retention`.

        Args:
            tenant: The tenant; None for all tenants.
            with_size: True to check the size of the journals too, which reads them.
        """
        tenants = [tenant]
        if tenant is None:
            tenants = self._work(lambda connection: list(connection.scalars(sa.select(_runs.c.tenant).distinct())))
        limits = self._limits()
        for name in tenants:
            if name is not None:
                growth = self._growth.setdefault(name, _Growth())
                growth.runs = 0
                # Without a check of the size, the growth counts until the next check.
                if with_size:
                    growth.characters = 0
                self._work(partial(self._prune, tenant=name, limits=limits, with_size=with_size))

    def _prune(self, connection: sa.Connection, tenant: str, limits: Retention, *, with_size: bool) -> None:
        delete_rows(connection, surplus_runs(connection, self._now, tenant, limits, with_size=with_size))

    def young_keys(self, tenant: str) -> int:
        """Return the number of idempotency keys of a tenant whose runs are kept for their keys."""
        seconds = self.retention.key_seconds
        return self._work(lambda connection: young_keys(connection, self._now, tenant, seconds))

    def _limits(self) -> Retention:
        """Return the limits of a tenant. In memory, the tenants share the maximum of the store."""
        if not self._is_in_memory:
            return self.retention
        characters = _MAX_IN_MEMORY // max(len(self._growth), 1)
        if self.retention.characters is not None:
            characters = min(characters, self.retention.characters)
        return replace(self.retention, characters=characters)

    def _grow(self, tenant: str, characters: int) -> _Growth:
        growth = self._growth.setdefault(tenant, _Growth())
        growth.characters += characters
        return growth
