"""Conditions and orders of lists of runs, as SQL.

The newest runs of a list are at the end of a part of one index, such as the runs of a tenant and a state in the index
(tenant, state, number). PostgreSQL would often read all runs by their number instead, because it supposes that each
state is evenly distributed over all runs: old queued runs would be found after all newer runs. Therefore a list is
sorted by the last column of its part of the index too, which only this index serves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from agentkit.runs.run_database import runs_table, tags_table
from agentkit.runs.run_matching import exact_values, wanted_words
from agentkit.runs.run_record import RunOrder, RunsWanted

MAX_EXAMINED = 20_000
"""Maximum number of runs that one part of a list examines."""
_INDEXES = (
    *(("session", "tenant", "user"), ("session", "tenant"), ("session",), ("tenant", "user", "state")),
    *(("tenant", "state"), ("schedule",), ("tenant", "user"), ("tenant", "agent"), ("tenant", "tag")),
    *(("tenant",), ("state",), ("tag",)),
)
"""Filters that an index serves in the order `newest`; a list uses the first index of which it has all filters."""
_COLUMNS: Mapping[RunOrder, str | None] = {"newest": None, "longest": "seconds", "tokens": "tokens", "cost": "cost"}
"""Column of each order, before the number of the run."""
_runs, _tags = runs_table, tags_table


def listed_tables(wanted: RunsWanted) -> sa.FromClause:
    """Return the tables of a list: the runs, or the runs of a tag."""
    if "tag" in _index(wanted):
        return _tags.join(_runs, _runs.c.number == _tags.c.number)
    return _runs


def sort_key(wanted: RunsWanted) -> list[Any]:
    """Return the columns of a run that contain its place in the order."""
    column = _COLUMNS[wanted.order]
    if column is None:
        return [_runs.c.number]
    return [_runs.c[column], _runs.c.number]


def newest_first(wanted: RunsWanted) -> list[Any]:
    """Return the terms of `ORDER BY`."""
    columns = _place(wanted)
    if wanted.order == "newest":
        columns = [*[*_index(wanted).values()][-1:], *columns]
    return [column.desc() for column in columns]


def is_after(wanted: RunsWanted, key: Sequence[Any]) -> Any:
    """Return the condition that a run is after the run with this sort key."""
    return sa.tuple_(*_place(wanted)) < sa.tuple_(*key)


def is_at_or_before(wanted: RunsWanted, key: Sequence[Any]) -> Any:
    """Return the condition that a run is at or before the run with this sort key."""
    return sa.tuple_(*_place(wanted)) >= sa.tuple_(*key)


def indexed_conditions(wanted: RunsWanted, *, is_sqlite: bool) -> list[Any]:
    """Return the conditions that one index with the order supports."""
    values = _wanted_values(wanted)
    columns = _index(wanted)
    conditions = [column == values[name] for name, column in columns.items()]
    if columns and wanted.order == "newest" and not is_sqlite:
        # PostgreSQL would ignore a column with one value in `ORDER BY`. SQLite reads the index in any case, and needs
        # the equality to find the place of a run in it.
        name, last = [*columns.items()][-1]
        conditions[-1] = sa.and_(last >= values[name], last <= values[name])
    return conditions


def unindexed_filters(wanted: RunsWanted) -> list[Any]:
    """Return the other conditions, which a database checks run by run."""
    columns = _index(wanted)
    exact = {name: value for name, value in exact_values(wanted).items() if name not in columns}
    conditions: list[Any] = []
    for name, value in exact.items():
        column: Any = _runs.c[name]
        # `|| ''` hides a column from the indexes: a database would otherwise sort all runs of an agent by their cost.
        # PostgreSQL supposes that a hidden state is rare, and would read all runs of a tag in parallel.
        if name != "state" or "tag" not in columns:
            column = column.concat("")
        conditions.append(column == value)
    if wanted.tag is not None and "tag" not in columns:
        tag = _tags.c
        is_of_run = sa.and_(tag.tenant == _runs.c.tenant, tag.number == _runs.c.number)
        conditions.append(sa.exists().where(is_of_run, tag.tag == wanted.tag))
    return conditions + [_runs.c.words.contains(word, autoescape=True) for word in wanted_words(wanted)]


def wanted_texts(wanted: RunsWanted) -> list[str]:
    """Return the texts that a run must have."""
    return [*_wanted_values(wanted).values(), *wanted_words(wanted)]


def _wanted_values(wanted: RunsWanted) -> dict[str, str]:
    """Return the values that runs must have, by the names of the filters."""
    values = exact_values(wanted)
    if wanted.tag is not None:
        values["tag"] = wanted.tag
    return values


def _index(wanted: RunsWanted) -> dict[str, Any]:
    """Return the columns of the index of a list by the names of the filters that it serves, in its order."""
    values = _wanted_values(wanted)
    # Most runs have finished: another filter selects fewer runs.
    if wanted.state == "finished" and not values.keys().isdisjoint(("agent", "tag", "schedule")):
        del values["state"]
    indexes: Sequence[Sequence[str]] = _INDEXES
    if wanted.order != "newest":
        indexes = [("tenant",)]
    # Ids are few, and have an index that serves no order.
    if wanted.ids is not None:
        indexes = []
    names = next((names for names in indexes if values.keys() >= {*names}), ())
    table = _tags if "tag" in names else _runs
    return {name: table.c[name] for name in names}


def _place(wanted: RunsWanted) -> list[Any]:
    """Return the columns of the sort key in the tables of a list."""
    key = sort_key(wanted)
    if "tag" in _index(wanted):
        key[-1] = _tags.c.number
    # `+ 0` makes SQLite use the index of the ids: it would otherwise read all runs in the order of the number.
    if wanted.ids is not None:
        key[-1] = _runs.c.number + 0
    return key
