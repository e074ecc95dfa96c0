"""Jinja chat templates with and without limits, compared with the sandbox of Jinja."""

# ruff: noqa: E501 (a template is one line)

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agentkit.prompts.chat_templates import ChatTemplateError, JinjaChatTemplate
from tests.cases import for_cases
from tests.effort import spread
from tests.prompts.laws import law

SANDBOX = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
SANDBOX.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": " Be <kind>. ", "n": 3, "get": "own", "update": 1},
    {"role": "user", "content": "Hi there", "tags": ["b", "a", "b"], "map": {"k": [1, 2], "j": None}, "pi": 3.25},
    {"role": "assistant", "content": "", "tool_calls": [{"name": "f", "arguments": {"x": 1, "y": "two"}}]},
]

SOURCES = """
{{ messages[0].content + '|' + messages[1].content ~ 1 ~ none ~ [1, 'a'] }}
{{ 'a' + messages[0].content + 'b' + messages[1].role + '{c}' + "it's\\n" + messages[2].content }}
{{ messages[0].n + 1 }} {{ 1 + messages[0].n * 2 - 4 // 3 + 7 % 4 + 2 ** 3 + 1 / 4 }} {{ -messages[0].n }} {{ +3 }}
{{ 'x' * 3 }}{{ 3 * 'x' }}{{ [1] * 2 }}{{ (1, 2) + (3,) }}{{ [1] + [2] }}
{{ 'a' + (messages[0].content | safe) + '<' }}{{ ('<' | safe) + '>' + '<' }}{{ '<' ~ ('<' | safe) }}
{{ messages[0].content + (messages[0].content + ('<' | safe)) }}
{{ 'sum: ' + 1 }}
{{ none | selectattr('type', 'equalto', 'x') | list }}{{ none | rejectattr('x') | list }}{{ 0 | map('upper') | list }}
{{ none | select | list | length }}{{ missing | reject | list }}{{ '' | map(attribute='x') | list }}{{ none | list }}
{{ 'a' + missing }}
{{ missing + 'a' }}{{ missing.deeper }}
{{ missing }}{{ messages[0].missing }}{{ messages[9] }}{{ messages[0]['nope'] | default('d') }}
{{ messages[0].get is callable }} {{ messages[0]['get'] }} {{ messages[1].get('role') }} {{ messages[1]['items'] is defined }}
{{ messages[0].update }}{{ messages[0]['update'] }}
{{ messages[1].keys() | list }} {{ messages[1].map.items() | list }} {{ messages[1].map.values() | list }}
{{ messages[1].content.split(' ') }} {{ messages[1].content.split() | last }} {{ 'a,b,c'.rsplit(',', 1) }}
{{ ' x '.strip() }}{{ 'xay'.strip('xy') }}{{ 'ab'.startswith('a') }}{{ 'ab'.endswith(('b', 'c')) }}{{ 'abc'.find('c') }}
{{ 'a-b'.replace('-', '+') }}{{ 'aaa'.replace('a', 'b', 2) }}{{ ', '.join(['a', 'b']) }}{{ 'a\\tb'.expandtabs(4) }}
{{ 'ab'.center(6) }}|{{ '7'.zfill(3) }}|{{ 'x'.ljust(3, '.') }}|{{ 'title me'.title() }}|{{ 'ß'.upper() }}
{{ '{} {a} {0}'.format('x', a=1) }} {{ '{a:>5}'.format_map({'a': 2}) }} {{ '%s-%05.1f-%r' % ('a', 2.5, 'b') }}
{{ '%(a)s' % {'a': 1} }} {{ '%s %s' | format('a', 2) }} {{ 'abc'.encode().decode() }} {{ (3).bit_length() }}
{{ (2.5).is_integer() }} {{ [3, 1].index(1) }} {{ (1, 1).count(1) }} {{ dict(a=1).copy() }} {{ {}.fromkeys([1]) }}
{{ dict([('a', 1)], b=2) }} {{ dict.fromkeys(['a'], 0) }} {{ range(2, 8, 3) | list }} {{ 3 in range(4) }}
{% for m in messages %}{{ loop.index }}/{{ loop.length }}{{ loop.first }}{{ loop.last }}{{ loop.revindex0 }}{{ loop.cycle('a', 'b') }}{{ loop.changed(m.role) }}{{ loop.previtem.role if loop.previtem }}{{ loop.nextitem is defined }}{{ loop.depth }}{% endfor %}
{% for m in messages if m.role != 'user' %}{{ m.role }}{% else %}none{% endfor %}{% for x in [] %}{% else %}none{% endfor %}
{% for k, v in messages[1].map | items %}{{ k }}={{ v }};{% endfor %}{% for c in 'abc' %}{{ c }}{% endfor %}
{% for x in messages | map(attribute='role') %}{{ x }}{{ loop.index }}{% endfor %}{% for x in none %}{% endfor %}
{% for t in [[1, [2, 3]], 4] recursive %}{{ loop(t) if t is sequence else t }},{{ loop.depth0 }}{% endfor %}
{% for i in range(9) %}{% if i == 2 %}{% continue %}{% elif i > 4 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% macro f(a, b='x', c=a) %}{{ a }}{{ b }}{{ c }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1) }}{{ f(1, 2, 3, 4, d=5) }}{{ f.name }}{{ f.arguments }}
{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}
{% macro g() %}<{{ caller('x') }}>{% endmacro %}{% call(y) g() %}{{ y }}!{% endcall %}
{% set ns = namespace(a=1) %}{% for i in [1, 2] %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b is defined }}{{ ns['a'] }}
{% set x %}a {{ 1 }} b{% endset %}{{ x | upper }}{% set y | trim %} z {% endset %}[{{ y }}]
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% with c = 3 %}{{ c }}{% endwith %}{{ c is defined }}
{% filter upper %}a{{ 1 }}{% endfilter %}{% raw %}{{ x }}{% endraw %}{# gone #}
{% block a %}one{{ messages[0].n }}{% endblock %}{{ self.a() }}
{% autoescape true %}{{ '<' }}{{ '<' ~ '>' }}{{ '<' + messages[0].content }}{{ [1] }}{% endautoescape %}
{% autoescape true %}{{ '<' ~ messages[0].content ~ (messages[0].content | safe) }}{{ messages[0].content | trim }}{% set x %}<{% endset %}{{ x }}{% endautoescape %}
{% autoescape messages[0].n %}{{ '<' ~ messages[0].content }}{{ '<' + messages[0].content }}{% endautoescape %}
{% for x in [1, 2] %}{% block b scoped %}{{ x }}{{ loop.index }}{% endblock %}{% endfor %}
{% for m in messages %}{{ [m.role] | map('upper') | list }}{{ m.role in (messages | map(attribute='role')) }}{% endfor %}
{{ missing() }}
{{ missing.x() }}
{{ none() }}
{{ 'a' is test('x') }}{{ 'abc' is filter }}{{ 'x' is undefined }}{{ missing is undefined }}{{ 'é' is lower }}
{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.reset() }}{% set j = joiner('-') %}{{ j() }}{{ j() }}
{{ 1 < 2 < 3 }}{{ 1 == 1.0 }}{{ 'a' in 'abc' }}{{ 'a' not in ['b'] }}{{ [1] == [1] }}{{ {'a': [1]} != {'a': [2]} }}{{ 'x' in {'x': 1} }}{{ 1 in {'a': 1}.values() }}{{ 'a' in ['a'] | map('upper') }}
{{ 'a' if missing else 'b' }}{{ 'a' if false }}{{ not 1 }}{{ 1 and 0 or 3 }}{{ none is none }}{{ true is boolean }}
{{ 'a' is string }}{{ {} is mapping }}{{ [] is iterable }}{{ [] is sequence }}{{ 3 is odd }}{{ 4 is divisibleby 2 }}{{ 3 is eq 3 }}{{ 3 is in [3] }}{{ 'A' is upper }}{{ 1 is integer }}{{ 1.5 is float }}{{ 1 is number }}{{ 1 is sameas 1 }}{{ messages is callable }}
{{ messages[1].tags | join(', ') }}{{ messages[1].tags | unique | list }}{{ messages[1].tags | sort(reverse=true) }}{{ messages[1].tags | first }}{{ messages[1].tags | reverse | list }}
{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ messages | rejectattr('tags', 'defined') | map(attribute='role') | join('/') }}{{ [1, 2, 3] | select('odd') | list }}{{ [1, 2] | reject('in', [2]) | list }}
{{ {'b': 1, 'a': 2} | dictsort }}{{ [{'a': 1, 'b': 'x'}, {'a': 1, 'b': 'y'}] | groupby('a') }}{{ [1, 2, 3] | batch(2, 0) | list }}{{ [1, 2, 3] | slice(2) | list }}
{{ [1, 5, 2] | max }}{{ [1, 5, 2] | min }}{{ [1, 5] | sum }}{{ [{'a': [1]}, {'a': [2]}] | sum(attribute='a', start=[]) }}{{ 2.567 | round(1) }}{{ -3 | abs }}{{ '12' | int + 1 }}{{ '1.5' | float }}{{ 'ff' | int(0, 16) }}
{{ 'a\\nb' | indent }}{{ 'a\\nb' | indent(2, true) }}{{ 'a\\n\\nb' | indent('--', blank=true) }}{{ 'a b' | title }}{{ 'aB' | capitalize }}{{ 'abc' | replace('b', 'x') }}{{ 'ab' | center(6) }}
{{ 'one two three' | truncate(9) }}{{ 'one two three' | wordwrap(5) }}{{ 'a b' | wordcount }}{{ '<a>' | e }}{{ '<a>b</a>' | striptags }}{{ 'a b/ü' | urlencode }}{{ 123456 | filesizeformat }}{{ 'see a.com' | urlize }}
{{ {'a': 1, 'b': none} | xmlattr }}{{ [1, {'a': 2}] | pprint }}{{ 5 | string + 'x' }}{{ [1, 2] | string }}{{ messages[0].content | trim | length }}{{ 'abc' | list }}{{ 'abc' | last }}{{ none | default('d', true) }}{{ '' | d('e', true) }}
{{ messages[1].map | tojson }}{{ messages[1].map | tojson(indent=2) }}{{ messages | map('tojson') | list | length }}{{ (1, 'é') | tojson }}
{{ messages[1].map | items | list }}{{ {(1, 2): 3}[(1, 2)] }}{{ {'a': 1}['a'] }}{{ 'abc'[1:] }}{{ [1, 2, 3][::-1] }}{{ 'abc'[-1] }}{{ messages[-1].tool_calls[0].arguments.y }}
{{ messages | attr('x') }}{{ messages[0] | attr('keys') is defined }}{{ 'abc' | attr('upper') is defined }}{{ messages[0].content | forceescape }}{{ ['b', 'A'] | sort(case_sensitive=true) }}
{{ messages.append(1) }}
{{ 1 / 0 }}
{{ [1] | map('nosuch') | list }}
{{ messages | tojson | length }}{{ 'a' ~ ('<b>' | safe) ~ '<' }}{{ ['<', '>' | safe] | join }}
{{ loop }}{{ caller }}{{ varargs }}
{% for x in range(3) %}{% for y in range(2) %}{{ loop.index }}{% endfor %}{{ loop.index0 }}{% endfor %}
{% for loopx in [1] %}{% set loop2 = loop %}{{ loop2.index }}{% endfor %}
{{ '%d%%' % 5 }}{{ '{{}}'.format() }}{{ 'a{0[k]}'.format({'k': 1}) }}{{ 'a{0.real}'.format(3) }}
""".strip().splitlines()


def outcome(render: Any) -> str:
    try:
        return str(render())
    except Exception:
        return "(fails)"


@pytest.mark.parametrize("source", spread(SOURCES, 3))
def test_a_template_renders_as_in_the_sandbox_with_and_without_limits(source: str) -> None:
    expected = outcome(lambda: SANDBOX.from_string(source).render(messages=MESSAGES, tools=None))
    for limits in ({}, {"limits": None}):
        template = outcome(lambda limits=limits: JinjaChatTemplate(source, normalise=False, **limits).render(MESSAGES))  # type: ignore[misc]
        assert template == expected


VALUES = st.sampled_from(
    [
        "messages[0].content",
        "messages[0].n",
        "'a{b}'",
        "'<' | safe",
        "1",
        "2.5",
        "none",
        "missing",
        "[1]",
        "(2,)",
        "''",
        "messages",
    ]
)
EXPRESSIONS = st.recursive(
    VALUES,
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "~", "*", "==", "in", "and", "%"]), inner)
        | st.builds("({} if {} else {})".format, inner, inner, inner)
        | st.builds(
            "({} | {})".format,
            inner,
            st.sampled_from(["trim", "string", "upper", "list", "length", "tojson", "e", "default(1)"]),
        )
    ),
    max_leaves=8,
)


@law
@given(EXPRESSIONS)
def test_any_expression_has_the_value_of_the_sandbox(expression: str) -> None:
    source = "{{ " + expression + " }}"
    expected = outcome(lambda: SANDBOX.from_string(source).render(messages=MESSAGES, tools=None))
    for limits in ({}, {"limits": None}):
        assert (
            outcome(lambda limits=limits: JinjaChatTemplate(source, normalise=False, **limits).render(MESSAGES))
            == expected
        )  # type: ignore[misc]


@for_cases("name", ["lipsum()", "[1, 2] | random"])
def test_random_filters_are_unavailable(name: str) -> None:
    with pytest.raises(ChatTemplateError):
        JinjaChatTemplate("{{ " + name + " }}", limits=None).render([])
