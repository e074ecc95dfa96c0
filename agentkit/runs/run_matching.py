"""Filters and orders of lists of runs, for runs in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agentkit.runs.run_record import RunOrder, RunRecord, RunsWanted, searched_words, tokens_of

_EXACT = ("tenant", "user", "agent", "session", "state", "schedule", "error")
"""Fields of `RunsWanted` that are columns with the same name, and must be equal."""
_VALUES: Mapping[RunOrder, Callable[[RunRecord], float]] = {
    "newest": lambda record: 0,
    "longest": lambda record: (record.updated_at - record.created_at) if record.has_ended else 0,
    "tokens": lambda record: tokens_of(record.usage),
    "cost": lambda record: record.cost or 0,
}


def matches(record: RunRecord, wanted: RunsWanted) -> bool:
    """True if a run passes the filters; tenants and schedules are not compared."""
    error = ""
    if record.error is not None:
        error = record.error.type
    values = {
        "user": record.user,
        "agent": record.agent,
        "session": record.session,
        "state": record.state,
        "error": error,
    }
    exact = exact_values(wanted)
    if any(exact.get(name, value) != value for name, value in values.items()):
        return False
    if wanted.ids is not None and record.run_id not in wanted.ids:
        return False
    if wanted.tag is not None and wanted.tag not in record.tags:
        return False
    text = searched_words(record)
    return all(word in text for word in wanted_words(wanted))


def sort_value(record: RunRecord, order: RunOrder) -> float:
    """Return the value of a run by which an order sorts; 0 for the order `newest`."""
    return _VALUES[order](record)


def exact_values(wanted: RunsWanted) -> dict[str, str]:
    """Return the values that runs must have, by the names of the fields."""
    return {name: value for name in _EXACT if (value := getattr(wanted, name)) is not None}


def wanted_words(wanted: RunsWanted) -> list[str]:
    """Return the words that runs must contain, in lower case."""
    return (wanted.text or "").casefold().split()
