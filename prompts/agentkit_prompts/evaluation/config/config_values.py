"""What the code of a configuration may do with its values: operators, methods and functions, all of them bounded."""

from __future__ import annotations

import ast
import copy
import itertools
import math
import posixpath
import re
import string
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agentkit_prompts.evaluation.config.config_sizes import MAX_SIZE, Problem, apart, bounded, room, weigh
from agentkit_prompts.templates.operations.costs import cost
from agentkit_prompts.templates.operations.operators import PERCENT, room_of
from agentkit_prompts.templates.operations.values import Fault

__all__ = [
    "COMPARE",
    "FUNCTIONS",
    "OPERATORS",
    "PURE",
    "TYPES",
    "Imported",
    "Opened",
    "listed",
    "method",
    "written",
]

_MAX_CALL = 20_000_000
"""Steps of one call of a method, by the table of costs of templates: about a second."""
_MAX_DIGITS = 1_000
"""Digits that a number is rounded to: those in front of the point are worked out one by one."""
_SPEC = re.compile(r"[<>=^]?[-+ ]?#?0?\d{0,3},?(?:\.\d{1,3})?[a-zA-Z%]?")


class Imported(str):
    """The dotted name of what a configuration imports. Nothing of it is loaded."""

    __slots__ = ()


class Opened:
    """A text file beside a configuration."""

    def __init__(self, text: str) -> None:
        self._text = text

    def read(self) -> str:
        """Return its text."""
        return self._text

    def readlines(self) -> list[str]:
        """Return its lines."""
        return self._text.splitlines(keepends=True)


def written(value: Any, spec: str = "", conversion: int = -1) -> str:
    """Return a value as an f-string writes it."""
    weigh(value, chars=MAX_SIZE)
    if not _SPEC.fullmatch(spec):
        raise Problem(f"the format {spec[:40]!r}")
    forms: Mapping[int, Callable[[Any], str]] = {115: str, 114: repr, 97: ascii}
    made = forms[conversion](value) if conversion in forms else value
    return str(bounded(format(made, spec)))


class _Formatter(string.Formatter):
    """`str.format` without attributes and items, for one text."""

    def __init__(self) -> None:
        self._made = 0

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        if not re.fullmatch(r"\w*", field_name):
            raise Problem(f"the field {field_name[:40]!r} in format()")
        return super().get_field(field_name, args, kwargs)

    def convert_field(self, value: Any, conversion: str | None) -> Any:
        return value if conversion is None else written(value, "", ord(conversion))

    def format_field(self, value: Any, format_spec: str) -> str:
        made = written(value, format_spec)
        self._made += len(made)
        room(self._made, "characters by format()")
        return made


def _added(one: Any, other: Any) -> Any:
    if isinstance(one, str | list | tuple) and isinstance(other, str | list | tuple):
        room(len(one) + len(other), "joined")
        return str(one) + str(other) if isinstance(one, str) and isinstance(other, str) else one + other  # type: ignore[operator]
    return one + other


def _times(one: Any, other: Any) -> Any:
    for held, count in ((one, other), (other, one)):
        if isinstance(held, str | bytes | list | tuple) and isinstance(count, int):
            room(len(held) * count, "by repetition")
    return one * other


def _power(one: Any, other: Any) -> Any:
    if not isinstance(one, int | float) or not isinstance(other, int | float) or abs(other) > 64:
        raise Problem("a power above 64")
    return one**other


def _percent(one: Any, other: Any) -> Any:
    if isinstance(one, bytes):
        raise Problem("filling in bytes")
    if not isinstance(one, str):
        return one % other
    weigh(other, chars=MAX_SIZE)
    sizes: dict[str, int] = {}
    made = len(one)
    for field in PERCENT.finditer(one):
        try:
            made += room_of(field)
        except Fault as error:
            raise Problem(str(error)) from None
        name = field["name"]
        if name is not None and isinstance(other, Mapping):
            if name not in sizes:
                sizes[name] = len(written(other[name]))
            made += sizes[name]
        room(made, "characters by %")
    return one % other


OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: _added,
    ast.Sub: lambda one, other: one - other,
    ast.Mult: _times,
    ast.Div: lambda one, other: one / other,
    ast.FloorDiv: lambda one, other: one // other,
    ast.Mod: _percent,
    ast.Pow: _power,
    ast.BitOr: lambda one, other: one | other,
    ast.BitAnd: lambda one, other: one & other,
    ast.USub: lambda one: -one,
    ast.UAdd: lambda one: +one,
    ast.Not: lambda one: not one,
}


def _weighed(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def compared(one: Any, other: Any) -> Any:
        weigh(one, other)
        return compare(one, other)

    return compared


COMPARE: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Eq: _weighed(lambda one, other: one == other),
    ast.NotEq: _weighed(lambda one, other: one != other),
    ast.Lt: _weighed(lambda one, other: one < other),
    ast.LtE: _weighed(lambda one, other: one <= other),
    ast.Gt: _weighed(lambda one, other: one > other),
    ast.GtE: _weighed(lambda one, other: one >= other),
    ast.In: _weighed(lambda one, other: one in other),
    ast.NotIn: _weighed(lambda one, other: one not in other),
    ast.Is: lambda one, other: one is other,
    ast.IsNot: lambda one, other: one is not other,
}

_METHODS: Mapping[type, frozenset[str]] = {
    Opened: frozenset(("read", "readlines")),
    str: frozenset(
        (
            *("strip", "lstrip", "rstrip", "split", "rsplit", "splitlines", "upper", "lower", "title", "capitalize"),
            *("startswith", "endswith", "removeprefix", "removesuffix", "count", "find", "rfind", "index"),
            *("partition", "rpartition", "isdigit", "isalpha", "isupper", "islower", "replace", "join", "format"),
        )
    ),
    list: frozenset(("append", "extend", "insert", "index", "count", "copy", "pop", "remove", "reverse", "sort")),
    tuple: frozenset(("index", "count")),
    dict: frozenset(("keys", "values", "items", "get", "copy", "update", "pop", "setdefault", "deepcopy")),
    set: frozenset(("add", "update", "union", "copy", "discard")),
}


_COMPARING = frozenset(("count", "index", "remove", "sort"))
"""Methods that compare what is held."""


def method(holder: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Return what a method of a value gives."""
    kind = next((kind for kind in _METHODS if isinstance(holder, kind)), None)
    if kind is None or name not in _METHODS[kind]:
        raise Problem(f"the method {name!r} of a {type(holder).__name__}", name)
    if name == "deepcopy":  # of the dicts of mmengine
        return PURE["copy.deepcopy"](holder)
    if kind is str:
        if name == "format":
            return bounded(_Formatter().vformat(holder, args, kwargs))
        if name == "join":
            given = listed(args[0])
            weigh(given, chars=MAX_SIZE)
            texts = [str(one) for one in given]
            room(sum(map(len, texts)) + len(holder) * len(texts), "characters joined")
            return str(holder).join(texts)
        if name == "replace":
            room(len(holder) + holder.count(args[0]) * len(args[1]), "characters by replacing")
        if cost(f"str.{name}", (holder, *args), kwargs) > _MAX_CALL:
            raise Problem(f"the method {name!r} on texts as long as these")
        return getattr(str, name)(str(holder), *args, **kwargs)
    weigh(*args, *kwargs.values())
    if name in _COMPARING:
        weigh(holder)
    if kind in (dict, set):
        for one in args:
            if isinstance(one, list | tuple):
                apart([pair[0] for pair in one] if kind is dict and name == "update" else one)
    found = getattr(kind, name)(holder, *args, **kwargs)
    bounded(holder)
    return list(found) if name in ("keys", "values", "items") else found


def listed(values: Any) -> list[Any]:
    """Return what a loop over a value meets."""
    if not isinstance(values, str | list | tuple | dict | set | frozenset | range):
        raise Problem(f"going over a {type(values).__name__}")
    return list(values)


def _all_listed(held: Iterable[Any]) -> list[list[Any]]:
    found: list[list[Any]] = []
    size = 0
    for one in held:
        found.append(listed(one))
        size += len(found[-1])
        room(size, "values together")
    return found


def _sum(values: Any, start: Any = 0) -> Any:
    if isinstance(start, list | tuple):
        made = [*start, *itertools.chain.from_iterable(_all_listed(listed(values)))]
        return made if isinstance(start, list) else tuple(made)
    for value in listed(values):
        if not isinstance(value, int | float):
            raise Problem(f"the sum of a {type(value).__name__}")
        start = bounded(start + value)
    return start


def _rounded(value: Any, digits: Any = None) -> Any:
    if isinstance(digits, int) and abs(digits) > _MAX_DIGITS:
        raise Problem(f"rounding to more than {_MAX_DIGITS:,} digits")
    return round(value, digits)


def _keyed(keys: list[Any]) -> list[Any]:
    apart(keys)
    return keys


def _ordered(function: Callable[..., Any]) -> Callable[..., Any]:
    def made(*values: Any) -> Any:
        weigh(*values)
        return function(*([listed(values[0])] if len(values) == 1 else values))

    return made


TYPES: Mapping[str, type] = {kind.__name__: kind for kind in (str, int, float, bool, list, tuple, dict, set)}
"""Names that may be the second argument of `isinstance`."""

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "dict": lambda *held, **named: {**(dict(_pairs(held[0])) if held else {}), **named},
    "list": lambda *held: listed(*held) if held else [],
    "tuple": lambda *held: tuple(listed(*held)) if held else (),
    "set": lambda *held: set(_keyed(listed(*held))) if held else set(),
    "str": lambda value="": written(value),
    "repr": lambda value: written(value, "", 114),
    "int": lambda value=0: bounded(int(value)),
    "float": lambda value=0.0: float(value),
    "bool": bool,
    "len": len,
    "range": range,
    "abs": abs,
    "round": _rounded,
    "chr": chr,
    "ord": ord,
    "zip": lambda *held: [list(one) for one in zip(*_all_listed(held), strict=False)],
    "enumerate": lambda held, start=0: [[number, one] for number, one in enumerate(listed(held), start)],
    "reversed": lambda held: listed(held)[::-1],
    "sorted": _ordered(lambda held: sorted(held)),
    "min": _ordered(min),
    "max": _ordered(max),
    "any": lambda held: any(listed(held)),
    "all": lambda held: all(listed(held)),
    "sum": _sum,
    "print": lambda *_, **__: None,
}
"""Functions that need no import."""


def _pairs(held: Any) -> Iterable[Any]:
    if isinstance(held, Mapping):
        return held.items()
    pairs = [listed(pair) for pair in listed(held)]
    apart([pair[0] for pair in pairs if pair])
    return pairs


def _copied(value: Any) -> Any:
    weigh(value)
    return copy.deepcopy(value)


PURE: Mapping[str, Callable[..., Any]] = {
    "copy.deepcopy": _copied,
    "copy.copy": copy.copy,
    "os.path.join": lambda *parts: posixpath.join(*_texts(parts)),
    "os.path.dirname": lambda path: posixpath.dirname(written(path)),
    "os.path.basename": lambda path: posixpath.basename(written(path)),
    "os.getenv": lambda name, default=None: default,
    "os.environ.get": lambda name, default=None: default,
    "itertools.product": lambda *held: _product(held),
    **{f"math.{name}": getattr(math, name) for name in ("exp", "log", "sqrt", "ceil", "floor", "isnan", "isinf")},
}
"""Imported functions that are known; of the environment they see nothing."""


def _texts(values: tuple[Any, ...]) -> list[str]:
    weigh(values, chars=MAX_SIZE)
    return [str(one) for one in values]


def _product(held: tuple[Any, ...]) -> list[list[Any]]:
    lists = _all_listed(held)
    room(math.prod(map(len, lists)) * len(lists), "combinations")
    return [list(one) for one in itertools.product(*lists)]
