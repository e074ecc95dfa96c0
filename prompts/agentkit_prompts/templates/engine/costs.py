"""What templates can ask for and what it costs at worst: one table for both engines, read before anything runs.

A cost is a number of steps (some 50 ns each) by the operands themselves. It is what the slowest operands of their
sizes take, not what these take: C code cannot be stopped half-way, and holds the lock of the interpreter while it runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from jinja2 import nodes

__all__ = ["BYTES", "CODECS", "CODEC_ERRORS", "COSTS", "NODE_STEPS", "SAME_SIZE", "WIDTH", "Cost", "cost"]

CODECS = frozenset({"ascii", "latin-1", "latin1", "utf-8", "utf8"})
"""Encodings that templates may name: `idna` and `punycode` are quadratic, others make texts 80 times as long."""
CODEC_ERRORS = frozenset({"backslashreplace", "ignore", "replace", "strict", "surrogatepass"})
"""Error handlers that templates may name."""
NODE_STEPS: Mapping[type[nodes.Node], int] = {
    nodes.Test: 8,
    nodes.Slice: 12,
    nodes.Call: 8,
    nodes.Dict: 8,
    nodes.Mod: 8,
}
"""Steps of one evaluation of a node in a loop or a macro, on top of what its operands cost; of any other node it is 1.

With operands of hardly any size, these still take some calls of Python functions. Filters charge for themselves.
"""
_QUICK_SEARCH = 30_000
_QUICK_NEEDLE = 100
_SHORT_SEARCH = 2_500
_RUN = re.compile(r"\s+|\S+")


class Cost(NamedTuple):
    """One row of the table."""

    worst: Callable[..., int]
    """Steps by the operands: the value, then the arguments as they are given."""
    reason: str
    """Where the number comes from."""


def _size(value: object) -> int:
    return len(value) if isinstance(value, str | bytes | tuple | list) else 0


def _whole(value: object) -> int:
    return max(0, value) if isinstance(value, int) else 0


def _linear(chars_per_step: int) -> Callable[..., int]:
    def worst(value: Any, *args: Any, **_: Any) -> int:
        steps = 1 + len(value) // chars_per_step
        return steps + sum([_size(one) for one in args]) // 16 if args else steps

    return worst


def _per_char(steps: int) -> Callable[..., int]:
    return lambda value, *args, **_: 2 + steps * _size(value)


def _forward(value: Any, part: Any = "", *args: Any, **_: Any) -> int:
    size, small = _size(value), _size(part)
    if small < 2 or small > size:
        return 2 + size // 16
    if size < _SHORT_SEARCH or small < 6 or (small < _QUICK_NEEDLE and size < _QUICK_SEARCH):
        return 2 + size // 16 + size * min(small, size - small + 1) // 32
    return 2 + (size + small) // 8


def _backward(value: Any, part: Any = "", *args: Any, **_: Any) -> int:
    size, small = _size(value), _size(part)
    return 2 + size // 16 + (size * min(small, size - small + 1) // 32 if 1 < small <= size else 0)


def _strip(value: Any, chars: Any = None, *args: Any, **_: Any) -> int:
    size = len(value)
    return 2 + size // 8 + (size * _size(chars) // 32 if chars is not None else 0)


def _affix(value: Any, part: Any = "", *args: Any, **_: Any) -> int:
    parts = part if isinstance(part, tuple) else (part,)
    return 1 + len(parts) + sum([min(_size(value), _size(one)) for one in parts]) // 16


def _split(search: Callable[..., int]) -> Callable[..., int]:
    def worst(value: Any, sep: Any = None, *args: Any, **_: Any) -> int:
        size, small = _size(value), _size(sep)
        return search(value, sep) + (size // small if small else size // 2)

    return worst


def _replace(value: Any, old: Any = "", new: Any = "", *args: Any, **_: Any) -> int:
    found = value.count(old) if isinstance(old, str) and isinstance(value, str) else 0
    return 2 * _forward(value, old) + found + (_size(value) + found * max(0, _size(new) - _size(old))) // 16


def _padded(value: Any, width: Any = 80, *args: Any, **_: Any) -> int:
    return 2 + max(_size(value), _whole(width)) // 16


def _expandtabs(value: str, tabsize: Any = 8, *args: Any, **_: Any) -> int:
    return 2 + (_size(value) + value.count("\t") * _whole(tabsize)) // 8


def _int(value: Any, default: Any = 0, base: Any = 10, *args: Any, **_: Any) -> int:
    size = _size(value)
    return 10 + size // 4 + (0 if base in (2, 4, 8, 16, 32) else size * size // 20_000)


def _wordwrap(value: str, width: Any = 79, long_words: Any = True, wrapstring: Any = "\n", *args: Any, **_: Any) -> int:
    columns = max(1, _whole(width))
    lines = _size(value) // columns + len(value.splitlines()) + 1
    longest = max(map(len, _RUN.findall(value)), default=0)
    return 6 * _size(value) + 40 * lines + longest * longest // (32 * columns) + lines * _size(wrapstring) // 16


def _title(value: str, *args: Any, **_: Any) -> int:
    words = len(value.split()) + sum([value.count(mark) for mark in "-({[<"])
    return 10 + _size(value) // 2 + 10 * words


def _indent(value: str, width: Any = 4, *args: Any, **_: Any) -> int:
    start = _size(width) if isinstance(width, str) else _whole(width)
    return 2 + _size(value) // 4 + (value.count("\n") + len(value.splitlines()) + 1) * (start + 16) // 16


def _urlize(value: str, *args: Any, **_: Any) -> int:
    longest = max(map(len, _RUN.findall(value)), default=0)
    return 20 * _size(value) + longest * longest // 8 + sum([_size(one) for one in args]) * _size(value) // 64


def _printed_int(value: Any) -> int:
    bits = value.bit_length()
    return 2 + int(bits * bits // 200_000)


def _divided(left: Any, right: Any) -> int:
    bits = sum([one.bit_length() for one in (left, right) if isinstance(one, int)])
    return 2 + int(bits * bits // 100_000)


SAME_SIZE = (  # the first six change case
    *("capitalize", "casefold", "lower", "swapcase", "title", "upper"),
    *("lstrip", "rstrip", "strip", "removeprefix", "removesuffix", "partition", "rpartition"),
    *("count", "endswith", "find", "index", "rfind", "rindex", "startswith"),
    *("isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower"),
    *("isnumeric", "isprintable", "isspace", "istitle", "isupper"),
)
"""Methods of str whose result is about as long as the text."""
WIDTH = ("center", "ljust", "rjust", "zfill")
"""Methods of str whose first argument is the length of the result."""
BYTES = ("decode", "hex")
"""Methods of bytes that templates may call."""

_CASE = Cost(_linear(4), "each character is looked up in the Unicode tables; 12 ns where it becomes three")
_KIND = Cost(_linear(8), "each character is looked up in the Unicode tables")
_COPY = Cost(_linear(16), "compares one end and copies the rest")
_FIND = Cost(
    _forward,
    "compares size times part; with long texts and parts Python takes the two-way search, which is linear",
)
_FIND_BACK = Cost(_backward, "Python has no linear search from the right: compares size times part")
_STRIP = Cost(_strip, "each character is looked for among those to strip: size times their number")
_AFFIX = Cost(_affix, "each text of a tuple is compared with the end")
_PAD = Cost(_padded, "writes as many characters as the width")

COSTS: dict[str, Cost] = {
    # methods of text
    **dict.fromkeys(
        [f"str.{name}" for name in ("capitalize", "casefold", "lower", "swapcase", "title", "upper")], _CASE
    ),
    **dict.fromkeys([f"str.{name}" for name in SAME_SIZE if name.startswith("is")], _KIND),
    **dict.fromkeys(("str.removeprefix", "str.removesuffix"), _COPY),
    **dict.fromkeys(("str.count", "str.find", "str.index", "str.partition"), _FIND),
    **dict.fromkeys(("str.rfind", "str.rindex", "str.rpartition"), _FIND_BACK),
    **dict.fromkeys(("str.strip", "str.lstrip", "str.rstrip"), _STRIP),
    **dict.fromkeys(("str.startswith", "str.endswith"), _AFFIX),
    **dict.fromkeys([f"str.{name}" for name in WIDTH], _PAD),
    "str.split": Cost(_split(_forward), "a search from the left, and a new text for every separator that fits"),
    "str.rsplit": Cost(_split(_backward), "a search from the right, and a new text for every separator that fits"),
    "str.splitlines": Cost(_linear(2), "a new text for every character"),
    "str.replace": Cost(_replace, "two searches and the characters of the result"),
    "str.expandtabs": Cost(_expandtabs, "writes as many characters as there are tabs, times the width of one"),
    "str.encode": Cost(_linear(2), "an escape of ten bytes for every character; CODECS only"),
    "bytes.decode": Cost(_linear(2), "an escape of four characters for every byte; CODECS only"),
    "bytes.hex": Cost(_linear(8), "writes two characters for every byte"),
    # filters
    "filter.escape": Cost(_linear(4), "writes five characters for every one"),
    "filter.float": Cost(_linear(4), "digits of other scripts are looked up one by one"),
    "filter.indent": Cost(_indent, "writes the indent once for every line"),
    "filter.int": Cost(_int, "reading a number is quadratic in its digits, but for bases that are powers of two"),
    "filter.striptags": Cost(
        lambda value, *args, **_: 4 * _size(value) + value.count("<") * _size(value) // 256,
        "the text is copied for each tag that is cut out of it",
    ),
    "filter.title": Cost(_title, "a regular expression splits the text into words, each made anew"),
    "filter.truncate": Cost(_linear(8), "copies the text, and searches one space from the right"),
    "filter.urlencode": Cost(_per_char(2), "three characters for every byte, one by one"),
    "filter.urlize": Cost(_urlize, "regular expressions at every word; brackets around a word are moved one by one"),
    "filter.wordcount": Cost(_per_char(1), "a regular expression finds a word at every second one"),
    "filter.wordwrap": Cost(
        _wordwrap, "a long word is copied for each line it is cut into; words by a regular expression"
    ),
    # numbers
    "print int": Cost(_printed_int, "writing a number is quadratic in its digits"),
    "print float": Cost(lambda value, *args, **_: 10, "the shortest digits that read back as the number: up to 0.5 us"),
    "divide": Cost(_divided, "dividing is quadratic in the digits"),
}
"""Rows by `type.method`, `filter.name` or what is done; nothing that can run long is offered without one."""


def cost(name: str, operands: tuple[Any, ...], keywords: Mapping[str, Any] = MappingProxyType({})) -> int:
    """Return the steps that a row of the table takes at worst, by operands as a template gives them."""
    try:
        return COSTS[name].worst(*operands, **keywords)
    except TypeError:  # arguments that the function itself is going to refuse
        return 1000
