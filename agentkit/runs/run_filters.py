"""Conditions and orders of lists of runs, as SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from agentkit.runs.run_database import runs_table
from agentkit.runs.run_matching import exact_values, wanted_words
from agentkit.runs.run_record import RunOrder, RunsWanted
from agentkit.runs.stored_values import stored_tags

MAX_EXAMINED = 20_000
"""Maximum number of runs that one part of a list examines."""
_INDEXED = ("session", "user", "state", "agent")
"""Fields that have an index with the tenant and the order `newest`. The first field of a filter uses its index."""
_INDEXED_OF_ALL = ("session", "state")
"""Fields that have such an index without the tenant."""
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
    """Return the conditions that one index with the order supports."""
    names = _indexed_names(wanted)
    return [_runs.c[name] == value for name, value in exact_values(wanted).items() if name in names]


def unindexed_filters(wanted: RunsWanted) -> list[Any]:
    """Return the other conditions, which a database checks run by run."""
    names = _indexed_names(wanted)
    exact = {name: value for name, value in exact_values(wanted).items() if name not in names}
    # `|| ''` hides a column from the indexes: a database would otherwise sort all runs of an agent by their cost.
    conditions: list[Any] = [_runs.c[name].concat("") == value for name, value in exact.items()]
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


def _indexed_names(wanted: RunsWanted) -> set[str]:
    """Return the names of the filters that one index with the order supports."""
    exact = exact_values(wanted)
    names = {"tenant"}
    if wanted.order == "newest":
        fields = _INDEXED if "tenant" in exact else _INDEXED_OF_ALL
        field = next((name for name in fields if name in exact), "tenant")
        names.add(field)
        if field == "session":
            names.add("user")
    return names
