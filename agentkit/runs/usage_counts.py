"""`UsageCounts`: tokens and money of the runs of tenants, by day."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from agentkit.models.model import Usage
from agentkit.runs.run_database import RunDatabase, usage_table

_PAUSE = 0.05
"""Seconds between two queries of the status of a transaction."""


class DayUsage(NamedTuple):
    """Usage of the runs of a tenant on one day."""

    runs: int
    usage: Usage


def _is_committed(connection: sa.Connection, transaction: int) -> bool:
    """True if a transaction of PostgreSQL was committed; waits for the end of a commit."""
    status = sa.select(sa.func.txid_status(transaction))
    while connection.scalar(status) == "in progress":
        time.sleep(_PAUSE)
    return connection.scalar(status) == "committed"


class UsageCounts:
    """Counter of the usage of tenants.

    Args:
        database: The database of the runs.
    """

    def __init__(self, database: RunDatabase) -> None:
        self._database = database

    def add(self, tenant: str, day: str, usage: Usage, runs: int = 1) -> None:
        """Add the usage of runs; `day` is a date such as 2026-11-22, in UTC."""
        counts = {
            "runs": runs,
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cached_tokens": usage.cached_tokens,
            "money": usage.money or 0.0,
        }
        dialect = sqlite if self._database.is_sqlite else postgresql
        statement = dialect.insert(usage_table).values(tenant=tenant, day=day, **counts)
        sums = {name: usage_table.c[name] + statement.excluded[name] for name in counts}
        statement = statement.on_conflict_do_update(index_elements=["tenant", "day"], set_=sums)
        if self._database.is_sqlite:
            # A transaction of a file was not committed if its commit fails.
            self._database.work(lambda connection: connection.execute(statement))
        else:
            counted = statement.returning(sa.func.txid_current())
            self._database.work(lambda connection: connection.execute(counted).scalar_one(), _is_committed)

    def of(self, tenant: str, *, since: str = "") -> Mapping[str, DayUsage]:
        """Return the usage of a tenant by day, from the day `since`."""
        query = sa.select(usage_table).where(usage_table.c.tenant == tenant, usage_table.c.day >= since)
        rows = self._database.work(lambda connection: connection.execute(query.order_by(usage_table.c.day)).all())
        return {
            row.day: DayUsage(
                row.runs, Usage(row.input_tokens, row.output_tokens, row.cached_tokens, row.money or None)
            )
            for row in rows
        }
