"""Conversions of run stores with an older format; opening a store converts it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import sqlalchemy as sa

__all__ = ["CONVERSIONS", "FORMAT"]


def _add_permissions(connection: sa.Connection) -> None:
    connection.execute(sa.text("ALTER TABLE agentkit_runs ADD COLUMN permissions TEXT NOT NULL DEFAULT ''"))


FORMAT = 2
"""Format of the tables that this version writes."""
CONVERSIONS: Mapping[int, Callable[[sa.Connection], None]] = {1: _add_permissions}
"""Functions that convert a store to the next format, by the format that they convert; called when a store is opened."""
