"""The tests of templates (`is ...`): Jinja's own by name and result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jinja2.tests import TESTS as JINJA_TESTS

from agentkit_prompts.templates.operations.costs import offered
from agentkit_prompts.templates.operations.meter import Meter
from agentkit_prompts.templates.operations.operators import BINARY, COMPARE
from agentkit_prompts.templates.operations.values import Fault, Undefined, require

__all__ = ["TESTS"]


def _of_known(run: Callable[..., bool]) -> Callable[[Meter, Any], bool]:
    """Return a test of a value that has to be there."""

    def test(meter: Meter, value: Any, /) -> bool:
        meter.pay("test.string", value)
        require(value)
        return run(value)

    return test


def _is_iterable(value: Any) -> bool:
    return hasattr(type(value), "__iter__") or (hasattr(type(value), "__getitem__") and not isinstance(value, type))


def _divisibleby(meter: Meter, value: Any, num: Any, /) -> bool:
    if not isinstance(value, int | float) or not isinstance(num, int | float):
        raise Fault(f"divisibleby takes numbers, got {type(value).__name__} and {type(num).__name__}")
    meter.pay("test.divisibleby", value, num)
    return bool(BINARY["%"](meter, value, num) == 0)


def _case(run: Callable[[str], bool]) -> Callable[[Meter, Any], bool]:
    def test(meter: Meter, value: Any, /) -> bool:
        require(value)
        if not isinstance(value, str):
            return False
        meter.pay("test.lower", value)
        return run(value)

    return test


_OF_A_TYPE = ("boolean", "false", "float", "mapping", "none", "number", "string", "true")

TESTS: dict[str, Callable[..., bool]] = offered(
    "test",
    {
        **{name: _of_known(JINJA_TESTS[name]) for name in _OF_A_TYPE},  # type: ignore[arg-type]
        "defined": lambda meter, value, /: not isinstance(value, Undefined),
        "divisibleby": _divisibleby,
        "even": lambda meter, value, /: _divisibleby(meter, value, 2),
        "integer": lambda meter, value, /: isinstance(value, int) and not isinstance(value, bool),
        "iterable": _of_known(_is_iterable),
        "lower": _case(str.islower),
        "odd": lambda meter, value, /: not _divisibleby(meter, value, 2),
        "sameas": lambda meter, value, other, /: value is other,
        "sequence": _of_known(lambda value: isinstance(value, Sequence | Mapping)),
        "undefined": lambda meter, value, /: isinstance(value, Undefined),
        "upper": _case(str.isupper),
        "in": COMPARE["in"],
        **dict.fromkeys(("eq", "equalto", "=="), COMPARE["eq"]),
        **dict.fromkeys(("ne", "!="), COMPARE["ne"]),
        **dict.fromkeys(("lt", "lessthan", "<"), COMPARE["lt"]),
        **dict.fromkeys(("le", "<="), COMPARE["lteq"]),
        **dict.fromkeys(("gt", "greaterthan", ">"), COMPARE["gt"]),
        **dict.fromkeys(("ge", ">="), COMPARE["gteq"]),
    },
)
"""Tests by name. Each gets the meter, the value, then the arguments written in the template."""
