"""Templates from anywhere end: soon, with text or a typed error, and in a thread with a small stack too."""

# ruff: noqa: E501 (templates are easier to read on one line)

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit_prompts.chat_templates.jinja.bounds import CHAT_LIMITS, Bounds
from agentkit_prompts.chat_templates.jinja.chat_template import JinjaChatTemplate
from agentkit_prompts.chat_templates.jinja.environment import RunContext, compiled
from agentkit_prompts.errors import ChatTemplateError, TemplateError
from agentkit_prompts.templates.engine import compile_program
from agentkit_prompts.templates.engine.trace import Trace
from agentkit_prompts.templates.operations.costs import COSTS, cost
from agentkit_prompts.templates.operations.values import Fault
from tests.effort import spread
from tests.prompts.laws import law
from tests.prompts.templates.hostile_grammar import CORPUS, Grammar, hostile_values

SOURCES: list[str] = json.loads(CORPUS.read_text())
CHUNK = 100
MAX_SECONDS = 1.0
"""CPU time of the thread. 100 ms are promised on a machine of today; a slow or busy one, or coverage, takes some times that,
and what is not bounded takes minutes."""
SMALL_STACK = 512 * 1024
VALUES = hostile_values()


def as_prompt(source: str) -> None:
    compile_program(source).trace(VALUES)


def as_chat_template(source: str) -> None:
    template = JinjaChatTemplate(source)
    variables = {name: value for name, value in VALUES.items() if name != "messages"}
    template.run(source, VALUES["messages"], None, True, variables)  # type: ignore[arg-type]


def slow_ones(sources: list[str], run: Callable[[str], None]) -> list[tuple[float, str]]:
    """Run templates in a thread with a small stack; return those that took long, and raise what is not typed."""
    slow: list[tuple[float, str]] = []
    failed: list[BaseException] = []

    def work() -> None:
        for source in sources:
            start = time.thread_time()
            try:
                run(source)
            except (TemplateError, ChatTemplateError):
                pass
            except BaseException as error:
                failed.append(error)
            taken = time.thread_time() - start
            if taken > MAX_SECONDS:
                slow.append((taken, source))

    before = threading.stack_size(SMALL_STACK)
    try:
        thread = threading.Thread(target=work)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    for error in failed:
        raise error
    return slow


RUNS = pytest.mark.parametrize("run", [as_prompt, as_chat_template])


def test_the_corpus_holds_a_thousand_templates() -> None:
    assert len(set(SOURCES)) >= 1_000


@pytest.mark.untraced
@RUNS
@pytest.mark.parametrize("start", spread(range(0, len(SOURCES), CHUNK), 5))
def test_kept_hostile_templates_end(start: int, run: Callable[[str], None]) -> None:
    assert slow_ones(SOURCES[start : start + CHUNK], run) == []


@pytest.mark.untraced
@pytest.mark.long
@law
@given(st.lists(st.integers(0, 2**64), min_size=1, max_size=5))
def test_any_hostile_template_ends(seeds: list[int]) -> None:
    sources = [Grammar(Random(seed)).template() for seed in seeds]
    assert slow_ones(sources, as_prompt) == []
    assert slow_ones(sources, as_chat_template) == []


WRAP = "{% set ns = namespace(x=(1,)) %}{% for i in range(ROUNDS) %}{% set ns.x = VALUE %}{% endfor %}{{ USE }}"


@RUNS
@pytest.mark.parametrize("wrapped", ["(ns.x,)", "[ns.x]", "{'a': ns.x}", "dict(a=ns.x)", "[ns.x]|batch(1)|list"])
def test_nesting_is_bounded_where_a_value_is_made(run: Callable[[str], None], wrapped: str) -> None:
    source = WRAP.replace("VALUE", wrapped).replace("USE", "ns.x|length")
    run(source.replace("ROUNDS", "40"))
    with pytest.raises((TemplateError, ChatTemplateError), match="nests deeper than 100 levels"):
        run(source.replace("ROUNDS", "120"))


@RUNS
@pytest.mark.parametrize(
    "use",
    [
        "{{ {deep_tuple: 1}|length }}",
        "{{ {}[deep_tuple] }}",
        "{{ {}.get(deep_tuple) }}",
        "{{ deep_tuple in {} }}",
        "{{ deep_tuple == deep_tuple[0] }}",
        "{{ [deep_tuple, deep_tuple]|unique|list|length }}",
        "{{ dict([[deep_tuple, 1]])|length }}",
        "{{ [deep_tuple, deep_tuple]|sort|length }}",
        "{{ (deep_tuple,) }}",
        "{{ deep_tuple|tojson }}",
        "{% for i in [1, 2] %}{{ loop.changed(deep_tuple) }}{% endfor %}",
    ],
)
def test_values_from_outside_that_nest_deeply_are_refused(run: Callable[[str], None], use: str) -> None:
    failed: list[str] = []

    def refused(source: str) -> None:
        with pytest.raises((TemplateError, ChatTemplateError), match="nest"):
            run(source)
        failed.append(source)

    assert slow_ones([use], refused) == []
    assert failed == [use]


@RUNS
@pytest.mark.parametrize(
    "source",
    [
        "{% set a = 'a' * 400000 %}{{ a.rfind('ab' + 'a' * 200000) }}",
        "{% set a = 'a' * 400000 %}{{ a.rindex('ab' + 'a' * 200000) }}",
        "{% set a = 'a' * 400000 %}{{ a.rpartition('ab' + 'a' * 200000)|length }}",
        "{% set a = 'a' * 400000 %}{{ a.rsplit('ab' + 'a' * 200000)|length }}",
        "{% set a = 'a' * 400000 %}{{ a.strip('b' * 200000 + 'a')|length }}",
        "{% set a = 'a' * 400000 %}{{ a|trim('b' * 200000 + 'a')|length }}",
        "{{ ('a' * 400000)|wordwrap(1)|length }}",
        "{{ (' ' * 400000 ~ 'a')|wordwrap(1)|length }}",
        "{% for i in range(99999) %}{% if 'x'.startswith(('a',) * 99999) %}{% endif %}{% endfor %}",
        "{% for i in range(40000) %}{% if (mapping|list)|first %}{% endif %}{% endfor %}",
        "{{ big // (big - 1) }}",
        "{{ big is divisibleby(7) }}",
        "{{ ('\\u0101' * 20000).encode('punycode') }}",
        "{{ ('\\u0101' * 20000).encode('ascii', 'namereplace') }}",
        "{{ mapping|join(mapping) }}",
        "{{ mapping|replace('1', mapping) }}",
    ],
)
def test_what_is_slow_at_worst_is_refused_before_it_runs(run: Callable[[str], None], source: str) -> None:
    refused: list[str] = []

    def fails(source: str) -> None:
        with pytest.raises((TemplateError, ChatTemplateError)):
            run(source)
        refused.append(source)

    assert slow_ones([source], fails) == []
    assert refused == [source]


@RUNS
@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(40000) %}{% if mapping|first %}{% endif %}{% endfor %}",
        "{% for i in range(40000) %}{% if mapping|last %}{% endif %}{% endfor %}",
        "{% for i in range(9) %}{{ text.rsplit('</think>')|length }}{{ text.split('</think>')[-1].strip('\\n') }}{% endfor %}",
        "{{ text|wordwrap(79)|length }}",
        "{{ 'abc'.rpartition('b') }}{{ 'abc'.startswith(('b', 'a')) }}{{ 'ff'|int(0, 16) }}{{ '1.5'|float }}",
    ],
)
def test_what_templates_do_with_long_texts_every_day_passes(run: Callable[[str], None], source: str) -> None:
    assert slow_ones([source], run) == []
    run(source)


def test_filters_on_filters_run_at_once_and_mean_the_same() -> None:
    source = "{% set ns = namespace(g=[1]) %}{% for i in range(3000) %}{% set ns.g = ns.g|map('string') %}{% endfor %}{{ ns.g|list }}"
    assert JinjaChatTemplate(source, lossy=True).render([{"role": "user", "content": "Hi"}]) == "['1']"


UNITS = st.sampled_from(["a", "ab", "é", "漢", "😀", " ", "\n", "-", "a-", "<a>", "1", "\x0b", ")", "\t", "\xa0a"])
TEXTS = st.builds(
    lambda start, unit, size, end: start + unit * size + end,
    st.sampled_from(["", "b", "ab"]),
    UNITS,
    st.sampled_from([1, 7, 99, 2_000, 30_000, 200_000]),
    st.sampled_from(["", "b", "ba"]),
)
METHODS = sorted(name for name in COSTS if name.startswith("str."))


@pytest.mark.untraced
@law
@given(st.sampled_from(METHODS), TEXTS, TEXTS, TEXTS)
def test_a_method_takes_no_longer_than_its_row_says(name: str, text: str, one: str, two: str) -> None:
    method = getattr(str, name.removeprefix("str."))
    for args in ((), (one,), (one, two), (50,)):
        steps = cost(name, (text, *args))
        if steps > CHAT_LIMITS.steps:
            continue
        allowed = 0.01 + steps * 1e-6  # twenty times what a step stands for
        with suppress(TypeError, ValueError, LookupError):
            assert any(seconds_of(method, text, *args) < allowed for _ in range(3))  # garbage may be collected in one


def seconds_of(method: Callable[..., object], *args: object) -> float:
    """Return the CPU time of a call."""
    start = time.thread_time()
    method(*args)
    return time.thread_time() - start


SMALL = (
    *("'ab'|title", "'ab'|indent", "1|string", "7 // 2", "1 is divisibleby(2)", "loop.changed(1)", "loop.cycle(1, 2)"),
    *("'ab'|wordwrap", "'ab'.split('a')", "[1, 2]|sum", "1 in [1, 2]", "[1]|join(',')", "'ab'|trim", "'{}'.format(1)"),
    *("'ab'|upper", "'ab'|replace('a', 'b')", "[1, 2]|sort", "dict(a=1)", "1 is odd", "7 % 2", "'a' ~ 1", "f(1)"),
    *("'ab'|truncate", "'ab'|striptags", "1.5|round", "'1'|int", "[1]|select('odd')|list", "{'a': 1}|tojson", "'a'"),
)
"""Operations on next to nothing, of which a loop may do as many as there are steps for."""


def per_step_of_a_prompt(source: str) -> float:
    program = compile_program(source)
    assert program.code is not None
    trace = Trace(program.limits, program.code.groups, program.sites)
    seconds = seconds_of(program.code.run, {}.get, trace)
    return seconds / (program.limits.steps - trace.meter.left)


def per_step_of_a_chat_template(source: str) -> float:
    template = compiled(source, True)
    context = RunContext.of(template, {})
    context.bounds = Bounds(CHAT_LIMITS)
    seconds = seconds_of(lambda: list(template.root_render_func(context)))
    return seconds / (CHAT_LIMITS.steps - context.bounds.left)


@pytest.mark.long
@pytest.mark.untraced
@pytest.mark.parametrize("per_step", [per_step_of_a_prompt, per_step_of_a_chat_template])
def test_small_operations_take_about_as_long_as_they_are_charged(per_step: Callable[[str], float]) -> None:
    def seconds(written: str) -> float:
        loop = f"{{% for i in range(200) %}}{{% if {written} %}}{{% endif %}}{{% endfor %}}"
        return per_step(f"{{% macro f(x) %}}{{{{ x }}}}{{% endmacro %}}{loop}")

    taken = {written: min(seconds(written) for _ in range(5)) for written in SMALL}
    for _ in range(40):  # a busy machine makes some of them slower for a while, and none faster
        usual = sorted(taken.values())[len(taken) // 2]
        slow = {written: round(step / usual, 1) for written, step in taken.items() if step > 2.2 * usual}
        if not slow:
            break
        taken |= {written: min(taken[written], seconds(written)) for written in slow}
    assert slow == {}


@pytest.mark.parametrize("row", COSTS.values(), ids=COSTS.keys())
def test_every_row_of_the_costs_has_a_reason(row: Any) -> None:
    assert len(row.reason) > 20


def test_a_round_of_a_loop_looks_at_the_clock() -> None:
    bounds = Bounds(CHAT_LIMITS)
    bounds.end, bounds.look_at = 1e-9, 0.0
    with pytest.raises(Fault, match="takes too long"):
        bounds.looked()
