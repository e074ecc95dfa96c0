"""The filters of templates: Jinja's own by name and result, each bounded and without chance."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any
from urllib.parse import quote

from agentkit_prompts.templates.engine.finalise import json_text, text
from agentkit_prompts.templates.engine.is_tests import TESTS
from agentkit_prompts.templates.engine.list_filters import (
    as_list,
    batch,
    columns,
    extreme,
    first,
    getter,
    group,
    items_of,
    last,
    length,
    reverse,
    sort_items,
    sort_mapping,
    total,
    unique,
    whole,
)
from agentkit_prompts.templates.engine.meter import Meter
from agentkit_prompts.templates.engine.methods import replace
from agentkit_prompts.templates.engine.operators import percent
from agentkit_prompts.templates.engine.values import Fault, Undefined

__all__ = ["FILTERS"]

_WORD_START = re.compile(r"([-\s({\[<]+)")
_WORD = re.compile(r"\w+")
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "'": "&#39;", '"': "&#34;"})


def _texts(run: Callable[[str], str], slowness: int = 2) -> Callable[[Meter, Any], str]:
    def apply(meter: Meter, value: Any, /) -> str:
        given = text(meter, value)
        meter.chars(len(given), slowness)
        return run(given)

    return apply


def _title(value: str) -> str:
    return "".join([part[0].upper() + part[1:].lower() for part in _WORD_START.split(value) if part])


def _map(meter: Meter, value: Any, /, *args: Any, **kwargs: Any) -> list[Any]:
    items = meter.items(value, 6)
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
        items = meter.items(value, 3)
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
    items = meter.items(value, 2)
    separator = text(meter, d)
    texts = [text(meter, read(item)) for item in items]
    meter.chars(sum(map(len, texts)) + len(separator) * max(0, len(texts) - 1))
    return separator.join(texts)


def _default(meter: Meter, value: Any, /, default_value: Any = "", boolean: bool = False) -> Any:
    return default_value if isinstance(value, Undefined) or (boolean and not value) else value


def _replace(meter: Meter, value: Any, /, old: Any, new: Any, count: Any = None) -> str:
    return replace(meter, text(meter, value), text(meter, old), text(meter, new), -1 if count is None else count)


def _trim(meter: Meter, value: Any, /, chars: str | None = None) -> str:
    given = text(meter, value)
    meter.chars(len(given))
    return given.strip(chars)


def _center(meter: Meter, value: Any, /, width: Any = 80) -> str:
    given = text(meter, value)
    size = whole("width", width)
    meter.chars(max(size, len(given)))
    return given.center(size)


def _indent(meter: Meter, value: Any, /, width: Any = 4, first: bool = False, blank: bool = False) -> str:
    given = text(meter, value)
    start = text(meter, width) if isinstance(width, str) else " " * whole("width", width)
    meter.chars(len(given), 3)
    lines = (given + "\n").splitlines()
    meter.chars(len(given) + len(lines) * (len(start) + 1))
    made = lines[0] + "".join("\n" + (start + line if line or blank else line) for line in lines[1:])
    return start + made if first else made


def _truncate(
    meter: Meter, value: Any, /, length: Any = 255, killwords: bool = False, end: str = "...", leeway: Any = None
) -> str:
    given = text(meter, value)
    size = whole("length", length, len(end), 1 << 40)
    if len(given) <= size + whole("leeway", 5 if leeway is None else leeway, 0, 1 << 40):
        return given
    meter.chars(size)
    cut = given[: size - len(end)]
    return (cut if killwords else cut.rsplit(" ", 1)[0]) + end


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
    meter.chars(len(given) * (1 + len(wrapstring)), 32)
    wrapper = textwrap.TextWrapper(
        size,
        expand_tabs=False,
        replace_whitespace=False,
        break_long_words=break_long_words,
        break_on_hyphens=break_on_hyphens,
    )
    return wrapstring.join([wrapstring.join(wrapper.wrap(line)) for line in given.splitlines()])


def _format(meter: Meter, value: Any, /, *args: Any, **kwargs: Any) -> str:
    if args and kwargs:
        raise Fault("format takes values by position or by name, not both")
    return percent(meter, text(meter, value), kwargs or args)


def _int(meter: Meter, value: Any, /, default: Any = 0, base: int = 10) -> Any:
    meter.charge(10)
    if isinstance(value, Undefined):
        value.fail()
    try:
        if isinstance(value, str):
            if len(value) > 4000:
                return default
            meter.charge(len(value) ** 2 // 40_000)
            return int(value, base)
        if isinstance(value, Decimal) and value.is_finite() and value.adjusted() > 1000:
            return default
        return int(value)
    except (TypeError, ValueError, OverflowError):
        pass
    try:
        return int(float(value))
    except (TypeError, ValueError, OverflowError):
        return default


def _float(meter: Meter, value: Any, /, default: Any = 0.0) -> Any:
    meter.charge(10)
    if isinstance(value, Undefined):
        value.fail()
    if isinstance(value, str):
        meter.chars(len(value), 4)
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return default


def _abs(meter: Meter, value: Any, /) -> Any:
    if not isinstance(value, int | float | Decimal):
        raise Fault(f"abs takes a number, got {type(value).__name__}")
    return abs(value)


def _round(meter: Meter, value: Any, /, precision: Any = 0, method: str = "common") -> Any:
    if not isinstance(value, int | float | Decimal):
        raise Fault(f"round takes a number, got {type(value).__name__}")
    digits = whole("precision", precision, -300, 300)
    if method == "common":
        return round(value, digits)
    if isinstance(value, Decimal) and value.is_finite() and value.adjusted() > 300:
        raise Fault("a number grows too large")
    if method not in ("ceil", "floor"):
        raise Fault("round works by 'common', 'ceil' or 'floor'")
    scale = 10**digits
    return (math.ceil if method == "ceil" else math.floor)(value * scale) / scale


def _filesizeformat(meter: Meter, value: Any, /, binary: bool = False) -> str:
    size = _float(meter, value, None)
    if size is None or not math.isfinite(size):
        raise Fault("filesizeformat takes a number of bytes")
    base, middle = (1024, "i") if binary else (1000, "")
    if size == 1:
        return "1 Byte"
    if size < base:
        return f"{int(size)} Bytes"
    for power, letter in enumerate("KMGTPEZY" if binary else "kMGTPEZY"):
        unit = base ** (power + 2)
        if size < unit or letter == "Y":
            return f"{base * size / unit:.1f} {letter}{middle}B"
    raise AssertionError


def _urlencode(meter: Meter, value: Any, /) -> str:
    if isinstance(value, str) or not isinstance(value, Mapping | list | tuple):
        given = text(meter, value)
        meter.chars(3 * len(given), 8)
        return quote(given.encode("utf-8", "surrogatepass"), safe="/")
    pairs = items_of(meter, value) if isinstance(value, Mapping) else meter.items(value)
    parts = []
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise Fault("urlencode takes text, a mapping or a list of pairs")
        encoded = [text(meter, half).encode("utf-8", "surrogatepass") for half in pair]
        meter.chars(3 * (len(encoded[0]) + len(encoded[1])), 8)
        parts.append("=".join(quote(half, safe="").replace("%20", "+") for half in encoded))
    return "&".join(parts)


def _escape(meter: Meter, value: Any, /) -> str:
    given = text(meter, value)
    meter.chars(len(given), 3)
    return given.translate(_HTML)


def _striptags(meter: Meter, value: Any, /) -> str:
    given = text(meter, value)
    meter.chars(len(given), 16)
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


def _wordcount(meter: Meter, value: Any, /) -> int:
    given = text(meter, value)
    meter.chars(len(given), 16)
    return sum(1 for _ in _WORD.finditer(given))


def _tojson(meter: Meter, value: Any, /, indent: Any = None, sort_keys: bool = False) -> str:
    return json_text(meter, value, indent, sort_keys=bool(sort_keys))


FILTERS: dict[str, Callable[..., Any]] = {
    "abs": _abs,
    "batch": batch,
    "capitalize": _texts(str.capitalize),
    "center": _center,
    "count": length,
    "d": _default,
    "default": _default,
    "dictsort": sort_mapping,
    "e": _escape,
    "escape": _escape,
    "filesizeformat": _filesizeformat,
    "first": first,
    "float": _float,
    "forceescape": _escape,
    "format": _format,
    "groupby": group,
    "indent": _indent,
    "int": _int,
    "items": items_of,
    "join": _join,
    "last": last,
    "length": length,
    "list": as_list,
    "lower": _texts(str.lower),
    "map": _map,
    "max": extreme(max),
    "min": extreme(min),
    "reject": _select(False, False),
    "rejectattr": _select(True, False),
    "replace": _replace,
    "reverse": reverse,
    "round": _round,
    "safe": _texts(str, 1),
    "select": _select(False, True),
    "selectattr": _select(True, True),
    "slice": columns,
    "sort": sort_items,
    "string": _texts(str, 1),
    "striptags": _striptags,
    "sum": total,
    "title": _texts(_title, 8),
    "tojson": _tojson,
    "trim": _trim,
    "truncate": _truncate,
    "unique": unique,
    "upper": _texts(str.upper),
    "urlencode": _urlencode,
    "wordcount": _wordcount,
    "wordwrap": _wordwrap,
}
"""Filters by name. Each gets the meter, the value, then the arguments written in the template."""
