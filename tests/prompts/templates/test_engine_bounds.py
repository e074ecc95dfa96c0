"""Limits of templates: bombs of all kinds stop at a limit that does not depend on the clock."""

# ruff: noqa: E501 (templates are easier to read on one line)

from __future__ import annotations

import tracemalloc
from datetime import datetime
from time import thread_time

import pytest

from agentkit.prompts import Template, TemplateError, Text
from agentkit.prompts.chat_templates import JinjaChatTemplate
from agentkit_prompts.templates.sandbox.program import compile_program
from tests.cases import for_cases
from tests.effort import some, thinned

DOUBLE = "{% set x = x + x %}" * 60
PAIR = "{% set x = [x, x] %}" * 60
ONE_HASH = "{% set d = {" + ", ".join(f"{n * (2**61 - 1)}: 1" for n in range(2, 300)) + "} %}"

BOMBS = {
    "repeated text": "{{ 'a' * 10**9 }}",
    "repeated text, turned round": "{{ 10**9 * 'a' }}",
    "repeated list": "{{ ([0] * 10**9)|length }}",
    "repeated tuple": "{{ ((0,) * 10**9)|length }}",
    "repeated list of lists": "{% set a = [0] * 1000 %}{% set b = [a] * 1000 %}{% set c = [b] * 1000 %}{{ c }}",
    "tower of powers": "{{ 2 ** (10 ** 9) }}",
    "power of a power": "{{ (2 ** 4000) ** 4000 }}",
    "power of a float": "{{ 10.0 ** 400 }}",
    "growing product": "{% set ns = namespace(n=3) %}{% for i in range(1000) %}{% set ns.n = ns.n * ns.n %}{% endfor %}{{ ns.n }}",
    "growing sum": "{% set ns = namespace(n=1) %}{% for i in range(100000) %}{% set ns.n = ns.n + ns.n %}{% endfor %}{{ ns.n }}",
    "doubled text": "{% set x = 'aaaaaaaaaaaaaaaa' %}" + DOUBLE,
    "doubled text by ~": "{% set x = 'aaaaaaaaaaaaaaaa' %}" + "{% set x = x ~ x %}" * 60,
    "doubled list": "{% set x = [1, 2] %}" + DOUBLE,
    "doubled text by format": "{% set x = 'aaaaaaaaaaaaaaaa' %}" + "{% set x = '%s%s' % (x, x) %}" * 60,
    "doubled text by str.format": "{% set x = 'aaaaaaaaaaaaaaaa' %}" + "{% set x = '{0}{0}'.format(x) %}" * 60,
    "doubled text by the format filter": "{% set x = 'aaaaaaaaaaaaaaaa' %}" + "{% set x = '%s%s'|format(x, x) %}" * 60,
    "doubled text by replace": "{% set x = 'aaaaaaaaaaaaaaaa' %}" + "{% set x = x|replace('a', 'aa') %}" * 60,
    "doubled text by str.replace": "{% set x = 'aaaaaaaaaaaaaaaa' %}" + "{% set x = x.replace('a', 'aa') %}" * 60,
    "doubled text by join": "{% set x = 'aaaaaaaaaaaaaaaa' %}" + "{% set x = [x, x]|join %}" * 60,
    "doubled text by str.join": "{% set x = 'aaaaaaaaaaaaaaaa' %}" + "{% set x = x.join([x, x]) %}" * 60,
    "doubled text in a set block": "{% set x = 'aaaaaaaaaaaaaaaa' %}" + "{% set x %}{{ x }}{{ x }}{% endset %}" * 60,
    "doubled text by sum": "{% set x = 'aaaaaaaaaaaaaaaa' %}" + "{% set x = [x, x]|sum(start='') %}" * 60,
    "squared text by replacing nothing": "{% set x = 'a' * 3000 %}{{ x.replace('', x) }}",
    "squared text by join": "{% set x = 'a' * 3000 %}{{ x|join(x) }}",
    "nested pairs printed": "{% set x = [1] %}" + PAIR + "{{ x }}",
    "nested pairs as JSON": "{% set x = [1] %}" + PAIR + "{{ x|tojson }}",
    "nested pairs as text": "{% set x = [1] %}" + PAIR + "{{ x|string }}",
    "nested pairs compared": "{% set x = [1] %}" + PAIR + "{% set y = x %}{% set x = [1] %}" + PAIR + "{{ x == y }}",
    "nested pairs ordered": "{% set x = [1] %}" + PAIR + "{% set y = x %}{% set x = [1] %}" + PAIR + "{{ x < y }}",
    "nested pairs searched": "{% set x = [1] %}" + PAIR + "{% set y = x %}{% set x = [1] %}" + PAIR + "{{ x in [y] }}",
    "nested pairs sorted": "{% set x = [1] %}" + PAIR + "{% set y = x %}{% set x = [1] %}" + PAIR + "{{ [x, y]|sort }}",
    "nested pairs counted": "{% set x = [1] %}"
    + PAIR
    + "{% set y = x %}{% set x = [1] %}"
    + PAIR
    + "{{ [x].count(y) }}",
    "nested pairs grouped": "{% set x = [1] %}" + PAIR + "{{ [[x, 1], [x, 2]]|groupby(0)|list }}",
    "nested tuples hashed": "{% set x = (1,) %}" + "{% set x = (x, x) %}" * 60 + "{{ {x: 1}|length }}",
    "nested tuples looked up": "{% set x = (1,) %}" + "{% set x = (x, x) %}" * 60 + "{{ {}[x] }}",
    "nested tuples got": "{% set x = (1,) %}" + "{% set x = (x, x) %}" * 60 + "{{ {}.get(x) }}",
    "nested tuples made unique": "{% set x = (1,) %}" + "{% set x = (x, x) %}" * 60 + "{{ [x, x]|unique|list }}",
    "nested tuples watched": "{% set x = (1,) %}"
    + "{% set x = (x, x) %}" * 60
    + "{% for i in [1, 2] %}{{ loop.changed(x) }}{% endfor %}",
    "nested dicts printed": "{% set x = {'a': 1} %}" + "{% set x = {'a': x, 'b': x} %}" * 60 + "{{ x }}",
    "nested pairs filled in": "{% set x = [1] %}" + PAIR + "{{ '%s' % (x,) }}",
    "two nested loops": "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}",
    "ten nested loops": "{% for a in range(99) %}" * 10 + "x" + "{% endfor %}" * 10,
    "nested loops over text": "{% set t = 'a' * 1000 %}" + "{% for a in t %}" * 5 + "{{ a }}" + "{% endfor %}" * 5,
    "nested empty loops": "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
    "nested loops that never match": "{% for a in range(9999) %}{% for b in range(9999) if b < 0 %}{% endfor %}{% endfor %}",
    "long range": "{{ range(10**12)|list|length }}",
    "long range, backwards": "{% for i in range(10**12, 0, -1) %}{% endfor %}",
    "long range summed": "{{ range(10**8)|sum }}",
    "long range searched": "{{ 'a' in range(10**8) }}",
    "long range reversed": "{{ range(10**8)|reverse|length }}",
    "long range printed": "{{ range(10**8) }}",
    "long range batched": "{{ range(10**8)|batch(1)|length }}",
    "big text printed often": "{% set t = 'a' * 1000000 %}{% for i in range(1000) %}{{ t }}{% endfor %}",
    "macro that calls itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "macro that calls itself twice": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "two macros that call each other": "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}",
    "macro that calls its caller": "{% macro f() %}{{ caller() }}{% endmacro %}{% macro g() %}{% call f() %}{{ g() }}{% endcall %}{% endmacro %}{{ g() }}",
    "recursive loop": "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "recursive loop that branches": "{% for a in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}",
    "wide centre": "{{ 'a'|center(10**9) }}",
    "wide str.center": "{{ 'a'.center(10**9) }}",
    "wide ljust": "{{ 'a'.ljust(10**9) }}",
    "wide zfill": "{{ 'a'.zfill(10**9) }}",
    "wide indent": "{{ 'a\nb'|indent(10**9) }}",
    "wide indent by text": "{% set t = 'a' * 100000 %}{% set l = 'a\n' * 10000 %}{{ l|indent(t) }}",
    "wide % field": "{{ '%999999999d' % 1 }}",
    "precise % field": "{{ '%.999999999f' % 1.5 }}",
    "starred % field": "{{ '%*d' % (999999999, 1) }}",
    "wide format field": "{{ '{:>999999999}'.format(1) }}",
    "precise format field": "{{ '{:.999999999f}'.format(1.5) }}",
    "format field within a field": "{{ '{:{}}'.format(1, 999999999) }}",
    "wide strftime": "{{ now.strftime('%999999999d') }}",
    "long strftime": "{{ now.strftime('%A' * 100000) }}",
    "wide JSON": "{{ [[[[1]]]]|tojson(indent=10**8) }}",
    "filled batch": "{{ [1]|batch(10**9, 'x')|list }}",
    "filled slices": "{{ [1]|slice(10**9, 'x')|list }}",
    "many words wrapped": "{{ ('a ' * 1900000)|wordwrap(1) }}",
    "wrapped by a long text": "{{ ('a ' * 10000)|wordwrap(1, wrapstring='b' * 10000) }}",
    "many tabs": "{{ ('\t' * 1000000).expandtabs(10**6) }}",
    "mapped to bombs": "{{ range(100000)|map('center', 9999)|list|length }}",
    "long arguments": "{% macro f() %}{{ varargs|length }}{% endmacro %}{{ f(*range(10**8)) }}",
    "filter of filters": "{{ range(1000)|map('map', 'upper')|list }}",
    "million rounds of a macro": "{% macro f() %}x{% endmacro %}{% for i in range(100000) %}{{ f() }}{% endfor %}",
    "many upper-cased long texts": "{% set t = 'ä' * 1000000 %}{% for i in range(1000) %}{% set u = t|upper %}{% endfor %}",
    "many searched long texts": "{% set t = 'a' * 1000000 %}{% for i in range(5000) %}{% set u = 'b' in t %}{% endfor %}",
    "many compared long texts": "{% set t = 'a' * 1000000 %}{% set v = t ~ '' %}{% for i in range(40000) %}{% set u = t == v %}{% endfor %}",
    "many compared lists": "{% set t = [0] * 100000 %}{% set v = t + [] %}{% for i in range(1000) %}{% set u = t == v %}{% endfor %}",
    "many copied lists": "{% set t = [0] * 100000 %}{% for i in range(1000) %}{% set u = t[:] %}{% endfor %}",
    "many sliced texts": "{% set t = 'a' * 1000000 %}{% for i in range(10000) %}{% set u = t[1:] %}{% endfor %}",
    "many sorts": "{% set t = range(10000)|list %}{% for i in range(1000) %}{% set u = t|sort %}{% endfor %}",
    "many counted words": "{% set t = 'a ' * 1000000 %}{% for i in range(1000) %}{% set u = t|wordcount %}{% endfor %}",
    "many stripped tags": "{% set t = '<' * 1000000 %}{% for i in range(1000) %}{% set u = t|striptags %}{% endfor %}",
    "many long numbers": "{% for i in range(100000) %}{% set u = ('1' * 4000)|int %}{% endfor %}",
    "many quotings": "{% set t = ' ' * 1000000 %}{% for i in range(1000) %}{% set u = t|urlencode %}{% endfor %}",
    "many joins of one": "{% set t = 'a' * 1000000 %}{% for i in range(10000) %}{% set u = [t]|join %}{% endfor %}",
    "many splits": "{% set t = 'a ' * 500000 %}{% for i in range(1000) %}{% set u = t.split() %}{% endfor %}",
    "long cycle": "{% for i in range(1000) %}{{ loop.cycle(*range(100000)) }}{% endfor %}",
    "long texts as JSON": "{% set t = 'a' * 1000000 %}{{ [t] * 1000 }}",
    "long texts as JSON values": "{% set t = 'a' * 1000000 %}{{ [{'k': t, 'l': t}] * 1000 }}",
    "deep lists, indented": "{% set x = [1] * 9000 %}" + "{% set x = [x] %}" * 90 + "{{ x|tojson(indent=16) }}",
    "many found long texts": "{% set t = 'a' * 1000000 %}{% set u = t ~ '' %}{{ u ~ 'b' in [t ~ 'c'] * 100000 }}",
    "many looked up long texts": "{% set t = 'a' * 1000000 %}{% set u = t ~ '' %}{% for i in range(9999) %}{% set v = {t: 1}[u] %}{% endfor %}",
    "many long constants": "{% set t = 'a' * 9999 %}{% for i in range(90000) %}{% set v = t == '"
    + "a" * 9999
    + "' %}{% endfor %}",
    "numbers with one hash": "{{ range(0, (2 ** 61 - 1) * 50000, 2 ** 61 - 1)|unique|list|length }}",
    "tuples with one hash": "{{ range(0, (2 ** 61 - 1) * 50000, 2 ** 61 - 1)|batch(1)|map('list')|groupby(0)|length }}",
    "keys with one hash": "{% for i in range(50000) %}{% set d = dict([[i * (2 ** 61 - 1), 1]] * 9) %}{% endfor %}",
    "a dictionary of one hash copied": ONE_HASH + "{% for i in range(200) %}{% set e = dict(d) %}{% endfor %}",
    "a dictionary of one hash listed": ONE_HASH + "{% for i in range(200) %}{% set e = d.values() %}{% endfor %}",
    "a dictionary of one hash sought": ONE_HASH + "{% for i in range(200) %}{% set e = dict(d) in [d] %}{% endfor %}",
    "many sort keys": "{{ [[1]] * 1000|sort(attribute='0,' * 100000 ~ '0') }}",
    "long floats": "{% for i in range(1000) %}{% set v = ('1' * 1000000)|float %}{% endfor %}",
    "many prints of one long text": "{% set t = 'a' * 3000000 %}" + "{{ t }}" * 250,
    "dict of everything": "{% for i in range(1000) %}{% set d = dict(range(100000)|map('batch', 2)) %}{% endfor %}",
}


HUGE_SOURCES = {
    "too long": "{{ a }}" + "x" * 1_000_001,
    "too many tags": "{{ a }}" * 50_000,
    "too long a list": "{{ [" + "1," * 400_000 + "] }}",
    "too long a sum": "{{ " + " + ".join(["a"] * 5_000) + " }}",
    "too many brackets": "{{ " + "(" * 100_000 + "1" + ")" * 100_000 + " }}",
    "too many lists": "{{ " + "[" * 5_000 + "]" * 5_000 + " }}",
    "too many dicts": "{{ " + "{1:" * 5_000 + "1" + "}" * 5_000 + " }}",
    "too many nots": "{{ " + "not " * 5_000 + "a }}",
    "too many signs": "{{ " + "- " * 5_000 + "1 }}",
    "too many dots": "{{ a" + ".b" * 5_000 + " }}",
    "too many subscripts": "{{ a" + "[0]" * 5_000 + " }}",
    "too many calls": "{{ a" + "()" * 5_000 + " }}",
    "too many filters": "{{ a" + "|upper" * 5_000 + " }}",
    "too many ifs": "{% if a %}" * 3_000 + "{% endif %}" * 3_000,
    "too many loops": "{% for a in b %}" * 500 + "{% endfor %}" * 500,
    "more loops than Python nests": "{% for a in b %}" * 25 + "{% endfor %}" * 25,
    "too many macros": "{% macro a() %}" * 500 + "{% endmacro %}" * 500,
    "too many filter blocks": "{% filter upper %}" * 500 + "{% endfilter %}" * 500,
    "too many inline ifs": "{{ " + "a if b else " * 3_000 + "c }}",
    "too many powers": "{{ " + "2 ** " * 3_000 + "2 }}",
    "a long number": "{{ " + "9" * 100_000 + " }}",
    "a long hexadecimal number": "{{ 0x" + "f" * 100_000 + " }}",
    "an unclosed comment": "{#" * 300_000,
    "an unclosed raw": "{% raw %}" + "{% " * 300_000,
    "unclosed text": "{{ '" + "\\'" * 300_000,
}


MAX_SECONDS = 2.5
"""CPU time: the limit is 0.7 s, and one operation can take half a second more; coverage takes a multiple."""
QUICK = frozenset(
    (
        *(
            "many searched long texts",
            "many compared long texts",
            "many long constants",
            "many keys that are long texts",
        ),
        *("a dictionary of one hash sought", "a dictionary of one hash compared", "a dictionary of one hash copied"),
        *("a dictionary of one hash listed", "tuples with one hash", "many looked up long texts"),
        "million rounds of a macro",
    )
)
"""Bombs that end below the limit on some machines."""


@pytest.mark.untraced
@for_cases("name", some(thinned([*BOMBS], 4), 3))
def test_a_bomb_ends_quickly_with_a_template_error(name: str) -> None:
    template = Template(BOMBS[name])
    start = thread_time()
    try:
        template.run({"now": datetime(2026, 1, 2, 3, 4, 5)})
    except TemplateError as error:
        assert error.line in (1, 2, None)
    else:
        assert name in QUICK
    assert thread_time() - start < MAX_SECONDS


@for_cases("source", HUGE_SOURCES.values())
def test_a_huge_template_is_refused_before_it_is_compiled(source: str) -> None:
    with pytest.raises(TemplateError):
        Template(source)


@pytest.mark.parametrize(
    "source",
    [
        "{% macro f() %}x{% endmacro %}{% for i in range(150) %}{{ f() }}{% endfor %}",
        "{% macro f() %}{{ caller() }}{% endmacro %}{% for i in range(150) %}{% call f() %}x{% endcall %}{% endfor %}",
        "{% for item in [[]] * 150 recursive %}{{ loop(item) }}x{% endfor %}",
    ],
    ids=["macro", "call block", "recursive loop"],
)
def test_150_calls_of_a_macro_in_a_loop_are_not_nested(source: str) -> None:
    assert Template(source).run({}).text == "x" * 150


def test_many_small_numbers_are_cheap_keys() -> None:
    numbers = dict.fromkeys(range(20_000), 1)
    assert Template("{{ dict(numbers)|length }}").run({"numbers": numbers}).text == "20000"


@for_cases(
    "source",
    [
        "{{ values|default('None, so far. Sorry, none. Really, none.')|length }}",
        "{{ values|join(' ... ')|length and 120000 }}",
        "{{ values|select('ne', '1.2.3.4')|list|length }}",
        "{{ values|map('default', 'a.b.c.d')|list|length }}",
    ],
)
def test_an_argument_with_dots_is_not_a_path_of_attributes(source: str) -> None:
    values = ["a"] * 120_000
    assert Template(source).render({"values": values}) == "120000"
    template = JinjaChatTemplate(source, lossy=True)
    assert template.render([{"role": "user", "content": "Hi"}], values=values) == "120000"


def test_content_parts_are_counted_before_they_are_joined() -> None:
    parts = [Text("a" * 1_000_000)]
    tracemalloc.start()
    try:
        for source in ("{{ (parts * 400) ~ '' }}", "{{ (parts * 400)|upper }}"):
            with pytest.raises(TemplateError):
                Template(source).render({"parts": parts})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20_000_000


def test_text_without_expressions_can_be_of_any_length() -> None:
    assert len(compile_program("a" * 5_000_000, syntax="literal").trace({}).text) == 5_000_000


def test_macros_and_recursive_loops_nest_100_deep_together() -> None:
    macro = "{% macro f(n) %}{{ f(n - 1) if n }}x{% endmacro %}"
    assert Template(macro + "{{ f(99) }}").run({}).text == "x" * 100
    with pytest.raises(TemplateError):
        Template(macro + "{{ f(100) }}").run({})
    with pytest.raises(TemplateError):
        Template(
            macro + "{% for a in [1] recursive %}{% if a %}{{ loop([0]) }}{% else %}{{ f(99) }}{% endif %}{% endfor %}"
        ).run({})
