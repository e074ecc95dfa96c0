"""Filters, tests and calls of templates: Jinja's own, checked before they run and counted afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, time, timedelta
from types import BuiltinMethodType, MethodType
from typing import Any

from jinja2 import Undefined, pass_context
from jinja2.filters import make_attrgetter
from jinja2.runtime import BlockReference, Context, LoopContext, Macro
from jinja2.sandbox import modifies_known_mutable
from jinja2.utils import Cycler, Namespace

from agentkit_prompts.templates.sandbox.faults import Fault
from agentkit_prompts.templates.sandbox.formatting import BoundFormat
from agentkit_prompts.templates.sandbox.guards import FILTER_GUARDS, METHOD_GUARDS, SET_METHODS
from agentkit_prompts.templates.sandbox.meter import Meter, refuse_large
from agentkit_prompts.templates.sandbox.offered import FREE_TESTS, GUARDED_TESTS, is_offered_filter, is_offered_method
from agentkit_prompts.templates.sandbox.restrictions import REMOVED_METHODS

__all__ = ["Dict", "checked_filters", "checked_tests", "guarded_call", "refuse_method"]

_TEXT_FILTERS = frozenset(
    (
        *("capitalize", "center", "e", "escape", "forceescape", "format", "indent", "lower", "replace", "safe"),
        *("string", "striptags", "title", "trim", "truncate", "upper", "urlize", "wordcount", "wordwrap"),
    )
)
"""Filters that read the text of a value."""
_NO_LONGER = frozenset(("capitalize", "lower", "string", "trim", "upper"))
"""Filters that make no text longer than a few times its length."""
_ONE_STEP = frozenset(("attr", "count", "d", "default", "first", "float", "int", "last", "length"))
"""Filters that take the same time for every value."""
_SHALLOW = frozenset(
    (
        *("batch", "items", "list", "map", "reject", "rejectattr", "reverse", "select", "selectattr", "slice"),
        *("join", "pprint", "tojson", "xmlattr"),
    )
)
"""Filters that visit the items of a value and not the values inside of them, or whose guard measures these."""
_ATTRIBUTE_POSITIONS = {
    **dict.fromkeys(("groupby", "rejectattr", "selectattr", "sum"), 0),
    **dict.fromkeys(("join", "max", "min", "unique"), 1),
    "map": 99,
    "sort": 2,
}
"""Position of the argument that names the attribute of each item, by filter; `map` takes it by name only."""
_OF_UNDEFINED = frozenset(("defined", "undefined"))
"""Tests of values that may be undefined."""
_OF_NUMBERS = frozenset(("divisibleby", "even", "odd"))
"""Tests that divide."""
_OF_TYPE = frozenset(
    (
        *("boolean", "callable", "escaped", "false", "float", "integer", "iterable", "mapping", "none", "number"),
        *("sameas", "sequence", "string", "true"),
    )
)
"""Tests that do not look into the value."""
_FEW_ARGUMENTS = 10
"""Arguments of a call that need not be counted: the template names each of them."""
_NESTING = (Macro, LoopContext, BlockReference)
"""Callables that run code of the template."""


class Dict:
    """The function `dict` of templates. The class itself would offer more than templates can call."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, keys: Any, value: Any = None, /) -> dict[Any, Any]:
        return dict.fromkeys(keys, value)


_DATA = (str, bytes, int, float, list, tuple, range, date, time, timedelta)
"""Types whose methods templates can call."""
_MAPPING_METHODS = frozenset({"copy", "get", "items", "keys", "values"})
_JINJA_METHODS: dict[type, frozenset[str]] = {
    Cycler: frozenset({"next", "reset"}),
    Dict: frozenset({"fromkeys"}),
}
_LOOP_METHODS = frozenset({"changed", "cycle"})


def checked_filters(filters: dict[str, Callable[..., Any]], shown: Callable[..., Any] | None) -> dict[str, Any]:
    """Return filters with the same results, within the limits.

    Args:
        filters: Filters of Jinja.
        shown: Returns the text of a value that a text filter reads: `shown(meter, value)`; `str` by default.
    """
    return {name: _checked_filter(name, run, shown) for name, run in filters.items() if is_offered_filter(name)}


def _checked_filter(name: str, run: Callable[..., Any], shown: Callable[..., Any] | None) -> Callable[..., Any]:
    guard = FILTER_GUARDS.get(name)
    prepare = _preparer(name, shown)
    call = _caller(run)
    is_one_step = name in _ONE_STEP

    @pass_context
    def checked(context: Context, value: Any = None, /, *args: Any, **kwargs: Any) -> Any:
        meter: Meter = context.meter  # type: ignore[attr-defined]
        meter.tick()
        value = prepare(meter, value)
        # Python hashes a deeply nested tuple recursively and without a limit, which overflows the stack of the process.
        for argument in (*args, *kwargs.values()):
            meter.deep(argument)
        if is_one_step:
            return call(context, value, args, kwargs)
        if name in _ATTRIBUTE_POSITIONS:
            _count_attributes(meter, value, [*args[_ATTRIBUTE_POSITIONS[name] :][:1], kwargs.get("attribute")])
        if guard is not None:
            guard(meter, value, *args, **kwargs)
        if name == "unique":
            _check_unique(context, meter, value, *args, **kwargs)
        made = call(context, value, args, kwargs)
        # A generator that reads a generator nests in C: filters run at once.
        return meter.items(made) if hasattr(made, "__next__") else meter.result(made)

    if name not in _NO_LONGER:
        return checked

    @pass_context
    def checked_short(context: Context, value: Any = None, /, *args: Any, **kwargs: Any) -> Any:
        if type(value) is not str or args or kwargs:
            return checked(context, value, *args, **kwargs)
        context.meter.make_small(len(value))  # type: ignore[attr-defined]
        return run(value)

    return checked_short


def _caller(run: Callable[..., Any]) -> Callable[[Context, Any, tuple[Any, ...], dict[str, Any]], Any]:
    """Return a function that calls a filter or test with the first argument that it wants."""
    wanted = getattr(getattr(run, "jinja_pass_arg", None), "name", None)
    if wanted == "context":
        return lambda context, value, args, kwargs: run(context, value, *args, **kwargs)
    if wanted == "environment":
        return lambda context, value, args, kwargs: run(context.environment, value, *args, **kwargs)
    if wanted == "eval_context":
        return lambda context, value, args, kwargs: run(context.eval_ctx, value, *args, **kwargs)
    return lambda context, value, args, kwargs: run(value, *args, **kwargs)


def _preparer(name: str, shown: Callable[..., Any] | None) -> Callable[[Meter, Any], Any]:
    """Return a function that checks the value of a filter, and returns it in the form that the filter reads."""

    def of_text(meter: Meter, value: Any) -> Any:
        if isinstance(value, str):
            if len(value) > 1000:
                meter.look()
            return value
        if shown is not None:
            return shown(meter, value)
        refuse_large(value)
        meter.deep(value)
        return value

    def of_one_step(meter: Meter, value: Any) -> Any:
        return value

    def of_items(meter: Meter, value: Any) -> Any:
        if isinstance(value, Undefined) or not hasattr(value, "__len__"):
            return meter.items(value) if hasattr(value, "__next__") else value
        meter.visit(len(value))
        return value if name in _SHALLOW else meter.deep(value)

    if name in _TEXT_FILTERS:
        return of_text
    return of_one_step if name in _ONE_STEP else of_items


def _count_attributes(meter: Meter, value: Any, names: list[Any]) -> None:
    """Count the steps of a path such as `a.b,c` for each item."""
    steps = sum([name.count(".") + name.count(",") for name in names if isinstance(name, str)])
    if steps and hasattr(value, "__len__"):
        meter.visit(steps * len(value))


def _check_unique(
    context: Context, meter: Meter, value: Any, case_sensitive: Any = False, attribute: Any = None
) -> None:
    if isinstance(value, str) or not hasattr(value, "__len__"):
        return
    read = make_attrgetter(context.environment, attribute)
    meter.keys([read(item) for item in value])


def checked_tests(tests: dict[str, Callable[..., Any]], *, strict: bool) -> dict[str, Any]:
    """Return tests with the same results, within the limits; strict ones refuse undefined values."""
    return {
        name: run if name in _OF_UNDEFINED or (name in _OF_TYPE and not strict) else _checked_test(name, run, strict)
        for name, run in tests.items()
        if name in FREE_TESTS or name in GUARDED_TESTS
    }


def _checked_test(name: str, run: Callable[..., Any], strict: bool) -> Callable[..., Any]:
    call = _caller(run)

    @pass_context
    def checked(context: Context, value: Any, /, *args: Any, **kwargs: Any) -> Any:
        if strict and isinstance(value, Undefined):
            value._fail_with_undefined_error()
        if name not in _OF_TYPE:
            meter: Meter = context.meter  # type: ignore[attr-defined]
            meter.tick()
            for operand in (value, *args, *kwargs.values()):
                meter.deep(operand)
        if name in _OF_NUMBERS:
            refuse_large(value, *args, *kwargs.values())
        return call(context, value, args, kwargs)

    return checked


def refuse_method(value: Any, name: str, *, is_prompt: bool = False) -> None:
    """Raise an error for a method that templates cannot call."""
    row = REMOVED_METHODS.get(name)
    if row is not None and (row.use == "all" or is_prompt):
        raise Fault(f"{type(value).__name__}.{name} is not available in templates: {row.reason}", name)


def is_prompt_method(value: Any, name: str) -> bool:
    """True if prompt templates can call this method of a value."""
    if isinstance(value, Mapping):
        return name in _MAPPING_METHODS
    if isinstance(value, _DATA):
        refuse_method(value, name, is_prompt=not isinstance(value, str))
        return hasattr(type(value), name) and not modifies_known_mutable(value, name)
    return name in _JINJA_METHODS.get(type(value), ()) or (isinstance(value, LoopContext) and name in _LOOP_METHODS)


def refuse_unknown_method(target: BuiltinMethodType | MethodType) -> None:
    """Raise an error for a method that templates cannot call, or whose cost is not known."""
    refuse_method(target.__self__, target.__name__)
    if not is_offered_method(target):
        shown = f"{type(target.__self__).__name__}.{target.__name__}"
        raise Fault(f"{shown} is not one of the methods that templates can call", target.__name__)


def guarded_call(meter: Meter, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function, a method or a macro within the limits."""
    if len(args) + len(kwargs) > _FEW_ARGUMENTS:
        meter.visit(len(args) + len(kwargs))
    if isinstance(target, _NESTING):
        meter.enter()
        try:
            return target(*args, **kwargs)
        finally:
            meter.leave()
    meter.tick()
    if isinstance(target, BoundFormat):
        return meter.result(target.run(meter, args, kwargs))
    for argument in (*args, *kwargs.values()):
        meter.deep(argument)
        refuse_large(argument)
    if isinstance(target, BuiltinMethodType | MethodType):
        refuse_unknown_method(target)
        args = _checked_method(meter, target.__self__, target.__name__, args, kwargs)
    elif args and (isinstance(target, Dict) or (isinstance(target, type) and issubclass(target, Namespace))):
        args = (_pairs(meter, args[0]), *args[1:])
    return meter.result(target(*args, **kwargs))


def _checked_method(
    meter: Meter, owner: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    """Check the call of a method, and return its arguments with iterators as lists."""
    if isinstance(owner, str | bytes):
        if len(owner) > 1000:
            meter.look()
        args = tuple([meter.items(one) if hasattr(one, "__next__") else one for one in args])
        guard = METHOD_GUARDS.get(name)
        if guard is not None:
            guard(meter, owner, *args, **kwargs)
        return args
    if name in SET_METHODS:
        METHOD_GUARDS[name](meter, owner, *args)
        return args
    if name == "fromkeys" and args:
        keys = args[0] if hasattr(args[0], "__len__") else meter.items(args[0])
        meter.visit(len(keys))
        meter.keys(list(keys))
        return (keys, *args[1:])
    if isinstance(owner, dict | list | tuple | range):
        if name in ("count", "index"):
            meter.deep(owner)
        if name != "get":
            meter.visit(len(owner))
    return args


def _pairs(meter: Meter, value: Any) -> Any:
    """Return what a dictionary is about to be made of: iterators become lists, and keys are checked."""
    if isinstance(value, str | bytes | dict | Undefined) or not hasattr(value, "__iter__"):
        return value
    items = list(value) if hasattr(value, "__len__") else meter.items(value)
    pairs = [item if isinstance(item, str | bytes | list | tuple) else meter.items(item) for item in items]
    meter.visit(len(pairs))
    meter.keys([pair[0] for pair in pairs if isinstance(pair, list | tuple) and pair])
    return pairs
