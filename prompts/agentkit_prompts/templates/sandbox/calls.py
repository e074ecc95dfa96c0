"""Filters, tests and calls of templates: the functions of Jinja, with checks of the arguments before a call and a count
of the result after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from types import BuiltinMethodType, MethodType, ModuleType
from typing import Any

from jinja2 import Undefined, pass_context
from jinja2.exceptions import FilterArgumentError
from jinja2.filters import FILTERS, make_attrgetter
from jinja2.runtime import BlockReference, Context, LoopContext, Macro
from jinja2.utils import Namespace

from agentkit_prompts.templates.sandbox.formatting import BoundFormat
from agentkit_prompts.templates.sandbox.meter import Meter, refuse_large
from agentkit_prompts.templates.sandbox.operation_errors import TemplateOperationError, require
from agentkit_prompts.templates.sandbox.operations import Dict, Operation, method_row, rows_of

_FEW_ARGUMENTS = 10
"""Maximum arguments of a call without counting: more arguments can come from an unpacked list."""
_NESTING = (Macro, LoopContext, BlockReference)
"""Callables that run code of the template, and can call themselves."""
_LIBRARIES = ("jinja2", "markupsafe")
_PASSED: Mapping[str, Callable[[Context], Any]] = {
    "context": lambda context: context,
    "environment": lambda context: context.environment,
    "eval_context": lambda context: context.eval_ctx,
}
"""Functions that return the first argument that a filter or test of Jinja requests, by the name of the request."""


# Filters


def checked_filters(
    filters: Mapping[str, Callable[..., Any]], shown: Callable[..., Any] | None, *, is_prompt: bool
) -> dict[str, Any]:
    """Return filters that have the same results and respect the limits.

    Args:
        filters: Filters of Jinja.
        shown: Function `shown(meter, value)` that returns the text of a value for a text filter; `str` by default.
        is_prompt: True for prompt templates, False for chat templates.
    """
    rows = rows_of("filter", is_prompt=is_prompt)
    return {name: _checked_filter(name, run, rows[name], shown) for name, run in filters.items() if name in rows}


def _checked_filter(
    name: str, run: Callable[..., Any], row: Operation, shown: Callable[..., Any] | None
) -> Callable[..., Any]:
    call = _caller(run)
    prepare = _PREPARERS[row.reads]
    if prepare is _text and shown is not None:
        prepare = _text_of(shown)

    @pass_context
    def checked(context: Context, value: Any = None, /, *args: Any, **kwargs: Any) -> Any:
        meter: Meter = context.meter  # type: ignore[attr-defined]
        meter.tick()
        value = prepare(meter, value)
        # Python hashes nested tuples recursively without a limit, which could overflow the stack of the process.
        for argument in (*args, *kwargs.values()):
            meter.deep(argument)
        _check_path(meter, value, row.path_of(args, kwargs))
        if row.reads == "value":
            return call(context, value, args, kwargs)
        if row.max_chars:
            _check_length(name, meter.size(value).written, row.max_chars)
        if row.guard is not None:
            row.guard(meter, value, *args, **kwargs)
        result = call(context, value, args, kwargs)
        # Generators are consumed immediately, because nested generators could overflow the C stack.
        if hasattr(result, "__next__"):
            return meter.items(result)
        return meter.result(result)

    if row.reads != "short text":
        return checked

    @pass_context
    def checked_short(context: Context, value: Any = None, /, *args: Any, **kwargs: Any) -> Any:
        if type(value) is not str or args or kwargs:
            return checked(context, value, *args, **kwargs)
        context.meter.make_small(len(value))  # type: ignore[attr-defined]
        return run(value)

    return checked_short


def _caller(run: Callable[..., Any]) -> Callable[[Context, Any, tuple[Any, ...], dict[str, Any]], Any]:
    """Return a function that calls a filter or test, with the first argument that it requests, if any."""
    first: Any = getattr(run, "jinja_pass_arg", None)
    if first is None:
        return lambda context, value, args, kwargs: run(value, *args, **kwargs)
    passed = _PASSED[first.name]
    return lambda context, value, args, kwargs: run(passed(context), value, *args, **kwargs)


def _check_length(name: str, chars: int, limit: int) -> None:
    if chars > limit:
        raise TemplateOperationError(f"the filter {name} reads at most {limit:,} characters, got {chars:,}")


def _check_path(meter: Meter, value: Any, path: Any) -> None:
    """Count the steps of a path such as `a.b,c`, which a filter follows for each item of a list."""
    if isinstance(path, str) and isinstance(value, Sized) and not isinstance(value, Undefined):
        meter.visit((path.count(".") + path.count(",")) * len(value))


def _as_it_is(meter: Meter, value: Any) -> Any:
    # A filter with `reads="value"` takes constant time, unless the value is a text.
    if isinstance(value, str):
        return meter.deep(value)
    return value


def _text(meter: Meter, value: Any) -> Any:
    """Check a value whose text a filter reads, and return it."""
    refuse_large(value)
    return meter.deep(value)


def _text_of(shown: Callable[[Meter, Any], str]) -> Callable[[Meter, Any], str]:
    """Return a function that returns text unchanged, and the text of any other value."""

    def of_value(meter: Meter, value: Any) -> str:
        if isinstance(value, str):
            return _text(meter, value)  # type: ignore[no-any-return]  # a text stays a text
        return shown(meter, value)

    return of_value


def _items(meter: Meter, value: Any) -> Any:
    """Check a value whose items a filter visits, and return it."""
    if isinstance(value, Undefined) or not hasattr(value, "__len__"):
        if hasattr(value, "__next__"):
            return meter.items(value)
        return value
    meter.visit(len(value))
    return value


def _nested(meter: Meter, value: Any) -> Any:
    """Check a value whose items and nested values a filter visits, and return it."""
    require(value)
    return meter.deep(_items(meter, value))


_PREPARERS: Mapping[str, Callable[[Meter, Any], Any]] = {
    "items": _items,
    "nested": _nested,
    "short text": _text,
    "text": _text,
    "value": _as_it_is,
}
"""Functions that check the value of a filter and return it, by `Operation.reads`."""


@pass_context
def unique(context: Context, value: Any, case_sensitive: Any = False, attribute: Any = None) -> list[Any]:
    """Filter `unique`: return the first of equal items, after a check of the values that are hashed."""
    items = list(value)
    read = make_attrgetter(context.environment, attribute)
    if not isinstance(value, str):
        meter: Meter = context.meter  # type: ignore[attr-defined]  # it is a BoundedContext
        meter.keys([read(item) for item in items])
    return list(FILTERS["unique"](context.environment, items, case_sensitive, attribute))


@pass_context
def fill_fields(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
    """Filter `format`: fill the `%` fields of a text, with the checks of the operator `%`."""
    if args and kwargs:
        raise FilterArgumentError("format takes values by position or by name, not both")
    # Text keeps its type, because `Markup` escapes values.
    text = value if isinstance(value, str) else str(value)
    # The environment is a sandbox.
    return context.environment.call_binop(context, "%", text, kwargs or args)  # type: ignore[attr-defined]


# Tests


def checked_tests(tests: Mapping[str, Any], *, is_prompt: bool) -> dict[str, Any]:
    """Return tests that have the same results and respect the limits; in prompt templates, they reject undefined
    values.
    """
    rows = rows_of("test", is_prompt=is_prompt)
    return {name: _checked_test(run, rows[name].reads, is_prompt) for name, run in tests.items() if name in rows}


def _checked_test(run: Callable[..., Any], reads: str, is_prompt: bool) -> Callable[..., Any]:
    if reads == "undefined" or (reads == "kind" and not is_prompt):
        return run
    call = _caller(run)

    @pass_context
    def checked(context: Context, value: Any, /, *args: Any, **kwargs: Any) -> Any:
        if is_prompt and isinstance(value, Undefined):
            value._fail_with_undefined_error()
        if reads != "kind":
            meter: Meter = context.meter  # type: ignore[attr-defined]  # it is a BoundedContext
            _check_operands(meter, (value, *args, *kwargs.values()), reads)
        return call(context, value, args, kwargs)

    return checked


def _check_operands(meter: Meter, operands: tuple[Any, ...], reads: str) -> None:
    meter.tick()
    for operand in operands:
        meter.deep(operand)
        if reads == "numbers":
            refuse_large(operand)


# Calls


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
    if isinstance(target, BoundFormat):
        meter.tick()
        return meter.result(target.run(meter, args, kwargs))
    _check_operands(meter, (*args, *kwargs.values()), "numbers")
    if isinstance(target, BuiltinMethodType | MethodType):
        args = tuple([meter.items(argument) if hasattr(argument, "__next__") else argument for argument in args])
        _check_method(meter, target, args, kwargs)
    elif args and _makes_mapping(target):
        args = (_pairs(meter, args[0]), *args[1:])
    return meter.result(target(*args, **kwargs))


def _makes_mapping(target: Any) -> bool:
    """True for `dict` and `namespace`."""
    return isinstance(target, Dict) or (isinstance(target, type) and issubclass(target, Namespace))


def is_offered(value: Any, name: str, *, is_prompt: bool) -> bool:
    """True if a row of the table allows templates to call this method of a value.

    Raises:
        TemplateOperationError: A row of the table removes the method from templates.
    """
    row = method_row(value, name)
    # A row covers several types, of which some lack the method; and a mapping can have a macro of the same name.
    if row is None or not hasattr(value, name):
        return False
    if row.is_removed(is_prompt=is_prompt):
        raise TemplateOperationError(f"{type(value).__name__}.{name} is not available in templates: {row.reason}", name)
    return True


def _check_method(
    meter: Meter, target: BuiltinMethodType | MethodType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Check the call of a method. Of prompt templates, `PromptContext.method` has already rejected other methods."""
    owner: Any = target.__self__
    name = target.__name__
    if not is_offered(owner, name, is_prompt=False):
        if not _is_of_developer(target):
            raise TemplateOperationError(
                f"{type(owner).__name__}.{name} is not one of the methods that templates can call", name
            )
        return
    row = method_row(owner, name)
    if row is not None and row.guard is not None:
        row.guard(meter, owner, *args, **kwargs)


def _is_of_developer(target: BuiltinMethodType | MethodType) -> bool:
    """True for a method of a class of the developer, and for a function of a module, such as `len`."""
    owner: Any = target.__self__
    if isinstance(owner, ModuleType):
        return True
    kind = owner if isinstance(owner, type) else type(owner)
    return kind.__module__.partition(".")[0] not in _LIBRARIES and not isinstance(target, BuiltinMethodType)


def _pairs(meter: Meter, value: Any) -> Any:
    """Return the pairs for a new dictionary, after a check of the keys; iterators become lists."""
    if isinstance(value, str | bytes | dict | Undefined) or not hasattr(value, "__iter__"):
        return value
    items = list(value) if hasattr(value, "__len__") else meter.items(value)
    pairs = [item if isinstance(item, str | bytes | list | tuple) else meter.items(item) for item in items]
    meter.visit(len(pairs))
    meter.keys([pair[0] for pair in pairs if isinstance(pair, list | tuple) and pair])
    return pairs
