"""What Jinja offers and templates here do not, or with a limit. One table, which the documentation shows."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = [
    "CODECS",
    "CODEC_ERRORS",
    "MAX_CHARS",
    "MAX_FIELD_WIDTH",
    "MAX_INDENT",
    "MAX_PRECISION",
    "MAX_SEARCH",
    "REMOVED_FILTERS",
    "REMOVED_METHODS",
    "RESTRICTIONS",
    "TIME_DIRECTIVES",
    "Restriction",
]

Use = Literal["all", "prompt"]


class Restriction(NamedTuple):
    """One row of the table."""

    kind: Literal["filter", "function", "method", "statement", "value"]
    names: tuple[str, ...]
    rule: str
    """What is not possible."""
    reason: str
    use: Use = "all"
    """`prompt` if chat templates can do it: they mean what they mean to `transformers`."""


MAX_FIELD_WIDTH = 10_000
"""Width or precision of a field of `%` and `format`."""
MAX_INDENT = 16
"""Spaces per level of indented JSON."""
MAX_PRECISION = 300
"""Digits of the filter `round`."""
MAX_SEARCH = 200_000_000
"""Product of the lengths of a text and of what is searched in it from the right, or stripped off it."""
MAX_CHARS = {
    "pprint": 50_000,
    "striptags": 1_000_000,
    "title": 1_000_000,
    "urlencode": 1_000_000,
    "urlize": 20_000,
    "wordcount": 4_000_000,
    "wordwrap": 1_000_000,
}
"""Characters that a filter reads, if it is written in Python or with regular expressions."""
CODECS = frozenset({"ascii", "latin-1", "latin1", "utf-8", "utf8"})
"""Encodings that templates can name: `idna` and `punycode` are quadratic, others make a text 80 times as long."""
CODEC_ERRORS = frozenset({"backslashreplace", "ignore", "replace", "strict", "surrogatepass"})
"""Error handlers that templates can name."""
TIME_DIRECTIVES = frozenset("aAbBdfGHIjmMpSuUVwWyYzZ%")
"""Letters of `strftime` that mean the same on every machine."""

RESTRICTIONS = (
    Restriction("filter", ("random",), "not available", "the same context gives the same text"),
    Restriction("filter", ("pprint",), "not available", "shows Python code of objects; use `tojson`", "prompt"),
    Restriction(
        "filter",
        tuple(MAX_CHARS),
        "at most " + ", ".join(f"{chars:,} characters ({name})" for name, chars in MAX_CHARS.items()),
        "slow for long texts, and cannot be interrupted",
    ),
    Restriction("filter", ("round",), f"precision of at most {MAX_PRECISION} digits", "a power of ten of that size"),
    Restriction("filter", ("tojson",), f"indent of at most {MAX_INDENT}", "the indent is written at every line"),
    Restriction("filter", ("sum",), "lists are added up to a limited size", "copies all earlier items each time"),
    Restriction("function", ("lipsum",), "not available", "the same context gives the same text"),
    Restriction("function", ("range",), "at most 100,000 numbers", "limit of Jinja's sandbox"),
    Restriction("method", ("maketrans", "translate"), "not available", "the result can be of any length"),
    Restriction("method", ("from_bytes", "to_bytes"), "not available", "the result can be of any length"),
    Restriction(
        "method",
        ("encode", "decode"),
        f"encodings {', '.join(sorted(CODECS))}; errors {', '.join(sorted(CODEC_ERRORS))}",
        "other encodings are quadratic or make a text many times as long",
    ),
    Restriction(
        "method",
        ("rfind", "rindex", "rpartition", "rsplit", "strip", "lstrip", "rstrip"),
        f"length of the text times length of the argument is at most {MAX_SEARCH:,}",
        "quadratic, and cannot be interrupted",
    ),
    Restriction(
        "method",
        (
            *("append", "clear", "extend", "insert", "pop", "popitem", "remove", "reverse", "setdefault", "sort"),
            *("add", "difference_update", "discard", "intersection_update", "symmetric_difference_update", "update"),
        ),
        "not available",
        "a template does not change the values that it reads",
    ),
    Restriction(
        "method",
        (
            *("astimezone", "ctime", "fromisocalendar", "fromisoformat", "fromordinal", "fromtimestamp", "now"),
            *("strptime", "timestamp", "timetuple", "today", "utcfromtimestamp", "utcnow", "utctimetuple"),
        ),
        "not available for dates and times",
        "reads the clock or the time zone of the machine, or makes another date",
        "prompt",
    ),
    Restriction(
        "method",
        ("strftime",),
        f"directives %{' %'.join(sorted(TIME_DIRECTIVES))}; at most 1,000 characters",
        "others depend on the machine, or pad to any width",
        "prompt",
    ),
    Restriction(
        "method",
        ("format",),
        f"no `!r`; width of at most {MAX_FIELD_WIDTH:,}, also for `%`",
        "shows Python code of objects; makes a text of any length",
    ),
    Restriction(
        "method", (), "methods of your own objects", "a template reads data; compute the value before", "prompt"
    ),
    Restriction(
        "statement",
        ("autoescape", "block", "extends", "from", "import", "include"),
        "not available",
        "compose prompts as a tree, for example with `WrapPrompt`",
        "prompt",
    ),
    Restriction("value", (), "names that start with an underscore", "private"),
    Restriction("value", (), "sets: sort them first, with `| sort`", "a set has no order", "prompt"),
    Restriction(
        "value",
        (),
        "undefined: only with `default`, `or`, `is defined` and `is undefined`",
        "a misspelled name is an error, never an empty text",
        "prompt",
    ),
    Restriction(
        "value", (), "integers of more than 8,192 bits; nesting of more than 100 levels", "slow to compute with"
    ),
)
"""Restrictions against Jinja, with the reason for each."""


def _removed(kind: str) -> dict[str, Restriction]:
    rows = [row for row in RESTRICTIONS if row.kind == kind and row.rule.startswith("not available")]
    return {name: row for row in rows for name in row.names}


REMOVED_FILTERS = _removed("filter")
REMOVED_METHODS = _removed("method")
