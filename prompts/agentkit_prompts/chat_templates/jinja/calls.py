"""Methods, functions, filters and tests of untrusted chat templates: Jinja's own, each charged before it runs."""

from __future__ import annotations

from collections.abc import Callable
from types import BuiltinMethodType, FunctionType, MethodType
from typing import Any

from jinja2 import pass_context
from jinja2.runtime import BlockReference, Context, LoopContext, Macro, Undefined
from jinja2.tests import TESTS as JINJA_TESTS
from jinja2.utils import Cycler, Joiner

from agentkit_prompts.chat_templates.jinja.bounds import Bounds
from agentkit_prompts.templates.engine.methods import SAME_SIZE, WIDTH
from agentkit_prompts.templates.engine.values import Fault

__all__ = ["MARK", "TESTS", "bounded_filters", "guard", "nests"]

_LINEAR = frozenset((*SAME_SIZE, "encode", "rsplit", "split", "splitlines"))
_WIDE = frozenset(WIDTH)
_METHODS: dict[type, frozenset[str]] = {
    dict: frozenset(("copy", "get", "items", "keys", "values")),
    list: frozenset(("copy", "count", "index")),
    tuple: frozenset(("count", "index")),
    range: frozenset(("count", "index")),
    int: frozenset(("as_integer_ratio", "bit_count", "bit_length", "conjugate")),
    float: frozenset(("as_integer_ratio", "conjugate", "hex", "is_integer")),
    bytes: frozenset(("decode", "hex")),
    LoopContext: frozenset(("changed", "cycle")),
    Cycler: frozenset(("next", "reset")),
}
_MAX_PATTERN = 1_000


def nests(target: Any) -> bool:
    """Tell whether calling `target` runs template code again."""
    return type(target) in (Macro, LoopContext, BlockReference)


def guard(bounds: Bounds, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Charge a call that a template is about to make and return the arguments to make it with.

    Raises:
        Fault: Templates under limits do not call this, or it is more than the limits allow.
    """
    kind = type(target)
    bounds.charge(6 + len(args) + len(kwargs))
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
    if kind is LoopContext and args:
        return (bounds.iterated(args[0], 30), *args[1:])
    if not (nests(target) or isinstance(target, Undefined | Joiner)):
        bounds.weigh(args, kwargs)
    return args


def _method(bounds: Bounds, owner: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    if isinstance(owner, str):
        return _text_method(bounds, owner, name, args, kwargs)
    kind = type(owner)
    if name == "fromkeys":
        return (bounds.listed(args[0], 4), *map(bounds.weighed, args[1:])) if args else args
    if name in _METHODS.get(kind, ()):
        if name in ("count", "index") and kind is not range:
            bounds.measure(owner, args)
        else:
            bounds.measure(args)
            bounds.charge(len(owner) if name in ("copy", "decode", "hex") and kind is not float else 1)
        return args
    raise Fault(
        f"{kind.__name__}.{name[:80]}() is not one of the methods that a template may call under limits; "
        "give limits=None for a template that you trust"
    )


def _text_method(
    bounds: Bounds, owner: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    if name in _LINEAR:
        bounds.chars(len(owner) * 4)
    elif name in _WIDE:
        bounds.chars(max([len(owner), *(one for one in args if isinstance(one, int))]))
    elif name == "join" and args:
        items = bounds.listed(args[0], 2)
        texts = [item for item in items if isinstance(item, str)]
        bounds.chars(sum(map(len, texts)) + len(owner) * len(texts))
        return (items, *args[1:])
    elif name == "replace" and len(args) > 1 and isinstance(args[0], str) and isinstance(args[1], str):
        bounds.chars(len(owner) * 2)
        bounds.chars(len(owner) + max(0, len(args[1]) - len(args[0])) * owner.count(args[0]))
    elif name == "expandtabs":
        widths = (8, *args, *kwargs.values())
        bounds.chars(len(owner) + owner.count("\t") * max(one for one in widths if isinstance(one, int)))
    elif name not in ("join", "replace"):
        raise Fault(f"str.{name[:80]}() is not one of the methods that a template may call under limits")
    return args


MARK = "mark_generation"
"""The filter that marks what `{% generation %}` encloses."""
_FREE = frozenset((MARK, "abs", "attr", "count", "d", "default", "first", "float", "int", "items", "last", "length"))
"""Filters that take the same time whatever they get."""
_LAZY = frozenset(("map", "reject", "rejectattr", "select", "selectattr"))
_NO_LONGER = frozenset(("capitalize", "lower", "string", "trim", "upper"))
"""Filters that make no text longer than some times what they get, in no more time than that takes."""
_HEAVY = frozenset(("pprint", "striptags", "title", "truncate", "urlencode", "urlize", "wordcount", "wordwrap"))


def bounded_filters(filters: dict[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Return the filters with the same results, each charged to the rendering that runs it."""
    return {name: run if name in _FREE else _bounded(name, run) for name, run in filters.items()}


def _bounded(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
    wanted = getattr(getattr(run, "jinja_pass_arg", None), "name", None)
    check = _CHECKS.get(name)
    lazy = name in _LAZY

    @pass_context
    def filtered(context: Context, value: Any = None, /, *args: Any, **kwargs: Any) -> Any:
        bounds: Bounds = context.bounds  # type: ignore[attr-defined]
        if lazy:
            value = bounds.iterated(value, 12) if value else ()  # to Jinja, None and 0 hold nothing here
        elif type(value) is str:
            size = len(value)
            bounds.chars(size * 8 if name in _HEAVY else size)
        else:
            if hasattr(value, "__next__"):
                value = bounds.listed(value, 2)
            bounds.weigh(value)
        if check is not None:
            check(bounds, value, args, kwargs)
        if wanted is None:
            made = run(value, *args, **kwargs)
        elif wanted == "environment":
            made = run(context.environment, value, *args, **kwargs)
        else:
            made = run(context if wanted == "context" else context.eval_ctx, value, *args, **kwargs)
        return bounds.grown(made)

    @pass_context
    def kept_short(context: Context, value: Any = None, /, *args: Any, **kwargs: Any) -> Any:
        if type(value) is not str:
            return filtered(context, value, *args, **kwargs)
        bounds: Bounds = context.bounds  # type: ignore[attr-defined]
        bounds.left -= 1 + (len(value) >> 3)
        if bounds.left < bounds.gate:
            bounds.charge(0)
        return run(value, *args, **kwargs)

    return kept_short if name in _NO_LONGER else filtered


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


def _replaced(bounds: Bounds, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Charge a filter that puts a text among its arguments in many places of what it is given."""
    glue = max([1, *(len(one) for one in (*args, *kwargs.values()) if isinstance(one, str))])
    bounds.chars((len(str(value)) + 1) * glue)


def _join(bounds: Bounds, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    glue = max([0, *(len(one) for one in (*args, *kwargs.values()) if isinstance(one, str))])
    bounds.chars(glue * len(value) if hasattr(value, "__len__") else 1)


def _json(bounds: Bounds, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if args or kwargs:
        widest = 1
        for one in (*args, *kwargs.values()):
            for part in one if isinstance(one, list | tuple) else (one,):
                widest += len(part) if isinstance(part, str) else part if isinstance(part, int) else 0
        bounds.chars(max(0, widest) * (_nodes(value) + 1))


def _nodes(value: Any) -> int:
    """Return how many lines a value can take, each indented by its depth."""
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


def _sum(bounds: Bounds, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Adding up lists copies what came before each time."""
    start = kwargs.get("start", args[1] if len(args) > 1 else 0)
    if not isinstance(start, int | float) and hasattr(value, "__len__"):
        bounds.charge(bounds.weigh(value) * len(value) // 64)


def _format(bounds: Bounds, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    bounds.percent(str(value), kwargs or args)


_CHECKS: dict[str, Callable[..., None]] = {
    "batch": _counts,
    "center": _widths,
    "format": _format,
    "indent": _widths,
    "join": _join,
    "replace": _replaced,
    "round": _counts,
    "slice": _counts,
    "sum": _sum,
    "tojson": _json,
    "truncate": _widths,
    "wordwrap": _replaced,
}


def _bounded_test(run: Callable[..., Any]) -> Callable[..., Any]:
    @pass_context
    def tested(context: Context, *values: Any) -> Any:
        bounds: Bounds = context.bounds  # type: ignore[attr-defined]
        for value in values:
            bounds.weighed(value)
        return run(*values)

    return tested


_PLAIN: dict[str, Callable[..., Any]] = dict(JINJA_TESTS)  # type: ignore[arg-type]
_WALKING = {name for name, run in _PLAIN.items() if run.__module__ == "_operator"} | {"in", "lower", "upper"}
"""Tests that compare, or read a text through."""
TESTS = {name: _bounded_test(run) if name in _WALKING else run for name, run in _PLAIN.items()}
"""The tests of templates, those charged that walk through what they get."""
