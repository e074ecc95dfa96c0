"""Operators of templates: the ones that can grow a value are bounded before they run."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from agentkit_prompts.templates.operations.access import MAPPINGS
from agentkit_prompts.templates.operations.costs import COSTS, offered
from agentkit_prompts.templates.operations.finalise import text
from agentkit_prompts.templates.operations.meter import Meter
from agentkit_prompts.templates.operations.values import Fault, Undefined, require

__all__ = [
    "BINARY",
    "COMPARE",
    "PERCENT",
    "join",
    "negative",
    "percent",
    "positive",
    "refuse_large",
    "refuse_large_numbers",
    "room_of",
]

_MAX_INT_BITS = 8192
_MAX_FIELD_WIDTH = 10_000
_MAX_DIGITS = 1_000
_NUMBERS = (int, float, Decimal)
_TIMES = (datetime, date, timedelta, time)
_SEQUENCES = (list, tuple)
_SIZED = (str, list, tuple, dict, set, frozenset, *MAPPINGS)
PERCENT = re.compile(
    r"%(?:\((?P<name>[^()]*)\))?(?P<spec>[#0\- +]*(?P<width>\*|\d*)(?:\.(?P<precision>\*|\d*))?)(?P<kind>.?)", re.S
)
"""A `%` field of a text."""


def refuse_large(bits: int) -> None:
    """Raise a fault when a whole number of so many bits is more than a template may work out."""
    if bits > _MAX_INT_BITS:
        raise Fault("a number grows too large")


def room_of(field: re.Match[str]) -> int:
    """Return the characters that a `%` field is padded to; a fault when that is too wide, or unknown."""
    if field["kind"] == "(":  # Python reads on behind a name with brackets in it, and finds a width there
        raise Fault(f"the format field {field[0][:40]!r} has brackets in its name")
    sizes = [size for size in (field["width"], field["precision"]) if size]
    if any(size == "*" or len(size) > 5 or int(size) > _MAX_FIELD_WIDTH for size in sizes):
        raise Fault(f"the format field {field[0][:40]!r} is wider than {_MAX_FIELD_WIDTH:,} characters")
    return sum(map(int, sizes))


def _refuse(sign: str, left: object, right: object) -> Fault:
    require(left, right)
    return Fault(f"{type(left).__name__} {sign} {type(right).__name__} is not something templates can work out")


def refuse_large_numbers(*numbers: Any) -> None:
    """Refuse to work with whole numbers that are too large, from wherever they come."""
    for number in numbers:
        if isinstance(number, int):
            refuse_large(number.bit_length())


def _whole(value: Any) -> Any:
    if type(value) is int:
        refuse_large(value.bit_length())
    return value


def _arithmetic(sign: str, run: Callable[[Any, Any], Any], times: bool) -> Callable[[Meter, Any, Any], Any]:
    row = f"operator.{sign}"

    def calculate(meter: Meter, left: Any, right: Any) -> Any:
        if isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS):
            refuse_large_numbers(left, right)
            meter.pay(row, left, right)
            return _whole(run(left, right))
        if times and isinstance(left, _TIMES) and isinstance(right, _TIMES):
            meter.pay(row, left, right)
            return run(left, right)
        raise _refuse(sign, left, right)

    return calculate


def add(meter: Meter, left: Any, right: Any) -> Any:
    """Add numbers and times, join text with text and lists with lists."""
    meter.pay("operator.+", left, right)
    if isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS):
        refuse_large_numbers(left, right)
        return _whole(left + right)  # type: ignore[operator]
    if isinstance(left, str) and isinstance(right, str):
        meter.chars(len(left) + len(right))
        return str.__str__(left) + str.__str__(right)
    if isinstance(left, _SEQUENCES) and isinstance(right, type(left)):
        return [*left, *right] if isinstance(left, list) else (*left, *right)
    if isinstance(left, _TIMES) and isinstance(right, _TIMES):
        return left + right  # type: ignore[operator]
    raise _refuse("+", left, right)


def multiply(meter: Meter, left: Any, right: Any) -> Any:
    """Multiply numbers, repeat text and lists."""
    meter.pay("operator.*", left, right)
    if isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS):
        if type(left) is int and type(right) is int:
            refuse_large(left.bit_length() + right.bit_length())
        return left * right  # type: ignore[operator]
    if isinstance(left, int):
        left, right = right, left
    if isinstance(right, int) and isinstance(left, str):
        meter.chars(max(0, len(left) * right))
        return str.__str__(left) * right
    if isinstance(right, int) and isinstance(left, _SEQUENCES):
        return left * right
    raise _refuse("*", left, right)


def power(meter: Meter, left: Any, right: Any) -> Any:
    """Raise a number to a power."""
    if not isinstance(left, _NUMBERS) or not isinstance(right, _NUMBERS):
        raise _refuse("**", left, right)
    if isinstance(left, int) and isinstance(right, int):
        refuse_large(left.bit_length() * abs(right))
    meter.pay("operator.**", left, right)
    made: object = operator.pow(left, right)
    if isinstance(made, complex):
        raise Fault("the power is not a real number")
    return made


_remainder = _arithmetic("%", operator.mod, False)


def modulo(meter: Meter, left: Any, right: Any) -> Any:
    """Return the remainder of numbers, or text with its `%` fields filled."""
    if isinstance(left, str):
        return percent(meter, left, right)
    return _remainder(meter, left, right)


def percent(meter: Meter, template: str, values: Any) -> str:
    """Fill the `%` fields of a text. Widths are bounded, and no value is shown by its repr."""
    template = str.__str__(template)
    meter.pay("operator.%", template, values)
    given = values if isinstance(values, tuple) else (values,)
    used: list[Any] = []
    keys: dict[str, Any] = {}
    room = 0
    at = 0
    pieces: list[str] = []
    last = 0
    for field in PERCENT.finditer(template):
        kind = field["kind"]
        if kind == "%":
            continue
        if not kind or kind not in "diouxXeEfFgGcrs":
            raise Fault(f"{field[0]!r} is not a format that templates know")
        room += room_of(field) + 400
        if field["name"] is not None:
            if not isinstance(values, Mapping) or field["name"] not in values:
                raise Fault(f"the format names {field['name']!r}, which it was not given")
            value = values[field["name"]]
        else:
            if at >= len(given):
                raise Fault("the format has more fields than values")
            value = given[at]
            at += 1
        if isinstance(value, Decimal) and kind in "dioxXuc" and value.is_finite() and value.adjusted() > _MAX_DIGITS:
            raise Fault("a number grows too large")
        if kind in "rs" or not isinstance(value, int | float | Decimal):
            value = text(meter, value)
            kind = "s" if kind == "r" else kind
            room += len(value)
        if field["name"] is not None:
            keys[field["name"]] = value
        used.append(value)
        pieces += [template[last : field.start()], f"%{field['spec']}{kind}"]
        last = field.end()
    if at < len(given) and not isinstance(values, Mapping):
        raise Fault("the format has fewer fields than values")
    meter.chars(room)
    try:
        return ("".join(pieces) + template[last:]) % tuple(used)
    except (TypeError, ValueError, OverflowError) as error:
        raise Fault(f"the format cannot be filled: {error}") from error


def join(meter: Meter, *values: Any) -> str:
    """Join the texts of values: the `~` operator."""
    meter.pay("operator.~", values)
    texts = [value if type(value) is str else text(meter, value) for value in values]
    meter.chars(sum(map(len, texts)))
    return "".join(texts)


def positive(meter: Meter, value: Any) -> Any:
    """Return a number as it is."""
    refuse_large_numbers(value)
    return +value if isinstance(value, _NUMBERS) else _minus(value)


def negative(meter: Meter, value: Any) -> Any:
    """Return a number with its sign turned."""
    refuse_large_numbers(value)
    return -value if isinstance(value, int | float | Decimal | timedelta) else _minus(value)


def _minus(value: object) -> Any:
    require(value)
    raise Fault(f"{type(value).__name__} has no sign")


def contains(meter: Meter, value: Any, container: Any) -> bool:
    """Tell whether a container holds a value, or a text a part of text."""
    if isinstance(container, Undefined) or isinstance(value, Undefined):
        require(container, value)
    if isinstance(container, str):
        if not isinstance(value, str):
            raise Fault(f"a text can hold text only, not {type(value).__name__}")
        meter.pay("operator.in", container, value)
        return str.__contains__(container, value)
    if isinstance(container, Mapping | set | frozenset):
        meter.key(value, len(container))
        try:
            return value in container
        except TypeError:
            return False
    if isinstance(container, range) and type(value) is int:
        return value in container
    items = meter.items(container)
    meter.pay("operator.in", items, value)
    meter.walk("operator.in", value, items)
    return value in items


def _comparison(run: Callable[[Any, Any], bool], name: str) -> Callable[[Meter, Any, Any], bool]:
    row = f"operator.{name}"
    steps = COSTS[row].worst()

    def compare(meter: Meter, left: Any, right: Any) -> bool:
        meter.charge(steps)
        if isinstance(left, _SIZED) and isinstance(right, _SIZED):
            both: tuple[Any, Any] = (left, right)
            meter.walk(row, *[list(one.items()) if type(one) in MAPPINGS else one for one in both])
        return bool(run(left, right))

    return compare


BINARY: dict[str, Callable[[Meter, Any, Any], Any]] = offered(
    "operator",
    {
        "+": add,
        "-": _arithmetic("-", operator.sub, True),
        "*": multiply,
        "/": _arithmetic("/", operator.truediv, False),
        "//": _arithmetic("//", operator.floordiv, False),
        "%": modulo,
        "**": power,
    },
)
"""Operators by their sign."""

COMPARE: dict[str, Callable[[Meter, Any, Any], bool]] = offered(
    "operator",
    {
        "eq": _comparison(operator.eq, "eq"),
        "ne": _comparison(operator.ne, "ne"),
        "lt": _comparison(operator.lt, "lt"),
        "lteq": _comparison(operator.le, "lteq"),
        "gt": _comparison(operator.gt, "gt"),
        "gteq": _comparison(operator.ge, "gteq"),
        "in": contains,
    },
)
"""Comparisons by the name Jinja gives them."""
