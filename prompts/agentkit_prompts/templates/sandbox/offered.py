"""Filters, tests, functions and methods that templates can use. What is in no table is refused.

Jinja and Python add names in new versions. A name is offered when its cost is known: it is in a table here because it
takes time in proportion to the values that it reads, or it has a guard in `guards`. `restrictions` lists the rest.
"""

from __future__ import annotations

from collections.abc import ItemsView, KeysView, Mapping
from datetime import date, datetime, time, timedelta
from types import BuiltinMethodType, ModuleType

from jinja2.runtime import LoopContext
from jinja2.utils import Cycler, Joiner, Namespace

from agentkit_prompts.templates.sandbox.guards import FILTER_GUARDS, METHOD_GUARDS, SET_METHODS
from agentkit_prompts.templates.sandbox.restrictions import REMOVED_FILTERS, REMOVED_METHODS

__all__ = [
    "FREE_FILTERS",
    "FREE_METHODS",
    "FREE_TESTS",
    "FUNCTIONS",
    "GUARDED_METHODS",
    "GUARDED_TESTS",
    "SELF_GUARDED_FILTERS",
    "is_offered_filter",
    "is_offered_method",
]

FREE_FILTERS = frozenset(
    (
        *("abs", "attr", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "filesizeformat", "first"),
        *("float", "forceescape", "groupby", "int", "items", "last", "length", "list", "lower", "map", "max", "min"),
        *("reject", "rejectattr", "reverse", "safe", "select", "selectattr", "sort", "string", "upper"),
        "mark_generation",
    )
)
"""Filters that take time in proportion to the value, which is counted before they run."""
SELF_GUARDED_FILTERS = frozenset({"tojson", "unique"})
"""Filters that check their value themselves."""
FREE_TESTS = frozenset(
    (
        *("boolean", "callable", "defined", "escaped", "false", "filter", "float", "integer", "iterable", "lower"),
        *("mapping", "none", "number", "sameas", "sequence", "string", "test", "true", "undefined", "upper"),
    )
)
"""Tests that take time in proportion to the text that they read."""
GUARDED_TESTS = frozenset(
    (
        *("!=", "<", "<=", "==", ">", ">=", "divisibleby", "eq", "equalto", "even", "ge", "greaterthan", "gt", "in"),
        *("le", "lessthan", "lt", "ne", "odd"),
    )
)
"""Tests that compare or divide: both values are measured before."""
FUNCTIONS = frozenset({"cycler", "dict", "joiner", "namespace", "range"})
"""Functions of templates. A name is one of them if it is called; anywhere else it is read from outside first."""

_TEXT = frozenset(
    (
        *("capitalize", "count", "find", "index", "isalnum", "isalpha", "isascii", "isdigit", "islower", "isspace"),
        *("istitle", "isupper", "lower", "partition", "removeprefix", "removesuffix", "swapcase", "title", "upper"),
    )
)
_DATE = frozenset(("isocalendar", "isoformat", "isoweekday", "replace", "strftime", "toordinal", "weekday"))
_TIME = frozenset(("dst", "isoformat", "replace", "strftime", "tzname", "utcoffset"))
FREE_METHODS: dict[type, frozenset[str]] = {
    str: _TEXT | {"casefold", "isdecimal", "isidentifier", "isnumeric", "isprintable"},
    bytes: _TEXT | {"fromhex", "hex"},
    Mapping: frozenset({"copy", "get", "items", "keys", "values"}),
    list: frozenset({"copy", "count", "index"}),
    tuple: frozenset({"count", "index"}),
    range: frozenset({"count", "index"}),
    int: frozenset({"as_integer_ratio", "bit_count", "bit_length", "conjugate", "is_integer"}),
    float: frozenset({"as_integer_ratio", "conjugate", "fromhex", "hex", "is_integer"}),
    set: frozenset({"copy"}),
    frozenset: frozenset({"copy"}),
    datetime: _DATE | _TIME | {"combine", "date", "time", "timetz"},
    date: _DATE,
    time: _TIME,
    timedelta: frozenset({"total_seconds"}),
    Cycler: frozenset({"next", "reset"}),
    Joiner: frozenset(),
    LoopContext: frozenset({"changed", "cycle"}),
    Namespace: frozenset(),
}
"""Methods by the type of their owner, which take time in proportion to the owner and the arguments.

A type goes before the types that it derives from."""
GUARDED_METHODS: dict[type, frozenset[str]] = {
    str: frozenset(METHOD_GUARDS) - SET_METHODS - {"decode"},
    bytes: frozenset(METHOD_GUARDS) - SET_METHODS - {"encode"},
    Mapping: frozenset({"fromkeys"}),
    set: SET_METHODS,
    frozenset: SET_METHODS,
    KeysView: SET_METHODS & {"isdisjoint"},
    ItemsView: SET_METHODS & {"isdisjoint"},
}
"""Methods with a guard, by the type of their owner."""
_LIBRARIES = ("jinja2", "markupsafe")


def is_offered_filter(name: str) -> bool:
    """True if the cost of a filter is known."""
    return name in FREE_FILTERS or name in FILTER_GUARDS or name in SELF_GUARDED_FILTERS or name in REMOVED_FILTERS


def is_offered_method(target: object) -> bool:
    """True if the cost of a bound method is known, or the developer wrote it."""
    owner: object = getattr(target, "__self__", None)
    name: str = getattr(target, "__name__", "")
    if owner is None or isinstance(owner, ModuleType):
        return True  # a function that the developer passed, such as `len`
    kind = owner if isinstance(owner, type) else type(owner)
    for offered in (FREE_METHODS, GUARDED_METHODS):
        if any(name in names for base, names in offered.items() if issubclass(kind, base)):
            return True
    if name in REMOVED_METHODS:
        return True  # `refuse_method` has refused it, if these templates may not call it
    is_of_library = kind.__module__.partition(".")[0] in _LIBRARIES
    return not is_of_library and not isinstance(target, BuiltinMethodType)
