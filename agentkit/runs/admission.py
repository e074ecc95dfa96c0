"""Admission of runs with a session and a tenant: a run is held until its tenant has a free place.

DBOS limits the runs of a partition, and the partition of a run with a session is its session. So that a tenant with
many sessions leaves places for other tenants, its runs are held in the table of runs, outside of the queue, and a
worker queues the next run when the tenant has a free place. All state is in rows: after a kill, any worker continues.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from agentkit.runs.leg import Leg, QueueLeg
from agentkit.runs.run_database import runs_table

_WRITERS_LOCK = 7_239_116_025_340_178
"""Key of the PostgreSQL advisory lock under which a process admits runs; an arbitrary number."""
_row = runs_table.c
_IS_ACTIVE = sa.and_(_row.executor == "dbos", _row.state.in_(("queued", "running")), _row.top.is_(None))
_HAS_PLACE = sa.and_(_IS_ACTIVE, _row.session.is_not(None), _row.held_until.is_(None))
"""Runs that are in the queue or running, and occupy a place of their tenant."""


def held_since(now: Any) -> Any:
    """Return the expression for `held_until` of a run that is queued: `now`, or null for a run that is not held."""
    is_held = sa.and_(_row.executor == "dbos", _row.tenant != "", _row.session.is_not(None))
    return sa.case((is_held, now), else_=sa.null())


def admit(
    connection: sa.Connection, now: Any, condition: sa.ColumnElement[bool], places: int | None, queue: QueueLeg
) -> None:
    """Queue held runs of tenants with free places, the oldest run of each session first.

    Args:
        connection: The transaction.
        now: Time of the database.
        condition: Condition of the runs.
        places: Maximum number of runs in the queue and running, of one tenant and one version of an agent; None: no
            limit.
        queue: Queues a run.
    """
    is_due = sa.and_(_IS_ACTIVE, _row.held_until <= now, condition)
    owners = sa.select(_row.agent, _row.version, _row.tenant).where(is_due).distinct()
    # Without held runs, which is frequent, the lock of the writers is not taken.
    if connection.execute(owners.limit(1)).first() is None:
        return
    # Otherwise two workers could give one free place to two runs.
    _lock_writers(connection)
    for owner in connection.execute(owners).all():
        free = places
        if places is not None:
            occupied = sa.select(sa.func.count()).select_from(runs_table).where(_HAS_PLACE, _is_of(owner))
            free = places - connection.execute(occupied).scalar_one()
            if free <= 0:
                continue
        for leg in _released(connection, sa.and_(is_due, _is_of(owner)), free):
            queue(connection, leg)


def _released(connection: sa.Connection, is_due: sa.ColumnElement[bool], limit: int | None) -> list[Leg]:
    """Release the oldest held run of each session that has no run in the queue."""
    other = runs_table.alias()
    busy = sa.exists().where(
        other.c.tenant == _row.tenant,
        other.c.session == _row.session,
        other.c.agent == _row.agent,
        other.c.version == _row.version,
        other.c.executor == "dbos",
        other.c.state.in_(("queued", "running")),
        other.c.held_until.is_(None),
    )
    oldest = sa.select(sa.func.min(_row.number)).where(is_due, ~busy).group_by(_row.session)
    numbers: Sequence[int] = connection.scalars(oldest.order_by(sa.func.min(_row.number)).limit(limit)).all()
    released = sa.update(runs_table).where(_row.number.in_(numbers), is_due).values(held_until=None)
    rows = connection.execute(released.returning(_row.number, _row.run_id, _row.leg, _row.request))
    return sorted([Leg(*row) for row in rows])


def _lock_writers(connection: sa.Connection) -> None:
    """Wait until no other transaction that called this function is active."""
    if connection.dialect.name == "sqlite":
        # The first change of a transaction takes the lock of all writers, also without a changed row.
        connection.execute(sa.update(runs_table).where(sa.false()).values(held_until=None))
    else:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_WRITERS_LOCK)))


def _is_of(owner: Any) -> sa.ColumnElement[bool]:
    return sa.and_(_row.agent == owner.agent, _row.version == owner.version, _row.tenant == owner.tenant)
