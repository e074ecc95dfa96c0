"""Conversions of stored rows to the format of a revision. Each is executed once, when a store gets the revision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from sqlalchemy import Connection

__all__ = ["CONVERSIONS", "Conversion"]

Conversion = Callable[[Connection], None]

CONVERSIONS: Mapping[str, Conversion] = MappingProxyType({})
"""By revision: called after its tables were changed, in the same transaction. A conversion defines its tables
and columns, because the tables of the code have the newest revision."""
