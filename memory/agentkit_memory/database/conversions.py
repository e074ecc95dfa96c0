"""Conversions of stored rows to the format of a revision. Each is executed once, when a store gets the revision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from sqlalchemy import Connection

__all__ = ["CONVERSIONS", "Conversion"]

Conversion = Callable[[Connection], None]

CONVERSIONS: Mapping[str, Conversion] = MappingProxyType({})
"""By revision: called after its tables were changed, in the same transaction. A conversion names tables and columns of
its own, as the tables of the code are those of the newest revision."""
