"""The table of costs is complete: what templates can ask for has a row, and what has none cannot be offered."""

from __future__ import annotations

import pytest

from agentkit_prompts.chat_templates.jinja.counted_calls import _METHODS, _NAMES
from agentkit_prompts.chat_templates.jinja.counted_calls import TESTS as CHAT_TESTS
from agentkit_prompts.chat_templates.jinja.environment import compiled
from agentkit_prompts.templates.engine import compile_program
from agentkit_prompts.templates.operations.costs import COSTS, offered
from agentkit_prompts.templates.operations.filters import FILTERS
from agentkit_prompts.templates.operations.is_tests import TESTS
from agentkit_prompts.templates.operations.meter import Limits
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
