"""`RunReader`: reader of stored runs, their calls and their journals."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import sqlalchemy as sa

from agentkit.errors import JournalError
from agentkit.run.journal.journal import Journal
from agentkit.run.parts.decisions import Decision
from agentkit.runs.run_database import RunDatabase, keys_table, lines_table, runs_table
from agentkit.runs.run_decisions import calls_of
from agentkit.runs.run_errors import RunNotFound
from agentkit.runs.run_filters import (
    MAX_EXAMINED,
    indexed_conditions,
    is_after,
    is_at_or_before,
    listed_tables,
    newest_first,
    sort_key,
    unindexed_filters,
    wanted_texts,
)
from agentkit.runs.run_record import ENDED, RunFigures, RunList, RunRecord, RunState, RunsWanted, WaitingCall
from agentkit.runs.run_rows import record_of
from agentkit.runs.version_rows import VersionRows

_MAX_SHORT_OUTCOME = 10_000
"""Maximum characters of the outcome of a run in a short list."""
_runs, _lines = runs_table, lines_table


class CurrentAttempt(NamedTuple):
    """The attempt that a stored run names."""

    state: RunState
    fence: str | None
    reason: str
    """Reason of the cancellation."""


class RunReader:
    """Reader of stored runs.

    Attributes:
        database: The database of the runs.
        versions: Versions of agents, and the texts of their parts.
    """

    def __init__(self, database: RunDatabase) -> None:
        self.database = database
        self.versions = VersionRows(database)
        self._work, self._now = database.work, database.now

    def get(self, run_id: str, *, tenant: str | None = None) -> RunRecord:
        """Return a run.

        Raises:
            RunNotFound: The run is unknown, belongs to another tenant, or is an agent inside of a run.
        """
        record = self.any(run_id)
        if tenant not in (None, record.tenant):
            raise RunNotFound(run_id)
        if record.parent is not None:
            raise RunNotFound(run_id, self._outer_run(run_id))
        return record

    def any(self, run_id: str) -> RunRecord:
        """Return a run, or an agent inside of a run; the agent has the state of the run until its call has a result.

        Raises:
            RunNotFound: The id is unknown.
        """
        if not can_be_stored(run_id):
            raise RunNotFound(run_id)
        records = self._records(sa.select(_runs).where(_runs.c.run_id == run_id))
        if not records:
            raise RunNotFound(run_id)
        record = records[0]
        if record.parent is None:
            return record
        return _with_current_state(record, self.get(self._outer_run(run_id)))

    def inside(self, run_id: str) -> list[RunRecord]:
        """Return the agents inside of a run or of an agent, at any depth, in the order of their start.

        Raises:
            RunNotFound: The run or the agent is unknown.
        """
        run = record = self.any(run_id)
        if record.parent is not None:
            run = self.get(self._outer_run(run_id))
        ids, records = {run_id}, []
        # An agent starts after its caller, so that one pass in the order of the starts reaches every depth.
        for inner in self._records(sa.select(_runs).where(_runs.c.top == run.run_id).order_by(_runs.c.number)):
            if inner.parent in ids:
                ids.add(inner.run_id)
                records.append(_with_current_state(inner, run))
        return records

    def has(self, run_id: str) -> bool:
        """True if a run, or an agent inside of a run, has this id."""
        query = sa.select(_runs.c.number).where(_runs.c.run_id == run_id)
        return self._work(lambda connection: connection.scalar(query)) is not None

    def _outer_run(self, run_id: str) -> str:
        query = sa.select(_runs.c.top).where(_runs.c.run_id == run_id)
        return self._work(lambda connection: connection.scalar(query)) or run_id

    def find(self, tenant: str, user: str, key: str) -> RunRecord | None:
        """Return the run that a user of a tenant started with an idempotency key, or None."""
        row = keys_table.c
        query = sa.select(_runs).join(keys_table, row.run == _runs.c.run_id)
        records = self._records(query.where(row.tenant == tenant, row.user == user, row.key == key))
        if not records:
            return None
        return records[0]

    def page(self, wanted: RunsWanted) -> list[RunRecord]:
        """Return runs in the requested order.

        Raises:
            RunNotFound: No run has the id `before`.
        """
        query = self._query(wanted)
        if query is None:
            return []
        return self._records(query)

    def listed(self, wanted: RunsWanted) -> RunList:
        """Return a part of a list of runs. It examines at most `MAX_EXAMINED` runs, whatever the filters are.

        Raises:
            RunNotFound: No run has the id `before`.
        """
        query = self._query(wanted)
        if query is None:
            return RunList([], None)
        last = None
        # Ids are few, and can be the ids of old runs.
        if unindexed_filters(wanted) and wanted.ids is None:
            examined = self._after(self._listed([_runs.c.run_id, *sort_key(wanted)], wanted), wanted)
            limited = examined.offset(MAX_EXAMINED - 1).limit(1)
            last = self._work(lambda connection: connection.execute(limited).first())
        if last is not None:
            query = query.where(is_at_or_before(wanted, last[1:]))
        records = self._records(query)
        if len(records) >= wanted.limit:
            return RunList(records, records[-1].run_id)
        if last is not None:
            return RunList(records, last[0])
        return RunList(records, None)

    def figures(self, agent: str, *, tenant: str, user: str | None = None, limit: int) -> list[RunFigures]:
        """Return figures of the newest runs of an agent, newest first; of one user, or of all users."""
        row = _runs.c
        query = sa.select(row.created_at, row.seconds, row.state, row.tokens, row.cost)
        query = query.where(row.tenant == tenant, row.agent == agent, row.top.is_(None))
        if user is not None:
            query = query.where(row.user == user)
        query = query.order_by(row.number.desc()).limit(limit)
        return self._work(lambda connection: [RunFigures(*values) for values in connection.execute(query)])

    def _query(self, wanted: RunsWanted) -> sa.Select[Any] | None:
        """Return the query of runs; None if no run can match, because a database cannot store a text of the filters."""
        if not all(can_be_stored(text) for text in wanted_texts(wanted)):
            return None
        columns: list[Any] = [*_runs.c]
        if wanted.is_short:
            outcome = sa.case((sa.func.length(_runs.c.outcome) <= _MAX_SHORT_OUTCOME, _runs.c.outcome)).label("outcome")
            columns = [*[column for column in _runs.c if column.name != "outcome"], outcome]
        query = self._listed(columns, wanted).where(_runs.c.top.is_(None), *unindexed_filters(wanted))
        if wanted.ids is not None:
            query = query.where(_runs.c.run_id.in_([run_id for run_id in wanted.ids if can_be_stored(run_id)]))
        query = query.limit(wanted.limit).offset(wanted.offset)
        return self._after(query, wanted)

    def _listed(self, columns: Sequence[Any], wanted: RunsWanted) -> sa.Select[Any]:
        """Return the query of a list, in its order, without the filters that no index serves."""
        conditions = indexed_conditions(wanted, is_sqlite=self.database.is_sqlite)
        query: Any = sa.select(*columns).select_from(listed_tables(wanted))
        listed: sa.Select[Any] = query.where(*conditions).order_by(*newest_first(wanted))
        return listed

    def _after(self, query: sa.Select[Any], wanted: RunsWanted) -> sa.Select[Any]:
        """Return a query of the runs after the run `before`.

        Raises:
            RunNotFound: No run has the id `before`.
        """
        if wanted.before is None:
            return query
        key = sa.select(*sort_key(wanted)).where(_runs.c.run_id == wanted.before)
        if wanted.tenant is not None:
            key = key.where(_runs.c.tenant == wanted.tenant)
        before = None
        if can_be_stored(wanted.before):
            before = self._work(lambda connection: connection.execute(key).first())
        if before is None:
            raise RunNotFound(wanted.before)
        return query.where(is_after(wanted, before))

    def ended_before(self, time: float, tenant: str | None, limit: int) -> list[str]:
        """Return ids of runs that ended before a time, of one tenant or of all tenants, the oldest first."""
        query = sa.select(_runs.c.run_id).where(_runs.c.state.in_(sorted(ENDED)), _runs.c.updated_at < time)
        query = query.where(_runs.c.top.is_(None)).order_by(_runs.c.number).limit(limit)
        if tenant is not None:
            query = query.where(_runs.c.tenant == tenant)
        return self._work(lambda connection: list(connection.scalars(query)))

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

    def attempts(self, run_ids: Collection[str]) -> dict[str, CurrentAttempt]:
        """Return the current attempts of runs by the id of the run."""
        row = _runs.c
        query = sa.select(row.run_id, row.state, row.fence, row.reason).where(row.run_id.in_(run_ids))
        return self._work(
            lambda connection: {run_id: CurrentAttempt(*values) for run_id, *values in connection.execute(query)}
        )

    def calls(self, run_id: str) -> list[WaitingCall]:
        """Return the calls of a run that wait or waited for decisions, the oldest first."""
        return self._work(lambda connection: [call for _, call in calls_of(connection, [run_id])])

    def decisions(self, run_id: str, journal: Journal) -> dict[str, Decision]:
        """Return the decisions about calls of a run that are not in its journal yet, by the ids of the calls."""
        journalled = journal.decisions
        return {
            call.call_id: call.decision
            for call in self.calls(run_id)
            if call.decision is not None and call.call_id not in journalled
        }

    def journal_text(self, run_id: str, lines: int | None = None) -> str:
        """Return the journal of a run as `Journal.loads` reads it; empty if the run has not started.

        `lines` is the maximum number of lines, from the first line on; None for all lines.
        """
        if not can_be_stored(run_id):
            return ""
        query = sa.select(_lines.c.line).where(_lines.c.run == run_id).order_by(_lines.c.number).limit(lines)
        texts = self._work(lambda connection: list(connection.scalars(query)))
        # SQLite does not enforce the type of a column: a corrupt line can be bytes.
        if not all(isinstance(text, str) for text in texts):
            raise JournalError(f"the stored journal of {run_id!r} is corrupt", name="journal")
        return "".join(texts)

    def first_line(self, run_id: str) -> str | None:
        """Return the first line of the journal of a run, which contains the input; None if it is missing."""
        query = sa.select(_lines.c.line).where(_lines.c.run == run_id, _lines.c.number == 0)
        return self._work(lambda connection: connection.scalar(query))

    def journal(self, run_id: str, lines: int | None = None) -> Journal | None:
        """Return the journal of a run, or of an agent inside of a run; None if it has not started.

        `lines` is the maximum number of lines that are read of a run, see `journal_text`.

        Raises:
            JournalError: The journal cannot be read.
        """
        text = self.journal_text(run_id, lines)
        if "\n" in text:
            return Journal.loads(text)
        if not can_be_stored(run_id):
            return None
        query = sa.select(_runs.c.top, _runs.c.calls).where(_runs.c.run_id == run_id, _runs.c.top.is_not(None))
        inner = self._work(lambda connection: connection.execute(query).first())
        if inner is None:
            return None
        # The lines of an agent are in the journal of its run, at the calls that lead to the agent.
        journal = self.journal(inner.top)
        for call in json.loads(inner.calls):
            if journal is None:
                return None
            journal = journal.inner.get(call)
        return journal


def _with_current_state(inner: RunRecord, run: RunRecord) -> RunRecord:
    """Return an agent inside of a run with its current state: the state of the run until its call has a result."""
    state = inner.state
    if state == "running":
        state = run.state
    return replace(inner, state=state, worker=run.worker)


def can_be_stored(text: str) -> bool:
    """True if both databases can store a text: it contains no NUL and no lone surrogate."""
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)
