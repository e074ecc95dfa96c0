"""The filters of templates that work on lists and mappings."""

# ruff: noqa: D103 (each does what the filter it is named for does in Jinja)

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from jinja2.filters import do_batch, sync_do_slice

from agentkit_prompts.templates.operations.access import MAPPINGS, element
from agentkit_prompts.templates.operations.access import attribute as attribute_of
from agentkit_prompts.templates.operations.finalise import text
from agentkit_prompts.templates.operations.meter import Meter
from agentkit_prompts.templates.operations.operators import add
from agentkit_prompts.templates.operations.values import Fault, Undefined, require

__all__ = ["LIST_FILTERS", "getter", "items_of", "whole"]

_MAX_WIDTH = 10_000
"""Widest field, most columns."""

_MAX_PATH = 1_000


def whole(name: str, value: Any, least: int = 0, most: int = _MAX_WIDTH) -> int:
    if not isinstance(value, int) or not least <= value <= most:
        raise Fault(f"{name} must be a whole number from {least} to {most:,}, got {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    """Return a short form of a bad argument."""
    return repr(value)[:40] if isinstance(value, int | float) and abs(value) < 1e15 else type(value).__name__


def getter(meter: Meter, path: Any) -> Callable[[Any], Any]:
    """Return a reader of a dotted path; whole numbers in it name elements."""
    if path is None:
        return lambda item: item
    if isinstance(path, int):
        return lambda item: element(meter, item, path)
    if not isinstance(path, str) or len(path) > _MAX_PATH:
        raise Fault(f"attribute must be the name of a field, got {type(path).__name__}")
    parts = [int(part) if part.isdecimal() and len(part) < 10 else part for part in str.__str__(path).split(".")]
    if len(parts) == 1 and isinstance(parts[0], str):
        name = parts[0]
        return lambda item: attribute_of(meter, item, name)

    def read(item: Any) -> Any:
        meter.charge(len(parts))
        for part in parts:
            item = element(meter, item, part)
        return item

    return read


def _fold(meter: Meter, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    meter.charge(len(value) >> 2)
    return value.lower()


def _keys(meter: Meter, path: Any, case_sensitive: bool) -> Callable[[Any], Any]:
    """Return the sort key of `attribute="a,b.c"`."""
    if isinstance(path, str) and len(path) > _MAX_PATH:
        raise Fault(f"attribute is longer than {_MAX_PATH:,} characters")
    meter.charge(20)
    read = [getter(meter, part) for part in path.split(",")] if isinstance(path, str) else [getter(meter, path)]
    if len(read) == 1:
        one = read[0]
        return one if case_sensitive else lambda item: _fold(meter, one(item))

    def keys(item: Any) -> tuple[Any, ...]:
        meter.charge(len(read))
        return tuple([each(item) if case_sensitive else _fold(meter, each(item)) for each in read])

    return keys


def sort_items(
    meter: Meter, value: Any, /, reverse: bool = False, case_sensitive: bool = False, attribute: Any = None
) -> list[Any]:
    if isinstance(value, set | frozenset):
        meter.charge(10 * len(value))
        value = sorted(value, key=lambda item: (type(item).__name__, text(meter, item)))
    items = meter.items(value)
    meter.pay("filter.sort", items, attribute)
    key = _keys(meter, attribute, case_sensitive)
    keys = [key(item) for item in items]
    meter.walk("filter.sort", keys)
    order = sorted(range(len(items)), key=keys.__getitem__, reverse=bool(reverse))
    return [items[at] for at in order]


def sort_mapping(
    meter: Meter, value: Any, /, case_sensitive: bool = False, by: str = "key", reverse: bool = False
) -> list[tuple[Any, Any]]:
    if by not in ("key", "value"):
        raise Fault("dictsort sorts by 'key' or 'value'")
    items = items_of(meter, value)
    meter.pay("filter.dictsort", items)
    return sort_items(meter, items, bool(reverse), bool(case_sensitive), 0 if by == "key" else 1)


def items_of(meter: Meter, value: Any, /) -> list[tuple[Any, Any]]:
    if isinstance(value, Undefined):
        return []
    if not isinstance(value, Mapping):
        raise Fault(f"only a mapping has items, got {type(value).__name__}")
    if type(value) in MAPPINGS:
        meter.pay("filter.items", value)
        return meter.nest(list(value.items()))
    return [(key, value[key]) for key in meter.items(value, 2)]


def unique(meter: Meter, value: Any, /, case_sensitive: bool = False, attribute: Any = None) -> list[Any]:
    key = _keys(meter, attribute, case_sensitive)
    seen: set[Any] = set()
    kept: list[Any] = []
    items = meter.items(value)
    meter.pay("filter.unique", items)
    for item in items:
        one = key(item)
        meter.key(one, len(seen))
        if one not in seen:
            seen.add(one)
            kept.append(item)
    return kept


def group(meter: Meter, value: Any, /, attribute: Any, default: Any = None, case_sensitive: bool = False) -> list[Any]:
    read = getter(meter, attribute)

    def key(item: Any) -> Any:
        found = read(item)
        return default if isinstance(found, Undefined) and default is not None else found

    given = meter.items(value)
    meter.pay("filter.groupby", given, attribute)
    pairs = [(key(item), item) for item in given]
    groups: list[tuple[Any, list[Any]]] = []
    last: Any = Undefined("grouper")
    for grouper, item in sort_items(meter, pairs, False, case_sensitive, 0):
        one = grouper if case_sensitive else _fold(meter, grouper)
        if not groups or one != last:
            groups.append((grouper, []))
            last = one
        groups[-1][1].append(item)
    return meter.nest([_Group(grouper, items) for grouper, items in groups])


class _Group(NamedTuple):
    """One group of `groupby`."""

    grouper: Any
    """What the items have in common."""
    list: Sequence[Any]
    """The items."""


def extreme(run: Callable[..., Any], row: str) -> Callable[..., Any]:
    def apply(meter: Meter, value: Any, /, case_sensitive: bool = False, attribute: Any = None) -> Any:
        items = meter.items(value)
        meter.pay(row, items, attribute)
        if not items:
            return Undefined("item", hint="the list is empty, so it has no least or greatest item")
        key = _keys(meter, attribute, case_sensitive)
        keys = [key(item) for item in items]
        meter.walk(row, keys, keys)
        return items[run(range(len(items)), key=keys.__getitem__)]

    return apply


def total(meter: Meter, value: Any, /, attribute: Any = None, start: Any = 0) -> Any:
    read = getter(meter, attribute)
    total = start
    items = meter.items(value)
    meter.pay("filter.sum", items, attribute)
    for item in items:
        total = add(meter, total, read(item))
    return total


def first(meter: Meter, value: Any, /) -> Any:
    meter.pay("filter.first", value)
    if type(value) in MAPPINGS:
        value = tuple(islice(value, 1))
    items = meter.items(value, 0)
    return items[0] if items else Undefined("first", hint="the list is empty, so it has no first item")


def last(meter: Meter, value: Any, /) -> Any:
    meter.pay("filter.last", value)
    if type(value) in MAPPINGS:
        value = tuple(islice(reversed(value), 1))
    items = meter.items(value, 0)
    return items[-1] if items else Undefined("last", hint="the list is empty, so it has no last item")


def length(meter: Meter, value: Any, /) -> int:
    meter.pay("filter.length", value)
    require(value)
    if not hasattr(type(value), "__len__"):
        raise Fault(f"{type(value).__name__} has no length")
    return len(value)


def reverse(meter: Meter, value: Any, /) -> Any:
    if isinstance(value, str):
        meter.pay("filter.reverse", value)
        return str.__str__(value)[::-1]
    items = meter.items(value)
    meter.pay("filter.reverse", items)
    return list(items)[::-1]


def batch(meter: Meter, value: Any, /, linecount: Any, fill_with: Any = None) -> list[list[Any]]:
    size = whole("batch size", linecount, 1)
    items = meter.items(value)
    meter.pay("filter.batch", items, size, fill_with)
    return meter.nest(list(do_batch(items, size, fill_with)))


def columns(meter: Meter, value: Any, /, slices: Any, fill_with: Any = None) -> list[list[Any]]:
    count = whole("slices", slices, 1)
    items = meter.items(value)
    meter.pay("filter.slice", items, count)
    return meter.nest(list(sync_do_slice(items, count, fill_with)))


def listed(meter: Meter, value: Any, /) -> list[Any]:
    items = meter.items(value)
    meter.pay("filter.list", items)
    return list(items)


LIST_FILTERS: dict[str, Callable[..., Any]] = {
    "batch": batch,
    "count": length,
    "dictsort": sort_mapping,
    "first": first,
    "groupby": group,
    "items": items_of,
    "last": last,
    "length": length,
    "list": listed,
    "max": extreme(max, "filter.max"),
    "min": extreme(min, "filter.min"),
    "reverse": reverse,
    "slice": columns,
    "sort": sort_items,
    "sum": total,
    "unique": unique,
}
"""The filters by name."""
