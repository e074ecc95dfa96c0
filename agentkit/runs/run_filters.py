"""Conditions and orders of lists of runs, as SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from agentkit.runs.run_database import runs_table
from agentkit.runs.run_matching import exact_values, wanted_words
from agentkit.runs.run_record import RunOrder, RunsWanted
from agentkit.runs.stored_values import stored_tags

__all__ = [
    "MAX_EXAMINED",
    "indexed_conditions",
    "is_after",
    "is_at_or_before",
    "newest_first",
    "sort_key",
    "unindexed_filters",
    "wanted_texts",
]

MAX_EXAMINED = 20_000
"""Maximum number of runs that one part of a list examines."""
_INDEXED = ("tenant", "user", "agent")
"""Fields whose index has the order `newest`; in the other orders, only the tenant."""
_COLUMNS: Mapping[RunOrder, str | None] = {"newest": None, "longest": "seconds", "tokens": "tokens", "cost": "cost"}
"""Column of each order, before the number of the run."""
_runs = runs_table


def sort_key(wanted: RunsWanted) -> list[Any]:
    """Return the columns of the order."""
    # `+ 0` makes SQLite use the index of the ids: it would otherwise read all runs in the order of the number.
    number: Any = _runs.c.number
    if wanted.ids is not None:
        number = _runs.c.number + 0
    column = _COLUMNS[wanted.order]
    if column is None:
        return [number]
    return [_runs.c[column], number]


def newest_first(wanted: RunsWanted) -> list[Any]:
    """Return the terms of `ORDER BY`."""
    return [column.desc() for column in sort_key(wanted)]


def is_after(wanted: RunsWanted, key: Sequence[Any]) -> Any:
    """Return the condition that a run is after the run with this sort key."""
    return sa.tuple_(*sort_key(wanted)) < sa.tuple_(*key)


def is_at_or_before(wanted: RunsWanted, key: Sequence[Any]) -> Any:
    """Return the condition that a run is at or before the run with this sort key."""
    return sa.tuple_(*sort_key(wanted)) >= sa.tuple_(*key)


def indexed_conditions(wanted: RunsWanted) -> list[Any]:
    """Return the conditions that an index with the order supports."""
    return [_runs.c[name] == value for name, value in exact_values(wanted).items() if _is_indexed(wanted, name)]


def unindexed_filters(wanted: RunsWanted) -> list[Any]:
    """Return the other conditions, which a database checks run by run."""
    exact = {name: value for name, value in exact_values(wanted).items() if not _is_indexed(wanted, name)}
    conditions: list[Any] = []
    for name, value in exact.items():
        column: Any = _runs.c[name]
        # `|| ''` hides a column from the indexes: a database would otherwise sort all runs of an agent by their cost.
        if wanted.order != "newest":
            column = column.concat("")
        conditions.append(column == value)
    if wanted.tag is not None:
        # `LIKE` of SQLite would ignore the case of letters.
        tags: Any = _runs.c.tags
        conditions.append(sa.func.replace(tags, stored_tags([wanted.tag]), "") != tags)
        # A text with a line break would match two tags.
        if "\n" in wanted.tag:
            conditions.append(sa.false())
    return conditions + [_runs.c.words.contains(word, autoescape=True) for word in wanted_words(wanted)]


def wanted_texts(wanted: RunsWanted) -> list[str]:
    """Return the texts that a run must have."""
    texts = [*exact_values(wanted).values(), *wanted_words(wanted)]
    if wanted.tag is not None:
        texts.append(wanted.tag)
    return texts


def _is_indexed(wanted: RunsWanted, name: str) -> bool:
    if wanted.order == "newest":
        return name in _INDEXED
    return name == "tenant"
