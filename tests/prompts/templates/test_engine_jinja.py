"""Jinja as the language of templates: the same templates render the same text in both engines."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import jinja2
import pytest

from agentkit.prompts import Template, TemplateError
from tests.cases import for_cases

# ruff: noqa: E501 (templates are easier to read on one line)

VALUES: dict[str, Any] = {
    "a": 1,
    "b": 2.5,
    "s": "Hello <World> foo bar-baz",
    "e": "",
    "n": None,
    "t": True,
    "l": [3, 1, 2],
    "ls": ["b", "A", "c", "a"],
    "d": {"x": 1, "y": "two", "z z": "I"},
    "dd": {"b": 1, "a": 2, "C": 3},
    "objs": [
        SimpleNamespace(name="n1", v=3, sub=SimpleNamespace(k="q")),
        SimpleNamespace(name="N2", v=1, sub=SimpleNamespace(k="p")),
        SimpleNamespace(name="n3", v=3, sub=SimpleNamespace(k="q")),
    ],
    "tree": [{"n": 1, "c": [{"n": 2, "c": []}, {"n": 3, "c": [{"n": 4, "c": []}]}]}],
    "nested": [[1, 2], [3], []],
    "para": "one two three four\nfive six seven eight nine ten eleven\n\ntwelve",
    "now": datetime(2024, 5, 6, 7, 8, 9),
    "day": date(2024, 5, 6),
    "span": timedelta(hours=30),
    "u": "héllo wörld",
    "html": "<p>a <b>bold</b> <!-- <i>hidden --> move & more</p>  <unclosed",
    "big": "word " * 100,
}

TEMPLATES = [
    "{% if true %}\nblock\n{% endif %}\nrest\n",
    r"{{ a + b }} {{ a - b }} {{ a * 3 }} {{ a / 4 }} {{ 7 // 2 }} {{ 7 % 4 }} {{ 2 ** 10 }} {{ -a }} {{ +b }}",
    r"""{{ 'x' ~ a ~ n ~ t }} {{ "%s-%d %05.2f%%" % (s, a, b) }} {{ "%(x)s" % d }} {{ "a%sb"|format(1) }}""",
    r"{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.depth }}{{ loop.depth0 }}:{{ x }} {% endfor %}",
    r"{% for x in l %}{{ loop.cycle('o','e') }}{{ loop.previtem|default('-') }}{{ loop.nextitem|default('-') }}{{ loop.changed(x) }}{{ loop.index }} {% endfor %}",
    r"{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}={{ x }}{% if not loop.last %},{% endif %}{% else %}none{% endfor %}",
    r"{% for x in l if x > 10 %}{{ x }}{% else %}none{% endfor %}{% for x in [] %}a{% else %}empty{% endfor %}",
    r"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for k in d.keys() %}{{k}}{% endfor %}{% for k in d.values() %}{{k}}{% endfor %}",
    r"{% for k, v in dd|dictsort %}{{ k }}{{ v }}{% endfor %}{% for k, v in dd|dictsort(true) %}{{ k }}{{ v }}{% endfor %}{% for k, v in dd|dictsort(false,'value',true) %}{{ k }}{{ v }}{% endfor %}",
    r"{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}",
    r"{% set ns = namespace(c=0, m='q') %}{% for i in l %}{% set ns.c = ns.c + i %}{% endfor %}{{ ns.c }}{{ ns.m }}",
    r"{% if a == 1 and b > 2 or not t %}yes{% elif n %}mid{% else %}no{% endif %}{% if n is none %}N{% endif %}{% if zz is defined %}D{% else %}U{% endif %}",
    r"{% macro m(x, y='d') %}[{{ x }}{{ y }}{{ varargs|join('+') }}{{ kwargs|length }}]{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(1, y=3) }}{{ m(1,2,3,4,q=5) }}",
    r"{% macro rec(n) %}{{ n }}{% if n > 0 %},{{ rec(n - 1) }}{% endif %}{% endmacro %}{{ rec(5) }}",
    r"{% macro w(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call w('b') %}hi {{ s }}{% endcall %}",
    r"{% macro each(xs) %}{% for x in xs %}{{ caller(x) }}{% endfor %}{% endmacro %}{% call(i) each(l) %}({{ i }}){% endcall %}",
    r"{% for n in tree recursive %}{{ n.n }}{{ loop.depth }}{% if n.c %}({{ loop(n.c) }}){% endif %}{% endfor %}",
    r"{% filter upper %}abc {{ s }}{% endfilter %}{% filter replace('a','b')|upper %}abc{% endfilter %}",
    r"{% set block %}x{{ a }}y{% endset %}{{ block }}{% set block | upper %}x{{ s }}y{% endset %}{{ block }}",
    r"{% with q = 5, r = a %}{{ q }}{{ r }}{% endwith %}{{ q is defined }}",
    r"{{ s|upper }}{{ s|lower }}{{ s|title }}{{ s|capitalize }}{{ s|length }}{{ s|wordcount }}{{ s|reverse }}{{ s|trim }}{{ '  x '|trim }}{{ s|replace('o','0') }}{{ s|replace('o','0',1) }}",
    r"{{ s|truncate(9) }}{{ s|truncate(9, true) }}{{ s|truncate(9, false, '..', 0) }}{{ s|center(40) }}|{{ para|indent }}|{{ para|indent(2, true) }}|{{ para|indent('>', blank=true) }}|{{ para|wordwrap(10) }}",
    r"{{ l|sort|join(',') }}{{ l|sort(reverse=true) }}{{ ls|sort }}{{ ls|sort(case_sensitive=true) }}{{ ls|unique|list }}{{ ls|min }}{{ ls|max }}{{ l|sum }}{{ l|first }}{{ l|last }}{{ l|list }}{{ l|length }}",
    r"{{ objs|map(attribute='name')|join(',') }}{{ objs|sum(attribute='v') }}{{ objs|sort(attribute='v,name')|map(attribute='name')|list }}{{ objs|selectattr('v','equalto',3)|map(attribute='sub.k')|list }}{{ objs|rejectattr('v','eq',3)|map(attribute='name')|list }}",
    r"{{ l|map('string')|join }}{{ l|select('odd')|list }}{{ l|reject('odd')|list }}{{ l|select('greaterthan',1)|list }}{{ ls|map('upper')|list }}{{ objs|map(attribute='zz', default='?')|list }}",
    r"{% for g in objs|groupby('v') %}{{ g.grouper }}:{{ g.list|map(attribute='name')|join('/') }} {% endfor %}{% for k, v in objs|groupby('sub.k') %}{{ k }}{{ v|length }}{% endfor %}",
    r"{% for r in l|batch(2, 'f') %}{{ r }}{% endfor %}{% for r in l|slice(2, 'f') %}{{ r }}{% endfor %}",
    r"{{ 42.55|round }}{{ 42.55|round(1,'floor') }}{{ 42.45|round(1,'ceil') }}{{ '42'|int }}{{ 'x'|int(7) }}{{ '0x1f'|int(0,16) }}{{ '4.2'|float }}{{ '42.9'|int }}{{ -3|abs }}{{ 1234567|filesizeformat }}{{ 1234567|filesizeformat(true) }}{{ 1|filesizeformat }}{{ 999|filesizeformat }}",
    r"{{ s|e }}{{ s|striptags }}{{ s|urlencode }}{{ d|urlencode }}{{ zz|default('dd') }}{{ e|default('dd', true) }}{{ zz|d }}",
    r"{{ a is number }}{{ s is string }}{{ d is mapping }}{{ l is sequence }}{{ l is iterable }}{{ a is odd }}{{ a is even }}{{ 6 is divisibleby 3 }}{{ t is true }}{{ t is boolean }}{{ a is integer }}{{ b is float }}{{ n is none }}{{ s is lower }}{{ s is upper }}{{ a is sameas a }}{{ 1 in l }}{{ 9 not in l }}{{ a is in l }}{{ 'x' in d }}{{ 'ell' in s }}",
    r"{{ s[0] }}{{ s[1:4] }}{{ l[::-1] }}{{ l[-1] }}{{ d['x'] }}{{ d.x }}{{ nested[0][1] }}{{ objs[0].sub.k }}{{ l[a] }}{{ d.y[0] }}",
    r"{{ (1, 2) }}{{ [1, 'a'] }}{{ 'yes' if a else 'no' }}{{ 'yes' if n }}|{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ a == 1.0 }}{{ a != 2 }}{{ 'a' >= 'b' }}",
    r"{{ s.upper() }}{{ s.split() }}{{ s.split('o', 1) }}{{ s.startswith('Hel') }}{{ s.replace('o','0') }}{{ ','.join(ls) }}{{ s.find('o') }}{{ s.count('o') }}{{ '{} {:>5} {x:.2f}'.format(1, 'a', x=2.345) }}{{ s.strip('H') }}{{ s.title() }}{{ 'ab'.center(6,'*') }}{{ '7'.zfill(3) }}",
    r"{{ d.get('x') }}{{ d.get('q', 'def') }}{{ l.index(1) }}{{ l.count(2) }}{{ range(5)|list }}{{ range(2, 10, 3)|list }}{{ dict(a=1)|length }}",
    r"{{ now.strftime('%Y-%m-%d %H:%M') }}{{ now.isoformat() }}{{ now.year }}{{ now }}{{ now.weekday() }}",
    r"{% set c = cycler('a','b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{% set j = joiner('|') %}{{ j() }}a{{ j() }}b{{ j() }}",
    r"{% raw %}{{ not }} {% x %}{% endraw %}{# comment #}a{#- c -#}  b{{- ' c ' -}}  d",
    r"{%- for x in l -%} {{ x }} {%- endfor -%} end",
    r"{% for x in l %}{% for y in ls %}{{ loop.index }}{{ x }}{{ y }}{% endfor %}{{ loop.index }}{% endfor %}",
    r"{% for x in l %}{% set outer = loop %}{% for y in ls %}{{ outer.index }}{{ loop.index }}{% endfor %}{% endfor %}",
    r"{% for (p, q), r in [((1,2),3)] %}{{ p }}{{ q }}{{ r }}{% endfor %}{% set f, g = 1, 2 %}{{ f }}{{ g }}",
    r"{% if zz is defined and zz %}a{% endif %}{% set x = 5 if a else 6 %}{{ x }}{% if a %}{% set y2 = 3 %}{% endif %}{{ y2 }}",
    r"{% macro outer() %}{% macro inner(x) %}({{ x }}){% endmacro %}{{ inner(s) }}{% endmacro %}{{ outer() }}",
    r"{% for x in l %}{% macro mm() %}{{ x }}{% endmacro %}{{ mm() }}{% endfor %}",
    r"{% set x = 'top' %}{% macro late() %}{{ x }}{% endmacro %}{% set x = 'changed' %}{{ late() }}",
    r"{{ s|upper|lower|length + 1 }}{{ (a + 1) * 2 }}{{ not t }}{{ [1,2] + [3] }}{{ 'ab' * 2 }}{{ [0] * 2 }}{{ (1,) + (2,) }}",
    r'{{ u|upper }}{{ u|title }}{{ u|length }}{{ "\u00e9\n\t\"" }}{{ 1_000 }}{{ 1e3 }}{{ 0x10 }}{{ 1.50 }}{{ 1e100 }}',
    r"{% for i in range(3) %}{% if i == 1 %}{{ loop.last }}{% else %}{% for j in range(i) %}{{ j }}{{ i }}{% endfor %}{% endif %}{% endfor %}",
    r"{% for x in 'abc' %}{{ x }}{% endfor %}{% for a, b in [(1, 2), (3, 4)] %}{{ a }}{{ b }}{% endfor %}{{ a }}",
    r"{% print a, b %}{{ d.items()|list|length }}{{ d|items|list|length }}{{ dd.keys()|list }}{{ dd.values()|list }}{{ dd|list }}{{ dd|length }}",
    r"{{ n or 'dflt' }}{{ a and s }}{{ e or n or 0 }}{{ nested|map('length')|list }}{{ nested|map('first')|list|length }}{{ ls|map('replace','a','z')|join }}",
    r"{% set loopvar = namespace(found=false) %}{% for x in l %}{% if x == 1 %}{% set loopvar.found = true %}{% endif %}{% endfor %}{{ loopvar.found }}",
    # rare forms
    r"{{ '%5s|%-5s|%05d|%+d|%x|%.3f|%e|%c|%r|%%' % ('a', 'b', 42, 7, 255, 1.5, 1500.0, 'z', 1) }}",
    r"{{ '%(a)s %(b)05.1f' % {'a': 'x', 'b': 2.25} }}{{ '%s' % 'one' }}{{ '%s and %s'|format('x', 'y') }}{{ '%(k)s'|format(k='v') }}",
    r"{{ '{0}{1}{0} {{}} {x!s}'.replace('!s', '').format('a', 'b', x=3) }}{{ '{:<6}|{:^6}|{:>6}|{:06.2f}|{:,}'.format('a', 'b', 'c', 1.5, 12345) }}",
    r"{{ day.strftime('%d.%m.%Y %j %A %B') }}{{ day.isoweekday() }}{{ now.date() }}{{ now.time() }}{{ span.total_seconds() }}{{ span.days }}{{ now - span }}{{ (now + span).day }}{{ now - now }}",
    r"{{ 7 // 2 * 2 ** 3 - 1 }}{{ 7.5 % 2 }}{{ -7 // 2 }}{{ 2 ** -1 }}{{ 'ab' * 3 }}{{ 3 * 'ab' }}{{ [1] * 2 }}{{ +5 }}{{ 1 - -1 }}",
    r"{{ 1 < 2 <= 2 != 3 > 1 >= 1 == 1 }}{{ 'a' in 'abc' }}{{ 'x' not in ['y'] }}{{ 2 in range(5) }}{{ [1] in [[1]] }}{{ 3 in (1, 2) }}{{ none in [none] }}",
    r"{{ html|striptags }}|{{ 'a <br/> b'|striptags }}|{{ html|escape|length }}{{ html|forceescape|length }}{{ html|safe|length }}",
    r"{{ big|truncate(20) }}{{ big|truncate(20, leeway=0, end='~') }}{{ 'short'|truncate }}{{ big|wordcount }}{{ big|wordwrap(23, wrapstring='/')|length }}{{ 'x' * 30|int }}",
    r"{{ para|wordwrap(12, false) }}|{{ 'a-long-hyphened-word'|wordwrap(8, break_on_hyphens=false) }}|{{ 'a-long-hyphened-word'|wordwrap(8) }}",
    r"{{ '1,2,3'.split(',')|map('int')|sum }}{{ 'a b'.partition(' ')|join('|') }}{{ 'a.b.c'.rsplit('.', 1)|last }}{{ 'x\ny'.splitlines()|length }}{{ 'ab'.ljust(4, '.') }}{{ 'ab'.rjust(4) }}{{ 'aXb'.swapcase() }}{{ 'ß'.casefold() }}{{ 'abc'.removeprefix('a').removesuffix('c') }}{{ 'abab'.rfind('b') }}{{ '12'.isdigit() }}",
    r"{{ ls|map('lower')|sort|join }}{{ ls|sort|first }}{{ objs|map(attribute='sub.k')|unique|join }}{{ (objs|max(attribute='v')).name }}{{ (objs|min(attribute='name')).v }}{{ ['b', 'A']|min(case_sensitive=true) }}",
    r"{% for g, items in objs|groupby('name', case_sensitive=true) %}{{ g }}{{ items|length }}{% endfor %}{% for g in objs|groupby('zz', default='none') %}{{ g.grouper }}{% endfor %}",
    r"{{ l|batch(2)|list }}{{ l|slice(2)|list }}{{ range(7)|batch(3, 0)|list }}{{ range(7)|slice(3, 0)|list }}{{ []|batch(2)|list }}{{ 'abc'|reverse }}{{ l|reverse|list }}{{ 'abc'|list }}{{ 'abc'|first }}{{ 'abc'|last }}",
    r"{{ 3.7|int }}{{ '3.7'|int }}{{ 'ff'|int(base=16) }}{{ none|int(5) }}{{ 'x'|float(1.5) }}{{ '1e3'|float }}{{ 2.5|round }}{{ 1234.567|round(-2) }}{{ 1.25|round(1, 'ceil') }}{{ -2|abs }}{{ [1.5, 2]|sum }}{{ objs|sum(attribute='v', start=10) }}",
    r"{{ 0|filesizeformat }}{{ 1000|filesizeformat }}{{ 1024|filesizeformat(true) }}{{ (10 ** 26)|filesizeformat }}{{ 5.5|filesizeformat }}{{ 'a b/c?d=é'|urlencode }}{{ [('a', 1), ('b c', '&')]|urlencode }}{{ 5|urlencode }}",
    r"{{ dd|dictsort|first }}{{ dd|dictsort(by='value', reverse=true)|first }}{{ dd|items|first }}{{ zz|items|list }}{{ dict(a=1, **{'b': 2}) }}{{ dict([('k', 'v')]) }}{{ dict({'q': 1}) }}",
    r"{{ a is eq 1 }}{{ a is ne 1 }}{{ a is lt 2 }}{{ a is le 1 }}{{ a is gt 0 }}{{ a is ge 2 }}{{ a is in [1] }}{{ false is false }}{{ 4 is even }}{{ 'A' is upper }}{{ l is mapping }}{{ 's' is sequence }}{{ d is sequence }}{{ 3 is sequence }}{{ 3 is iterable }}{{ n is sameas none }}{{ b is number }}{{ t is integer }}",
    r"{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.index0 }}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}",
    r"{% for x in l if x != 1 %}{{ loop.previtem|default('^') }}<{{ x }}>{{ loop.nextitem|default('$') }}{% endfor %}",
    r"{% for n in tree recursive %}{{ loop.index }}{{ loop.depth0 }}{{ n.n }}{% if loop.last %}!{% endif %}{{ loop(n.c) }}{% else %}-{% endfor %}",
    r"{% for a, b in dd.items() if b > 1 %}{{ a }}{{ b }}{{ loop.index }}{% endfor %}{% for x in '' %}x{% else %}e{% endfor %}{% for k in dd if k != 'b' %}{{ k }}{% endfor %}",
    r"{% macro m(a, b=a ~ '!') %}{{ a }}{{ b }}{% endmacro %}{{ m('x') }}{{ m(b='y', a='z') }}{{ m(*['p', 'q']) }}{{ m(**{'a': 'r'}) }}",
    r"{% macro m() %}{{ kwargs|dictsort }}{{ varargs }}{% endmacro %}{{ m(1, 2, z=3, y=4) }}{% macro k(class) %}{{ class }}{% endmacro %}{{ k(class='c') }}",
    r"{% macro m(x, caller=none) %}{{ x }}{{ caller() if caller else '-' }}{% endmacro %}{{ m(1) }}{% call m(2) %}c{% endcall %}",
    r"{% set ns = namespace({'k': 1}, v=2) %}{{ ns.k }}{{ ns.v }}{% set ns.w = ns.k + ns.v %}{{ ns.w }}{{ ns.q|default('none') }}{% set ns.f = cycler %}{% macro z() %}Z{% endmacro %}{% set ns.z = z %}{{ ns.z() }}",
    r"{% set c = cycler('a', 'b', 'c') %}{{ c.next() }}{{ c.next() }}{{ c.reset() or '' }}{{ c.next() }}{% set j = joiner() %}{{ j() }}x{{ j() }}",
    r"{% filter indent(2)|upper %}a{{ '\n' }}b{% endfilter %}{% filter trim %}  {% for x in l %}{{ x }}{% endfor %}  {% endfilter %}{% filter replace('a', u) %}banana{% endfilter %}",
    r"{% set x %}{% macro q() %}in{% endmacro %}{{ q() }}{% endset %}{{ x }}{% set y | trim | upper %}  {{ s }}  {% endset %}{{ y }}",
    r"{{ 'a' 'b' }}{{ 1_000 + 0b11 + 0o7 + 0xf }}{{ 1.5e-3 }}{{ (1, 2,)|length }}{{ ()|length }}{{ {}|length }}{{ {'a': 1,}.a }}{{ [1,][0] }}{{ true and none }}{{ True }}{{ none is none }}",
    r"{{- ' x ' -}} y {%- if true %} z {% endif -%} w {#- gone -#} v {%+ if true %}+{% endif %}",
    r"{% raw %}{{ raw }} {% for %}{# c #}{% endraw %}{{ '{{' }}{{ '}}' }}{{ '%}' }}",
    r"{% if a %}{% if n %}1{% elif not e %}2{% else %}3{% endif %}{% endif %}{% if not a or s and 'x' not in s %}4{% endif %}{{ 'p' if a > 1 else 'q' if a else 'r' }}",
    r"{{ l[0] }}{{ l[-1] }}{{ l[1:] }}{{ l[:-1] }}{{ s[::2] }}{{ (1, 2, 3)[1:] }}{{ range(10)[2:5]|list }}{{ d['z z'] }}{{ objs[0]['name'] }}{{ nested[0][1] }}{{ nested.0.1 }}{{ ls.1 }}",
]

ENVIRONMENT = jinja2.Environment(
    undefined=jinja2.StrictUndefined,
    finalize=lambda value: json.dumps(value, ensure_ascii=False) if isinstance(value, list | tuple | dict) else value,
)


@for_cases("source", TEMPLATES)
def test_the_text_is_equal_to_the_text_of_jinja(source: str) -> None:
    expected = ENVIRONMENT.from_string(source).render(VALUES)
    assert Template(source).run(VALUES).text == expected


def test_a_trailing_line_break_is_removed_and_line_ends_are_normalised_as_in_jinja() -> None:
    for source in ("a\n", "a\r\nb\r\n", "a\n\n", "{{ a }}\n", "{{ a }}\r\nx\r", "{{ a }}\n\n"):
        template = Template(source)
        assert template.run(VALUES).text == jinja2.Template(source).render(VALUES)


@for_cases("source", ["{{ l|random }}", "{{ s|pprint }}", "{{ l|map('random')|list }}", "{{ lipsum() }}"])
def test_random_filters_and_python_code_are_unsupported(source: str) -> None:
    with pytest.raises(TemplateError):
        Template(source).run(VALUES)
