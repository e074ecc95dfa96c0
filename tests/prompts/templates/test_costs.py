"""The table of costs is complete: what templates can ask for has a row, and what has none cannot be offered."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from agentkit_prompts.chat_templates.jinja.counted_calls import _METHODS, _NAMES
from agentkit_prompts.chat_templates.jinja.counted_calls import TESTS as CHAT_TESTS
from agentkit_prompts.chat_templates.jinja.environment import compiled
from agentkit_prompts.errors import TemplateError
from agentkit_prompts.templates.engine import compile_program
from agentkit_prompts.templates.operations.costs import COSTS, offered
from agentkit_prompts.templates.operations.filters import FILTERS
from agentkit_prompts.templates.operations.is_tests import TESTS
from agentkit_prompts.templates.operations.meter import Limits, cost
from agentkit_prompts.templates.operations.methods import _MAPPING, _STR, _TIMES
from agentkit_prompts.templates.operations.objects import GLOBALS
from agentkit_prompts.templates.operations.operators import BINARY, COMPARE

CHAT = compiled("x", True).environment
OFFERED = {
    *(f"filter.{name}" for name in (*FILTERS, *CHAT.filters)),
    *(f"test.{name}" for name in (*TESTS, *CHAT.tests, *CHAT_TESTS)),
    *(f"operator.{sign}" for sign in (*BINARY, *COMPARE)),
    *(f"function.{name}" for name in (*GLOBALS, *CHAT.globals)),
    *(f"str.{name}" for name in _STR),
    *(f"dict.{name}" for name in _MAPPING),
    *(f"date.{name}" for name in (*_TIMES, "strftime")),
    *(f"{_NAMES.get(kind, kind.__name__)}.{name}" for kind, names in _METHODS.items() for name in names),
}


def test_everything_offered_has_a_row() -> None:
    assert sorted(OFFERED - COSTS.keys()) == []
    assert len(OFFERED) > 150


def test_what_has_no_row_is_not_offered() -> None:
    with pytest.raises(LookupError, match="filter: backwards"):
        offered("filter", {"upper": str.upper, "backwards": str.lower})


SMALL = {"filter": "{{ x|NAME }}", "test": "{% if x is NAME %}{% endif %}"}


@pytest.mark.parametrize("name", sorted({f"filter.{name}" for name in FILTERS} | {f"test.{name}" for name in TESTS}))
def test_a_run_is_charged_for_it_whatever_comes_out(name: str) -> None:
    kind, name = name.split(".")
    if not name.isidentifier():
        return
    source = SMALL[kind].replace("NAME", name)
    spent = []
    for template in ("{{ x }}", source):
        program = compile_program(template, limits=Limits(steps=100_000))
        try:
            trace = program.trace({"x": "3"})
            spent.append(100_000 - trace.meter.left)
        except Exception:
            spent.append(10**9)  # it needs arguments, or another value
    if name not in ("defined", "undefined", "integer", "sameas", "float"):  # as cheap as a node of the template
        assert spent[1] > spent[0]


def test_printing_a_number_costs_what_it_may_take() -> None:
    def spent(value: object) -> int:
        program = compile_program("{{ x }}", limits=Limits(steps=100_000))
        return 100_000 - program.trace({"x": value}).meter.left

    assert spent(0.1) - spent(None) >= 10
    assert spent(10**100) > spent(7)


@pytest.mark.parametrize("made", [list, tuple, lambda values: dict(enumerate(values))], ids=["list", "tuple", "dict"])
def test_each_value_that_is_written_as_json_costs_more_the_deeper_it_stands_and_as_a_number(
    made: Callable[[list[Any]], Any],
) -> None:
    def spent(value: object, depth: int) -> int:
        for _ in range(depth):
            value = [value]
        program = compile_program("{{ x | tojson }}", limits=Limits(steps=100_000))
        return 100_000 - program.trace({"x": value}).meter.left

    texts, numbers = made(["text"] * 1_000), made([0.5] * 1_000)
    assert spent(texts, 60) - spent(texts, 0) >= 30 * 1_000  # an indented line is as long as it is deep
    assert spent(numbers, 0) - spent(texts, 0) >= 9 * 1_000


BIG = 2**8000


@pytest.mark.parametrize(
    ("operator", "left", "right"),
    [
        ("+", "x" * 5000, "y" * 5000),
        ("-", BIG, BIG - 1),
        ("-", datetime(2026, 1, 2), datetime(2026, 1, 1)),
        ("*", "x" * 100, 90),
        ("/", 7.5, 2),
        ("//", BIG, 3),
        ("%", BIG, 2**4000 + 1),
        ("%", "%s " * 500, tuple(range(500))),
        ("**", 2**80, 90),
        ("~", "x", "y"),
        ("in", 3, [1] * 3000),
    ],
    ids=lambda value: value if isinstance(value, str) and 0 < len(value) < 3 else type(value).__name__,
)
def test_an_operator_is_charged_what_the_table_says_of_its_operands(operator: str, left: Any, right: Any) -> None:
    steps = 10**6
    read, worked_out = [
        steps - compile_program(source, limits=Limits(steps=steps)).trace({"a": left, "b": right}).meter.left
        for source in ("{% set c = a %}", f"{{% set c = a {operator} b %}}")
    ]
    operands = {"~": ((left, right),), "in": (right, left)}.get(operator, (left, right))
    assert worked_out - read >= cost(f"operator.{operator}", operands, {})


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_a_comparison_is_charged_for_each_item_that_is_compared(name: str) -> None:
    steps, items = 10**6, [1] * 1000
    looked_at, compared = [
        steps - compile_program(source, limits=Limits(steps=steps)).trace({"a": items}).meter.left
        for source in ("{% set c = a|select('sameas', 3) %}", f"{{% set c = a|select('{name}', 3) %}}")
    ]
    assert compared - looked_at >= len(items) * cost("operator.eq", (1, 3), {})


@pytest.mark.parametrize("expression", ["a + a", "a * 2", "2 * a", "a ~ a"])
def test_a_text_longer_than_all_output_is_not_made_though_nobody_prints_it(expression: str) -> None:
    program = compile_program(f"{{% set b = {expression} %}}", limits=Limits(output_chars=100))
    assert program.trace({"a": "x" * 50}).text == ""
    with pytest.raises(TemplateError, match="more than 100"):
        program.trace({"a": "x" * 51})
