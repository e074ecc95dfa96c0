"""What operations of templates cost at worst: formulas in steps, by operands as templates give them.

The table that says which operation has which, and why, is in `costs`.
"""

# ruff: noqa: D103 (each is the cost of what it is named for)

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sized
from typing import Any

__all__ = [
    "added",
    "affix",
    "backward",
    "columns",
    "count_of",
    "distinct",
    "divided",
    "each",
    "expandtabs",
    "filled",
    "fixed",
    "forward",
    "indent",
    "indented",
    "joined",
    "linear",
    "named",
    "padded",
    "per_char",
    "pretty",
    "printed_int",
    "raised",
    "remainder",
    "repeated",
    "replace",
    "rounded",
    "rows",
    "sliced",
    "sought",
    "split",
    "strip",
    "summed",
    "tags",
    "title",
    "urlize",
    "whole_number",
    "wordwrap",
]

_QUICK_SEARCH = 30_000
_QUICK_NEEDLE = 100
_SHORT_SEARCH = 2_500
_MAX_PARTS = 1_000
"""Texts of a tuple that are looked at one by one."""
_RUN = re.compile(r"\s+|\S+")
_MAX_LOOKED_AT = 150_000
"""Characters in which the longest word is looked for; a longer text may be one word."""


def size_of(value: object) -> int:
    return len(value) if isinstance(value, str | bytes | tuple | list) else 0


def _whole(value: object) -> int:
    return max(0, value) if isinstance(value, int) else 0


def linear(chars_per_step: int, base: int = 1) -> Callable[..., int]:
    def worst(value: Any, *args: Any, **_: Any) -> int:
        steps = base + len(value) // chars_per_step
        return steps + sum([size_of(one) for one in args]) // 16 if args else steps

    return worst


def per_char(steps: int) -> Callable[..., int]:
    return lambda value, *args, **_: 20 + steps * size_of(value)


def forward(value: Any, part: Any = "", *args: Any, **_: Any) -> int:
    size, small = size_of(value), size_of(part)
    if small < 2 or small > size:
        return 2 + size // 16
    if size < _SHORT_SEARCH or small < 6 or (small < _QUICK_NEEDLE and size < _QUICK_SEARCH):
        return 2 + size // 16 + size * min(small, size - small + 1) // 32
    return 2 + (size + small) // 8


def backward(value: Any, part: Any = "", *args: Any, **_: Any) -> int:
    size, small = size_of(value), size_of(part)
    return 2 + size // 16 + (size * min(small, size - small + 1) // 32 if 1 < small <= size else 0)


def strip(value: Any, chars: Any = None, *args: Any, **_: Any) -> int:
    size = len(value)
    return 2 + size // 8 + (size * size_of(chars) // 32 if chars is not None else 0)


def affix(value: Any, part: Any = "", *args: Any, **_: Any) -> int:
    parts = part if isinstance(part, tuple) else (part,)
    if len(parts) > _MAX_PARTS:
        return len(parts) * (8 + size_of(value) // 16)
    return 4 + 4 * len(parts) + sum([min(size_of(value), size_of(one)) for one in parts]) // 16


def split(search: Callable[..., int]) -> Callable[..., int]:
    def worst(value: Any, sep: Any = None, *args: Any, **_: Any) -> int:
        size, small = size_of(value), size_of(sep)
        return 6 + search(value, sep) + (size // small if small else size // 2)

    return worst


def replace(value: Any, old: Any = "", new: Any = "", *args: Any, **_: Any) -> int:
    found = value.count(old) if isinstance(old, str) and isinstance(value, str) else 0
    return 40 + 2 * forward(value, old) + found + (size_of(value) + found * max(0, size_of(new) - size_of(old))) // 16


def padded(value: Any, width: Any = 80, *args: Any, **_: Any) -> int:
    return 10 + max(size_of(value), _whole(width)) // 16


def expandtabs(value: str, tabsize: Any = 8, *args: Any, **_: Any) -> int:
    return 2 + (size_of(value) + value.count("\t") * _whole(tabsize)) // 8


def whole_number(value: Any, default: Any = 0, base: Any = 10, *args: Any, **_: Any) -> int:
    size = size_of(value)
    return 40 + size // 4 + (0 if base in (2, 4, 8, 16, 32) else size * size // 20_000)


def wordwrap(value: str, width: Any = 79, long_words: Any = True, wrapstring: Any = "\n", *args: Any, **_: Any) -> int:
    columns = max(1, _whole(width))
    if size_of(value) > _MAX_LOOKED_AT:
        return size_of(value) ** 2 // (32 * columns) + 6 * size_of(value)
    lines = size_of(value) // columns + len(value.splitlines()) + 1
    longest = max(map(len, _RUN.findall(value)), default=0)
    return (
        20 + 6 * size_of(value) + 40 * lines + longest * longest // (32 * columns) + lines * size_of(wrapstring) // 16
    )


def title(value: str, *args: Any, **_: Any) -> int:
    words = len(value.split()) + sum([value.count(mark) for mark in "-({[<"])
    return 25 + size_of(value) // 2 + 8 * words


def indent(value: str, width: Any = 4, *args: Any, **_: Any) -> int:
    start = size_of(width) if isinstance(width, str) else _whole(width)
    return 14 + size_of(value) // 4 + (value.count("\n") + len(value.splitlines()) + 1) * (start + 16) // 16


def urlize(value: str, *args: Any, **_: Any) -> int:
    if size_of(value) > _MAX_LOOKED_AT:
        return size_of(value) ** 2 // 8
    longest = max(map(len, _RUN.findall(value)), default=0)
    return 90 + 20 * size_of(value) + longest * longest // 8 + sum([size_of(one) for one in args]) * size_of(value) // 8


def printed_int(value: Any) -> int:
    bits = value.bit_length()
    return 2 + int(bits * bits // 200_000)


def divided(left: Any, right: Any = 1) -> int:
    bits = sum([one.bit_length() for one in (left, right) if isinstance(one, int)])
    return 14 + int(bits * bits // 100_000)


def count_of(value: object) -> int:
    return len(value) if isinstance(value, Sized) else 0


def fixed(steps: int) -> Callable[..., int]:
    return lambda *_, **__: steps


def each(steps: int, base: int = 10) -> Callable[..., int]:
    return lambda value=(), *_, **__: base + steps * count_of(value)


def named(steps: int, base: int = 50) -> Callable[..., int]:
    def worst(value: Any, *args: Any, **keywords: Any) -> int:
        given = (*args, *keywords.values())
        names = [one for one in given if isinstance(one, str)]
        parts = len(given) + sum([one.count(".") + one.count(",") for one in names])
        missing = sum(map(len, names)) // 16  # the name is written into an error for each item that lacks it
        return base + count_of(value) * (steps + (16 if parts < 4 else 25) * parts + missing) + 8 * parts

    return worst


def rows(value: Any, count: Any = 1, fill: Any = None, *args: Any, **keywords: Any) -> int:
    return 12 + 2 * count_of(value) + 8 * (count_of(value) // max(1, _whole(count)) + _whole(count))


def columns(value: Any, count: Any = 1, fill: Any = None, *args: Any, **keywords: Any) -> int:
    return 12 + 2 * count_of(value) + 8 * _whole(count)


def joined(value: Any, glue: Any = "", *args: Any, **keywords: Any) -> int:
    given = (*args, *keywords.values())
    names = [one for one in given if isinstance(one, str)]
    parts = len(given) - given.count(None) + sum([one.count(".") for one in names])
    digits = 1 + glue.bit_length() // 3 if isinstance(glue, int) else size_of(glue)
    between = digits + sum(map(len, names))
    return 40 + count_of(value) * (4 + 10 * parts + between // 16)


def summed(value: Any, attribute: Any = None, start: Any = 0, *args: Any, **keywords: Any) -> int:
    steps = named(6)(value, *([attribute] if isinstance(attribute, str) else ()))
    return (
        steps if isinstance(start, int | float) else steps + count_of(value) * (count_of(value) + count_of(start)) // 4
    )


def added(left: Any, right: Any) -> int:
    if isinstance(left, str | bytes):
        return 2 + (len(left) + size_of(right)) // 16
    return 2 + size_of(left) + size_of(right)


def repeated(left: Any, right: Any) -> int:
    value, times = (right, left) if isinstance(left, int) else (left, right)
    made = size_of(value) * _whole(times)
    return 2 + (made // 16 if isinstance(value, str | bytes) else made)


def raised(left: Any, right: Any) -> int:
    bits = left.bit_length() * abs(right) if isinstance(left, int) and isinstance(right, int) else 0
    return 10 + int(bits * bits // 100_000)


def sliced(value: Any, *bounds: Any) -> int:
    return 6 + (size_of(value) // 8 if isinstance(value, str | bytes) else size_of(value))


def sought(container: Any, value: Any) -> int:
    if isinstance(container, str | bytes):
        return forward(container, value)
    return 10 + (size_of(container) if isinstance(container, list | tuple) else 0)


def remainder(left: Any, right: Any) -> int:
    return filled(left) if isinstance(left, str) else divided(left, right)


def rounded(value: Any, precision: Any = 0, *args: Any, **_: Any) -> int:
    return 16 + 8 * abs(precision) if isinstance(precision, int) else 16


def tags(value: Any, *args: Any, **_: Any) -> int:
    size = size_of(value)
    opened: int = value.count("<")
    return 40 + 4 * size + opened * size // 256


def filled(template: Any, *args: Any, **keywords: Any) -> int:
    fields = template.count("%") + template.count("{") if isinstance(template, str) else 0
    return 75 + size_of(template) // 2 + 40 * fields


def indented(value: Any, *args: Any, **keywords: Any) -> int:
    """Lines that a value takes, each as long as the indent times its depth."""
    if not args and not keywords:
        return 30
    given = [part for one in (*args, *keywords.values()) for part in (one if isinstance(one, list | tuple) else (one,))]
    widest = 1 + sum([size_of(one) if isinstance(one, str) else _whole(one) for one in given])
    lines, _ = _written(value)
    return 40 + 20 * lines + widest * (lines + 1) // 16


def pretty(value: Any, *args: Any, **keywords: Any) -> int:
    lines, chars = _written(value)
    return 200 + 60 * lines + (4 + lines // 16) * (chars + 24 * lines)


def distinct(value: Any, case_sensitive: Any = False, attribute: Any = None, *args: Any, **keywords: Any) -> int:
    if attribute is None:
        return named(6)(value)
    return named(6)(value, str(attribute)[:1000]) + count_of(value) ** 2 // 8


def _written(value: Any) -> tuple[int, int]:
    """Return how many lines a value can take, each counted as often as it is deep, and the characters of its texts."""
    count = chars = 0
    level, depth = [value], 1
    while level:
        inner: list[Any] = []
        for one in level:
            if isinstance(one, Mapping):
                inner += one.values()
                chars += sum([size_of(key) for key in one if isinstance(key, str)])
            elif isinstance(one, str | bytes):
                chars += len(one)
            elif isinstance(one, list | tuple):
                inner += one
        count += (len(level) + len(inner)) * depth
        level, depth = inner, depth + 1
    return count, chars
