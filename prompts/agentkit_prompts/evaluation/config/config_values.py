"""Operators, methods and functions of a configuration's code: those that shipped configurations use, all bounded.

None of them calls code of the configuration, follows an attribute, or compares, hashes or writes containers: the cost
of a call is known from the lengths of its arguments and result.
"""

from __future__ import annotations

import ast
import copy
import itertools
import math
import operator
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from string import Formatter
from typing import Any

from agentkit_prompts.context.nested import iter_nodes
from agentkit_prompts.evaluation.config.config_sizes import Unreadable, bounded, check_size, is_scalar, key
from agentkit_prompts.limits import MAX_DIGITS

__all__ = ["COMPARISONS", "FUNCTIONS", "IMPORTED", "METHODS", "OPERATORS", "TYPES", "Opened", "items_of", "text_of"]


class Opened:
    """A text file next to a configuration."""

    def __init__(self, text: str) -> None:
        self.text = text


def text_of(value: Any) -> str:
    """Return a value as an f-string writes it."""
    if not is_scalar(value):
        raise Unreadable(f"a {type(value).__name__} as text")
    return str(value)


def items_of(values: Any) -> Sequence[Any]:
    """Return the items of which a loop over a value consists."""
    if isinstance(values, str | list | tuple):
        return values
    if not isinstance(values, dict | set | range):
        raise Unreadable(f"a loop over a {type(values).__name__}")
    check_size(len(values), list)
    return list(values)


def _is_sequence(value: object) -> bool:
    return isinstance(value, str | list | tuple)


def _add(left: Any, right: Any) -> Any:
    if _is_sequence(left) and _is_sequence(right):
        check_size(len(left) + len(right), type(left))
    return left + right


def _multiply(left: Any, right: Any) -> Any:
    for sequence, count in ((left, right), (right, left)):
        if _is_sequence(sequence) and isinstance(count, int):
            check_size(len(sequence) * count, type(sequence))
    return left * right


OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    # Neither powers nor `%`: their results are large for small code, and no shipped configuration uses them.
    ast.Add: _add,
    ast.Sub: operator.sub,
    ast.Mult: _multiply,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
}
COMPARISONS: Mapping[type[ast.AST], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}


def _format(text: str, *args: Any, **kwargs: Any) -> str:
    numbers = itertools.count()
    parts: list[str] = []
    size = 0
    for literal, field, spec, conversion in Formatter().parse(text):
        part = literal
        if field is not None:
            # A field such as `0.name` or `0[key]` would read attributes; a format can make a text of any length.
            if spec or conversion:
                raise Unreadable(f"the field {field[:40]!r} of format()")
            part += text_of(_argument(field, numbers, args, kwargs))
        size += len(part)
        check_size(size, str)
        parts.append(part)
    return "".join(parts)


def _argument(field: str, numbers: Iterator[int], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the argument of `format` that a field names; an empty field is the next argument."""
    if field == "":
        return args[next(numbers)]
    if field.isdecimal():
        return args[int(field)]
    if field.isidentifier():
        return kwargs[field]
    raise Unreadable(f"the field {field[:40]!r} of format()")


def _join(separator: str, values: Any) -> str:
    texts = [text_of(value) for value in items_of(values)]
    check_size(sum(map(len, texts)) + len(separator) * len(texts), str)
    return separator.join(texts)


def _replace(text: str, old: str, new: str) -> str:
    check_size(len(text) + text.count(old) * len(new), str)
    return text.replace(old, new)


def _extend(values: list[Any], more: Any) -> None:
    items = items_of(more)
    check_size(len(values) + len(items), list)
    values.extend(items)


def _set_default(values: dict[Any, Any], name: Any, default: Any = None) -> Any:
    return values.setdefault(key(name), default)


def _deep_copy(value: Any) -> Any:
    # The copy shares what the value shares: it has as many values as `iter_nodes` yields.
    bounded([*iter_nodes(value)])
    return copy.deepcopy(value)


METHODS: Mapping[type, Mapping[str, Callable[..., Any]]] = {
    str: {
        "endswith": lambda text, end: text.endswith(end),
        "format": _format,
        "join": _join,
        "replace": _replace,
        "split": lambda text, *limits: text.split(*limits),
        "startswith": lambda text, start: text.startswith(start),
        "strip": lambda text: text.strip(),
        "upper": lambda text: text.upper(),
    },
    list: {"append": list.append, "extend": _extend},
    dict: {
        "copy": dict.copy,
        "deepcopy": _deep_copy,  # a method of the dicts of mmengine
        "get": lambda values, name, default=None: values.get(key(name), default),
        # Lists instead of views: a loop may change the dict, and every pair is counted.
        "items": lambda values: [list(item) for item in values.items()],
        "keys": list,
        "setdefault": _set_default,
        "update": lambda values, *more, **named: values.update(_dict(*more, **named)),
        "values": lambda values: list(values.values()),
    },
    Opened: {"read": lambda file: file.text},
}
"""Type -> method -> function of the object and the arguments."""


def _dict(values: Any = (), /, **named: Any) -> dict[Any, Any]:
    if isinstance(values, dict):
        return {**values, **named}
    pairs = map(items_of, items_of(values))
    return {**{key(name): value for name, value in pairs}, **named}


def _enumerate(values: Any, start: int = 0) -> list[list[Any]]:
    return [[number, value] for number, value in enumerate(items_of(values), start)]


def _zip(*values: Any) -> list[list[Any]]:
    return [list(row) for row in zip(*map(items_of, values), strict=False)]


def _product(*values: Any) -> list[list[Any]]:
    lists = [items_of(one) for one in values]
    check_size(math.prod(map(len, lists)) * len(lists), list)
    return [list(row) for row in itertools.product(*lists)]


def _sum(values: Any, start: Any = 0) -> Any:
    if isinstance(start, list):
        total = [*start]
        for value in items_of(values):
            _extend(total, value)
        return total
    for value in items_of(values):
        if not isinstance(value, int | float):
            raise Unreadable(f"the sum of a {type(value).__name__}")
        start = bounded(start + value)
    return start


def _round(value: Any, digits: int | None = None) -> Any:
    # The digits of an integer before the point are computed one by one.
    if isinstance(digits, int) and abs(digits) > MAX_DIGITS:
        raise Unreadable(f"rounding to more than {MAX_DIGITS:,} digits")
    return round(value, digits)


TYPES: Mapping[str, type] = {kind.__name__: kind for kind in (str, int, float, bool, list, tuple, dict, set)}
"""Names that may be the second argument of `isinstance`."""

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "all": lambda values: all(items_of(values)),
    "chr": chr,
    "dict": _dict,
    "enumerate": _enumerate,
    "float": float,
    "int": lambda value: int(value),
    "len": len,
    "list": lambda values=(): list(items_of(values)),
    "ord": ord,
    # Configurations print what they found; reading one prints nothing.
    "print": lambda *values, **options: None,
    "range": range,
    "round": _round,
    "set": lambda values=(): {key(value) for value in items_of(values)},
    "str": lambda value="": text_of(value),
    "sum": _sum,
    "zip": _zip,
}
"""Functions that need no import."""


IMPORTED: Mapping[str, Callable[..., Any]] = {
    "copy.deepcopy": _deep_copy,
    "itertools.product": _product,
    "math.exp": math.exp,
    # The process's own environment stays unread: a configuration would send it to the model.
    "os.environ.get": lambda name, default=None: default,
    "os.getenv": lambda name, default=None: default,
    "os.path.dirname": lambda path: posixpath.dirname(text_of(path)),
    "os.path.join": lambda *parts: posixpath.join(*map(text_of, parts)),
}
"""Imported functions that are known."""
