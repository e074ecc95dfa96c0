"""`EventLog`: events of the runs that a server executes, including deltas."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from agentkit.runs.run_database import RunDatabase, events_table
from agentkit.runs.run_record import RunEvent
from agentkit.runs.run_rows import event_of, json_text

_events = events_table.c


class EventLog:
    """Store of events of runs.

    Args:
        database: The database of the runs.
    """

    def __init__(self, database: RunDatabase) -> None:
        self._work = database.work

    def add(self, run_id: str, events: Sequence[RunEvent]) -> None:
        """Add events to the stored events of a run."""
        if events:
            query = sa.select(_events.seq).where(_events.run == run_id, _events.seq == events[0].seq)
            self._work(
                lambda connection: store_events(connection, run_id, events),
                lambda connection, _: connection.scalar(query) is not None,
            )

    def after(self, run_id: str, seq: int = 0, *, limit: int = 1000) -> list[RunEvent]:
        """Return the events of a run after the event number `seq`, at most `limit` events."""
        query = sa.select(_events.seq, _events.kind, _events.data).order_by(_events.seq).limit(limit)
        query = query.where(_events.run == run_id, _events.seq > seq)
        return self._work(lambda connection: [event_of(row) for row in connection.execute(query)])

    def last(self, run_id: str) -> int:
        """Return the number of the last event of a run; 0 without events."""
        query = sa.select(sa.func.max(_events.seq)).where(_events.run == run_id)
        return self._work(lambda connection: connection.scalar(query)) or 0


def store_events(connection: sa.Connection, run_id: str, events: Sequence[RunEvent]) -> None:
    """Store events of a run in the transaction of a connection."""
    rows = [{"run": run_id, "seq": seq, "kind": kind, "data": json_text(data)} for seq, kind, data in events]
    if rows:
        connection.execute(sa.insert(events_table), rows)
