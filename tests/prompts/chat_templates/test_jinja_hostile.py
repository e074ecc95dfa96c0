"""Hostile Jinja chat templates: bombs and escapes end in a typed error, quickly and with little memory."""

# ruff: noqa: E501 (a template is one line)

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from time import thread_time

import pytest

from agentkit.prompts.chat_templates import ChatTemplateError, JinjaChatTemplate
from agentkit_prompts.templates.sandbox.meter import Limits
from tests.cases import for_cases
from tests.effort import spread, thinned

MAX_SECONDS = 2.5
"""CPU time: the limit is one second, and one operation can take half a second more; coverage takes a multiple."""
HI = [{"role": "user", "content": "Hi"}]

BOMBS = r"""
{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}
{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}
{% set ns=namespace(x='a'*1000) %}{% for a in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}
{% set ns=namespace(x='a'*1000) %}{% for a in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}
{% set ns=namespace(x='a'*1000) %}{% for a in range(60) %}{% set ns.x = 'b' + ns.x + ns.x+ns.x+ns.x+ns.x+ns.x+ns.x %}{% endfor %}{{ ns.x }}
{{ 'a' * 10**10 }}
{{ 10**10 * 'a' }}
{{ (2**8000 + 1) * (2**8000) }}
{% set ns = namespace(x=2**8190) %}{% for i in range(9) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}
{{ ['a' * 5000000, 'b' * 5000000] }}
{{ 2 ** 'a' }}
{{ 'a'.maketrans({}) }}
{{ ([1] * 10**9)|length }}
{% set ns=namespace(x=3) %}{% for a in range(100) %}{% set ns.x = ns.x*ns.x %}{% endfor %}{{ ns.x }}
{{ '%1000000000d' % 1 }}
{{ '%*d' % (1000000000, 1) }}
{{ '%(a(b))1000000000d' % {'a(b)': 1} }}
{% set x='a'*1000000 %}{{ ('%(a)s'*100000) % {'a': x} }}
{{ '{:>1000000000}'.format('a') }}
{{ '{:{w}}'.format('a', w=1000000000) }}
{% set x='a'*1000000 %}{{ ('{0}'*100000).format(x) }}
{{ '{a:>1000000000}'.format_map({'a': 1}) }}
{{ '%1000000000d'|format(1) }}
{{ 'a'|center(1000000000) }}
{{ 'a'.center(1000000000) }}
{{ 'a'.zfill(1000000000) }}
{{ 'a'.ljust(1000000000) }}
{{ 'a\t'.expandtabs(1000000000) }}
{% set x='a'*10000 %}{{ x.replace('a', x).replace('a', x) }}
{% set x='a'*10000 %}{{ x|replace('a', x)|replace('a', x) }}
{% set x='a'*10000 %}{{ x.replace('', x).replace('', x) }}
{% set x='a'*1000000 %}{{ x.join('b'*1000000) }}
{% set x='a'*1000000 %}{{ ('b'*1000000)|join(x) }}
{{ ('a\n'*100000)|indent(1000000) }}
{% set x='a'*1000000 %}{{ ('a\n'*100000)|indent(x) }}
{{ [1,2]|tojson(indent=1000000000) }}
{% set x='a'*1000000 %}{{ range(100000)|list|tojson(separators=(x,x)) }}
{% set ns=namespace(x=[1]) %}{% for a in range(60) %}{% set ns.x=[ns.x,ns.x] %}{% endfor %}{{ ns.x }}
{% set ns=namespace(x=[1]) %}{% for a in range(60) %}{% set ns.x=[ns.x,ns.x] %}{% endfor %}{{ ns.x|tojson }}
{% set ns=namespace(x=[1],y=[1]) %}{% for a in range(60) %}{% set ns.x=[ns.x,ns.x] %}{% set ns.y=[ns.y,ns.y] %}{% endfor %}{{ ns.x == ns.y }}
{% set ns=namespace(x=(1,)) %}{% for a in range(60) %}{% set ns.x=(ns.x,ns.x) %}{% endfor %}{{ {ns.x: 1}|length }}
{% set ns=namespace(x=(1,)) %}{% for a in range(60) %}{% set ns.x=(ns.x,ns.x) %}{% endfor %}{{ {1:2}.get(ns.x) }}
{% set ns=namespace(x=(1,)) %}{% for a in range(60) %}{% set ns.x=(ns.x,ns.x) %}{% endfor %}{{ {1:2}[ns.x] }}
{% set ns=namespace(x=[1],y=[1]) %}{% for a in range(60) %}{% set ns.x=[ns.x,ns.x] %}{% set ns.y=[ns.y,ns.y] %}{% endfor %}{{ ns.x in [ns.y] }}
{% set ns=namespace(x=[1],y=[1]) %}{% for a in range(60) %}{% set ns.x=[ns.x,ns.x] %}{% set ns.y=[ns.y,ns.y] %}{% endfor %}{{ [ns.x]|select('in',[ns.y])|list }}
{% set ns=namespace(x=[1],y=[1]) %}{% for a in range(60) %}{% set ns.x=[ns.x,ns.x] %}{% set ns.y=[ns.y,ns.y] %}{% endfor %}{{ [ns.x,ns.y]|sort }}
{% set ns=namespace(x=(1,),y=(1,)) %}{% for a in range(60) %}{% set ns.x=(ns.x,ns.x) %}{% set ns.y=(ns.y,ns.y) %}{% endfor %}{{ [ns.x,ns.y]|unique|list|length }}
{% set ns=namespace(x=[1]) %}{% for a in range(60) %}{% set ns.x=[ns.x,ns.x] %}{% endfor %}{{ ns.x|string|length }}
{% set ns=namespace(x=[1]) %}{% for a in range(60) %}{% set ns.x=[ns.x,ns.x] %}{% endfor %}{{ ns.x|pprint }}
{% set ns=namespace(x=[1]) %}{% for a in range(60) %}{% set ns.x=[ns.x,ns.x] %}{% endfor %}{{ ns }}
{% set ns=namespace(x=[1]) %}{% for a in range(60) %}{% set ns.x=[ns.x,ns.x] %}{% endfor %}{{ '{}'.format(ns.x) }}
{% set ns=namespace(x=[1]) %}{% for a in range(60) %}{% set ns.x=[ns.x,ns.x] %}{% endfor %}{{ '%s' % (ns.x,) }}
{% set ns=namespace(x=[1]) %}{% for a in range(60) %}{% set ns.x=[ns.x,ns.x] %}{% endfor %}{{ raise_exception(ns.x) }}
{% set ns=namespace(x=[1]) %}{% for a in range(60) %}{% set ns.x={'a':ns.x,'b':ns.x} %}{% endfor %}{{ ns.x.items() }}
{% set ns=namespace(x=[1]) %}{% for a in range(60) %}{% set ns.x=[ns.x,ns.x] %}{% endfor %}{{ 'a' ~ ns.x }}
{% set ns=namespace(x=[1]) %}{% for a in range(60) %}{% set ns.x=ns.x+ns.x %}{% endfor %}{{ ns.x|length }}
{% macro f(n) %}{% if n > 0 %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}
{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}
{% macro f(x) %}{{ x }}{{ x }}{% endmacro %}{% set ns=namespace(x='aaaaaaaaaa') %}{% for a in range(60) %}{% set ns.x=f(ns.x) %}{% endfor %}{{ ns.x }}
{% for a in [1] recursive %}{{ loop([1,1]) }}{{ loop([1,1]) }}{% endfor %}
{% block a %}{{ self.a() }}{{ self.a() }}{% endblock %}
{% set r=range(100000) %}{% for a in range(1000) %}{{ r|map('string')|map('upper')|list|length }}{% endfor %}
{{ ([[1]*1000]*100000)|sum(start=[])|length }}
{{ ([{'a':[1]*1000}]*3000)|sum(attribute='a',start=[])|length }}
{{ [1]|batch(1000000000, 0)|list|length }}
{{ [1]|slice(1000000000)|list|length }}
{{ 1|round(1000000000,'ceil') }}
{% set x='b'*10000 %}{{ ('a '*100000)|wordwrap(1, wrapstring=x) }}
{{ ('a '*100000)|truncate(5, end='b'*100000000) }}
{{ {'a': 'b'*10000000}|xmlattr }}
{{ ('a.com '*1000000)|urlize }}
{{ ('a '*3000000)|title }}
{{ 'aaaa'.translate({97: 'b'*1000000}) }}
{{ (1).to_bytes(1000000000,'big') }}
{% for a in range(100000) %}{% set x = dict.fromkeys(range(100000)) %}{% endfor %}
{% for a in range(100000) %}{% set x = {}.fromkeys(range(100000)) %}{% endfor %}
{% for a in range(100000) %}{% set x = range(100000)|list %}{% endfor %}
{% for a in range(100000) if range(100000)|list == 3 %}{% endfor %}
{% for a in range(100000) %}{{ 'x' in range(100000) }}{% endfor %}
{% set x='a'*1000000 %}{% for a in range(100000) %}{{ 'aab' in x }}{% endfor %}
{% set d=dict.fromkeys(range(100000)) %}{% for a in range(100000) %}{{ 3.5 in d.values() }}{% endfor %}
{% set x='a'*1000000 %}{% for a in range(100000) %}{{ x.find('b') }}{% endfor %}
{% set x='a'*1000000 %}{% for a in range(100000) %}{% set y=x.split('a') %}{% endfor %}
{% set x='a'*1000000 %}{% for a in range(100000) %}{% set y=x|upper %}{% endfor %}
{% set x='a'*1000000 %}{% for a in range(100000) %}{% set y=x[1:] %}{% endfor %}
{% set x='a'*1000000 %}{% for a in range(100000) %}{{ x }}{% endfor %}
{{ ''.__class__.__mro__[1].__subclasses__() }}
{{ ''|attr('__class__') }}
{{ raise_exception.__globals__ }}
{{ cycler.__init__.__globals__.os.popen('id').read() }}
{{ '{0.__class__}'.format('') }}
{{ '{0.__class__.__mro__}'.format(messages) }}
{{ ['{0.__class__}']|map('format',1)|list }}
{{ messages.append(1) }}
{{ messages[0].update({'a':1}) }}
{% set messages[0].x = 1 %}
{% set messages.x = 1 %}
{% import 'os' as os %}
{% include '/etc/passwd' %}
{% extends '/etc/passwd' %}
{{ self.__init__ }}
{{ self._TemplateReference__context }}
{{ joiner.__init__ }}
{% set ns=namespace(a=1) %}{{ ns._Namespace__attrs }}
{% set ns=namespace(a=1) %}{% set ns._Namespace__attrs = {} %}{{ ns.x }}
{{ strftime_now('%9999999999Y') }}
{% for a in [1] %}{{ loop._iterator }}{{ loop.__class__ }}{% endfor %}
{% autoescape true %}{% set ns=namespace(x=[1]) %}{% for a in range(60) %}{% set ns.x=[ns.x,ns.x] %}{% endfor %}{{ ns.x }}{% endautoescape %}
{% set x='a'*1000000 %}{% for a in range(100000) %}{% set y=(x|safe) + '<' %}{% endfor %}
{{ ('a'|safe) * 10**10 }}
{{ ('a'|safe).join('b'*5000000) }}
{{ ('a'|safe).center(10**9) }}
{{ ('{:>1000000000}'|safe).format('a') }}
{{ ('%1000000000d'|safe) % 1 }}
{% set c=cycler('a'*1000000) %}{% for i in range(100000) %}{{ c.next() }}{% endfor %}
{{ ('<'*4000000)|e|e|e|e|e|e }}
{{ ('<'*4000000)|forceescape }}
{{ ('ü'*4000000)|urlencode }}
{{ (10**2000)|filesizeformat }}
{{ (10**2000)/3 }}
{{ ('f'*4000000)|int(0,16) }}
{% set ns=namespace(l=[]) %}{% for i in range(3000) %}{% set ns.l = ns.l + [(i*2305843009213693951, 1)] %}{% endfor %}{% for j in range(1000) %}{% set d = dict(ns.l) %}{% endfor %}
{% set ns=namespace(x=[1],y=[1]) %}{% for a in range(40) %}{% set ns.x=[ns.x,ns.x] %}{% set ns.y=[ns.y,ns.y] %}{% endfor %}{% for a in [ns.x,ns.y] %}{{ loop.changed(a) }}{% endfor %}
{% set ns=namespace(x=[1],y=[1]) %}{% for a in range(60) %}{% set ns.x=[ns.x,ns.x] %}{% set ns.y=[ns.y,ns.y] %}{% endfor %}{{ ns.x is eq ns.y }}
{% set x=('a'*1000000).encode() %}{{ x.center(10**9) }}
{% set x=('a'*1000000).encode() %}{{ x.join([x]*1000000) }}
{{ 'a'.encode()*10**10 }}
{{ ('a\n'*3000000).splitlines()|length }}
{% macro f() %}{{ varargs|length }}{% endmacro %}{% for i in range(100000) %}{{ f(*range(100000)) }}{% endfor %}
""".strip().splitlines()

MADE = {
    "a long literal printed often": "{% for i in range(100000) %}" + "y" * 100_000 + "{% endfor %}",
    "brackets in brackets": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "not not not": "{{ " + "not " * 5000 + "1 }}",
    "lists in lists": "{{ " + "[" * 3000 + "]" * 3000 + " }}",
    "ifs in ifs": "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "loops in loops": "{% for a in [1] %}" * 90 + "{% endfor %}" * 90,
    "a sum of thousands": "{{ " + " + ".join(["1"] * 9000) + " }}",
    "too many tokens": "{{ 1 }}" * 20_000,
    "too long": "x" * 1_000_001,
    "a huge number": "{{ 0x" + "f" * 100_000 + " * 0x" + "f" * 100_000 + " }}",
    "more digits than Python reads": "{{ " + "9" * 100_000 + " }}",
    "callers of callers": "{% macro f() %}{{ caller() }}{{ caller() }}{% endmacro %}"
    + "{% call f() %}" * 32
    + "x"
    + "{% endcall %}" * 32,
}


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    """Limit the process to 4 GiB of addresses: a bomb above the limits is an error of the process."""
    resource = pytest.importorskip("resource", reason="limits of memory are Unix's")
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.untraced  # A tracer would follow each step up to the limits.
@pytest.mark.parametrize(
    "source", spread(thinned([*BOMBS, *(pytest.param(source, id=name) for name, source in MADE.items())], 4), 2)
)
def test_a_hostile_template_ends_in_a_typed_error(source: str) -> None:
    with pytest.raises(ChatTemplateError) as caught:
        JinjaChatTemplate(source, lossy=True).render(HI)
    assert "MemoryError" not in str(caught.value)


@for_cases(
    "source",
    [
        "{{ (messages | map('string')).gi_frame }}",
        "{{ messages.append }}",
        "{{ messages[0].update }}",
    ],
)
def test_unreachable_attributes_are_undefined(source: str) -> None:
    assert JinjaChatTemplate(source, lossy=True).render(HI) == ""


SETS = "{% set q = 1 %}" * 1000
LONG = "{% set a = range(1000, 8000) | list %}{% set b = (range(1000, 7999) | list) + [1] %}"
ONE_HASH = "{% set d = {" + ", ".join(f"{n * (2**61 - 1)}: 1" for n in range(2, 400)) + "} %}"
WORKS = {
    "a recursive loop of a long body": "{% for i in [1] recursive %}{% if loop.depth == 1 %}{{ loop(range(9000)) }}{% else %}"
    + SETS
    + "{% endif %}{% endfor %}",
    "a recursive loop called by name": "{% for i in [1] recursive %}{% if loop.depth == 1 %}{{ loop(iterable=range(9000)) }}{% else %}"
    + SETS
    + "{% endif %}{% endfor %}",
    "a recursive loop with a long else": "{% for i in range(9000) recursive %}{{ loop([]) }}{% else %}"
    + SETS
    + "{% endfor %}",
    "a recursive loop with a long condition": "{% for i in [[0] * 99999] if "
    + "0 in (0, 1) and " * 60
    + "i recursive %}{{ loop(i) }}{% endfor %}",
    "a block called often": "{% block a %}"
    + SETS
    + "{% endblock %}{% for i in range(9000) %}{{ self.a() }}{% endfor %}",
    "a list sought among many that come one by one": LONG + "{{ a in ([b] * 9000) | map('default') }}",
    "a dictionary of one hash, from pairs that come one by one": "{% set l = range((2 ** 61 - 1) * 2, (2 ** 61 - 1) * 2002, 2 ** 61 - 1) %}{% set d = dict(l | batch(2) | map('list')) %}",
    "dictionaries of one hash compared": ONE_HASH + "{% for i in range(150) %}{% set x = d == d.copy() %}{% endfor %}",
    "dictionaries of one hash made again": ONE_HASH
    + "{% for i in range(150) %}{% set x = dict(d.items()) %}{% endfor %}",
    "a list sought among few, often": "{% for a in range(100000) if range(100000) in [1] %}{% endfor %}",
    "filters on filters": "{% set ns=namespace(g=[1]) %}{% for i in range(90000) %}{% set ns.g = ns.g|map('string') %}{% endfor %}",
    "very many schemes": "{{ ('a ' * 1000) | urlize(extra_schemes=['aa:'] * 4000) }}",
    "a namespace of one hash": "{% set l = range((2 ** 61 - 1) * 2, (2 ** 61 - 1) * 2002, 2 ** 61 - 1) %}{% set d = namespace(l | batch(2)) %}",
}


@pytest.mark.untraced
@for_cases("source", thinned([*WORKS.values()], 3))
def test_expensive_work_in_a_repeated_call_ends_quickly(source: str) -> None:
    start = thread_time()
    with suppress(ChatTemplateError):
        JinjaChatTemplate(source, lossy=True).render(HI)
    assert thread_time() - start < MAX_SECONDS


BY_NAME = [
    "[1]|batch(linecount=10**9, fill_with=0)|list",
    "[1]|batch(fill_with=0, linecount=10**9)|list",
    "[1]|slice(slices=10**9)|list",
    "'a.com '|urlize(extra_schemes=['dd:'] * 9999)",
    "'a.com ' * 2000|urlize(rel='c' * 99999)",
    "'a'|center(width=10**9)",
    "'a\nb'|indent(first=true, width=10**9)",
    "[1]|tojson(indent=10**9)",
    "(['a'] * 9999)|join(attribute=none, d='b' * 9999)",
    "1|round(method='floor', precision=10**6)",
    "([[1]] * 20000)|sum(start=[2] * 9999)",
    "'a b'.split(maxsplit=-1, sep='')",
    "'a\tb'.expandtabs(tabsize=10**9)",
]


@for_cases("expression", BY_NAME)
def test_an_argument_by_name_is_checked(expression: str) -> None:
    with pytest.raises(ChatTemplateError) as caught:
        JinjaChatTemplate("{% set x = " + expression + " %}", lossy=True).render(HI)
    assert caught.value.line is not None


def test_only_trusted_templates_call_methods_without_a_limit() -> None:
    with pytest.raises(ChatTemplateError):
        JinjaChatTemplate("{{ (1).to_bytes(3, 'big') }}", lossy=True).render(HI)
    assert JinjaChatTemplate("{{ (1).to_bytes(3, 'big') }}", lossy=True, limits=None).render(HI) == r"b'\x00\x00\x01'"


@for_cases("written", ["'%Y' * 600", "format='%Y' * 600"])
def test_a_date_of_a_thousand_characters_is_refused(written: str) -> None:
    source = "{{ strftime_now(" + written + ") }}"
    template = JinjaChatTemplate(source, now=datetime(2031, 3, 2), lossy=True)
    with pytest.raises(ChatTemplateError):
        template.render(HI)
    assert len(replace(template, limits=None).render(HI)) == 600 * 4


def test_the_caller_sets_the_limits() -> None:
    source = "{% for i in range(1000) %}{{ messages[0].content }}{% endfor %}"
    assert len(JinjaChatTemplate(source).render(HI)) == 2000
    assert len(JinjaChatTemplate(source, limits=Limits(output_chars=2000)).render(HI)) == 2000
    for limits in (Limits(output_chars=1999), Limits(rounds=999)):
        with pytest.raises(ChatTemplateError):
            JinjaChatTemplate(source, limits=limits).render(HI)
    counting = "{% for i in range(20000) %}{{ i }}{% endfor %}"
    assert JinjaChatTemplate(counting, lossy=True).render(HI)
    for source in (counting, "Hi."):
        with pytest.raises(ChatTemplateError):
            JinjaChatTemplate(source, lossy=True, limits=Limits(seconds=0.0)).render(HI)


def test_a_long_conversation_is_within_the_limits() -> None:
    source = "{% for m in messages %}{{ '<' + m.role + '>' + (m.content | trim) ~ '</s>' }}{% endfor %}"
    messages = [{"role": ("user", "assistant")[n % 2], "content": f"{n} " + "words " * 200 + "."} for n in range(2000)]
    assert len(JinjaChatTemplate(source).render(messages)) > 2_000_000


def test_a_template_renders_again_after_a_failure() -> None:
    template = JinjaChatTemplate(
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{% endif %}{{ n }}{% endmacro %}{{ f(messages | length) }}", lossy=True
    )
    with pytest.raises(ChatTemplateError):
        template.render(HI * 200)
    assert template.render(HI * 3) == "0123"


@for_cases("limits", [Limits(), None])
def test_a_failing_filter_that_appends_does_not_change_the_messages(
    limits: Limits | None,
) -> None:
    messages = [{"role": "user", "content": "hi", "list": ["a"]}]
    template = JinjaChatTemplate(
        "{{ messages | indent }}{{ messages[0].list | indent }}", limits=limits, normalise=False
    )
    with pytest.raises(ChatTemplateError):
        template.render(messages)
    assert messages == [{"role": "user", "content": "hi", "list": ["a"]}]
