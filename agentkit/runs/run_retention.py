"""`Retention`: limits of the stored runs of each tenant, and the runs that they delete."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from agentkit.runs.run_database import (
    decisions_table,
    events_table,
    keys_table,
    lines_table,
    messages_table,
    notices_table,
    runs_table,
    tags_table,
)
from agentkit.runs.run_record import ENDED

_DELETED_TOGETHER = 200
"""Number of runs that one statement deletes: SQLite limits the parameters of a statement."""
_runs, _lines, _keys = runs_table, lines_table, keys_table


@dataclass(frozen=True, slots=True)
class Retention:
    """Limits of the stored runs of a tenant. The oldest runs of the tenant that have ended are deleted first.

    A run with an idempotency key younger than `key_seconds` is not deleted: a request that repeats the key would start
    the run again.
    """

    runs: int | None = 5_000
    """Maximum number of runs; None for no limit."""
    characters: int | None = 1_000_000_000
    """Maximum characters of the journals; None for no limit."""
    seconds: float | None = None
    """Maximum age in seconds since the end of the run; None for no limit."""
    key_seconds: float = 86_400.0
    """Minimum seconds until a run with an idempotency key is deleted."""


def surplus_runs(
    connection: sa.Connection, now: Any, tenant: str, retention: Retention, *, with_size: bool
) -> list[str]:
    """Return the ids of the runs of a tenant that exceed its limits.

    Args:
        connection: A transaction.
        now: The clock of the database.
        tenant: The tenant.
        retention: The limits.
        with_size: True to check the size too, which reads all journals of the tenant.
    """
    # A database can also contain durable runs, which only `Runs.delete` deletes, and the agents inside of runs.
    is_counted = sa.and_(_runs.c.tenant == tenant, _runs.c.executor == "process", _runs.c.top.is_(None))
    has_young_key = sa.exists().where(_keys.c.run == _runs.c.run_id, _keys.c.created_at > now - retention.key_seconds)
    columns: list[Any] = [_runs.c.run_id, _runs.c.state, has_young_key.label("is_kept")]
    is_old: Any = sa.false()
    if retention.seconds is not None:
        is_old = _runs.c.updated_at < now - retention.seconds
    columns.append(is_old.label("is_old"))
    if with_size and retention.characters is not None:
        length = sa.select(sa.func.coalesce(sa.func.sum(sa.func.length(_lines.c.line)), 0))
        columns.append(length.where(_lines.c.run == _runs.c.run_id).scalar_subquery().label("length"))
    newest_first = sa.select(*columns).where(is_counted).order_by(_runs.c.number.desc())
    return _surplus(connection.execute(newest_first).mappings(), retention)


def _surplus(rows: Iterable[Any], retention: Retention) -> list[str]:
    ids: list[str] = []
    count = characters = 0
    for row in rows:
        characters += row.get("length", 0)
        has_ended = row["state"] in ENDED
        if has_ended:
            count += 1
        is_surplus = bool(row["is_old"])
        if retention.runs is not None and count > retention.runs:
            is_surplus = True
        if retention.characters is not None and characters > retention.characters:
            is_surplus = True
        if is_surplus and has_ended and not row["is_kept"]:
            ids.append(row["run_id"])
    return ids


def young_keys(connection: sa.Connection, now: Any, tenant: str, seconds: float) -> int:
    """Return the number of idempotency keys of a tenant that are younger than `seconds`."""
    is_young = sa.and_(_keys.c.tenant == tenant, _keys.c.created_at > now - seconds)
    return connection.scalar(sa.select(sa.func.count()).select_from(_keys).where(is_young)) or 0


def delete_rows(connection: sa.Connection, run_ids: Sequence[str]) -> None:
    """Delete runs with all their rows."""
    tables = (events_table, lines_table, decisions_table, keys_table, notices_table, messages_table, tags_table)
    for column in (*[table.c.run for table in tables], _runs.c.top, _runs.c.run_id):
        for at in range(0, len(run_ids), _DELETED_TOGETHER):
            connection.execute(sa.delete(column.table).where(column.in_(run_ids[at : at + _DELETED_TOGETHER])))
