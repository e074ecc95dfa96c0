"""Filters, tests, functions and methods of templates, in one table.

New versions of Jinja and Python add names. A name without a row is rejected, because its cost is unknown. Rows with a
`rule` are the differences to Jinja, which the documentation lists.
"""

from __future__ import annotations

from collections.abc import ItemsView, KeysView, Mapping
from datetime import date, datetime, time, timedelta
from typing import Any, Literal, NamedTuple

from jinja2.runtime import LoopContext
from jinja2.utils import Cycler

from agentkit_prompts.limits import MAX_DEPTH
from agentkit_prompts.templates.sandbox import guards
from agentkit_prompts.templates.sandbox.guards import (
    CODEC_ERRORS,
    CODECS,
    MAX_FIELD_WIDTH,
    MAX_INDENT,
    MAX_PRECISION,
    MAX_SEARCH,
    TIME_DIRECTIVES,
    Guard,
)
from agentkit_prompts.templates.sandbox.meter import MAX_INT_BITS

Kind = Literal["filter", "test", "function", "method", "statement", "value"]
Reads = Literal["items", "kind", "nested", "numbers", "short text", "text", "undefined", "value"]
NOT_AVAILABLE = "not available"


class Operation(NamedTuple):
    """One row of the table: operations with the same rules."""

    kind: Kind
    names: str
    """Names of the operations, separated by spaces."""
    owners: tuple[type, ...] = ()
    """Types whose methods are meant; empty for other kinds."""
    guard: Guard | None = None
    """Check before an operation whose time or result is not proportional to the size of its input."""
    reads: Reads = "value"
    """Part of the value that a filter or test reads; this part is counted before the call.

    `value` and `kind` take constant time, `items` visits the items of a list, `nested` also their nested values. `text`
    reads the text of the value; the result of `short text` has about the length of the text. `numbers` divides, and
    `undefined` accepts undefined values.
    """
    attribute: int | None = None
    """Position of the argument `attribute` of a filter: a path that is followed for each item."""
    max_chars: int = 0
    """Maximum characters of the value, for filters that are slow for long texts; 0 without a limit."""
    rule: str = ""
    """Restriction that Jinja does not have, as text for the documentation; empty without a restriction."""
    reason: str = ""
    """Reason of the restriction."""
    use: Literal["all", "prompt"] = "all"
    """`prompt` if the restriction does not apply to chat templates, which behave as in `transformers`."""

    def path_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return the argument `attribute` of a call of the filter; None if it is missing."""
        if self.attribute is not None and self.attribute < len(args):
            return args[self.attribute]
        return kwargs.get("attribute")

    @property
    def restriction(self) -> str:
        """Text of the restriction for the documentation; empty without a restriction."""
        if self.max_chars:
            return f"at most {self.max_chars:,} characters"
        return self.rule

    def is_removed(self, *, is_prompt: bool) -> bool:
        """True if templates cannot use the operation."""
        return self.rule == NOT_AVAILABLE and (self.use == "all" or is_prompt)


class Dict:
    """Function `dict` of templates. The class `dict` would offer methods that templates must not call."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, keys: Any, value: Any = None, /) -> dict[Any, Any]:
        return dict.fromkeys(keys, value)


_SLOW = "slow for long texts, and cannot be interrupted"
_QUADRATIC = "quadratic, and cannot be interrupted"
_ANY_LENGTH = "the result can be of any length"
_SAME_TEXT = "the same context must render the same text"
_READ_ONLY = "a template does not change the values that it reads"
_OF_MACHINE = "reads the clock or the time zone of the machine, or creates another date"
_SEARCH = f"length of the text times length of the argument is at most {MAX_SEARCH:,}"
_TEXTS = (str, bytes)
_DATES = (date, time)
_SETS = (set, frozenset)
_PRECISION = f"precision of at most {MAX_PRECISION} digits"
_INDENT = f"indent of at most {MAX_INDENT}"
_SUM = "lists are added up to a limited size"
_CODECS = f"encodings {', '.join(sorted(CODECS))}; errors {', '.join(sorted(CODEC_ERRORS))}"
_FORMAT = f"no `!r`; width of at most {MAX_FIELD_WIDTH:,}, also for `%`"
_STRFTIME = f"directives %{' %'.join(sorted(TIME_DIRECTIVES))}; at most 1,000 characters"
_UNDEFINED = "undefined: only with `default`, `or`, `is defined` and `is undefined`"
_CHANGES = """append clear extend insert pop popitem remove reverse setdefault sort add difference_update discard
    intersection_update symmetric_difference_update update"""
_CLOCK = """astimezone ctime fromisocalendar fromisoformat fromordinal fromtimestamp now strptime timestamp timetuple
    today utcfromtimestamp utcnow utctimetuple"""
_STATEMENTS = "autoescape block extends from import include"

OPERATIONS = (
    # Filters of text.
    Operation("filter", "capitalize lower string upper", reads="short text"),
    Operation("filter", "e escape forceescape mark_generation safe truncate", reads="text"),
    Operation("filter", "center", guard=guards.width, reads="text"),
    Operation("filter", "format", reads="text"),
    Operation("filter", "indent", guard=guards.indent, reads="text"),
    Operation("filter", "replace", guard=guards.replace, reads="text"),
    Operation("filter", "striptags", guard=guards.striptags, reads="text", max_chars=1_000_000, reason=_SLOW),
    Operation("filter", "title", reads="text", max_chars=1_000_000, reason=_SLOW),
    Operation("filter", "trim", guard=guards.search_back, reads="short text", rule=_SEARCH, reason=_QUADRATIC),
    Operation("filter", "urlencode", reads="nested", max_chars=1_000_000, reason=_SLOW),
    Operation("filter", "urlize", guard=guards.urlize, reads="text", max_chars=20_000, reason=_SLOW),
    Operation("filter", "wordcount", reads="text", max_chars=4_000_000, reason=_SLOW),
    Operation("filter", "wordwrap", guard=guards.wordwrap, reads="text", max_chars=1_000_000, reason=_SLOW),
    # Filters of lists, mappings and numbers.
    Operation("filter", "attr count d default first float int last length"),
    Operation("filter", "items list map reject reverse select", reads="items"),
    Operation("filter", "rejectattr selectattr", reads="items", attribute=0),
    Operation("filter", "abs dictsort filesizeformat", reads="nested"),
    Operation("filter", "groupby", reads="nested", attribute=0),
    Operation("filter", "max min unique", reads="nested", attribute=1),
    Operation("filter", "sort", reads="nested", attribute=2),
    Operation("filter", "batch", guard=guards.batch, reads="items"),
    Operation("filter", "join", guard=guards.join_filter, reads="items", attribute=1),
    Operation("filter", "slice", guard=guards.slice_filter, reads="items"),
    Operation("filter", "xmlattr", guard=guards.xmlattr, reads="items"),
    Operation("filter", "pprint", reads="items", max_chars=guards.MAX_PRINTED, reason=_SLOW),
    Operation("filter", "pprint", rule=NOT_AVAILABLE, reason="shows Python code; use `tojson`", use="prompt"),
    Operation(
        "filter", "round", guard=guards.round_filter, reads="nested", rule=_PRECISION, reason="computes a power of ten"
    ),
    Operation(
        "filter",
        "sum",
        guard=guards.sum_filter,
        reads="nested",
        attribute=0,
        rule=_SUM,
        reason="copies all earlier items",
    ),
    Operation("filter", "tojson", reads="items", rule=_INDENT, reason="the indent is written at every line"),
    Operation("filter", "random", rule=NOT_AVAILABLE, reason=_SAME_TEXT),
    # Tests.
    Operation("test", "defined undefined", reads="undefined"),
    Operation("test", "boolean callable escaped false float integer iterable mapping none number", reads="kind"),
    Operation("test", "sameas sequence string true", reads="kind"),
    Operation("test", "!= < <= == > >= eq equalto ge greaterthan gt in le lessthan lt ne", reads="nested"),
    Operation("test", "filter lower test upper", reads="nested"),
    Operation("test", "divisibleby even odd", reads="numbers"),
    # Functions.
    Operation("function", "cycler dict joiner namespace"),
    Operation("function", "range", rule="at most 100,000 numbers", reason="limit of Jinja's sandbox"),
    Operation("function", "lipsum", rule=NOT_AVAILABLE, reason=_SAME_TEXT),
    # Methods of text.
    Operation(
        "method", "capitalize count find index isalnum isalpha isascii isdigit islower", _TEXTS, guards.read_text
    ),
    Operation("method", "isspace istitle isupper lower partition removeprefix removesuffix", _TEXTS, guards.read_text),
    Operation("method", "swapcase title upper startswith endswith", _TEXTS, guards.read_text),
    Operation("method", "casefold isdecimal isidentifier isnumeric isprintable", (str,), guards.read_text),
    Operation("method", "fromhex hex", (bytes,), guards.read_text),
    Operation("method", "center ljust rjust zfill", _TEXTS, guards.width),
    Operation("method", "expandtabs", _TEXTS, guards.expandtabs),
    Operation("method", "join", _TEXTS, guards.join),
    Operation("method", "replace", _TEXTS, guards.replace),
    Operation("method", "split", _TEXTS, guards.split),
    Operation("method", "splitlines", _TEXTS, guards.splitlines),
    Operation("method", "rsplit", _TEXTS, guards.rsplit, rule=_SEARCH, reason=_QUADRATIC),
    Operation("method", "rfind rindex rpartition", _TEXTS, guards.search_back, rule=_SEARCH, reason=_QUADRATIC),
    Operation("method", "strip lstrip rstrip", _TEXTS, guards.search_back, rule=_SEARCH, reason=_QUADRATIC),
    Operation("method", "encode decode", _TEXTS, guards.codec, rule=_CODECS, reason="other encodings are slow or long"),
    Operation("method", "format format_map", (str,), rule=_FORMAT, reason=f"shows Python code; {_ANY_LENGTH}"),
    Operation("method", "maketrans translate", _TEXTS, rule=NOT_AVAILABLE, reason=_ANY_LENGTH),
    # Methods of lists, mappings, sets and numbers.
    Operation("method", "get", (Mapping,)),
    Operation("method", "copy items keys values", (Mapping,), guards.visit_owner),
    Operation("method", "fromkeys", (Mapping, Dict), guards.fromkeys),
    Operation("method", "count index", (list, tuple, range), guards.search_owner),
    Operation("method", "copy", (list, *_SETS), guards.visit_owner),
    Operation("method", "difference intersection issubset issuperset symmetric_difference union", _SETS, guards.sets),
    Operation("method", "isdisjoint", (*_SETS, KeysView, ItemsView), guards.sets),
    Operation("method", "as_integer_ratio bit_count bit_length conjugate is_integer", (int,)),
    Operation("method", "as_integer_ratio conjugate fromhex hex is_integer", (float,)),
    Operation("method", "from_bytes to_bytes", (int,), rule=NOT_AVAILABLE, reason=_ANY_LENGTH),
    Operation("method", _CHANGES, (list, dict, set), rule=NOT_AVAILABLE, reason=_READ_ONLY),
    # Methods of dates, and of objects of Jinja.
    Operation("method", "isocalendar isoweekday toordinal weekday", (date,)),
    Operation("method", "isoformat replace", _DATES),
    Operation("method", "dst tzname utcoffset", (datetime, time)),
    Operation("method", "combine date time timetz", (datetime,)),
    Operation("method", "total_seconds", (timedelta,)),
    Operation(
        "method", "strftime", _DATES, rule=_STRFTIME, reason="other directives depend on the machine", use="prompt"
    ),
    Operation("method", _CLOCK, _DATES, rule=NOT_AVAILABLE, reason=_OF_MACHINE, use="prompt"),
    Operation("method", "next reset", (Cycler,)),
    Operation("method", "changed cycle", (LoopContext,)),
    Operation("method", "", rule="methods of objects of the program", reason="a template reads data", use="prompt"),
    # Statements and values.
    Operation("statement", _STATEMENTS, rule=NOT_AVAILABLE, reason="use prompts such as `WrapPrompt`", use="prompt"),
    Operation("value", "", rule="names that start with an underscore", reason="private"),
    Operation("value", "", rule="sets: sort them first, with `| sort`", reason="a set has no order", use="prompt"),
    Operation("value", "", rule=_UNDEFINED, reason="a misspelled name is an error, never an empty text", use="prompt"),
    Operation("value", "", rule=f"integers of more than {MAX_INT_BITS:,} bits", reason="slow to compute with"),
    Operation("value", "", rule=f"nesting of more than {MAX_DEPTH} levels", reason="slow to compute with"),
)
"""The table: all operations of templates, and the restrictions of statements and values."""


def rows_of(kind: Kind, *, is_prompt: bool) -> dict[str, Operation]:
    """Return the operations of a kind that templates can use, by name."""
    rows = [(name, row) for row in OPERATIONS if row.kind == kind for name in row.names.split()]
    removed = {name for name, row in rows if row.is_removed(is_prompt=is_prompt)}
    return {name: row for name, row in rows if name not in removed and row.rule != NOT_AVAILABLE}


FUNCTIONS = frozenset(rows_of("function", is_prompt=True))
"""Names of the functions of templates. A value of the context with the same name has precedence."""
_METHODS: dict[str, list[Operation]] = {}
"""Rows of methods, by the name of the method."""
for _row in OPERATIONS:
    for _name in _row.names.split():
        if _row.kind == "method":
            _METHODS.setdefault(_name, []).append(_row)


def method_row(owner: object, name: str) -> Operation | None:
    """Return the row of a method of a value or of a class; None without a row."""
    kind = owner if isinstance(owner, type) else type(owner)
    for row in _METHODS.get(name, ()):
        if issubclass(kind, row.owners):
            return row
    return None
