"""Operators, methods and functions that shipped configurations use, with limits on the sizes of values.

These functions never call code of the configuration, read attributes, or compare, hash or print containers. The time of
a call is therefore limited by the lengths of its arguments and its result.
"""

from __future__ import annotations

import ast
import copy
import itertools
import math
import operator
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from string import Formatter
from typing import Any, TypeVar

from agentkit_prompts.context.nested import iter_nodes
from agentkit_prompts.limits import MAX_DIGITS, MAX_MESSAGE_CHARS, MAX_VALUES

T = TypeVar("T")

BUILTIN = "builtins."
"""Prefix of the names of functions and types that need no import."""

_MAX_BITS = MAX_DIGITS * 10 // 3
_MAX_KEY_BITS = 60
"""Maximum bits of an integer that is a key. Larger integers can have equal hashes, which make a dict slow."""


class Unreadable(Exception):
    """A part of a configuration cannot be read. The message contains neither file nor line; the interpreter adds both.

    `name` is the name of the construct, method, function or variable, if any.
    """

    def __init__(self, reason: str, name: str | None = None) -> None:
        # Shortened, because a reason can contain text of the configuration.
        super().__init__(reason[: MAX_MESSAGE_CHARS // 2])
        self.name = name


class Imported(str):
    """Dotted name of an imported object; the module is not loaded."""

    __slots__ = ()


class Opened:
    """A text file that the code of a configuration has opened."""

    def __init__(self, text: str) -> None:
        self.text = text


# Sizes


def check_size(size: int) -> None:
    """Reject the size of a text or container, in characters or items, that exceeds the maximum."""
    if size > MAX_VALUES:
        raise Unreadable(f"a text or a container of more than {MAX_VALUES:,} characters or items")


def bounded(value: T) -> T:
    """Return a value if it is not too large.

    Raises:
        Unreadable: The value is too large.
    """
    if isinstance(value, str | list | tuple | dict | set | range):
        check_size(len(value))
    elif isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise Unreadable(f"a number of more than {MAX_DIGITS:,} digits")
    return value


def is_scalar(value: object) -> bool:
    """True if a value is a text, a number, a bool or None, which are fast to compare and to print."""
    return value is None or isinstance(value, str | int | float)


def key(value: Any) -> Any:
    """Return a value if it can be a key of a dict or a member of a set."""
    if not is_scalar(value):
        raise Unreadable(f"a key of type {type(value).__name__}")
    if isinstance(value, int) and value.bit_length() > _MAX_KEY_BITS:
        raise Unreadable(f"a key of more than {_MAX_KEY_BITS} bits")
    return value


def text_of(value: Any) -> str:
    """Return the text of a scalar, as an f-string contains it."""
    if not is_scalar(value):
        raise Unreadable(f"a {type(value).__name__} as text")
    return str(value)


def items_of(values: Any) -> Sequence[Any]:
    """Return the items of a value in a loop."""
    if isinstance(values, str | list | tuple):
        return values
    if not isinstance(values, dict | set | range):
        raise Unreadable(f"a loop over a {type(values).__name__}")
    return list(bounded(values))


def join_texts(texts: Iterable[str], separator: str = "") -> str:
    """Return the joined texts; raise `Unreadable` before the result becomes too large."""
    pieces: list[str] = []
    size = 0
    for text in texts:
        size += len(text) + len(separator)
        check_size(size)
        pieces.append(text)
    return separator.join(pieces)


# Operators


def _add(left: Any, right: Any) -> Any:
    check_size(sum([len(operand) for operand in (left, right) if isinstance(operand, str | list | tuple)]))
    return left + right


def _multiply(left: Any, right: Any) -> Any:
    for sequence, count in ((left, right), (right, left)):
        if isinstance(sequence, str | list | tuple) and isinstance(count, int):
            check_size(len(sequence) * count)
    return left * right


OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    # No powers and no `%`, because short code can create large results, and no shipped configuration uses them.
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


# Methods


def _format(text: str, *args: Any, **kwargs: Any) -> str:
    return join_texts(_formatted(text, args, kwargs))


def _formatted(text: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[str]:
    """Yield the literal texts and the filled fields of a format."""
    numbers = itertools.count()
    for literal, field, spec, conversion in Formatter().parse(text):
        yield literal
        # Rejected, because a format can create a text of any length.
        if spec or conversion:
            raise Unreadable(f"the format of the field {field!r:.40} of format()")
        if field is not None:
            yield text_of(_argument(field, numbers, args, kwargs))


def _argument(field: str, numbers: Iterator[int], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the argument of `format` that a field names; an empty field is the next argument."""
    if field == "":
        return args[next(numbers)]
    if field.isdecimal():
        return args[int(field)]
    # A field such as `0.name` or `0[key]` would read attributes.
    if not field.isidentifier():
        raise Unreadable(f"the field {field[:40]!r} of format()")
    return kwargs[field]


def _replace(text: str, old: str, new: str) -> str:
    check_size(len(text) + text.count(old) * len(new))
    return text.replace(old, new)


def _deep_copy(value: Any) -> Any:
    # `iter_nodes` yields a shared container once, and a deep copy contains it once: the list has the size of the copy.
    bounded([*iter_nodes(value)])
    return copy.deepcopy(value)


def _extend(values: list[Any], more: Any) -> None:
    items = items_of(more)
    check_size(len(values) + len(items))
    values.extend(items)


def _update(values: dict[Any, Any], *more: Any, **named: Any) -> None:
    entries = _dict(*more, **named)
    check_size(len(values) + len(entries))
    values.update(entries)


METHODS: Mapping[type, Mapping[str, Callable[..., Any]]] = {
    str: {
        "endswith": lambda text, end: text.endswith(end),
        "format": _format,
        "join": lambda separator, values: join_texts(map(text_of, items_of(values)), separator),
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
        # Lists instead of views, because a loop can change the dict, and the items of lists are counted.
        "items": lambda values: [list(item) for item in values.items()],
        "keys": list,
        "setdefault": lambda values, name, default=None: values.setdefault(key(name), default),
        "update": _update,
        "values": lambda values: list(values.values()),
    },
    Opened: {"read": lambda file: file.text},
}
"""Functions of an object and of the arguments of a method, by the type of the object and the name of the method."""


# Functions


def _dict(values: Any = (), /, **named: Any) -> dict[Any, Any]:
    if isinstance(values, dict):
        return {**values, **named}
    pairs = map(items_of, items_of(values))
    return {**{key(name): value for name, value in pairs}, **named}


def _zip(*values: Any) -> list[list[Any]]:
    return [list(row) for row in zip(*map(items_of, values), strict=False)]


def _product(*values: Any) -> list[list[Any]]:
    lists = [items_of(value) for value in values]
    check_size(math.prod(map(len, lists)) * len(lists))
    return [list(row) for row in itertools.product(*lists)]


def _sum(values: Any, start: Any = 0) -> Any:
    # One list is extended, because `+` would copy the list for each item.
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
    # Rounding takes longer for more digits.
    if isinstance(digits, int) and abs(digits) > MAX_DIGITS:
        raise Unreadable(f"rounding to more than {MAX_DIGITS:,} digits")
    return round(value, digits)


TYPES: Mapping[str, type] = {
    f"{BUILTIN}{kind.__name__}": kind for kind in (str, int, float, bool, list, tuple, dict, set)
}
"""Types that the second argument of `isinstance` can name."""


def _is_instance(value: object, kinds: Any) -> bool:
    if not isinstance(kinds, tuple):
        kinds = (kinds,)
    types: list[type] = []
    for name in kinds:
        if not isinstance(name, Imported) or name not in TYPES:
            raise Unreadable("isinstance() with a type that is not built in", "isinstance")
        types.append(TYPES[name])
    return isinstance(value, tuple(types))


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "builtins.all": lambda values: all(items_of(values)),
    "builtins.chr": chr,
    "builtins.dict": _dict,
    "builtins.enumerate": lambda values, start=0: [[*pair] for pair in enumerate(items_of(values), start)],
    "builtins.float": float,
    "builtins.int": lambda value: int(value),
    "builtins.isinstance": _is_instance,
    "builtins.len": len,
    "builtins.list": lambda values=(): list(items_of(values)),
    "builtins.ord": ord,
    # `print` is accepted and ignored.
    "builtins.print": lambda *values, **options: None,
    "builtins.range": range,
    "builtins.round": _round,
    "builtins.set": lambda values=(): {key(value) for value in items_of(values)},
    "builtins.str": lambda value="": text_of(value),
    "builtins.sum": _sum,
    "builtins.tuple": lambda values=(): tuple(items_of(values)),
    "builtins.zip": _zip,
    "copy.deepcopy": _deep_copy,
    "itertools.product": _product,
    "math.exp": math.exp,
    # The environment of the process is not read, because a configuration could send it to the model.
    "os.environ.get": lambda name, default=None: default,
    "os.getenv": lambda name, default=None: default,
    "os.path.dirname": lambda path: posixpath.dirname(text_of(path)),
    "os.path.join": lambda *parts: posixpath.join(*map(text_of, parts)),
    "typing.Dict": _dict,
    "typing.List": lambda values=(): list(items_of(values)),
}
"""Functions of configurations, by their dotted names."""
