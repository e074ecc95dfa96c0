"""Conversions of run stores with an older format; opening a store converts it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa

__all__ = ["CONVERSIONS", "FORMAT", "LISTED"]

LISTED = ("user", "agent", "tokens", "cost", "seconds")
"""Columns of runs that have an index with the tenant and the number, for the filters and orders of lists."""
_LISTED_COLUMNS = (
    "error TEXT NOT NULL DEFAULT ''",
    "tokens BIGINT NOT NULL DEFAULT 0",
    "cost FLOAT NOT NULL DEFAULT 0",
    "seconds FLOAT NOT NULL DEFAULT 0",
    "words TEXT NOT NULL DEFAULT ''",
)
_BATCH = 1_000
"""Number of runs that are converted together."""


def _add_permissions(connection: sa.Connection) -> None:
    connection.execute(sa.text("ALTER TABLE agentkit_runs ADD COLUMN permissions TEXT NOT NULL DEFAULT ''"))


def _add_listed_columns(connection: sa.Connection) -> None:
    for column in _LISTED_COLUMNS:
        connection.execute(sa.text(f"ALTER TABLE agentkit_runs ADD COLUMN {column}"))
    number = 0
    stored = sa.text("SELECT * FROM agentkit_runs WHERE number > :number ORDER BY number LIMIT :limit")
    changed = sa.text(
        "UPDATE agentkit_runs SET error = :error, tokens = :tokens, cost = :cost, seconds = :seconds, words = :words "
        "WHERE number = :number"
    )
    while rows := connection.execute(stored, {"number": number, "limit": _BATCH}).mappings().all():
        number = rows[-1]["number"]
        connection.execute(changed, [_listed_values(row) for row in rows])
    for name in LISTED:
        columns = f'tenant, "{name}", number'
        connection.execute(sa.text(f"CREATE INDEX IF NOT EXISTS ix_agentkit_runs_{name} ON agentkit_runs ({columns})"))


def _listed_values(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the columns of the list for a stored run."""
    usage, outcome, user_input = [_json_object(row[name]) for name in ("usage", "outcome", "input")]
    error = outcome.get("error") or [""]
    names = [str(user_input.get("text", ""))[:2_000], row["agent"], f"{row['user']}/{row['session'] or ''}"]
    seconds = 0.0
    if row["state"] in ("finished", "failed", "cancelled"):
        seconds = row["updated_at"] - row["created_at"]
    return {
        "number": row["number"],
        "error": error[0],
        "tokens": usage.get("input_tokens", 0) + usage.get("output_tokens", 0),
        "cost": usage.get("money") or 0.0,
        "seconds": seconds,
        "words": "\n".join([*names, row["run_id"]])
        .casefold()
        .replace("\0", "\ufffd")
        .encode("utf-8", "replace")
        .decode(),
    }


def _json_object(text: str | None) -> dict[str, Any]:
    """Return a JSON object; an empty object for a corrupt text."""
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    if not isinstance(value, dict):
        return {}
    return value


def _add_locale(connection: sa.Connection) -> None:
    connection.execute(sa.text("ALTER TABLE agentkit_runs ADD COLUMN locale TEXT"))


FORMAT = 4
"""Format of the tables that this version writes."""
CONVERSIONS: Mapping[int, Callable[[sa.Connection], None]] = {
    1: _add_permissions,
    2: _add_listed_columns,
    3: _add_locale,
}
"""Functions that convert a store to the next format, by the format that they convert; called when a store is opened."""
