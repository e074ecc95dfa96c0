"""What templates can ask for and what it costs at worst: one table for both engines, read before anything runs.

A cost is a number of steps (some 50 ns each) by the operands themselves. It is what the slowest operands of their
sizes take, not what these take: C code cannot be stopped half-way, and holds the lock of the interpreter while it runs.
Where the engines do the same in two ways, the row holds the slower one. What has no row is not offered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar

from jinja2 import nodes

from agentkit_prompts.templates.operations import worst

__all__ = ["BYTES", "CODECS", "CODEC_ERRORS", "COSTS", "NODE_STEPS", "SAME_SIZE", "WIDTH", "cost", "offered"]

_Run = TypeVar("_Run", bound=Callable[..., Any])

CODECS = frozenset({"ascii", "latin-1", "latin1", "utf-8", "utf8"})
"""Encodings that templates may name: `idna` and `punycode` are quadratic, others make texts 80 times as long."""
CODEC_ERRORS = frozenset({"backslashreplace", "ignore", "replace", "strict", "surrogatepass"})
"""Error handlers that templates may name."""
NODE_STEPS: Mapping[type[nodes.Node], int] = {
    nodes.Test: 16,
    nodes.Slice: 16,
    nodes.Call: 12,
    nodes.Dict: 16,
    nodes.List: 6,
    nodes.Tuple: 6,
    nodes.Mod: 8,
    nodes.Add: 4,
    nodes.Mul: 4,
    nodes.Sub: 4,
    nodes.Compare: 4,
    nodes.Concat: 6,
}
"""Steps of one evaluation of a node in a loop or a macro, on top of what its operands cost; of any other node it is 1.

With operands of hardly any size, these still take some calls of Python functions. Filters charge for themselves.
"""


class Cost(NamedTuple):
    """One row of the table."""

    worst: Callable[..., int]
    """Steps by the operands: the value, then the arguments as they are given."""
    reason: str
    """Where the number comes from."""
    walks: Literal["", "hash", "measure", "search", "sort"] = ""
    """What else is done to every value inside of nested operands, in C: a method of the meter that charges each of
    them. They become keys, are compared or hashed, a value is compared with each of some others, or they are sorted."""


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
_KINDS = (
    *("boolean", "callable", "defined", "escaped", "false", "float", "integer", "iterable", "mapping", "none"),
    *("number", "sameas", "sequence", "string", "true", "undefined"),
)
_COMPARISONS = (
    *("!=", "<", "<=", "==", ">", ">=", "eq", "equalto", "ge", "greaterthan", "gt", "le", "lessthan", "lt", "ne"),
)

_CASE = Cost(worst.linear(3, 4), "each character is looked up in the Unicode tables; 12 ns where it becomes three")
_KIND = Cost(worst.linear(8, 4), "each character is looked up in the Unicode tables")
_COPY = Cost(worst.linear(16), "compares one end and copies the rest")
_FIND = Cost(
    worst.forward,
    "compares size times part; with long texts and parts Python takes the two-way search, which is linear",
)
_FIND_BACK = Cost(worst.backward, "Python has no linear search from the right: compares size times part")
_STRIP = Cost(worst.strip, "each character is looked for among those to strip: size times their number")
_AFFIX = Cost(worst.affix, "each text of a tuple is compared with the end")
_PAD = Cost(worst.padded, "writes as many characters as the width")
_ESCAPE = Cost(worst.linear(3, 20), "writes five characters for every one")
_SAME = Cost(worst.fixed(6), "returns what it gets, or a part of it that is found at once")
_KIND_OF = Cost(worst.fixed(10), "looks at the type of a value, or whether it is there")
_NUMBER = Cost(worst.fixed(16), "one operation on a number, of at most 8,192 bits")
_SELECT = Cost(worst.named(12), "an attribute and a test for each item; the test charges for itself")
_EXTREME = Cost(worst.named(10), "compares each item with the one that is ahead", "measure")
_COMPARED = Cost(worst.fixed(8), "walks through both values until they differ", "measure")
_NAMED = Cost(worst.fixed(10), "hashes the value, which is looked up as a name", "measure")
_DIVIDED = Cost(worst.divided, "dividing is quadratic in the digits")
_FOUND = Cost(worst.each(1), "compares every item with the value", "search")
_LIST = Cost(worst.each(2), "a reference for each item")
_TURN = Cost(worst.fixed(45), "one of a few values, or a field of an object")
_MADE = Cost(worst.each(8, 24), "hashes each key and keeps it", "hash")

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
    "str.split": Cost(worst.split(worst.forward), "a search, and a new text for every separator that fits"),
    "str.rsplit": Cost(worst.split(worst.backward), "a search from the right, and a new text for every separator"),
    "str.splitlines": Cost(worst.linear(2), "a new text for every character"),
    "str.replace": Cost(worst.replace, "two searches and the characters of the result"),
    "str.expandtabs": Cost(worst.expandtabs, "writes as many characters as there are tabs, times the width of one"),
    "str.encode": Cost(worst.linear(2), "an escape of ten bytes for every character; CODECS only"),
    "str.join": Cost(lambda glue, items=(), *_, **__: worst.joined(items, glue), "copies each text and the glue"),
    **dict.fromkeys(
        ("str.format", "str.format_map"),
        Cost(worst.filled, "a field for every bracket; the values are charged as they are written"),
    ),
    # methods of other values, by what holds them
    "bytes.decode": Cost(worst.linear(2), "an escape of four characters for every byte; CODECS only"),
    "bytes.hex": Cost(worst.linear(8), "writes two characters for every byte"),
    **dict.fromkeys(("dict.items", "dict.keys", "dict.values", "list.copy"), _LIST),
    "dict.copy": Cost(worst.each(4), "a key and a reference for each item"),
    "dict.get": Cost(worst.fixed(4), "hashes the key and finds it", "measure"),
    **dict.fromkeys(("list.count", "list.index", "tuple.count", "tuple.index"), _FOUND),
    **dict.fromkeys(("range.count", "range.index"), Cost(worst.each(2, 10), "looks at each number of the range")),
    **dict.fromkeys([f"int.{name}" for name in ("as_integer_ratio", "bit_count", "bit_length", "conjugate")], _NUMBER),
    **dict.fromkeys([f"float.{name}" for name in ("as_integer_ratio", "conjugate", "hex", "is_integer")], _NUMBER),
    "loop.changed": Cost(worst.fixed(45), "compares what it gets with what it got before", "measure"),
    **dict.fromkeys(("loop.cycle", "cycler.next", "cycler.reset"), _TURN),
    **dict.fromkeys(
        [f"date.{name}" for name in ("date", "isoformat", "isoweekday", "time", "total_seconds", "weekday")], _TURN
    ),
    "date.strftime": Cost(worst.linear(1), "some characters for each directive; patterns of at most 1,000"),
    # functions
    **dict.fromkeys([f"function.{name}" for name in ("dict", "dict.fromkeys", "namespace")], _MADE),
    **dict.fromkeys([f"function.{name}" for name in ("cycler", "joiner", "range", "raise_exception")], _TURN),
    "function.strftime_now": Cost(worst.linear(1), "some characters for each directive; patterns of at most 1,000"),
    # filters of text
    **dict.fromkeys([f"filter.{name}" for name in ("capitalize", "lower", "upper")], _CASE),
    **dict.fromkeys([f"filter.{name}" for name in ("e", "escape", "forceescape")], _ESCAPE),
    **dict.fromkeys([f"filter.{name}" for name in ("mark_generation", "safe", "string")], _COPY),
    "filter.center": _PAD,
    "filter.format": Cost(worst.filled, "a field for every sign; the values are charged as they are written"),
    "filter.indent": Cost(worst.indent, "writes the indent once for every line"),
    "filter.replace": Cost(worst.replace, "two searches and the characters of the result"),
    "filter.striptags": Cost(worst.tags, "the text is copied for each tag that is cut out of it"),
    "filter.title": Cost(worst.title, "a regular expression splits the text into words, each made anew"),
    "filter.trim": _STRIP,
    "filter.truncate": Cost(worst.linear(8, 20), "copies the text, and searches one space from the right"),
    "filter.urlencode": Cost(worst.per_char(2), "three characters for every byte, one by one"),
    "filter.urlize": Cost(worst.urlize, "regular expressions at every word; brackets around it are moved one by one"),
    "filter.wordcount": Cost(worst.per_char(1), "a regular expression finds a word at every second character"),
    "filter.wordwrap": Cost(worst.wordwrap, "a long word is copied for each line that it is cut into"),
    # filters of numbers
    **dict.fromkeys([f"filter.{name}" for name in ("abs", "filesizeformat")], _NUMBER),
    "filter.float": Cost(worst.linear(4, 24), "digits of other scripts are looked up one by one; an error costs 1 us"),
    "filter.int": Cost(worst.whole_number, "reading digits is quadratic, but in bases that are powers of two"),
    "filter.round": Cost(worst.rounded, "a power of ten with as many digits as are kept"),
    # filters of lists and mappings
    **dict.fromkeys([f"filter.{name}" for name in ("count", "d", "default", "first", "last", "length")], _SAME),
    "filter.attr": Cost(worst.fixed(60), "asks the sandbox, which makes an undefined value of a missing one"),
    "filter.batch": Cost(worst.rows, "a list for each row, filled up to its width"),
    "filter.dictsort": Cost(worst.named(20, 60), "a pair for each key, and its sorting", "sort"),
    "filter.groupby": Cost(worst.named(26), "a pair for each item, its sorting, and a group for each", "sort"),
    "filter.items": _LIST,
    "filter.join": Cost(worst.joined, "copies each text and what stands between; values as they are written"),
    "filter.list": _LIST,
    "filter.map": Cost(worst.named(12), "an attribute or a filter for each item; the filter charges for itself"),
    **dict.fromkeys(("filter.max", "filter.min"), _EXTREME),
    "filter.pprint": Cost(worst.pretty, "each level is written out again for every level above it"),
    **dict.fromkeys([f"filter.{name}" for name in ("reject", "rejectattr", "select", "selectattr")], _SELECT),
    "filter.reverse": Cost(worst.each(2), "a reference or a character for each item"),
    "filter.slice": Cost(worst.columns, "a list for each column"),
    "filter.sort": Cost(worst.named(24), "a key for each item, and their sorting", "sort"),
    "filter.sum": Cost(worst.summed, "adds items one by one; lists copy what came before each time"),
    "filter.tojson": Cost(worst.indented, "an indent for every line, times its depth; values as they are written"),
    "filter.unique": Cost(worst.distinct, "hashes each item; what an attribute holds may all have one hash", "hash"),
    "filter.xmlattr": Cost(worst.each(40), "two texts are escaped for each key"),
    # tests
    **dict.fromkeys([f"test.{name}" for name in _KINDS], _KIND_OF),
    **dict.fromkeys([f"test.{name}" for name in ("divisibleby", "even", "odd")], _DIVIDED),
    **dict.fromkeys(
        ("test.filter", "test.test"), Cost(worst.fixed(10), "hashes the value to look its name up", "measure")
    ),
    "test.in": Cost(worst.sought, "compares every item with the value, or searches a text", "search"),
    **dict.fromkeys(("test.lower", "test.upper"), _CASE),
    **dict.fromkeys([f"test.{name}" for name in _COMPARISONS], _COMPARED),
    # operators
    "operator.+": Cost(worst.added, "copies both operands, of at most the limit each"),
    "operator.*": Cost(worst.repeated, "writes the text or list as often as the number says"),
    "operator.**": Cost(worst.raised, "multiplying is quadratic in the digits; at most 8,192 bits"),
    **dict.fromkeys(("operator.-", "operator./"), _NUMBER),
    "operator.//": _DIVIDED,
    "operator.%": Cost(worst.remainder, "dividing is quadratic in the digits; of a text, a field for every sign"),
    "operator.~": Cost(worst.each(4), "copies each text; values are charged as they are written"),
    **dict.fromkeys(
        ("operator.eq", "operator.ne", "operator.lt", "operator.lteq", "operator.gt", "operator.gteq"), _COMPARED
    ),
    "operator.in": Cost(worst.sought, "compares every item with the value, or searches a text", "search"),
    "operator.[]": Cost(worst.fixed(4), "hashes the key and finds it", "measure"),
    "operator.[:]": Cost(worst.sliced, "copies the characters or items that are left"),
    # what values cost where they are written
    "print int": Cost(worst.printed_int, "writing a number is quadratic in its digits"),
    "print float": Cost(worst.fixed(10), "the shortest digits that read back as the number: up to 0.5 us"),
}
"""Rows by `type.method`, `function.name`, `filter.name`, `test.name`, `operator.sign` or what is printed."""


def cost(name: str, operands: tuple[Any, ...], keywords: Mapping[str, Any] = MappingProxyType({})) -> int:
    """Return the steps that a row of the table takes at worst, by operands as a template gives them."""
    try:
        return COSTS[name].worst(*operands, **keywords)
    except TypeError:  # arguments that the function itself is going to refuse
        return 1000


def offered(kind: str, table: Mapping[str, _Run]) -> dict[str, _Run]:
    """Return a table of functions that templates can call; each must have a row of costs.

    Raises:
        LookupError: One has none.
    """
    missing = sorted(name for name in table if f"{kind}.{name}" not in COSTS)
    if missing:
        raise LookupError(f"templates may call only what has a row of costs; {kind}: {', '.join(missing)}")
    return dict(table)
