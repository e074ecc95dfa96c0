"""The tests of templates (`is ...`): Jinja's own by name and result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from agentkit_prompts.templates.engine.meter import Meter
from agentkit_prompts.templates.engine.operators import COMPARE
from agentkit_prompts.templates.engine.values import Fault, Undefined

__all__ = ["TESTS"]


def _defined(meter: Meter, value: Any, /) -> bool:
    return not isinstance(value, Undefined)


def _undefined(meter: Meter, value: Any, /) -> bool:
    return isinstance(value, Undefined)


def _is(*kinds: type) -> Callable[[Meter, Any], bool]:
    def test(meter: Meter, value: Any, /) -> bool:
        if isinstance(value, Undefined):
            value.fail()
        return isinstance(value, kinds)

    return test


def _same(other: Any) -> Callable[[Meter, Any], bool]:
    def test(meter: Meter, value: Any, /) -> bool:
        if isinstance(value, Undefined):
            value.fail()
        return value is other

    return test


def _sameas(meter: Meter, value: Any, other: Any, /) -> bool:
    return value is other


def _integer(meter: Meter, value: Any, /) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _iterable(meter: Meter, value: Any, /) -> bool:
    if isinstance(value, Undefined):
        value.fail()
    return hasattr(type(value), "__iter__") or (hasattr(type(value), "__getitem__") and not isinstance(value, type))


def _divisibleby(meter: Meter, value: Any, num: Any, /) -> bool:
    if not isinstance(value, int | float) or not isinstance(num, int | float):
        raise Fault(f"divisibleby takes numbers, got {type(value).__name__} and {type(num).__name__}")
    return bool(value % num == 0)


def _even(meter: Meter, value: Any, /) -> bool:
    return _divisibleby(meter, value, 2)


def _odd(meter: Meter, value: Any, /) -> bool:
    return not _divisibleby(meter, value, 2)


def _case(run: Callable[[str], bool]) -> Callable[[Meter, Any], bool]:
    def test(meter: Meter, value: Any, /) -> bool:
        if isinstance(value, Undefined):
            value.fail()
        if not isinstance(value, str):
            return False
        meter.chars(len(value))
        return run(value)

    return test


TESTS: dict[str, Callable[..., bool]] = {
    "boolean": _is(bool),
    "defined": _defined,
    "divisibleby": _divisibleby,
    "even": _even,
    "false": _same(False),
    "float": _is(float),
    "integer": _integer,
    "iterable": _iterable,
    "lower": _case(str.islower),
    "mapping": _is(Mapping),
    "none": _same(None),
    "number": _is(int, float, complex, Decimal),
    "odd": _odd,
    "sameas": _sameas,
    "sequence": _is(Sequence, Mapping),
    "string": _is(str),
    "true": _same(True),
    "undefined": _undefined,
    "upper": _case(str.isupper),
    "in": COMPARE["in"],
    **dict.fromkeys(("eq", "equalto", "=="), COMPARE["eq"]),
    **dict.fromkeys(("ne", "!="), COMPARE["ne"]),
    **dict.fromkeys(("lt", "lessthan", "<"), COMPARE["lt"]),
    **dict.fromkeys(("le", "<="), COMPARE["lteq"]),
    **dict.fromkeys(("gt", "greaterthan", ">"), COMPARE["gt"]),
    **dict.fromkeys(("ge", ">="), COMPARE["gteq"]),
}
"""Tests by name. Each gets the meter, the value, then the arguments written in the template."""
