"""Conversions of run stores with an older format; opening a store converts it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import sqlalchemy as sa

FORMAT = 1
"""Format of the tables that this version writes."""
CONVERSIONS: Mapping[int, Callable[[sa.Connection], None]] = {}
"""Functions that convert a store to the next format, by the format that they convert; called when a store is opened."""
