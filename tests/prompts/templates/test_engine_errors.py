"""Errors of templates: at compilation if possible, with file and line."""

from __future__ import annotations

from datetime import datetime

import pytest

from agentkit.prompts import Document, Layers, PromptContext, Template, TemplateError, TextPrompt, compose
from agentkit_prompts.templates.sandbox.meter import Limits
from agentkit_prompts.templates.sandbox.operation_errors import LimitReached
from agentkit_prompts.templates.sandbox.program import compile_program
from tests.cases import for_cases


@for_cases(
    ("source", "line"),
    [
        ("a\n{{ b", 2),
        ("a\n\n{% for x in %}", 3),
        ("{% if a %}\n\n", 1),
        ("\n{{ a | shout }}", 2),
        ("\n{{ a | uper }}", 2),
        ("\n{{ a is oddly }}", 2),
        ("\n{{ a is defnied }}", 2),
        ("\n{% include 'x' %}", 2),
        ("\n{% extends 'x' %}", 2),
        ("\n{% block x %}{% endblock %}", 2),
        ("\n\n{{ a.__class__ }}", 3),
        ("{% for loop in a %}{% endfor %}", 1),
        ("{% macro m(caller) %}{{ caller() }}{% endmacro %}", 1),
        ("{% unknown %}", 1),
        ("{{ 1_x }}", 1),
    ],
)
def test_an_invalid_template_is_refused_with_its_line(source: str, line: int) -> None:
    with pytest.raises(TemplateError) as caught:
        Template(source, file="x.prompt.j2", first_line=5)
    assert (caught.value.file, caught.value.line) == ("x.prompt.j2", line + 4)


@for_cases(
    ("source", "name"),
    [("{{ a | shout }}", "shout"), ("{{ a is oddly }}", "oddly"), ("{{ a.__class__ }}", "__class__")],
)
def test_the_error_of_a_template_names_the_filter_test_or_attribute(source: str, name: str) -> None:
    with pytest.raises(TemplateError) as caught:
        Template(source)
    assert caught.value.name == name


@for_cases(
    ("source", "line"),
    [
        ("a\n{{ x }}\n{{ missing }}", 3),
        ("{{ x }}{{ x }}\n{{ x }} {{ x.y.z }}", 2),
        ("{% for i in [1] %}\n{{ x }}\n\n{{ i + 'a' }}{% endfor %}", 4),
        ("{% if x %}\n{% elif 1 %}{% endif %}\n{% if 1 + x %}{% endif %}", 3),
        ("{% macro m() %}\n{{ 1 / 0 }}{% endmacro %}\n\n{{ m() }}", 2),
        ("{% set a %}\n{{ x }}\n{{ x.y.z }}{% endset %}", 3),
        ("\n{% set a = 1 - 'x' %}", 2),
        ("{{ x }}\n{% for a, b in [(1,)] %}{% endfor %}", 2),
        ("\n{% filter center('x') %}{% endfilter %}", 2),
        ("\n{% with a = 1 // 0 %}{% endwith %}", 2),
        ("\n\n{% call x() %}{% endcall %}", 3),
        ("\n{% for a in 3 %}{% endfor %}", 2),
        ("{% for a in [[1]] recursive %}\n{{ loop(7) }}{% endfor %}", 1),
    ],
)
def test_the_error_of_a_failing_template_has_its_line(source: str, line: int) -> None:
    template = Template(source, file="y.j2", first_line=101)
    with pytest.raises(TemplateError) as caught:
        template.run({"x": ""})
    assert (caught.value.file, caught.value.line) == ("y.j2", line + 100)


@for_cases(
    ("source", "cause"),
    [
        ("{{ now.year }}", "NoneType has no 'year'; now is None: pass a value, or write {% if now %} around its use"),
        ("{{ now.strftime('%d') }}", "NoneType has no 'strftime'; now is None"),
        ("{{ now['year'] }}", "; now is None"),
        ("{{ now - now }}", "; now is None"),
        ("{{ now < 3 }}", "; now is None"),
        ("{{ now() }}", "; now is None"),
        ("{{ now[:2] }}", "; now is None"),
        ("{{ now | length }}", "; now is None"),
        ("{{ x }}{{ now }}{% for day in now %}{% endfor %}", "; now is None"),
        ("{{ now + locale }}", "; locale is None, now is None"),
        ("{{ additional_kwargs.a.b }}", "; additional_kwargs.a is None"),
        ("{% set y = none %}{{ y.z }}", "NoneType has no 'z'"),
        ("{{ now }}{{ x.y }}", "str has no 'y'"),
        ("{{ items[5] }}", "list of length 1 has no element 5"),
    ],
)
def test_an_error_caused_by_none_names_the_values_that_are_none(source: str, cause: str) -> None:
    with pytest.raises(TemplateError) as caught:
        Template(source).run({"now": None, "locale": None, "x": "", "items": [1], "additional_kwargs": {"a": None}})
    message = str(caught.value)
    assert cause in message
    assert ("is None" in message) == ("is None" in cause)


@for_cases(
    "source",
    [
        "{{ 1 + 'a' }}",
        "{{ 'a' - 1 }}",
        "{{ [] * {} }}",
        "{{ {} ** 2 }}",
        "{{ [] % 2 }}",
        "{{ -'a' }}",
        "{{ 1 in 2 }}",
        "{{ 1 in 'abc' }}",
        "{{ [1] < 2 }}",
        "{{ 'a'.upper(1, 2) }}",
        "{{ 'a'.nothing() }}",
        "{{ 3.x() }}",
        "{{ {[]: 1} }}",
        "{{ {}[[]] }}",
        "{{ 'a'[{}] }}",
        "{{ 3[0] }}",
        "{{ [1][nobody] }}",
        "{{ 3[1:] }}",
        "{{ 'abc'['x'] }}",
        "{{ 'abc'[9] }}",
        "{{ 3|length }}",
        "{{ 'x'|abs }}",
        "{{ 'x'|round }}",
        "{{ 1|round(1, 'odd') }}",
        "{{ 1|round('x') }}",
        "{{ 'x'|filesizeformat }}",
        "{{ [1]|map }}",
        "{{ [1]|map('nope') }}",
        "{{ [1]|map(attribute='x', other=1) }}",
        "{{ [1]|select('nope')|list }}",
        "{{ [1]|select(1)|list }}",
        "{{ [1]|selectattr }}",
        "{{ [1]|map(attribute=1.5)|list }}",
        "{{ 3|items }}",
        "{{ {}|dictsort(by='x') }}",
        "{{ [1, 'a']|sort }}",
        "{{ [[]]|unique|list }}",
        "{{ 'a'|format(1, x=2) }}",
        "{{ '%s' % () }}",
        "{{ 'a' % (1,) }}",
        "{{ '%(x)s' % {} }}",
        "{{ '%d' % 'x' }}",
        "{{ '%y' % 1 }}",
        "{{ '{}'.format() }}",
        "{{ '{x}'.format(1) }}",
        "{{ '{'.format(1) }}",
        "{{ '{:zz}'.format(1) }}",
        "{{ '{:d}'.format('x') }}",
        "{{ [1]|join(d={}|length, x=1) }}",
        "{{ ''.join([1]) }}",
        "{{ 'a'.replace(1, 2) }}",
        "{{ 'a'.center('x') }}",
        "{{ 'x'|truncate(1) }}",
        "{{ 'x'|wordwrap(0) }}",
        "{{ [1]|tojson(indent=17) }}",
        "{{ 3|urlencode ~ [1]|urlencode }}",
        "{{ 'x' is divisibleby 2 }}",
        "{{ range('a') }}",
        "{{ range(1, 2, 0)|list }}",
        "{{ cycler() }}",
        "{{ dict([1]) }}",
        "{{ dict(*[[1]]) }}",
        "{{ dict(**{1: 2}) }}",
        "{% set x = 1 %}{% set x.y = 2 %}",
        "{% set a, b = [1, 2, 3] %}",
        "{% set a, b = {1, 2} %}",
        "{% macro m(a) %}{{ a }}{% endmacro %}{{ m() }}",
        "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
        "{% macro m(a) %}{% endmacro %}{{ m(b=2) }}",
        "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
        "{% for i in [1] %}{{ loop([1]) }}{% endfor %}",
        "{% for i in [1] %}{{ loop.cycle() }}{% endfor %}",
        "{% for i in [1] %}{{ loop.previtem }}{% endfor %}",
        "{% for i in [1] %}{{ loop.nextitem }}{% endfor %}",
        "{{ now.strftime('%c') }}",
        "{{ now.strftime(3) }}",
        "{{ now.total_seconds() }}",
        "{{ now.timestamp() }}",
        "{{ now + 1 }}",
    ],
)
def test_unsupported_operations_of_a_template_are_refused(source: str) -> None:
    with pytest.raises(TemplateError) as caught:
        Template(source).run({"now": datetime(2026, 1, 2)})
    assert caught.value.line == 1


def test_the_caller_sets_the_limits() -> None:
    source = "{% for i in range(100) %}{{ 'abcdefghij' }}{% endfor %}"
    for enough in (Limits(output_chars=1_000), Limits(rounds=100)):
        assert len(compile_program(source, limits=enough).trace({}).text) == 1_000
    for limits in (Limits(output_chars=999), Limits(rounds=99)):
        with pytest.raises(TemplateError):
            compile_program(source, limits=limits).trace({})


def test_slow_objects_of_the_caller_exceed_the_time_limit() -> None:
    class Slow:
        @property
        def value(self) -> int:
            return sum(range(20_000))

    source = "{% for i in range(60000) %}{{ v.value }}{{ i|string }}{% endfor %}"
    with pytest.raises(TemplateError) as caught:
        compile_program(source, limits=Limits(seconds=0.02)).trace({"v": Slow()})
    assert isinstance(caught.value.__cause__, LimitReached)


def test_a_template_is_text_in_a_known_syntax() -> None:
    with pytest.raises(TemplateError):
        compile_program(3)  # type: ignore[arg-type]
    with pytest.raises(TemplateError):
        compile_program("x", syntax="mustache")  # type: ignore[arg-type]


@for_cases(
    ("source", "text"),
    [
        ("hello {name}!", "hello Ada!"),
        ("{{literal}} {name}", "{literal} Ada"),
        ("{{{name}}}", "{Ada}"),
        ("{name}{name}", "AdaAda"),
        ("100% {name} {# not a comment #}}", None),
        ("line\nline {name}\n", "line\nline Ada\n"),
    ],
)
def test_fstring_syntax_accepts_plain_names(source: str, text: str | None) -> None:
    if text is None:
        with pytest.raises(TemplateError):
            compile_program(source, syntax="fstring")
    else:
        assert compile_program(source, syntax="fstring").trace({"name": "Ada"}).text == text


@for_cases(
    "field",
    [
        "{}",
        "{0}",
        "{a.b}",
        "{a[0]}",
        "{a!r}",
        "{a:>9}",
        "{a b}",
        "{_a}",
        "{__class__}",
        "{a()}",
        "{ a }",
        "{",
        "}",
        "{a",
    ],
)
def test_fstring_syntax_refuses_other_expressions(field: str) -> None:
    with pytest.raises(TemplateError) as caught:
        compile_program("ok {{}}\n  " + field, syntax="fstring", first_line=4)
    assert caught.value.line == 5


def test_fstring_text_without_fields_is_a_literal() -> None:
    assert compile_program("no {{fields}}", syntax="fstring").literal == "no {fields}"
    assert compile_program("", syntax="fstring").literal == ""


def test_fstring_sites_are_sites() -> None:
    program = compile_program("a\n{x} {y}", syntax="fstring")
    assert [(site.line, site.pointer, site.roots) for site in program.sites] == [(2, "x", ("x",)), (2, "y", ("y",))]
    assert dict(program.names) == {"x": 2, "y": 2}
    with pytest.raises(TemplateError):
        compile_program("{x}" * 2_001, syntax="fstring")


def test_a_format_accepts_a_thousand_values_by_position() -> None:
    values = ", ".join(["0"] * 999 + ["'last'"])
    assert compile_program(f"{{{{ '{{999}}'.format({values}) }}}}").trace({}).text == "last"


def test_an_error_whose_text_fails_is_still_a_template_error() -> None:
    class Unreadable(Exception):
        def __str__(self) -> str:
            raise KeyError("secret")

    class Broken:
        @property
        def field(self) -> str:
            raise Unreadable

    with pytest.raises(TemplateError) as caught:
        Template("{{ v.field }}").render({"v": Broken()})
    assert caught.value.line == 1
    assert "Unreadable" in str(caught.value)


@pytest.mark.parametrize(
    ("extra", "text", "message"),
    [
        ({"country": "IT"}, "{{ extra.region }}", ":1: extra.region is undefined; valid names: country"),
        ({"country": "IT"}, "{{ extra['contry'] }}", ":1: extra.contry is undefined; did you mean 'country'?"),
        ({}, "{{ extra.region }}", ":1: extra.region is undefined: extra is empty"),
        ({"shop": {"name": "A"}}, "{{ extra.shop.nam }}", ":1: dict has no 'nam'; did you mean 'name'?"),
        ({"page": Document("x")}, "{{ extra.page.headin }}", ":1: Document has no 'headin'; did you mean 'heading'?"),
    ],
)
def test_an_error_about_a_dict_of_the_context_names_the_dict(extra: dict[str, object], text: str, message: str) -> None:
    with pytest.raises(TemplateError) as caught:
        compose(Layers(TextPrompt(text)), PromptContext("Hi", extra=extra))
    assert message in str(caught.value)
