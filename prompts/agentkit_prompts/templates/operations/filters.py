"""The filters of templates: Jinja's own by name and result, each bounded and without chance."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from jinja2 import Environment, filters
from jinja2.utils import url_quote

from agentkit_prompts.templates.operations.costs import offered
from agentkit_prompts.templates.operations.finalise import json_text, text
from agentkit_prompts.templates.operations.is_tests import TESTS
from agentkit_prompts.templates.operations.list_filters import LIST_FILTERS, getter, items_of, whole
from agentkit_prompts.templates.operations.meter import Meter
from agentkit_prompts.templates.operations.methods import of_text, replace
from agentkit_prompts.templates.operations.operators import percent, refuse_large_numbers
from agentkit_prompts.templates.operations.values import Fault, Undefined, require

__all__ = ["FILTERS"]

_JINJA = Environment(cache_size=0)
"""What some of Jinja's filters want to be handed; all they read of it is given to them as arguments."""
_WORD = re.compile(r"\w+")
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "'": "&#39;", '"': "&#34;"})


def _map(meter: Meter, value: Any, /, *args: Any, **kwargs: Any) -> list[Any]:
    items = meter.items(value)
    meter.pay("filter.map", items, *args, **kwargs)
    if not args and "attribute" in kwargs:
        read = getter(meter, kwargs.pop("attribute"))
        default = kwargs.pop("default", None)
        if kwargs:
            raise Fault(f"map takes no argument {next(iter(kwargs))!r}")
        found = [read(item) for item in items]
        return found if default is None else [default if isinstance(item, Undefined) else item for item in found]
    if not args or not isinstance(args[0], str):
        raise Fault("map needs the name of a filter or attribute=...")
    run = FILTERS.get(args[0])
    if run is None:
        raise Fault(f"there is no filter {args[0][:80]!r}")
    return [run(meter, item, *args[1:], **kwargs) for item in items]


def _select(by_attribute: bool, wanted: bool) -> Callable[..., list[Any]]:
    def apply(meter: Meter, value: Any, /, *args: Any, **kwargs: Any) -> list[Any]:
        items = meter.items(value)
        meter.pay("filter.select", items, *args)
        read: Callable[[Any], Any] = getter(meter, None)
        if by_attribute:
            if not args:
                raise Fault("selectattr and rejectattr need the name of an attribute")
            read, args = getter(meter, args[0]), args[1:]
        if not args:
            return [item for item in items if bool(read(item)) is wanted]
        if not isinstance(args[0], str) or args[0] not in TESTS:
            raise Fault(f"there is no test {args[0][:80]!r}" if isinstance(args[0], str) else "a test is named by text")
        run, rest = TESTS[args[0]], args[1:]
        return [item for item in items if bool(run(meter, read(item), *rest, **kwargs)) is wanted]

    return apply


def _join(meter: Meter, value: Any, /, d: Any = "", attribute: Any = None) -> str:
    read = getter(meter, attribute)
    items = meter.items(value)
    separator = text(meter, d)
    meter.pay("filter.join", items, separator, attribute)
    texts = [text(meter, read(item)) for item in items]
    meter.chars(sum(map(len, texts)) + len(separator) * max(0, len(texts) - 1))
    return separator.join(texts)


def _default(meter: Meter, value: Any, /, default_value: Any = "", boolean: bool = False) -> Any:
    meter.pay("filter.default", value)
    return default_value if isinstance(value, Undefined) or (boolean and not value) else value


def _replace(meter: Meter, value: Any, /, old: Any, new: Any, count: Any = None) -> str:
    return replace(meter, text(meter, value), text(meter, old), text(meter, new), -1 if count is None else count)


def _center(meter: Meter, value: Any, /, width: Any = 80) -> str:
    given = text(meter, value)
    size = whole("width", width)
    meter.pay("filter.center", given, size)
    meter.chars(max(size, len(given)))
    return given.center(size)


def _indent(meter: Meter, value: Any, /, width: Any = 4, first: bool = False, blank: bool = False) -> str:
    given = text(meter, value)
    start = text(meter, width) if isinstance(width, str) else " " * whole("width", width)
    meter.pay("filter.indent", given, start)
    meter.chars(len(given) + (len(given.splitlines()) + 1) * (len(start) + 1))
    return filters.do_indent(given, start, first, blank)


def _truncate(
    meter: Meter, value: Any, /, length: Any = 255, killwords: bool = False, end: str = "...", leeway: Any = None
) -> str:
    given = text(meter, value)
    size = whole("length", length, len(end), 1 << 40)
    more = whole("leeway", 5 if leeway is None else leeway, 0, 1 << 40)
    meter.pay("filter.truncate", given)
    return filters.do_truncate(_JINJA, given, size, killwords, end, more)


def _wordwrap(
    meter: Meter,
    value: Any,
    /,
    width: Any = 79,
    break_long_words: bool = True,
    wrapstring: str = "\n",
    break_on_hyphens: bool = True,
) -> str:
    given = text(meter, value)
    size = whole("width", width, 1)
    if not isinstance(wrapstring, str):
        raise Fault(f"wordwrap takes a text as wrapstring, got {type(wrapstring).__name__}")
    meter.pay("filter.wordwrap", given, size, wrapstring=wrapstring)
    return filters.do_wordwrap(_JINJA, given, size, break_long_words, wrapstring, break_on_hyphens)


def _format(meter: Meter, value: Any, /, *args: Any, **kwargs: Any) -> str:
    if args and kwargs:
        raise Fault("format takes values by position or by name, not both")
    given = text(meter, value)
    meter.pay("filter.format", given)
    return percent(meter, given, kwargs or args)


def _int(meter: Meter, value: Any, /, default: Any = 0, base: int = 10) -> Any:
    require(value)
    refuse_large_numbers(value)
    try:
        if isinstance(value, str) and len(value) > 4000:
            meter.pay("filter.int", "")
            return default
        meter.pay("filter.int", value, default, base)
        if isinstance(value, Decimal) and value.is_finite() and value.adjusted() > 1000:
            return default
        return filters.do_int(value, default, base)
    except OverflowError:  # of an infinite number
        return default


def _float(meter: Meter, value: Any, /, default: Any = 0.0) -> Any:
    require(value)
    refuse_large_numbers(value)
    meter.pay("filter.float", value)
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return default


def _abs(meter: Meter, value: Any, /) -> Any:
    meter.pay("filter.abs", value)
    if not isinstance(value, int | float | Decimal):
        raise Fault(f"abs takes a number, got {type(value).__name__}")
    refuse_large_numbers(value)
    return abs(value)


def _round(meter: Meter, value: Any, /, precision: Any = 0, method: str = "common") -> Any:
    if not isinstance(value, int | float | Decimal):
        raise Fault(f"round takes a number, got {type(value).__name__}")
    refuse_large_numbers(value)
    digits = whole("precision", precision, -300, 300)
    meter.pay("filter.round", value, digits)
    if isinstance(value, Decimal) and value.is_finite() and value.adjusted() > 300 and method != "common":
        raise Fault("a number grows too large")
    if method not in ("common", "ceil", "floor"):
        raise Fault("round works by 'common', 'ceil' or 'floor'")
    return filters.do_round(value, digits, method)  # type: ignore[arg-type]


def _filesizeformat(meter: Meter, value: Any, /, binary: bool = False) -> str:
    meter.pay("filter.filesizeformat", value)
    size = _float(meter, value, None)
    if size is None or not math.isfinite(size):
        raise Fault("filesizeformat takes a number of bytes")
    return filters.do_filesizeformat(size, bool(binary))


def _urlencode(meter: Meter, value: Any, /) -> str:
    def quoted(part: Any, is_query: bool) -> str:
        encoded = text(meter, part).encode("utf-8", "surrogatepass")
        meter.chars(480 + 3 * len(encoded))
        meter.pay("filter.urlencode", encoded)
        return url_quote(encoded, for_qs=is_query)

    if isinstance(value, str) or not isinstance(value, Mapping | list | tuple):
        return quoted(value, False)
    pairs = items_of(meter, value) if isinstance(value, Mapping) else meter.items(value)
    if not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
        raise Fault("urlencode takes text, a mapping or a list of pairs")
    return "&".join([f"{quoted(key, True)}={quoted(item, True)}" for key, item in pairs])


def _striptags(meter: Meter, value: Any, /) -> str:
    given = text(meter, value)
    meter.pay("filter.striptags", given)
    kept: list[str] = []
    at = 0
    for opening, closing in (("<!--", "-->"), ("<", ">")):
        kept.clear()
        at = 0
        while (start := given.find(opening, at)) >= 0 and (end := given.find(closing, start)) >= 0:
            kept.append(given[at:start])
            at = end + len(closing)
        given = "".join(kept) + given[at:]
        meter.charge(4 * len(kept))
    return " ".join(given.split())


def _tojson(meter: Meter, value: Any, /, indent: Any = None, sort_keys: bool = False) -> str:
    meter.pay("filter.tojson", None)  # lines and values are charged as they are written
    return json_text(meter, value, indent, sort_keys=bool(sort_keys))


_ESCAPE = of_text(lambda given: given.translate(_HTML), "filter.escape")

FILTERS: dict[str, Callable[..., Any]] = offered(
    "filter",
    {
        **LIST_FILTERS,
        "abs": _abs,
        "capitalize": of_text(str.capitalize, "filter.capitalize"),
        "center": _center,
        "d": _default,
        "default": _default,
        "e": _ESCAPE,
        "escape": _ESCAPE,
        "filesizeformat": _filesizeformat,
        "float": _float,
        "forceescape": _ESCAPE,
        "format": _format,
        "indent": _indent,
        "int": _int,
        "join": _join,
        "lower": of_text(str.lower, "filter.lower"),
        "map": _map,
        "reject": _select(False, False),
        "rejectattr": _select(True, False),
        "replace": _replace,
        "round": _round,
        "safe": of_text(str, "filter.string"),
        "select": _select(False, True),
        "selectattr": _select(True, True),
        "string": of_text(str, "filter.string"),
        "striptags": _striptags,
        "title": of_text(filters.do_title, "filter.title"),
        "tojson": _tojson,
        "trim": of_text(filters.do_trim, "filter.trim"),
        "truncate": _truncate,
        "upper": of_text(str.upper, "filter.upper"),
        "urlencode": _urlencode,
        "wordcount": of_text(lambda given: len(_WORD.findall(given)), "filter.wordcount"),
        "wordwrap": _wordwrap,
    },
)
"""Filters by name. Each gets the meter, the value, then the arguments written in the template."""
