"""Hostile templates end quickly with text or a typed error, also in a thread with a small stack."""

# ruff: noqa: E501 (templates are easier to read on one line)

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkit.prompts import TemplateError
from agentkit.prompts.chat_templates import ChatTemplateError, JinjaChatTemplate
from agentkit_prompts.templates.sandbox.program import Program, compile_program
from agentkit_prompts.templates.sandbox.trace import Trace
from tests.cases import for_cases
from tests.effort import some, thinned, unless_fresh
from tests.prompts.laws import law
from tests.prompts.templates.hostile_grammar import CORPUS, Grammar, hostile_values

SOURCES: list[str] = json.loads(CORPUS.read_text())
CHUNK = 100
MAX_SECONDS = 2.5
"""CPU time of the thread: the limit is 0.7 s, and one operation can take half a second more; coverage takes a multiple."""
SMALL_STACK = 512 * 1024
VALUES = hostile_values()
UNTRUSTED = "\u2603untrusted"
"""Text that only values contain."""
VALUES["text"] = f"{UNTRUSTED} {VALUES['text']}"
READ_FROM_OUTSIDE = {*VALUES}


def as_prompt(source: str) -> None:
    """Run a template, and check the properties of its rendering or of its error."""
    file = "hostile.prompt.j2"
    try:
        program = compile_program(source, file=file)
        trace = program.trace(VALUES)
    except TemplateError as error:
        assert error.file == file
        assert error.line is not None
        assert 1 <= error.line <= source.count("\n") + 1
        raise
    check_pieces(source, program, trace)


def check_pieces(source: str, program: Program, trace: Trace) -> None:
    """Check that the pieces tile the text, and that each text from a value has an origin."""
    pieces = list(trace.pieces())
    assert "".join(piece.text for piece in pieces) == trace.text
    assert len(trace.text) <= program.limits.output_chars
    for piece in pieces:
        # The source contains all text of the template: these templates have no escapes outside of expressions.
        assert piece.site in program.sites if piece.site is not None else piece.text in source
        if UNTRUSTED in piece.text:
            assert piece.site is not None
            assert set(piece.site.roots) & READ_FROM_OUTSIDE


def as_chat_template(source: str) -> None:
    template = JinjaChatTemplate(source)
    variables = {name: value for name, value in VALUES.items() if name != "messages"}
    template.run(source, VALUES["messages"], None, True, variables)  # type: ignore[arg-type]


def slow_ones(sources: list[str], run: Callable[[str], None]) -> list[tuple[float, str]]:
    """Run templates in a thread with a small stack; return the slow templates; raise untyped errors."""
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
                error.add_note(f"template: {source[:500]}")
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
    if failed:
        raise BaseExceptionGroup(f"{len(failed)} of {len(sources)} templates fail", failed)
    return slow


RUNS = pytest.mark.parametrize("run", [as_prompt, as_chat_template])
CHUNKS = range(0, len(SOURCES), CHUNK)


def test_the_corpus_contains_a_thousand_templates() -> None:
    assert len(set(SOURCES)) >= 1_000


@pytest.mark.untraced
@for_cases("start", some(thinned(CHUNKS[::4], 4), 3))
def test_stored_hostile_templates_end_as_prompts(start: int) -> None:
    assert slow_ones(SOURCES[start : start + CHUNK], as_prompt) == []


@pytest.mark.untraced
@for_cases("start", some(thinned(CHUNKS[2::4], 4), 3))
def test_stored_hostile_templates_end_as_chat_templates(start: int) -> None:
    assert slow_ones(SOURCES[start : start + CHUNK], as_chat_template) == []


@pytest.mark.untraced
@pytest.mark.long
@settings(law, max_examples=law.max_examples // unless_fresh(8, 2))
@given(st.lists(st.integers(0, 2**64), min_size=1, max_size=5))
def test_any_hostile_template_ends(seeds: list[int]) -> None:
    sources = [Grammar(Random(seed)).template() for seed in seeds]
    assert slow_ones(sources, as_prompt) == []
    assert slow_ones(sources, as_chat_template) == []


@RUNS
@for_cases(
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
        "{{ []|attr(deep_tuple) }}",
        "{{ {}|attr(deep_tuple) }}",
        "{{ {}|default(1, deep_tuple) }}",
        "{% for i in [1, 2] %}{{ loop.changed(deep_tuple) }}{% endfor %}",
    ],
)
def test_deeply_nested_external_values_are_refused(run: Callable[[str], None], use: str) -> None:
    refused: list[str] = []

    def fails(source: str) -> None:
        with pytest.raises((TemplateError, ChatTemplateError)):
            run(source)
        refused.append(source)

    assert slow_ones([use], fails) == []
    assert refused == [use]


@RUNS
@for_cases(
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
def test_operations_with_a_slow_worst_case_are_refused_before_they_run(run: Callable[[str], None], source: str) -> None:
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
def test_common_operations_on_long_texts_are_accepted(run: Callable[[str], None], source: str) -> None:
    assert slow_ones([source], run) == []
    run(source)


def test_chained_filters_run_in_one_step_with_the_same_result() -> None:
    source = "{% set ns = namespace(g=[1]) %}{% for i in range(3000) %}{% set ns.g = ns.g|map('string') %}{% endfor %}{{ ns.g|list }}"
    assert JinjaChatTemplate(source, lossy=True).render([{"role": "user", "content": "Hi"}]) == "['1']"
