"""Mistakes in a template: found when it is compiled where possible, always with file and line."""

from __future__ import annotations

import pytest

from agentkit_prompts.errors import TemplateError
from agentkit_prompts.templates.engine import Limits, compile_program


@pytest.mark.parametrize(
    ("source", "line", "words"),
    [
        ("a\n{{ b", 2, "end of template|unexpected"),
        ("a\n\n{% for x in %}", 3, "[Ee]xpected"),
        ("{% if a %}\n\n", 1, "endif|end of template|looking for"),
        ("\n{{ a | shout }}", 2, "no filter 'shout'"),
        ("\n{{ a | uper }}", 2, "did you mean 'upper'"),
        ("\n{{ a is oddly }}", 2, "no test 'oddly'"),
        ("\n{{ a is defnied }}", 2, "did you mean 'defined'"),
        ("\n{% include 'x' %}", 2, "compose prompts as a tree"),
        ("\n{% extends 'x' %}", 2, "compose prompts as a tree"),
        ("\n{% block x %}{% endblock %}", 2, "compose prompts as a tree"),
        ("\n\n{{ a.__class__ }}", 3, "private"),
        ("{% for loop in a %}{% endfor %}", 1, "loop"),
        ("{% macro m(caller) %}{{ caller() }}{% endmacro %}", 1, "caller"),
        ("{% unknown %}", 1, "unknown"),
        ("{{ 1_x }}", 1, "."),
    ],
)
def test_a_template_that_is_wrong_is_refused_with_its_line(source: str, line: int, words: str) -> None:
    with pytest.raises(TemplateError, match=words) as caught:
        compile_program(source, file="x.prompt.j2", first_line=5)
    assert caught.value.file == "x.prompt.j2"
    assert caught.value.line == line + 4


@pytest.mark.parametrize(
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
def test_a_template_that_fails_says_on_which_line(source: str, line: int) -> None:
    program = compile_program(source, file="y.j2", first_line=101)
    with pytest.raises(TemplateError) as caught:
        program.trace({"x": ""})
    assert caught.value.line == line + 100
    assert str(caught.value).startswith(f"y.j2:{line + 100}: ")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ 1 + 'a' }}", r"int \+ str"),
        ("{{ 'a' - 1 }}", "str - int"),
        ("{{ [] * {} }}", r"list \* dict"),
        ("{{ {} ** 2 }}", r"dict \*\* int"),
        ("{{ [] % 2 }}", "list % int"),
        ("{{ (-8) ** 0.5 }}", "not a real number"),
        ("{{ -'a' }}", "no sign"),
        ("{{ 1 in 2 }}", "cannot be looped over"),
        ("{{ 1 in 'abc' }}", "hold text only"),
        ("{{ [1] < 2 }}", "TypeError"),
        ("{{ 'a'.upper(1, 2) }}", "TypeError"),
        ("{{ 'a'.nothing() }}", "not one of the methods"),
        ("{{ 3.x() }}", "."),
        ("{{ {[]: 1} }}", "TypeError|unhashable"),
        ("{{ {}[[]] }}", "cannot be a key"),
        ("{{ 'a'[{}] }}", "no elements"),
        ("{{ 3[0] }}", "no elements"),
        ("{{ [1][nobody] }}", "'nobody' is undefined"),
        ("{{ 3[1:] }}", "cannot be sliced"),
        ("{{ 'abc'['x'] }}", "has no 'x'"),
        ("{{ 'abc'[9] }}", "no element 9"),
        ("{{ 3|length }}", "no length"),
        ("{{ 'x'|abs }}", "number"),
        ("{{ 'x'|round }}", "number"),
        ("{{ 1|round(1, 'odd') }}", "'common', 'ceil' or 'floor'"),
        ("{{ 1|round('x') }}", "whole number"),
        ("{{ 'x'|filesizeformat }}", "number of bytes"),
        ("{{ [1]|map }}", "needs the name of a filter"),
        ("{{ [1]|map('nope') }}", "no filter 'nope'"),
        ("{{ [1]|map(attribute='x', other=1) }}", "no argument 'other'"),
        ("{{ [1]|select('nope')|list }}", "no test 'nope'"),
        ("{{ [1]|select(1)|list }}", "named by text"),
        ("{{ [1]|selectattr }}", "name of an attribute"),
        ("{{ [1]|map(attribute=1.5)|list }}", "name of a field"),
        ("{{ 3|items }}", "only a mapping"),
        ("{{ {}|dictsort(by='x') }}", "'key' or 'value'"),
        ("{{ [1, 'a']|sort }}", "TypeError"),
        ("{{ [[]]|unique|list }}", "TypeError|unhashable"),
        ("{{ 'a'|format(1, x=2) }}", "not both"),
        ("{{ '%s' % () }}", "more fields than values"),
        ("{{ 'a' % (1,) }}", "fewer fields than values"),
        ("{{ '%(x)s' % {} }}", "was not given"),
        ("{{ '%d' % 'x' }}", "cannot be filled"),
        ("{{ '%y' % 1 }}", "not a format"),
        ("{{ '{}'.format() }}", "was not given"),
        ("{{ '{x}'.format(1) }}", "was not given"),
        ("{{ '{'.format(1) }}", "fields such as"),
        ("{{ '{:zz}'.format(1) }}", "not a format"),
        ("{{ '{:d}'.format('x') }}", "cannot be filled"),
        ("{{ [1]|join(d={}|length, x=1) }}", "TypeError"),
        ("{{ ''.join([1]) }}", r"use `\|join`"),
        ("{{ 'a'.replace(1, 2) }}", "two texts"),
        ("{{ 'a'.center('x') }}", "whole number"),
        ("{{ 'x'|truncate(1) }}", "whole number"),
        ("{{ 'x'|wordwrap(0) }}", "whole number"),
        ("{{ [1]|batch(0) }}", "whole number"),
        ("{{ [1]|tojson(indent=17) }}", "indent"),
        ("{{ 3|urlencode ~ [1]|urlencode }}", "list of pairs"),
        ("{{ 'x' is divisibleby 2 }}", "takes numbers"),
        ("{{ range('a') }}", "whole numbers"),
        ("{{ range(1, 2, 0)|list }}", "ValueError"),
        ("{{ joiner(1) }}", "separator"),
        ("{{ cycler() }}", "needs values"),
        ("{{ dict([1]) }}", "cannot be looped over"),
        ("{{ dict(*[[1]]) }}", "."),
        ("{{ dict(**{1: 2}) }}", "keys are text"),
        ("{% set x = 1 %}{% set x.y = 2 %}", "only a namespace"),
        ("{% set a, b = [1, 2, 3] %}", "3 items where 2"),
        ("{% set a, b = {1, 2} %}", "."),
        ("{% macro m(a) %}{{ a }}{% endmacro %}{{ m() }}", "'a' of macro 'm' was not given"),
        ("{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "at most 1"),
        ("{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", "no argument 'b'"),
        ("{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "call block"),
        ("{% for i in [1] %}{{ loop([1]) }}{% endfor %}", "recursive"),
        ("{% for i in [1] %}{{ loop.cycle() }}{% endfor %}", "needs values"),
        ("{% for i in [1] %}{{ loop.previtem }}{% endfor %}", "no loop.previtem"),
        ("{% for i in [1] %}{{ loop.nextitem }}{% endfor %}", "no loop.nextitem"),
        ("{{ now.strftime('%c') }}", "%c"),
        ("{{ now.strftime(3) }}", "takes a format"),
        ("{{ now.total_seconds() }}", "no method total_seconds"),
        ("{{ now.timestamp() }}", "not one of the methods"),
        ("{{ now + 1 }}", r"datetime \+ int"),
    ],
)
def test_unsupported_operations_of_a_template_are_refused(source: str, words: str) -> None:
    from datetime import datetime

    with pytest.raises(TemplateError, match=words):
        compile_program(source).trace({"now": datetime(2026, 1, 2)})


def test_limits_are_the_callers() -> None:
    source = "{% for i in range(100) %}{{ 'abcdefghij' }}{% endfor %}"
    assert len(compile_program(source).trace({}).text) == 1_000
    with pytest.raises(TemplateError, match="1,000 characters: more than 999"):
        compile_program(source, limits=Limits(output_chars=999)).trace({})
    with pytest.raises(TemplateError, match="more than 100 steps"):
        compile_program(source, limits=Limits(steps=100)).trace({})


def test_slow_objects_of_the_caller_run_into_the_time_limit() -> None:
    class Slow:
        @property
        def value(self) -> int:
            return sum(range(20_000))

    source = "{% for i in range(60000) %}{{ v.value }}{{ i|string }}{% endfor %}"
    with pytest.raises(TemplateError, match=r"too long|too much work"):
        compile_program(source, limits=Limits(seconds=0.02, steps=10_000_000)).trace({"v": Slow()})


def test_a_template_is_text_in_a_known_syntax() -> None:
    with pytest.raises(TemplateError, match="a template is text, got int"):
        compile_program(3)  # type: ignore[arg-type]
    with pytest.raises(TemplateError, match="unknown template syntax 'mustache'"):
        compile_program("x", syntax="mustache")  # type: ignore[arg-type]


@pytest.mark.parametrize(
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
def test_fstring_syntax_takes_plain_names(source: str, text: str | None) -> None:
    if text is None:
        with pytest.raises(TemplateError, match="plain name"):
            compile_program(source, syntax="fstring")
    else:
        assert compile_program(source, syntax="fstring").trace({"name": "Ada"}).text == text


@pytest.mark.parametrize(
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
def test_fstring_syntax_takes_nothing_else(field: str) -> None:
    with pytest.raises(TemplateError, match="column 3") as caught:
        compile_program("ok {{}}\n  " + field, syntax="fstring", first_line=4)
    assert caught.value.line == 5


def test_fstring_text_without_fields_is_a_literal() -> None:
    assert compile_program("no {{fields}}", syntax="fstring").literal == "no {fields}"
    assert compile_program("", syntax="fstring").literal == ""


def test_fstring_sites_are_sites() -> None:
    program = compile_program("a\n{x} {y}", syntax="fstring")
    assert [(site.line, site.pointer, site.roots) for site in program.sites] == [(2, "x", ("x",)), (2, "y", ("y",))]
    assert dict(program.names) == {"x": 2, "y": 2}
    with pytest.raises(TemplateError, match="2,000 fields"):
        compile_program("{x}" * 2_001, syntax="fstring")


def test_a_format_takes_a_thousand_values_by_position() -> None:
    values = ", ".join(["0"] * 999 + ["'last'"])
    assert compile_program(f"{{{{ '{{999}}'.format({values}) }}}}").trace({}).text == "last"
    with pytest.raises(TemplateError, match="'1000', which it was not given"):
        compile_program(f"{{{{ '{{1000}}'.format({values}, 1) }}}}").trace({})
