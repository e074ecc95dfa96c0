"""Guards of operations whose time or result is not proportional to the size of their operands.

The parameters of a guard are a meter and the parameters of the filter or method that it guards. Before the operation, a
guard counts the text or list that the operation will create, or raises an error if the operation would be too slow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from agentkit_prompts.limits import MAX_PATTERN_CHARS
from agentkit_prompts.templates.sandbox.meter import Meter, refuse_large
from agentkit_prompts.templates.sandbox.operation_errors import TemplateOperationError

Guard = Callable[..., None]
"""Function of a meter and of the arguments of an operation."""
MAX_FIELD_WIDTH = 10_000
"""Maximum width or precision, in characters, of a field of `%` and `format`."""
MAX_INDENT = 16
"""Maximum spaces per level of indented JSON."""
MAX_PRECISION = 300
"""Maximum digits of the filter `round`."""
MAX_PRINTED = 50_000
"""Maximum characters of the result of the filter `pprint`."""
MAX_SEARCH = 200_000_000
"""Maximum product of two lengths: of a text, and of the text that is searched in it from the right or stripped from
it."""
CODECS = frozenset({"ascii", "latin-1", "latin1", "utf-8", "utf8"})
"""Encodings that templates can name. Others are refused, because `idna` and `punycode` take quadratic time, and some
encodings make a text 80 times as long."""
CODEC_ERRORS = frozenset({"backslashreplace", "ignore", "replace", "strict", "surrogatepass"})
"""Error handlers that templates can name."""
TIME_DIRECTIVES = frozenset("aAbBdfGHIjmMpSuUVwWyYzZ%")
"""Letters of `strftime` whose meaning is the same on every machine."""
_CHARS_PER_PART = 16
"""Characters that are counted for each part of a split text."""
_MAX_URL_SCHEMES = 100
_MAX_TAG_WORK = 1_000_000_000
_RUN = re.compile(r"\s+|\S+")
_DIRECTIVE = re.compile(r"%(.?)", re.S)
_FIELD = re.compile(
    r"%(?:\((?P<name>[^()]*)\))?(?P<flags>[#0\- +]*)(?P<width>\*|\d*)(?:\.(?P<precision>\*|\d*))?(?P<kind>.?)", re.S
)


def _length(value: Any) -> int:
    if isinstance(value, str | bytes | list | tuple):
        return len(value)
    return 0


def _count(value: Any) -> int:
    if isinstance(value, int):
        return max(0, value)
    return 0


def _fields_of(meter: Meter, template: str) -> Iterator[re.Match[str]]:
    """Yield the `%` fields of a text, except `%%`.

    Raises:
        TemplateOperationError: A field is too wide, or its width is computed at run time.
    """
    for field in _FIELD.finditer(template):
        meter.visit(1)
        if field["kind"] == "%":
            continue
            # Python allows nested brackets in a name, after which a width can follow; the pattern does not match them.
        if field["kind"] == "(":
            raise TemplateOperationError(f"the format field {field[0][:40]!r} has brackets in its name")
        if _is_wide(field["width"]) or _is_wide(field["precision"]):
            raise TemplateOperationError(
                f"the format field {field[0][:40]!r} is wider than {MAX_FIELD_WIDTH:,} characters"
            )
        yield field


def _is_wide(size: str | None) -> bool:
    """True if a width or precision is too large, or computed at run time."""
    if not size:
        return False
    return size == "*" or len(size) > 5 or int(size) > MAX_FIELD_WIDTH


def _longest(meter: Meter, values: Any) -> int:
    """Return an upper limit of the number of characters of the longest value."""
    parts: Sequence[Any] = (values,)
    if isinstance(values, Mapping):
        parts = list(values.values())
    elif isinstance(values, tuple):
        parts = values
    refuse_large(*parts)
    longest = 0
    for part in parts:
        size = meter.size(part)
        longest = max(longest, size.chars + 24 * size.values)
    return longest


def _percent(meter: Meter, template: str, values: Any) -> None:
    fields = room = 0
    for field in _fields_of(meter, template):
        fields += 1
        room += sum([int(field[name]) for name in ("width", "precision") if field[name]])
    if fields:
        meter.make(len(template) + room + fields * _longest(meter, values))


# Operators


def _add(meter: Meter, left: Any, right: Any) -> None:
    if isinstance(left, str | bytes):
        meter.make(len(left) + _length(right))
    elif isinstance(left, list | tuple):
        meter.make_items(len(left) + _length(right))
    else:
        refuse_large(left, right)


def _multiply(meter: Meter, left: Any, right: Any) -> None:
    for count, value in ((left, right), (right, left)):
        if isinstance(count, int) and isinstance(value, str | bytes):
            meter.make(len(value) * _count(count))
            return
        if isinstance(count, int) and isinstance(value, list | tuple):
            meter.make_items(len(value) * _count(count))
            return
    refuse_large(left, right)


def _power(meter: Meter, left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        # A number of about the size of the result: computing the result itself could take too long.
        refuse_large(1 << min(left.bit_length() * abs(right), 1 << 20))


def _modulo(meter: Meter, left: Any, right: Any) -> None:
    if isinstance(left, str):
        _percent(meter, left, right)
    elif isinstance(left, bytes):
        _percent(meter, left.decode("latin-1"), right)
    else:
        refuse_large(left, right)


def _numbers(meter: Meter, left: Any, right: Any) -> None:
    refuse_large(left, right)


OPERATOR_GUARDS: dict[str, Guard] = {
    "+": _add,
    "-": _numbers,
    "*": _multiply,
    "/": _numbers,
    "//": _numbers,
    "%": _modulo,
    "**": _power,
}
"""Guards of arithmetic operators."""


# Methods of text, and filters of the same name


def width(meter: Meter, value: Any, width: Any = 80, *fill: Any) -> None:
    meter.make(max(_length(value), _count(width)))


def expandtabs(meter: Meter, value: Any, tabsize: Any = 8) -> None:
    meter.make(len(value) + value.count("\t" if isinstance(value, str) else b"\t") * _count(tabsize))


def join(meter: Meter, glue: str, items: Any = ()) -> None:
    if isinstance(items, str):
        meter.visit(len(items))
        meter.make(len(items) * (1 + len(glue)))
    elif isinstance(items, Collection):  # a dictionary or a view of it, too
        meter.make(sum(map(_length, items)) + len(items) * len(glue))


def replace(meter: Meter, value: Any, old: Any = "", new: Any = "", count: Any = -1) -> None:
    if not isinstance(value, bytes):
        value, old, new = str(value), str(old), str(new)
    matches = value.count(old)
    if isinstance(count, int) and count >= 0:
        matches = min(count, matches)
    meter.make(max(0, len(value) + matches * (len(new) - len(old))))


def search_back(meter: Meter, value: Any, part: Any = None, *rest: Any) -> None:
    # The time of both operations is the product of the lengths: Python's search from the right is not linear, and
    # `strip` compares each character with all characters to strip.
    if _length(part) > 1 and _length(value) * _length(part) > MAX_SEARCH:
        raise TemplateOperationError(
            f"the texts are too long: {len(value):,} times {len(part):,} characters is more than {MAX_SEARCH:,}"
        )
    if _length(value) * _length(part) > MAX_SEARCH // 100:
        meter.look()


def split(meter: Meter, value: Any, sep: Any = None, maxsplit: Any = -1) -> None:
    parts = len(value) // 2 if sep is None else value.count(sep)
    if isinstance(maxsplit, int) and maxsplit >= 0:
        parts = min(parts, maxsplit)
    meter.make(len(value))
    meter.make_items(parts, _CHARS_PER_PART)


def rsplit(meter: Meter, value: Any, sep: Any = None, maxsplit: Any = -1) -> None:
    search_back(meter, value, sep)
    split(meter, value, sep, maxsplit)


def splitlines(meter: Meter, value: Any, keepends: Any = False) -> None:
    breaks: list[Any] = [b"\n", b"\r"]
    if isinstance(value, str):
        breaks = list("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")
    meter.make(len(value))
    meter.make_items(sum([value.count(line_break) for line_break in breaks]), _CHARS_PER_PART)


def codec(meter: Meter, value: Any, encoding: Any = "utf-8", errors: Any = "strict") -> None:
    for name, names in ((encoding, CODECS), (errors, CODEC_ERRORS)):
        if not isinstance(name, str) or name.lower().replace("_", "-") not in names:
            valid = ", ".join(sorted(names))
            raise TemplateOperationError(
                f"templates cannot use the encoding or error handler {str(name)[:40]!r}; valid: {valid}"
            )


def sets(meter: Meter, value: Any, *others: Any) -> None:
    for other in others:
        if not isinstance(other, Collection):
            raise TemplateOperationError(f"expected a list or a set, got {type(other).__name__}")
        meter.visit(len(other))
        meter.keys(other if isinstance(other, list | tuple | set | frozenset) else list(other))
    meter.make_items(len(value) + sum(map(len, others)), _CHARS_PER_PART)


def check_strftime(pattern: Any, *, any_directive: bool = False) -> None:
    """Reject a long pattern and, unless `any_directive`, directives whose meaning depends on the machine."""
    if not isinstance(pattern, str):
        raise TemplateOperationError(f"strftime expects a text, got {type(pattern).__name__}")
    if len(pattern) > MAX_PATTERN_CHARS:
        raise TemplateOperationError(f"the strftime format is longer than {MAX_PATTERN_CHARS:,} characters")
    for match in _DIRECTIVE.finditer(pattern):
        if match[1] not in TIME_DIRECTIVES and not any_directive:
            valid = ", ".join("%" + letter for letter in sorted(TIME_DIRECTIVES))
            raise TemplateOperationError(f"strftime: {match[0]!r} is not one of {valid}")


def check_format_spec(spec: str) -> None:
    """Reject the format of a `{}` field whose width or precision is too large."""
    digits = "".join([letter if letter.isdigit() else " " for letter in spec]).split()
    if any(len(number) > 5 or int(number) > MAX_FIELD_WIDTH for number in digits):
        raise TemplateOperationError(f"the format {spec[:40]!r} is wider than {MAX_FIELD_WIDTH:,} characters")


def read_text(meter: Meter, value: Any, *rest: Any, **options: Any) -> None:
    meter.deep(value)


# Methods of lists and mappings


def visit_owner(meter: Meter, value: Any, *rest: Any) -> None:
    """Count the items of a container that the method copies."""
    meter.visit(len(value))


def search_owner(meter: Meter, value: Any, *rest: Any) -> None:
    """Count the items of a container that the method compares."""
    meter.deep(value)
    meter.visit(len(value))


def fromkeys(meter: Meter, value: Any, keys: Any = (), *rest: Any) -> None:
    if not isinstance(keys, Collection):
        raise TemplateOperationError(f"expected a list or text, got {type(keys).__name__}")
    meter.visit(len(keys))
    meter.keys(keys)


# Filters


def batch(meter: Meter, value: Any, linecount: Any = 1, fill_with: Any = None) -> None:
    meter.make_items(9 * _length(value) + (_count(linecount) if fill_with is not None else 0))


def slice_filter(meter: Meter, value: Any, slices: Any = 1, fill_with: Any = None) -> None:
    meter.visit(_count(slices))
    meter.make_items(_length(value) + 8 * _count(slices))


def indent(meter: Meter, value: Any, width: Any = 4, first: Any = False, blank: Any = False) -> None:
    if not isinstance(value, str):
        # For a list, the filter of Jinja would append to it before it fails.
        raise TemplateOperationError(f"indent expects text, got {type(value).__name__}")
    size = len(width) if isinstance(width, str) else _count(width)
    meter.make(len(value) + (len(value.splitlines()) + 1) * (size + 1))


def join_filter(meter: Meter, value: Any, d: Any = "", attribute: Any = None) -> None:
    glue = str(d)
    if isinstance(value, str):
        join(meter, glue, value)
    elif hasattr(value, "__len__"):
        items = list(value)
        size = meter.size(items)
        meter.make(size.chars + size.values * 24 + len(items) * len(glue))


def round_filter(meter: Meter, value: Any, precision: Any = 0, method: Any = "common") -> None:
    refuse_large(value)
    if isinstance(precision, int) and abs(precision) > MAX_PRECISION:
        raise TemplateOperationError(f"round: the precision is at most {MAX_PRECISION} digits")


def striptags(meter: Meter, value: Any) -> None:
    text = str(value)
    if text.count("<") * len(text) > _MAX_TAG_WORK:
        raise TemplateOperationError("the text has too many tags for the filter striptags")
    meter.make(len(text))


def sum_filter(meter: Meter, value: Any, attribute: Any = None, start: Any = 0) -> None:
    # `Collection` also includes a view of a dictionary.
    if not isinstance(start, list | tuple) or not isinstance(value, Collection):
        return
    longest = meter.size(value).values
    if attribute is None:
        longest = max(map(_length, value), default=0)
    meter.make_items((_length(start) + len(value) * longest) * len(value))


def json_guard(
    meter: Meter,
    value: Any,
    ensure_ascii: Any = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: Any = False,
) -> None:
    """Count the JSON text of a value before the text is created."""
    step = len(indent) if isinstance(indent, str) else _count(indent)
    if step > MAX_INDENT:
        raise TemplateOperationError(f"tojson: the indent is at most {MAX_INDENT}, got {step}")
    size = meter.size(value)
    between = 4
    if isinstance(separators, Collection):
        between = sum(map(_length, separators))
    meter.make(size.chars + size.values * (between + step * size.depth))


def urlize(
    meter: Meter,
    value: Any,
    trim_url_limit: Any = None,
    nofollow: Any = False,
    target: Any = None,
    rel: Any = None,
    extra_schemes: Any = None,
) -> None:
    if _length(extra_schemes) > _MAX_URL_SCHEMES:
        raise TemplateOperationError(f"urlize: at most {_MAX_URL_SCHEMES} schemes")
    words = 1 + _length(value) // 2
    meter.make(_length(value) * 3 + words * (60 + _length(target) + _length(rel)))


def wordwrap(
    meter: Meter,
    value: Any,
    width: Any = 79,
    break_long_words: Any = True,
    wrapstring: Any = None,
    break_on_hyphens: Any = True,
) -> None:
    # For each line of a long word or a long run of spaces, the filter copies the rest of the word or run.
    longest = max((len(run[0]) for run in _RUN.finditer(str(value))), default=0)
    lines = _length(value) // max(1, _count(width)) + 1
    if min(lines, longest // max(1, _count(width))) * longest > MAX_SEARCH:
        raise TemplateOperationError("a word of the text is too long for the filter wordwrap")
    meter.make(_length(value) + lines * (1 + _length(wrapstring)) + str(value).count("\n") * _length(wrapstring))


def xmlattr(meter: Meter, value: Any, autospace: Any = True) -> None:
    size = meter.size(value)
    meter.make(6 * size.chars + 24 * size.values)
