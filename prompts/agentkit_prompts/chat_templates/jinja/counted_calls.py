"""Methods, functions, filters and tests of untrusted chat templates: Jinja's own, each charged before it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter, signature, unwrap
from types import BuiltinMethodType, FunctionType, GeneratorType, MethodType
from typing import Any

from jinja2 import pass_context
from jinja2.runtime import BlockReference, Context, LoopContext, Macro, Undefined
from jinja2.tests import TESTS as JINJA_TESTS
from jinja2.utils import Cycler, Joiner, Namespace

from agentkit_prompts.chat_templates.jinja.bounds import Bounds
from agentkit_prompts.chat_templates.jinja.compiler import FREE
from agentkit_prompts.templates.operations.costs import BYTES, CODEC_ERRORS, CODECS, COSTS, WIDTH, offered
from agentkit_prompts.templates.operations.operators import refuse_large_numbers
from agentkit_prompts.templates.operations.values import Fault

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
_NAMES: dict[type, str] = {LoopContext: "loop", Cycler: "cycler"}
"""Names that the rows of costs have for types; for any other it is the name of the type."""
_MAX_PATTERN = 1_000


class Dict:
    """The `dict` of templates: makes dictionaries and has nothing else to reach."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, keys: Iterable[Any], value: Any = None, /) -> dict[Any, Any]:
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
            if target.__name__ == "strftime_now" and len(str((*args, *kwargs.values()))) > _MAX_PATTERN:
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
        if args and (isinstance(target, Dict) or (kind is type and issubclass(target, Namespace))):
            return (_pairs(bounds, args[0]), *args[1:])
    return args


def _pairs(bounds: Bounds, given: Any) -> Any:
    """Return what a dictionary is about to be made of, pairs charged as its keys; iterators become lists."""
    if isinstance(given, str | bytes | dict) or not hasattr(type(given), "__iter__") or isinstance(given, Undefined):
        return given
    pairs = [pair if isinstance(pair, str | bytes) else bounds.listed(pair) for pair in bounds.listed(given, 4)]
    bounds.walk("function.dict", [pair[0] for pair in pairs if isinstance(pair, list | tuple) and pair])
    return pairs


def _method(bounds: Bounds, owner: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    if isinstance(owner, str):
        return _text_method(bounds, owner, name, args, kwargs)
    kind = type(owner)
    if name == "fromkeys":
        if not args:
            return args
        bounds.charge(30)
        keys = bounds.listed(args[0], 4)
        bounds.walk("function.dict.fromkeys", list(keys))
        return (keys, *map(bounds.weighed, args[1:]))
    if name in _METHODS.get(kind, ()):
        bounds.pay(f"{_NAMES.get(kind, kind.__name__)}.{name}", owner, *args)
        if name in ("count", "index"):
            bounds.measure(args)
            for value in args[:1]:
                bounds.searched(owner, value)
        elif kind is bytes:
            _check_codec(name, args, kwargs)
        elif kind is dict and name == "get":
            for key in args[:1]:
                bounds.looked_up(owner, key)
        else:
            bounds.measure(args)
        return args
    raise Fault(
        f"{kind.__name__}.{name[:80]}() is not one of the methods that a template may call under limits; "
        "give limits=None for a template that you trust"
    )


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
    if f"str.{name}" not in COSTS:
        raise Fault(f"str.{name[:80]}() is not one of the methods that a template may call under limits")
    if name == "join" and args:
        items = bounds.listed(args[0], 2)
        bounds.pay("str.join", owner, items)
        texts = [item for item in items if isinstance(item, str)]
        bounds.chars(sum(map(len, texts)) + len(owner) * len(texts))
        return (items, *args[1:])
    bounds.pay(f"str.{name}", owner, *args, **kwargs)
    if name in WIDTH:
        bounds.chars(max([len(owner), *(one for one in args if isinstance(one, int))]))
    elif name == "replace" and len(args) > 1 and isinstance(args[0], str) and isinstance(args[1], str):
        bounds.chars(len(owner) + max(0, len(args[1]) - len(args[0])) * owner.count(args[0]))
    elif name == "expandtabs":
        widths = (8, *args, *kwargs.values())
        bounds.chars(len(owner) + owner.count("\t") * max(one for one in widths if isinstance(one, int)))
    return args


MARK = "mark_generation"
"""The filter that marks what `{% generation %}` encloses."""
_NO_LONGER = frozenset(("capitalize", "lower", "string", "trim", "upper"))
"""Filters that make no text longer than some times what they get."""
_WRAPS = frozenset(("batch", "dictsort", "groupby", "items", "map", "slice"))
"""Filters whose result may nest one level deeper than what they get."""
_OF_TEXT = frozenset(
    (
        *("capitalize", "center", "e", "escape", "forceescape", "format", "indent", "lower", MARK, "replace", "safe"),
        *("string", "striptags", "title", "trim", "truncate", "upper", "urlencode", "urlize", "wordcount", "wordwrap"),
    )
)
"""Filters that read the text of what they get."""
_SHALLOW = frozenset(("attr", "items", "map", "reject", "rejectattr", "select", "selectattr"))
"""Filters that leave what is inside of the value, or of its items, alone."""


def bounded_filters(filters: dict[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Return the filters with the same results, each charged to the rendering that runs it."""
    known = offered("filter", filters)
    return {name: run if name in FREE else _bounded(name, run) for name, run in known.items()}


def _bounded(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
    wanted = getattr(getattr(run, "jinja_pass_arg", None), "name", None)
    row = f"filter.{name}"
    worst = COSTS[row].worst
    before = 1 + hasattr(unwrap(run), "jinja_pass_arg")
    parameters = [*signature(run).parameters.values()][before:]
    named = {one.name: one.default for one in parameters if one.kind is Parameter.POSITIONAL_OR_KEYWORD}

    @pass_context
    def filtered(context: Context, value: Any = None, /, *args: Any, **kwargs: Any) -> Any:
        bounds: Bounds = context.bounds  # type: ignore[attr-defined]
        bounds.charge(30)
        if kwargs and named:  # the table of costs knows arguments by their places
            args, kwargs = _in_place(named, args, kwargs)
        if args or kwargs:
            bounds.weigh(args, kwargs)
        if type(value) is str:
            bounds.chars(len(value))
        else:
            if hasattr(value, "__next__"):
                value = bounds.listed(value, 2)
            if name not in _SHALLOW:
                bounds.weigh(value)
        operand = value
        if name in _OF_TEXT:
            operand = _as_text(value)
        elif name in ("float", "int") and not isinstance(value, str):
            operand = ""
        bounds.pay(row, operand, *map(_as_text, args), **{key: _as_text(one) for key, one in kwargs.items()})
        if name == "format":
            bounds.percent(operand if isinstance(operand, str) else str(operand), kwargs or args)
        elif hasattr(value, "__len__"):
            bounds.walk(row, list(value.items()) if isinstance(value, dict) else value)
        if name in _SHALLOW and name not in ("attr", "items") and not value:  # to Jinja, None and 0 hold nothing here
            value = ()
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
        bounds.left -= 20 + worst(value)
        if bounds.left < bounds.gate:
            bounds.charge(0)
        return run(value, *args, **kwargs)

    return kept_short if name in _NO_LONGER else filtered


def _in_place(
    named: Mapping[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments with those given by name where they stand in the order of parameters, as far as they do."""
    names = list(named)[len(args) :]
    last = max((at for at, name in enumerate(names) if name in kwargs), default=-1)
    rest = dict(kwargs)
    placed = [rest.pop(name, named[name]) for name in names[: last + 1]]
    return (args, kwargs) if Parameter.empty in placed else ((*args, *placed), rest)


def _as_text(operand: Any) -> Any:
    """Return an operand as the filters read it: numbers as they are, anything else as its text, weighed before."""
    return operand if isinstance(operand, str | int | float) or operand is None else str(operand)


def _bounded_test(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
    row = f"test.{name}"

    @pass_context
    def tested(context: Context, *values: Any) -> Any:
        bounds: Bounds = context.bounds  # type: ignore[attr-defined]
        if name == "in" and len(values) == 2:
            return run(values[0], bounds.searched(values[1], bounds.weighed(values[0])))
        for value in values:
            refuse_large_numbers(value)
            bounds.weighed(value)
        if name in ("lower", "upper"):
            bounds.pay(row, *[str(value) if bounds.weigh(value) else "" for value in values[:1]])
        else:
            bounds.pay(row, *values)
        return run(*values)

    return tested


_PLAIN: dict[str, Callable[..., Any]] = dict(JINJA_TESTS)  # type: ignore[arg-type]
_WALKING = {name for name, run in _PLAIN.items() if run.__module__ == "_operator"} | {
    "divisibleby",
    "even",
    "filter",
    "in",
    "lower",
    "odd",
    "test",
    "upper",
}
"""Tests that compare or hash, or read a text through."""
TESTS = offered("test", {name: _bounded_test(name, run) if name in _WALKING else run for name, run in _PLAIN.items()})
"""The tests of templates, those charged that walk through what they get. Loops charge the others by
`NODE_STEPS`, as they take the same time whatever they get."""
