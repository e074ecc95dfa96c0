"""The filters of templates: Jinja's own by name and result, each bounded, none that depends on chance or the machine."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any
from urllib.parse import quote

from agentkit_prompts.engine.access import attribute, element
from agentkit_prompts.engine.finalise import json_text, text
from agentkit_prompts.engine.meter import Meter
from agentkit_prompts.engine.methods import replace
from agentkit_prompts.engine.operators import add, percent
from agentkit_prompts.engine.tests import TESTS
from agentkit_prompts.engine.values import Fault, Undefined

__all__ = ["FILTERS"]

_WORD_START = re.compile(r"([-\s({\[<]+)")
_WORD = re.compile(r"\w+")
_WIDEST = 10_000
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "'": "&#39;", '"': "&#34;"})


def _whole(name: str, value: Any, least: int = 0, most: int = _WIDEST) -> int:
    if not isinstance(value, int) or not least <= value <= most:
        raise Fault(f"{name} must be a whole number from {least} to {most:,}, got {text_of_bad(value)}")
    return value


def text_of_bad(value: Any) -> str:
    """Return a short form of a bad argument."""
    return repr(value)[:40] if isinstance(value, int | float) and abs(value) < 1e15 else type(value).__name__


def _texts(run: Callable[[str], str], slowness: int = 2) -> Callable[[Meter, Any], str]:
    def apply(meter: Meter, value: Any, /) -> str:
        given = text(meter, value)
        meter.chars(len(given), slowness)
        return run(given)

    return apply


def _title(value: str) -> str:
    return "".join([part[0].upper() + part[1:].lower() for part in _WORD_START.split(value) if part])


def _getter(meter: Meter, path: Any) -> Callable[[Any], Any]:
    """Return a reader of a dotted path; whole numbers in it name elements."""
    if path is None:
        return lambda item: item
    if isinstance(path, int):
        return lambda item: element(meter, item, path)
    if not isinstance(path, str) or len(path) > 1000:
        raise Fault(f"attribute must be the name of a field, got {type(path).__name__}")
    parts = [int(part) if part.isdecimal() and len(part) < 10 else part for part in str.__str__(path).split(".")]
    if len(parts) == 1 and isinstance(parts[0], str):
        name = parts[0]
        return lambda item: attribute(item, name)

    def read(item: Any) -> Any:
        meter.charge(len(parts))
        for part in parts:
            item = element(meter, item, part)
        return item

    return read


def _fold(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _keys(meter: Meter, path: Any, case_sensitive: bool) -> Callable[[Any], Any]:
    """Return the sort key of `attribute="a,b.c"`."""
    read = [_getter(meter, part) for part in path.split(",")] if isinstance(path, str) else [_getter(meter, path)]
    if len(read) == 1:
        one = read[0]
        return one if case_sensitive else lambda item: _fold(one(item))
    return lambda item: tuple([each(item) if case_sensitive else _fold(each(item)) for each in read])


def _sort(
    meter: Meter, value: Any, /, reverse: bool = False, case_sensitive: bool = False, attribute: Any = None
) -> list[Any]:
    if isinstance(value, set | frozenset):
        meter.charge(10 * len(value))
        value = sorted(value, key=lambda item: (type(item).__name__, text(meter, item)))
    items = meter.items(value, 4)
    key = _keys(meter, attribute, case_sensitive)
    keys = [key(item) for item in items]
    meter.measure(keys, keys)
    order = sorted(range(len(items)), key=keys.__getitem__, reverse=bool(reverse))
    return [items[at] for at in order]


def _dictsort(
    meter: Meter, value: Any, /, case_sensitive: bool = False, by: str = "key", reverse: bool = False
) -> list[tuple[Any, Any]]:
    if by not in ("key", "value"):
        raise Fault("dictsort sorts by 'key' or 'value'")
    return _sort(meter, _items(meter, value), bool(reverse), bool(case_sensitive), 0 if by == "key" else 1)


def _items(meter: Meter, value: Any, /) -> list[tuple[Any, Any]]:
    if isinstance(value, Undefined):
        return []
    if not isinstance(value, Mapping):
        raise Fault(f"only a mapping has items, got {type(value).__name__}")
    return [(key, value[key]) for key in meter.items(value, 2)]


def _unique(meter: Meter, value: Any, /, case_sensitive: bool = False, attribute: Any = None) -> list[Any]:
    key = _keys(meter, attribute, case_sensitive)
    seen: set[Any] = set()
    kept: list[Any] = []
    for item in meter.items(value, 3):
        one = key(item)
        meter.measure(one)
        if one not in seen:
            seen.add(one)
            kept.append(item)
    return kept


def _groupby(meter: Meter, value: Any, /, attribute: Any, default: Any = None, case_sensitive: bool = False) -> list[Any]:
    read = _getter(meter, attribute)

    def key(item: Any) -> Any:
        found = read(item)
        return default if isinstance(found, Undefined) and default is not None else found

    pairs = [(key(item), item) for item in meter.items(value, 4)]
    groups: list[tuple[Any, list[Any]]] = []
    last: Any = Undefined("grouper")
    for grouper, item in _sort(meter, pairs, False, case_sensitive, 0):
        one = grouper if case_sensitive else _fold(grouper)
        if not groups or one != last:
            groups.append((grouper, []))
            last = one
        groups[-1][1].append(item)
    return [Group(grouper, items) for grouper, items in groups]


class Group(tuple[Any, list[Any]]):
    """One group of `groupby`: a pair whose halves also have the names `grouper` and `list`."""

    __slots__ = ()

    def __new__(cls, grouper: Any, items: list[Any]) -> Group:
        return super().__new__(cls, (grouper, items))

    @property
    def grouper(self) -> Any:
        """What the items have in common."""
        return self[0]

    @property
    def list(self) -> list[Any]:
        """The items."""
        return self[1]


def _extreme(run: Callable[..., Any]) -> Callable[..., Any]:
    def apply(meter: Meter, value: Any, /, case_sensitive: bool = False, attribute: Any = None) -> Any:
        items = meter.items(value, 3)
        if not items:
            return Undefined("item", hint="the list is empty, so it has no least or greatest item")
        key = _keys(meter, attribute, case_sensitive)
        keys = [key(item) for item in items]
        meter.measure(keys, keys)
        return items[run(range(len(items)), key=keys.__getitem__)]

    return apply


def _sum(meter: Meter, value: Any, /, attribute: Any = None, start: Any = 0) -> Any:
    read = _getter(meter, attribute)
    total = start
    for item in meter.items(value, 3):
        total = add(meter, total, read(item))
    return total


def _map(meter: Meter, value: Any, /, *args: Any, **kwargs: Any) -> list[Any]:
    items = meter.items(value, 3)
    if not args and "attribute" in kwargs:
        read = _getter(meter, kwargs.pop("attribute"))
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
        read: Callable[[Any], Any] = _getter(meter, None)
        if by_attribute:
            if not args:
                raise Fault("selectattr and rejectattr need the name of an attribute")
            read, args = _getter(meter, args[0]), args[1:]
        if not args:
            return [item for item in items if bool(read(item)) is wanted]
        if not isinstance(args[0], str) or args[0] not in TESTS:
            raise Fault(f"there is no test {args[0][:80]!r}" if isinstance(args[0], str) else "a test is named by text")
        run, rest = TESTS[args[0]], args[1:]
        return [item for item in items if bool(run(meter, read(item), *rest, **kwargs)) is wanted]

    return apply


def _join(meter: Meter, value: Any, /, d: Any = "", attribute: Any = None) -> str:
    read = _getter(meter, attribute)
    items = meter.items(value, 2)
    separator = text(meter, d)
    texts = [text(meter, read(item)) for item in items]
    meter.chars(sum(map(len, texts)) + len(separator) * max(0, len(texts) - 1))
    return separator.join(texts)


def _list(meter: Meter, value: Any, /) -> list[Any]:
    return list(meter.items(value))


def _first(meter: Meter, value: Any, /) -> Any:
    items = meter.items(value, 0)
    return items[0] if items else Undefined("first", hint="the list is empty, so it has no first item")


def _last(meter: Meter, value: Any, /) -> Any:
    items = meter.items(value, 0)
    return items[-1] if items else Undefined("last", hint="the list is empty, so it has no last item")


def _length(meter: Meter, value: Any, /) -> int:
    if isinstance(value, Undefined):
        value.fail()
    if not hasattr(type(value), "__len__"):
        raise Fault(f"{type(value).__name__} has no length")
    return len(value)


def _reverse(meter: Meter, value: Any, /) -> Any:
    if isinstance(value, str):
        meter.chars(len(value))
        return str.__str__(value)[::-1]
    return list(meter.items(value))[::-1]


def _batch(meter: Meter, value: Any, /, linecount: Any, fill_with: Any = None) -> list[list[Any]]:
    size = _whole("batch size", linecount, 1)
    items = meter.items(value, 2)
    rows = [list(items[at : at + size]) for at in range(0, len(items), size)]
    if rows and fill_with is not None:
        meter.charge(size)
        rows[-1] += [fill_with] * (size - len(rows[-1]))
    return rows


def _slice(meter: Meter, value: Any, /, slices: Any, fill_with: Any = None) -> list[list[Any]]:
    count = _whole("slices", slices, 1)
    items = meter.items(value, 2)
    meter.charge(count)
    size, more = divmod(len(items), count)
    rows: list[list[Any]] = []
    at = 0
    for number in range(count):
        end = at + size + (number < more)
        rows.append(list(items[at:end]))
        if fill_with is not None and number >= more:
            rows[-1].append(fill_with)
        at = end
    return rows


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
    size = _whole("width", width)
    meter.chars(max(size, len(given)))
    return given.center(size)


def _indent(meter: Meter, value: Any, /, width: Any = 4, first: bool = False, blank: bool = False) -> str:
    given = text(meter, value)
    start = text(meter, width) if isinstance(width, str) else " " * _whole("width", width)
    meter.chars(len(given), 3)
    lines = (given + "\n").splitlines()
    meter.chars(len(given) + len(lines) * (len(start) + 1))
    made = lines[0] + "".join("\n" + (start + line if line or blank else line) for line in lines[1:])
    return start + made if first else made


def _truncate(
    meter: Meter, value: Any, /, length: Any = 255, killwords: bool = False, end: str = "...", leeway: Any = None
) -> str:
    given = text(meter, value)
    size = _whole("length", length, len(end), 1 << 40)
    if len(given) <= size + _whole("leeway", 5 if leeway is None else leeway, 0, 1 << 40):
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
    size = _whole("width", width, 1)
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
    digits = _whole("precision", precision, -300, 300)
    if method == "common":
        return round(value, digits)
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
    pairs = _items(meter, value) if isinstance(value, Mapping) else meter.items(value)
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
    "batch": _batch,
    "capitalize": _texts(str.capitalize),
    "center": _center,
    "count": _length,
    "d": _default,
    "default": _default,
    "dictsort": _dictsort,
    "e": _escape,
    "escape": _escape,
    "filesizeformat": _filesizeformat,
    "first": _first,
    "float": _float,
    "forceescape": _escape,
    "format": _format,
    "groupby": _groupby,
    "indent": _indent,
    "int": _int,
    "items": _items,
    "join": _join,
    "last": _last,
    "length": _length,
    "list": _list,
    "lower": _texts(str.lower),
    "map": _map,
    "max": _extreme(max),
    "min": _extreme(min),
    "reject": _select(False, False),
    "rejectattr": _select(True, False),
    "replace": _replace,
    "reverse": _reverse,
    "round": _round,
    "safe": _texts(str, 1),
    "select": _select(False, True),
    "selectattr": _select(True, True),
    "slice": _slice,
    "sort": _sort,
    "string": _texts(str, 1),
    "striptags": _striptags,
    "sum": _sum,
    "title": _texts(_title, 8),
    "tojson": _tojson,
    "trim": _trim,
    "truncate": _truncate,
    "unique": _unique,
    "upper": _texts(str.upper),
    "urlencode": _urlencode,
    "wordcount": _wordcount,
    "wordwrap": _wordwrap,
}
"""Filters by name. Each gets the meter, the value, then the arguments written in the template."""
