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

from agentkit_prompts.templates.engine.costs import cost

__all__ = [
    "CHANGING",
    "COMPARE",
    "FUNCTIONS",
    "OPERATORS",
    "PURE",
    "TYPES",
    "Imported",
    "Opened",
    "Problem",
    "bounded",
    "method",
    "weigh",
    "written",
]

_MAX_SIZE = 1_000_000
"""Items of a list, and characters of a text."""
_MAX_VALUES = 1_000_000
"""Values of a whole configuration, those that are shared counted each time."""
_MAX_BITS = 4096
_MAX_NESTING = 100
"""Levels of containers: hashing a deep tuple recurses in C, where too many are the end of the process."""
_MAX_CALL = 20_000_000
"""Steps of one call of a method, by the table of costs of templates: about a second."""
_SPEC = re.compile(r"[<>=^]?[-+ ]?#?0?\d{0,3},?(?:\.\d{1,3})?[a-zA-Z%]?")
_PERCENT = re.compile(r"%(?:\(\w+\))?[-+ #0]*\d{0,3}(?:\.\d{1,3})?[a-zA-Z%]")


class Problem(Exception):
    """Why something of a configuration cannot be read, without its place."""


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


def bounded(value: Any) -> Any:
    """Return a value that is not too large."""
    if isinstance(value, str | bytes | list | tuple | dict | set) and len(value) > _MAX_SIZE:
        raise Problem(f"a {type(value).__name__} of more than {_MAX_SIZE:,}")
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise Problem("a number of more than a thousand digits")
    return value


def weigh(*values: Any) -> None:
    """Refuse values that nest deeply, or would be too many when written out, however often they share a part."""
    left, level = _MAX_VALUES, [*values]
    for _ in range(_MAX_NESTING):
        left -= len(level)
        inner: list[Any] = []
        for value in level:
            if isinstance(value, Mapping):
                inner += [*value.keys(), *value.values()]
            elif isinstance(value, list | tuple | set | frozenset):
                inner += value
            if left < len(inner):
                raise Problem(f"more than {_MAX_VALUES:,} values")
        if not inner:
            return
        level = inner
    raise Problem(f"values that nest more than {_MAX_NESTING} levels deep")


def written(value: Any, spec: str = "", conversion: int = -1) -> str:
    """Return a value as an f-string writes it."""
    weigh(value)
    if not _SPEC.fullmatch(spec):
        raise Problem(f"the format {spec[:40]!r}")
    forms: Mapping[int, Callable[[Any], str]] = {115: str, 114: repr, 97: ascii}
    made = forms[conversion](value) if conversion in forms else value
    return str(bounded(format(made, spec)))


class _Formatter(string.Formatter):
    """`str.format` without attributes and items."""

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        if not re.fullmatch(r"\w*", field_name):
            raise Problem(f"the field {field_name[:40]!r} in format()")
        return super().get_field(field_name, args, kwargs)

    def format_field(self, value: Any, format_spec: str) -> str:
        return written(value, format_spec)


def _added(one: Any, other: Any) -> Any:
    if isinstance(one, str | list | tuple) and isinstance(other, str | list | tuple):
        if len(one) + len(other) > _MAX_SIZE:
            raise Problem(f"more than {_MAX_SIZE:,} joined")
        return str(one) + str(other) if isinstance(one, str) and isinstance(other, str) else one + other  # type: ignore[operator]
    return one + other


def _times(one: Any, other: Any) -> Any:
    for held, count in ((one, other), (other, one)):
        if isinstance(held, str | list | tuple) and isinstance(count, int) and len(held) * count > _MAX_SIZE:
            raise Problem(f"more than {_MAX_SIZE:,} by repetition")
    return one * other


def _power(one: Any, other: Any) -> Any:
    if not isinstance(one, int | float) or not isinstance(other, int | float) or abs(other) > 64:
        raise Problem("a power above 64")
    return one**other


def _percent(one: Any, other: Any) -> Any:
    if not isinstance(one, str):
        return one % other
    weigh(other)
    if any(not _PERCENT.match(one, found.start()) for found in re.finditer("%", one.replace("%%", "  "))):
        raise Problem(f"the format {one[:40]!r}")
    return one % (tuple(other) if isinstance(other, tuple) else other)


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

CHANGING = frozenset(
    ("add", "append", "discard", "extend", "insert", "pop", "remove", "reverse", "setdefault", "sort", "update")
)
"""Methods that change what they are called on."""


def method(holder: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Return what a method of a value gives."""
    kind = next((kind for kind in _METHODS if isinstance(holder, kind)), None)
    if kind is None or name not in _METHODS[kind]:
        raise Problem(f"the method {name!r} of a {type(holder).__name__}")
    if name == "deepcopy":  # of the dicts of mmengine
        return PURE["copy.deepcopy"](holder)
    if kind is str:
        if name == "format":
            return bounded(_Formatter().vformat(holder, args, kwargs))
        if name == "join":
            texts = [str(one) for one in _listed(args[0])]
            if sum(map(len, texts)) + len(holder) * len(texts) > _MAX_SIZE:
                raise Problem(f"more than {_MAX_SIZE:,} characters joined")
            return str(holder).join(texts)
        if name == "replace" and len(holder) + holder.count(args[0]) * len(args[1]) > _MAX_SIZE:
            raise Problem(f"more than {_MAX_SIZE:,} characters by replacing")
        if cost(f"str.{name}", (holder, *args), kwargs) > _MAX_CALL:
            raise Problem(f"the method {name!r} on texts as long as these")
        return getattr(str, name)(str(holder), *args, **kwargs)
    weigh(*args, *kwargs.values())
    found = getattr(kind, name)(holder, *args, **kwargs)
    bounded(holder)
    return list(found) if name in ("keys", "values", "items") else found


def _listed(values: Any) -> list[Any]:
    if isinstance(values, range) and len(values) > _MAX_SIZE:
        raise Problem(f"a range of more than {_MAX_SIZE:,}")
    if not isinstance(values, str | list | tuple | dict | set | frozenset | range):
        raise Problem(f"going over a {type(values).__name__}")
    return list(values)


def _sum(values: Any, start: Any = 0) -> Any:
    if isinstance(start, list):
        return bounded([*start, *itertools.chain.from_iterable(map(_listed, _listed(values)))])
    for value in _listed(values):
        start = bounded(_added(start, value))
    return start


def _ordered(function: Callable[..., Any]) -> Callable[..., Any]:
    def made(*values: Any) -> Any:
        weigh(*values)
        return function(*([_listed(values[0])] if len(values) == 1 else values))

    return made


TYPES: Mapping[str, type] = {kind.__name__: kind for kind in (str, int, float, bool, list, tuple, dict, set)}
"""Names that may be the second argument of `isinstance`."""

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "dict": lambda *held, **named: {**(dict(_pairs(held[0])) if held else {}), **named},
    "list": lambda *held: _listed(*held) if held else [],
    "tuple": lambda *held: tuple(_listed(*held)) if held else (),
    "set": lambda *held: set(_listed(*held)) if held else set(),
    "str": lambda value="": written(value),
    "repr": lambda value: written(value, "", 114),
    "int": lambda value=0: bounded(int(value)),
    "float": lambda value=0.0: float(value),
    "bool": bool,
    "len": len,
    "range": range,
    "abs": abs,
    "round": lambda value, digits=None: round(value, digits),
    "chr": chr,
    "ord": ord,
    "zip": lambda *held: [list(one) for one in zip(*map(_listed, held), strict=False)],
    "enumerate": lambda held, start=0: [[number, one] for number, one in enumerate(_listed(held), start)],
    "reversed": lambda held: _listed(held)[::-1],
    "sorted": _ordered(lambda held: sorted(held)),
    "min": _ordered(min),
    "max": _ordered(max),
    "any": lambda held: any(_listed(held)),
    "all": lambda held: all(_listed(held)),
    "sum": _sum,
    "print": lambda *_, **__: None,
}
"""Functions that need no import."""


def _pairs(held: Any) -> Iterable[Any]:
    return held.items() if isinstance(held, Mapping) else map(_listed, _listed(held))


def _copied(value: Any) -> Any:
    weigh(value)
    return copy.deepcopy(value)


PURE: Mapping[str, Callable[..., Any]] = {
    "copy.deepcopy": _copied,
    "copy.copy": copy.copy,
    "os.path.join": lambda *parts: posixpath.join(*map(str, parts)),
    "os.path.dirname": lambda path: posixpath.dirname(str(path)),
    "os.path.basename": lambda path: posixpath.basename(str(path)),
    "os.getenv": lambda name, default=None: default,
    "os.environ.get": lambda name, default=None: default,
    "itertools.product": lambda *held: _product(held),
    **{f"math.{name}": getattr(math, name) for name in ("exp", "log", "sqrt", "ceil", "floor", "isnan", "isinf")},
}
"""Imported functions that are known; of the environment they see nothing."""


def _product(held: tuple[Any, ...]) -> list[list[Any]]:
    lists = [_listed(one) for one in held]
    if math.prod(map(len, lists)) * len(lists) > _MAX_SIZE:
        raise Problem(f"more than {_MAX_SIZE:,} combinations")
    return [list(one) for one in itertools.product(*lists)]
