"""`RunNotices`: notices about runs that have ended or wait, for webhooks, stored with the state of the run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from agentkit.runs.run_database import RunDatabase, hooks_table, notices_table, runs_table
from agentkit.runs.run_record import RunState

_runs, _hooks, _notices = runs_table, hooks_table, notices_table
_SILENT_SECONDS = 86_400.0
"""Seconds after which a webhook of a server that stopped gets no more notices."""
_PAGE = 100


class Notice(NamedTuple):
    """A notice that is sent to one webhook."""

    number: int
    hook: str
    run: str
    state: RunState
    created_at: float
    """Seconds since 1970 by the clock of the database."""
    attempts: int
    """Number of earlier attempts to send the notice."""


def store_notices(connection: sa.Connection, now: sa.ColumnElement[float], run_id: str, state: RunState) -> None:
    """Store a notice about the new state of a run for each webhook of its tenant, in the transaction of the state."""
    is_known = sa.and_(
        _hooks.c.seen_at > now - _SILENT_SECONDS,
        sa.or_(_hooks.c.tenant.is_(None), _hooks.c.tenant == _runs.c.tenant),
        _hooks.c.states.contains(state, autoescape=True),
    )
    columns = [_hooks.c.id, _runs.c.run_id, sa.literal(state), now, now, sa.literal(0)]
    rows = sa.select(*columns).where(_runs.c.run_id == run_id, _runs.c.top.is_(None), is_known)
    names = ["hook", "run", "state", "created_at", "due_at", "attempts"]
    connection.execute(sa.insert(_notices).from_select(names, rows))


class RunNotices:
    """The stored notices.

    Args:
        database: The database of the runs.
    """

    def __init__(self, database: RunDatabase) -> None:
        self._database = database
        self._now = database.now

    def register(self, hooks: Mapping[str, tuple[str | None, Collection[RunState]]]) -> None:
        """Store webhooks, so that each process on the database stores notices for them; call it again within a day.

        Args:
            hooks: Tenant, or None for all tenants, and states, by the id of the webhook.
        """
        dialect = sqlite if self._database.is_sqlite else postgresql

        def store(connection: sa.Connection) -> None:
            for id, (tenant, states) in hooks.items():
                row = {"tenant": tenant, "states": " ".join(sorted(states)), "seen_at": self._now}
                statement = dialect.insert(_hooks).values(id=id, **row)
                # Servers that start at the same time register the same webhook.
                connection.execute(statement.on_conflict_do_update(index_elements=["id"], set_=row))

        self._database.work(store)

    def claim(self, hooks: Collection[str], seconds: float) -> list[Notice]:
        """Return due notices for webhooks, the oldest first. For `seconds`, no other process gets these notices."""
        due = sa.and_(_notices.c.hook.in_(list(hooks)), _notices.c.due_at <= self._now)

        def take(connection: sa.Connection) -> list[Notice]:
            rows = connection.execute(sa.select(_notices).where(due).order_by(_notices.c.number).limit(_PAGE)).all()
            notices: list[Notice] = []
            for row in rows:
                is_same = sa.and_(_notices.c.number == row.number, _notices.c.attempts == row.attempts)
                values = {"due_at": self._now + seconds, "attempts": row.attempts + 1}
                if connection.execute(sa.update(_notices).where(is_same).values(**values)).rowcount:
                    notices.append(Notice(row.number, row.hook, row.run, row.state, row.created_at, row.attempts))
            return notices

        return self._database.work(take)

    def remove(self, number: int) -> None:
        """Delete a notice that was delivered or that is given up."""
        deleted = sa.delete(_notices).where(_notices.c.number == number)
        self._database.work(lambda connection: connection.execute(deleted))

    def postpone(self, number: int, seconds: float) -> None:
        """Send a notice again after some seconds."""
        later = sa.update(_notices).where(_notices.c.number == number).values(due_at=self._now + seconds)
        self._database.work(lambda connection: connection.execute(later))
