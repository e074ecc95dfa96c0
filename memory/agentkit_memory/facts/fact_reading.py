"""Reading of facts: rows of facts with their sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from sqlalchemy import Connection, Select, bindparam, literal_column, or_, select

from agentkit_memory.database.rows import Rows, corrupt_row, decode_rows, sound_rows
from agentkit_memory.database.tables import item_sources, items
from agentkit_memory.store.item_rows import FACT, in_batches, is_current, is_valid_now, storable
from agentkit_memory.store.metadata import read_metadata
from agentkit_memory.store.records import StoredFact
from agentkit_memory.store.scope_rows import required

# The index of facts is used only if the kind is in the SQL, not a parameter.
IS_FACT = items.c.kind == literal_column(f"'{FACT}'")
ANY_FACT = select(
    *items.c["id", "text", "position", "valid_from", "valid_to", "superseded_by", "meta", "created_at"]
).where(IS_FACT)
OWN_FACT = ANY_FACT.where(items.c.scope_id.in_(bindparam("scopes", expanding=True)))
FIND_OWN = OWN_FACT.where(items.c.id.in_(bindparam("ids", expanding=True)))
_NEWEST = (
    OWN_FACT.where(is_current(), or_(is_valid_now(), items.c.valid_from > bindparam("now")))
    .order_by(items.c.position.desc())
    .limit(bindparam("most"))
)
FACT_SOURCES = (
    select(item_sources.c.item_id, item_sources.c.source_id)
    .where(item_sources.c.item_id.in_(bindparam("ids", expanding=True)))
    .order_by(item_sources.c.item_id, item_sources.c.source_id)
)
_ENDS = select(items.c.id, items.c.valid_to).where(
    items.c.id.in_(bindparam("ids", expanding=True)), items.c.valid_to.is_not(None)
)


def newest_facts(connection: Connection, scope_number: int, now: float, limit: int) -> list[StoredFact]:
    """Return the facts of exactly one scope that are valid now or later, newest first, without corrupt rows."""
    bound = {"scopes": required([scope_number]), "now": now, "most": limit}
    return _decode_facts(connection, _NEWEST, bound).sound


def ends_of(connection: Connection, facts: Sequence[tuple[float | None, Sequence[str]]]) -> list[float]:
    """Return, for each fact, the earliest end of validity of the fact and its sources; infinity without an end."""
    ends: dict[str, float] = {}
    for batch in in_batches(sorted({source for _, sources in facts for source in sources})):
        rows = decode_rows(connection, _ENDS, {"ids": batch}, items.c.id).sound
        ends |= {source: float(end) for source, end in rows}
    earliest = []
    for valid_to, sources in facts:
        times = [ends.get(source, inf) for source in sources]
        if valid_to is not None:
            times.append(valid_to)
        earliest.append(min(times, default=inf))
    return earliest


def read_own(connection: Connection, ids: Sequence[str], scope_ids: Sequence[int]) -> list[StoredFact]:
    """Return the facts with these ids in scopes, with their sources."""
    bound = {"ids": [storable(str(each)) for each in ids], "scopes": required(scope_ids)}
    return read_facts(connection, FIND_OWN, bound)


def read_facts(connection: Connection, statement: Select[Any], bound: Mapping[str, Any]) -> list[StoredFact]:
    """Return facts with their sources.

    Raises:
        StoreCorrupt: A row is corrupt.
    """
    facts, corrupt = _decode_facts(connection, statement, bound)
    if corrupt:
        raise corrupt[0]
    return facts


def _decode_facts(connection: Connection, statement: Select[Any], bound: Mapping[str, Any]) -> Rows:
    """Return facts with their sources, and the errors of corrupt rows."""
    rows, corrupt = decode_rows(connection, statement, bound, items.c.id)
    sources: dict[str, list[str]] = {row.id: [] for row in rows}
    for batch in in_batches(sources):
        for fact, source in sound_rows(connection, FACT_SOURCES, {"ids": batch}, item_sources.c.item_id):
            sources[fact].append(source)
    facts: list[StoredFact] = []
    for row in rows:
        try:
            metadata = read_metadata(row.meta)
        except ValueError as error:
            corrupt.append(corrupt_row("items", row.id, "meta", str(error)))
            continue
        times = row.valid_from, row.valid_to, row.superseded_by
        taken_from = tuple(sources[row.id])
        facts.append(StoredFact(row.id, row.text, row.position, *times, taken_from, metadata, row.created_at))
    return Rows(facts, corrupt)
