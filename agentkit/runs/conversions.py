"""Conversions of stores of runs with an older format; a store is converted once, when it is opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import sqlalchemy as sa

__all__ = ["CONVERSIONS", "FORMAT"]

FORMAT = 1
"""Format of the tables that this version writes."""
CONVERSIONS: Mapping[int, Callable[[sa.Connection], None]] = {}
"""Functions that convert a store to the next format, by its present format; called in the transaction that opens it."""
