"""Methods, functions, filters and tests of untrusted chat templates: Jinja's own, each charged before it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import BuiltinMethodType, FunctionType, GeneratorType, MethodType
from typing import Any

from jinja2 import pass_context
from jinja2.filters import FILTERS
from jinja2.runtime import BlockReference, Context, LoopContext, Macro, Undefined
from jinja2.tests import TESTS as JINJA_TESTS
from jinja2.utils import Cycler, Joiner

from agentkit_prompts.chat_templates.jinja.bounds import Bounds
from agentkit_prompts.templates.engine.costs import BYTES, CODEC_ERRORS, CODECS, COSTS, WIDTH
from agentkit_prompts.templates.engine.operators import refuse_large_numbers
from agentkit_prompts.templates.engine.values import Fault

__all__ = ["MARK", "TESTS", "Dict", "bounded_filters", "guard", "nests"]

_METHODS: dict[type, frozenset[str]] = {
    dict: frozenset(("copy", "get", "items", "keys", "values")),
    list: frozenset(("copy", "count", "index")),
    tuple: frozenset(("count", "index")),
    range: frozenset(("count", "index")),
    int: frozenset(("as_integer_ratio", "bit_count", "bit_length", "conjugate")),
    float: frozenset(("as_integer_ratio", "conjugate", "hex", "is_integer")),
    bytes: frozenset(BYTES),
    LoopContext: frozenset(("changed", "cycle")),
    Cycler: frozenset(("next", "reset")),
}
_WORST = {name.removeprefix("str."): row.worst for name, row in COSTS.items() if name.startswith("str.")}
"""What methods of text cost at worst."""
_MAX_PATTERN = 1_000


class Dict:
    """The `dict` of templates: makes dictionaries and has nothing else to reach."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, keys: Iterable[Any], value: Any = None) -> dict[Any, Any]:
        return dict.fromkeys(keys, value)


def nests(target: Any) -> bool:
    """Tell whether calling `target` runs template code again."""
    return type(target) in (Macro, LoopContext, BlockReference)


def guard(bounds: Bounds, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Charge a call that a template is about to make and return the arguments to make it with.

    Raises:
        Fault: Templates under limits do not call this, or it is more than the limits allow.
    """
    kind = type(target)
    bounds.charge(30 + 4 * (len(args) + len(kwargs)))
    if kind is BuiltinMethodType or kind is MethodType:
        return _method(bounds, target.__self__, target.__name__, args, kwargs)
    if kind is FunctionType:
        inner = getattr(target, "__wrapped__", None)
        if isinstance(inner, BuiltinMethodType | MethodType):  # what the sandbox puts in place of str.format
            bounds.filled(str(inner.__self__), args, kwargs)
        else:
            bounds.weigh(args, kwargs)
            if target.__name__ == "strftime_now" and len(str(args[:1])) > _MAX_PATTERN:
                raise Fault(f"the strftime format is longer than {_MAX_PATTERN:,} characters")
        return args
    if nests(target):
        bounds.charge(30)
        bounds.nest(args)
        bounds.nest(kwargs)
    if kind is LoopContext and args:
        return (bounds.iterated(args[0], 30), *args[1:])
    if not (nests(target) or isinstance(target, Undefined | Joiner)):
        bounds.weigh(args, kwargs)
        if isinstance(target, Dict) and args and isinstance(args[0], list | tuple):
            _hashed(bounds, [pair[0] for pair in args[0] if isinstance(pair, list | tuple) and pair])
    return args


def _method(bounds: Bounds, owner: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    if isinstance(owner, str):
        return _text_method(bounds, owner, name, args, kwargs)
    kind = type(owner)
    if name == "fromkeys":
        if not args:
            return args
        keys = bounds.listed(args[0], 4)
        _hashed(bounds, list(keys))
        return (keys, *map(bounds.weighed, args[1:]))
    if name in _METHODS.get(kind, ()):
        if name in ("count", "index"):
            bounds.measure(args)
            for value in args[:1]:
                bounds.searched(owner, value)
        elif kind is bytes:
            _check_codec(name, args, kwargs)
            bounds.pay(f"bytes.{name}", owner, *args)
        elif kind is dict and name == "get":
            for key in args[:1]:
                bounds.looked_up(owner, key)
        else:
            bounds.measure(args)
            bounds.charge(4 * len(owner) if name == "copy" else 1)
        return args
    raise Fault(
        f"{kind.__name__}.{name[:80]}() is not one of the methods that a template may call under limits; "
        "give limits=None for a template that you trust"
    )


def _hashed(bounds: Bounds, keys: list[Any]) -> None:
    """Charge the keys of a mapping or a set; hashes of tuples can be chosen to be all the same."""
    bounds.measure(keys)
    if any(isinstance(key, tuple | frozenset) for key in keys):
        bounds.charge(len(keys) ** 2 // 4)


def _check_codec(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse encodings that are not linear, or make a text very long."""
    if name in ("decode", "encode"):
        for given, known, what in zip((*args, *kwargs.values()), (CODECS, CODEC_ERRORS), ("", " errors"), strict=False):
            if "encoding" not in kwargs and "errors" in kwargs and len(kwargs) + len(args) == 1:
                known, what = CODEC_ERRORS, " errors"
            if not isinstance(given, str) or given.lower().replace("_", "-") not in known:
                expected = ", ".join(sorted(known))
                raise Fault(f"{name}: templates under limits know the{what or ' encodings'} {expected}")


def _text_method(
    bounds: Bounds, owner: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    if name == "encode":
        _check_codec(name, args, kwargs)
    worst = _WORST.get(name)
    if worst is not None:
        bounds.charge(worst(owner, *args, **kwargs))
    if name in WIDTH:
        bounds.chars(max([len(owner), *(one for one in args if isinstance(one, int))]))
    elif name == "join" and args:
        items = bounds.listed(args[0], 2)
        texts = [item for item in items if isinstance(item, str)]
        bounds.chars(sum(map(len, texts)) + len(owner) * len(texts))
        return (items, *args[1:])
    elif name == "replace" and len(args) > 1 and isinstance(args[0], str) and isinstance(args[1], str):
        bounds.chars(len(owner) + max(0, len(args[1]) - len(args[0])) * owner.count(args[0]))
    elif name == "expandtabs":
        widths = (8, *args, *kwargs.values())
        bounds.chars(len(owner) + owner.count("\t") * max(one for one in widths if isinstance(one, int)))
    elif name != "join" and worst is None:
        raise Fault(f"str.{name[:80]}() is not one of the methods that a template may call under limits")
    return args


MARK = "mark_generation"
"""The filter that marks what `{% generation %}` encloses."""
_FREE = frozenset((MARK, "abs", "attr", "count", "d", "default", "first", "items", "last", "length"))
"""Filters that take the same time whatever they get."""
_LAZY = frozenset(("map", "reject", "rejectattr", "select", "selectattr"))
_NO_LONGER = {"capitalize": 2, "lower": 2, "string": 3, "trim": 3, "upper": 2}
"""Filters that make no text longer than some times what they get; a step handles two to this many characters."""
_WRAPS = frozenset(("batch", "dictsort", "groupby", "items", "map", "slice"))
"""Filters whose result may nest one level deeper than what they get."""
_SAME_AS = {"center": "str.center", "e": "filter.escape", "forceescape": "filter.escape", "replace": "str.replace"}
_ROWS = {
    **{name: f"filter.{name}" for name in FILTERS if f"filter.{name}" in COSTS},
    **{name: f"str.{name}" for name in ("capitalize", "lower", "upper")},
    **_SAME_AS,
    "trim": "str.strip",
}
"""Rows of the table of costs by the filters that are charged by one."""


def bounded_filters(filters: dict[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Return the filters with the same results, each charged to the rendering that runs it."""
    return {name: run if name in _FREE else _bounded(name, run) for name, run in filters.items()}


def _bounded(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
    wanted = getattr(getattr(run, "jinja_pass_arg", None), "name", None)
    check = _CHECKS.get(name)
    row = _ROWS.get(name)
    lazy = name in _LAZY
    shift = _NO_LONGER.get(name, 0)

    @pass_context
    def filtered(context: Context, value: Any = None, /, *args: Any, **kwargs: Any) -> Any:
        bounds: Bounds = context.bounds  # type: ignore[attr-defined]
        bounds.charge(30)
        if args or kwargs:
            bounds.weigh(args, kwargs)
        if lazy:
            value = bounds.iterated(value, 12) if value else ()  # to Jinja, None and 0 hold nothing here
        elif type(value) is str:
            bounds.chars(len(value))
        else:
            if hasattr(value, "__next__"):
                value = bounds.listed(value, 2)
            bounds.weigh(value)
        if row is not None and (isinstance(value, str) or name not in ("float", "int")):
            bounds.pay(row, *map(_as_text, (value, *args)), **{key: _as_text(one) for key, one in kwargs.items()})
        if check is not None:
            check(bounds, value, args, kwargs)
        if wanted is None:
            made = run(value, *args, **kwargs)
        elif wanted == "environment":
            made = run(context.environment, value, *args, **kwargs)
        else:
            made = run(context if wanted == "context" else context.eval_ctx, value, *args, **kwargs)
        if type(made) is GeneratorType:  # run at once: generators that read generators nest in C
            made = list(made)
            bounds.charge(len(made))
            return iter(bounds.nest(made) if name in _WRAPS else made)
        if name in _WRAPS and type(made) is list:
            bounds.nest(made)
        return bounds.grown(made)

    @pass_context
    def kept_short(context: Context, value: Any = None, /, *args: Any, **kwargs: Any) -> Any:
        if type(value) is not str or args or kwargs:
            return filtered(context, value, *args, **kwargs)
        bounds: Bounds = context.bounds  # type: ignore[attr-defined]
        bounds.left -= 15 + (len(value) >> shift)
        if bounds.left < bounds.gate:
            bounds.charge(0)
        return run(value, *args, **kwargs)

    return kept_short if name in _NO_LONGER else filtered


def _as_text(operand: Any) -> Any:
    """Return an operand as the filters read it: numbers as they are, anything else as its text, weighed before."""
    return operand if isinstance(operand, str | int | float) or operand is None else str(operand)


def _widths(bounds: Bounds, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Charge a filter that repeats what it is given as often as a number or a text among its arguments says."""
    lines = value.count("\n") + 1 if isinstance(value, str) else 1
    for one in (*args, *kwargs.values()):
        if isinstance(one, str | int) and not isinstance(one, bool):
            width = len(one) if isinstance(one, str) else max(0, one)
            bounds.chars(lines * width)


def _counts(bounds: Bounds, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    for one in (*args, *kwargs.values()):
        if isinstance(one, int):
            bounds.charge(8 * abs(one))


def _join(bounds: Bounds, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    glue = max([0, *(bounds.weigh(one) for one in (*args, *kwargs.values()))])
    bounds.chars(glue * len(value) if hasattr(value, "__len__") else 1)


def _json(bounds: Bounds, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if args or kwargs:
        widest = 1
        for one in (*args, *kwargs.values()):
            for part in one if isinstance(one, list | tuple) else (one,):
                widest += len(part) if isinstance(part, str) else part if isinstance(part, int) else 0
        lines = _lines(value)
        bounds.charge(20 * lines)
        bounds.chars(max(0, widest) * (lines + 1))


def _pprint(bounds: Bounds, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Every level of a value is written out for each level above it, and long texts are cut by a regular expression."""
    lines = _lines(value)
    bounds.charge(60 * lines + (4 + lines // 16) * bounds.weigh(value))


def _lines(value: Any) -> int:
    """Return how many lines a value can take, each counted as often as it is deep."""
    count = 0
    level, depth = [value], 1
    while level:
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += one.values()
            elif isinstance(one, list | tuple):
                inner += one
        count += (len(level) + len(inner)) * depth
        level, depth = inner, depth + 1
    return count


def _keyed(bounds: Bounds, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Charge a filter that reads an attribute of every item: one look-up for each part of its name."""
    if hasattr(value, "__len__"):
        parts = [1 + one.count(".") + one.count(",") for one in (*args, *kwargs.values()) if isinstance(one, str)]
        bounds.charge(len(value) * 10 * (1 + sum(parts)))


def _sorted(bounds: Bounds, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Charge a filter that compares items with each other."""
    _keyed(bounds, value, args, kwargs)
    if hasattr(value, "__len__"):
        bounds.sort(list(value.items()) if isinstance(value, dict) else list(value))


def _unique(bounds: Bounds, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Charge a filter that looks each item up in a set; hashes of tuples can be chosen to be all the same."""
    _sorted(bounds, value, args, kwargs)
    if kwargs or len(args) > 1:  # of an attribute that may be anything
        bounds.charge(len(value) ** 2 // 8 if hasattr(value, "__len__") else 0)
    elif hasattr(value, "__len__"):
        _hashed(bounds, list(value))


def _sum(bounds: Bounds, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Adding up lists copies what came before each time."""
    _keyed(bounds, value, args, kwargs)
    start = kwargs.get("start", args[1] if len(args) > 1 else 0)
    if not isinstance(start, int | float) and hasattr(value, "__len__"):
        bounds.charge(bounds.weigh(value) * len(value) // 64)


def _format(bounds: Bounds, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    bounds.percent(str(value), kwargs or args)


_CHECKS: dict[str, Callable[..., None]] = {
    "batch": _counts,
    "dictsort": _sorted,
    "groupby": _sorted,
    "map": _keyed,
    "max": _sorted,
    "min": _sorted,
    "pprint": _pprint,
    "rejectattr": _keyed,
    "selectattr": _keyed,
    "sort": _sorted,
    "unique": _unique,
    "xmlattr": _keyed,
    "center": _widths,
    "format": _format,
    "indent": _widths,
    "join": _join,
    "round": _counts,
    "slice": _counts,
    "sum": _sum,
    "tojson": _json,
    "truncate": _widths,
}


def _bounded_test(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
    @pass_context
    def tested(context: Context, *values: Any) -> Any:
        bounds: Bounds = context.bounds  # type: ignore[attr-defined]
        if name == "in" and len(values) == 2:
            return run(values[0], bounds.searched(values[1], bounds.weighed(values[0])))
        for value in values:
            refuse_large_numbers(value)
            bounds.weighed(value)
            if name in ("lower", "upper"):
                bounds.pay("str.lower", str(value) if bounds.weigh(value) else "")
        return run(*values)

    return tested


_PLAIN: dict[str, Callable[..., Any]] = dict(JINJA_TESTS)  # type: ignore[arg-type]
_WALKING = {name for name, run in _PLAIN.items() if run.__module__ == "_operator"} | {
    "divisibleby",
    "even",
    "in",
    "lower",
    "odd",
    "upper",
}
"""Tests that compare, or read a text through."""
TESTS = {name: _bounded_test(name, run) if name in _WALKING else run for name, run in _PLAIN.items()}
"""The tests of templates, those charged that walk through what they get."""
