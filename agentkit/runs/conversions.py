"""How a store of runs of an older format is converted, once, when it is opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import sqlalchemy as sa

__all__ = ["CONVERSIONS", "FORMAT"]

FORMAT = 1
"""Format of the tables that this version writes."""
CONVERSIONS: Mapping[int, Callable[[sa.Connection], None]] = {}
"""By the format that a store has: what makes the next format of it, in the transaction that opens the store."""
