"""Conversions of stored rows to the format of a revision. Each is executed once, when a store gets the revision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from sqlalchemy import Connection

Conversion = Callable[[Connection], None]

CONVERSIONS: Mapping[str, Conversion] = MappingProxyType({})
"""Conversions by revision. A conversion is called after the tables of its revision were changed, in the same
transaction. It defines the tables that it reads and writes, because `tables.py` has the newest revision."""
