"""Methods that templates may call, by type: an allow-list of bounded ones. Nothing else of an object is callable."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, time, timedelta
from typing import Any

from agentkit_prompts.templates.operations.access import attribute
from agentkit_prompts.templates.operations.costs import COSTS, SAME_SIZE, WIDTH, offered
from agentkit_prompts.templates.operations.finalise import text
from agentkit_prompts.templates.operations.list_filters import items_of
from agentkit_prompts.templates.operations.meter import Meter
from agentkit_prompts.templates.operations.objects import Cycler, Function, Loop, Macro, Namespace
from agentkit_prompts.templates.operations.values import Fault, require

__all__ = ["call", "call_method", "of_text"]

_FIELD = re.compile(r"\{\{|\}\}|\{(?P<name>\w*)(?::(?P<spec>[^{}]*))?\}|[{}]")
_SPEC = re.compile(
    r"(?:.?[<>=^])?[+\- ]?#?0?(?P<width>\d{0,4})[,_]?(?:\.(?P<precision>\d{1,3}))?[bcdeEfFgGosxX%]?", re.S
)
_DIRECTIVE = re.compile(r"%(.?)", re.S)
_DIRECTIVES = frozenset("aAbBdfGHIjmMpSuUVwWyYzZ%")


def call(meter: Meter, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a macro, a `loop` or a function.

    Raises:
        Fault: It is something else.
    """
    kind = type(target)
    if kind is Macro:
        return target.call(meter, args, kwargs)
    meter.charge(5)
    if kind is Function:
        return target.run(meter, *args, **kwargs)
    if kind is Loop and len(args) == 1 and not kwargs:
        return target.recurse(meter, args[0])
    require(target)
    raise Fault(f"{kind.__name__} cannot be called: templates call macros and a few built-in functions only")


def call_method(meter: Meter, target: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call `target.name(...)`, if templates may."""
    meter.charge(10)
    if isinstance(target, str):
        method = _STR.get(name)
        if method is not None:
            return method(meter, str.__str__(target), *args, **kwargs)
    elif isinstance(target, Mapping):
        method = _MAPPING.get(name)
        if method is not None:
            return method(meter, target, *args, **kwargs)
    elif isinstance(target, list | tuple):
        if name in ("count", "index"):
            meter.measure(target, args)
            meter.pay("list.index", target)
            for one in args[:1]:
                meter.walk("list.index", one, target)
            return getattr(target, name)(*args, **kwargs)
    elif isinstance(target, date | time | timedelta):
        if name == "strftime":
            return _strftime(meter, target, *args, **kwargs)
        if name in _TIMES:
            if not hasattr(target, name):
                raise Fault(f"{type(target).__name__} has no method {name}")
            meter.pay(f"date.{name}", target)
            return getattr(target, name)(*args, **kwargs)
    elif isinstance(target, Loop | Cycler) and name in ("changed", "cycle", "next", "reset") and hasattr(target, name):
        meter.pay(f"{'loop' if isinstance(target, Loop) else 'cycler'}.{name}", target)
        return getattr(target, name)(meter, *args, **kwargs)
    elif isinstance(target, Namespace):
        return call(meter, attribute(meter, target, name), args, kwargs)
    require(target)
    if name[:1] == "_":
        raise Fault(f"{name[:80]!r} is private: templates read public names only", name[:80])
    raise Fault(
        f"{type(target).__name__}.{name[:80]}(...) is not one of the methods that templates can call", name[:80]
    )


def of_text(run: Callable[..., Any], row: str) -> Callable[..., Any]:
    """Return a filter or method that gives `run` the text of a value, charged by a row of the table of costs."""
    worst = COSTS[row].worst

    def apply(meter: Meter, value: Any, /, *args: Any, **kwargs: Any) -> Any:
        given = text(meter, value)
        meter.charge(4 + worst(given, *args, **kwargs))
        return run(given, *args, **kwargs)

    return apply


def _wide(name: str) -> Callable[..., str]:
    method = getattr(str, name)

    def run(meter: Meter, value: str, width: Any, *args: Any) -> str:
        if not isinstance(width, int):
            raise Fault(f"{name} takes a whole number, got {type(width).__name__}")
        meter.pay(f"str.{name}", value, width)
        meter.chars(max(len(value), width))
        return method(value, width, *args)  # type: ignore[no-any-return]

    return run


def replace(meter: Meter, value: str, old: Any, new: Any, count: int = -1) -> str:
    """Replace a part of a text wherever it is, or `count` times."""
    if not isinstance(old, str) or not isinstance(new, str) or not isinstance(count, int):
        raise Fault("replace takes two texts and a whole number")
    meter.pay("str.replace", value, old, new)
    found = value.count(old) if count < 0 else min(count, value.count(old))
    meter.chars(max(0, len(value) + found * (len(new) - len(old))))
    return str.replace(value, str.__str__(old), str.__str__(new), count)


def join_texts(meter: Meter, separator: str, items: Any) -> str:
    """Join texts with a separator."""
    texts = meter.items(items)
    meter.pay("str.join", separator, texts)
    if not all(isinstance(item, str) for item in texts):
        raise Fault("join takes a list of texts: use `|join` for other values")
    meter.chars(sum(map(len, texts)) + len(separator) * max(0, len(texts) - 1))
    return separator.join(texts)


def format_text(meter: Meter, template: str, *args: Any, **kwargs: Any) -> str:
    """Fill the `{}` fields of a text: plain names or positions with a bounded format, no attributes, no elements."""
    meter.pay("str.format", template)
    automatic = 0
    made: list[str] = []
    last = 0
    for field in _FIELD.finditer(template):
        made.append(template[last : field.start()])
        last = field.end()
        if field[0] in ("{{", "}}"):
            made.append(field[0][0])
            continue
        if field["name"] is None:
            raise Fault("format takes fields such as {}, {0} or {name:>8}; attributes and elements are not allowed")
        key = field["name"]
        if not key:
            key, automatic = str(automatic), automatic + 1
        if key.isdecimal() and len(key) < 4 and int(key) < len(args):
            value = args[int(key)]
        elif key in kwargs:
            value = kwargs[key]
        else:
            raise Fault(f"the format names {key!r}, which it was not given")
        spec = field["spec"] or ""
        if not _SPEC.fullmatch(spec):
            raise Fault(f"{spec!r} is not a format that templates know")
        if not isinstance(value, int | float) or not spec:
            value = text(meter, value)
        if isinstance(value, int):
            meter.pay("print int", value)
        meter.chars(10_000 if spec else len(str(value)))
        try:
            made.append(format(value, spec))
        except (ValueError, OverflowError) as error:
            raise Fault(f"the format cannot be filled: {error}") from error
    made.append(template[last:])
    meter.chars(sum(map(len, made)))
    return "".join(made)


def _get(meter: Meter, value: Mapping[Any, Any], key: Any, default: Any = None) -> Any:
    meter.pay("dict.get", value, key)
    meter.key(key, len(value))
    return value[key] if key in value else default  # noqa: SIM401 (a mapping's own get may do anything)


def _values(meter: Meter, value: Mapping[Any, Any]) -> list[Any]:
    meter.keys(value)
    return [value[key] for key in meter.items(value, 2)]


def _strftime(meter: Meter, value: Any, pattern: Any) -> str:
    """Format a time, without the widths, locale forms and time zones of the machine that C libraries add."""
    if not isinstance(value, date | time) or not isinstance(pattern, str):
        raise Fault("strftime takes a format and works on dates and times")
    meter.pay("date.strftime", pattern)
    if len(pattern) > 1000:
        raise Fault("the strftime format is longer than 1,000 characters")
    for found in _DIRECTIVE.finditer(pattern):
        if found[1] not in _DIRECTIVES:
            raise Fault(f"strftime: {found[0]!r} is not one of {', '.join('%' + one for one in sorted(_DIRECTIVES))}")
    return value.strftime(pattern)


_STR: dict[str, Callable[..., Any]] = offered(
    "str",
    {
        **{name: of_text(getattr(str, name), f"str.{name}") for name in (*SAME_SIZE, "rsplit", "split", "splitlines")},
        **{name: _wide(name) for name in WIDTH},
        "format": format_text,
        "join": join_texts,
        "replace": replace,
    },
)
_MAPPING: dict[str, Callable[..., Any]] = offered(
    "dict",
    {
        "get": _get,
        "items": items_of,
        "keys": lambda meter, value: list(meter.items(value)),
        "values": _values,
    },
)
_TIMES = frozenset({"date", "isoformat", "isoweekday", "time", "total_seconds", "weekday"})
