"""Laws of the engine for random templates: the text of Jinja, pieces that tile it, and complete roots."""

from __future__ import annotations

import jinja2
from hypothesis import given
from hypothesis import strategies as st

from agentkit_prompts.errors import TemplateError
from agentkit_prompts.templates.sandbox.operations import FUNCTIONS
from agentkit_prompts.templates.sandbox.program import compile_program
from tests.prompts.laws import law

OUTSIDE = ("a", "b", "c")
LOCAL = ("x", "y")
START = (
    "{% set x = 'x0' %}{% set y = b %}{% set ns = namespace(v='n0') %}"
    "{% macro m(p, q=c) %}({{ p }}/{{ q }}/{{ x }}){% endmacro %}"
    "{% macro keep(p) %}{% set ns.v = p %}{% endmacro %}"
    "{% macro wrap(p) %}<{{ p }}{{ caller(p) }}>{% endmacro %}"
)

ATOMS = st.sampled_from([*OUTSIDE, *LOCAL, "ns.v", "'lit'", "d.a", "d['b']", "rows[0]", "rows[1].c"])


def _compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} ~ {})".format, inner, inner),
        st.builds("({}|upper)".format, inner),
        st.builds("({}|replace('a', {}))".format, inner, inner),
        st.builds("([{}, {}]|join('-'))".format, inner, inner),
        st.builds("({} if 1 else {})".format, inner, inner),
        st.builds("({} and {})".format, inner, inner),
        st.builds("m({})".format, inner),
        st.builds("m({}, q={})".format, inner, inner),
        st.builds("({}|string)[0:3]".format, inner),
        st.builds("('%s.' % ({},))".format, inner),
        st.builds("{{'k': {}}}.k".format, inner),
        st.builds("({}|trim|default({}))".format, inner, inner),
    )


EXPRESSIONS = st.recursive(ATOMS, _compound, max_leaves=4)
PRINTS = st.builds("[{{{{ {} }}}}]".format, EXPRESSIONS)


def _blocks(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    name = st.sampled_from(LOCAL)
    return st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("{{% set {} = {} %}}".format, name, EXPRESSIONS),
        st.builds("{{% set ns.v = {} %}}".format, EXPRESSIONS),
        st.builds("{{% set {} %}}{}{{% endset %}}".format, name, inner),
        st.builds(
            "{{% for x in [{}, {}] %}}{}{{{{ loop.index }}}}{{% endfor %}}".format, EXPRESSIONS, EXPRESSIONS, inner
        ),
        st.builds("{{% for r in rows %}}{{{{ r.c }}}}{}{{% else %}}none{{% endfor %}}".format, inner),
        st.builds("{{% for x in [1, 2] if x > 1 %}}{}{{% endfor %}}".format, inner),
        st.builds("{{% for x in [{}] recursive %}}{}{{% endfor %}}".format, EXPRESSIONS, inner),
        st.builds("{{% for x, y in [({}, {})] %}}{}{{% endfor %}}".format, EXPRESSIONS, EXPRESSIONS, inner),
        st.builds("{{% with x = {}, y = x %}}{}{{% endwith %}}".format, EXPRESSIONS, inner),
        st.builds("{{% if 1 %}}{}{{% else %}}{}{{% endif %}}".format, inner, inner),
        st.builds("{{% filter upper %}}{}{{% endfilter %}}".format, inner),
        st.builds("{{% call(z) wrap({}) %}}{{{{ z }}}}{}{{% endcall %}}".format, EXPRESSIONS, inner),
        st.builds("{{{{ keep({}) }}}}".format, EXPRESSIONS),
        st.builds("{{% macro m(p, q='d') %}}{}{{{{ p }}}}{{% endmacro %}}".format, inner),
    )


TEMPLATES = st.recursive(PRINTS, _blocks, max_leaves=8).map(lambda body: START + body)
TEXTS = st.text(alphabet="aAbz <>&{}%é\n\U0001f600", max_size=5)
ENVIRONMENT = jinja2.Environment(undefined=jinja2.StrictUndefined)


def values(a: str, b: str, c: str) -> dict[str, object]:
    return {"a": a, "b": b, "c": c, "d": {"a": a, "b": b}, "rows": [{"c": c}, {"c": a}]}


def rendered_by_jinja(source: str, given: dict[str, object]) -> str | None:
    try:
        return ENVIRONMENT.from_string(source).render(given)
    except (jinja2.TemplateError, TypeError, ValueError, RecursionError):
        return None


@law
@given(TEMPLATES, TEXTS, TEXTS, TEXTS)
def test_a_random_template_renders_as_in_jinja(source: str, a: str, b: str, c: str) -> None:
    expected = rendered_by_jinja(source, values(a, b, c))
    if expected is None:
        return
    if "{'" in expected or "[{" in expected:
        return  # Jinja prints a mapping as its Python repr, this engine as JSON.
    trace = compile_program(source).trace(values(a, b, c))
    assert trace.text == expected


@law
@given(TEMPLATES, TEXTS, TEXTS, TEXTS)
def test_pieces_tile_the_text(source: str, a: str, b: str, c: str) -> None:
    program = compile_program(source)
    try:
        trace = program.trace(values(a, b, c))
    except TemplateError:
        return
    pieces = list(trace.pieces())
    assert "".join(piece.text for piece in pieces) == trace.text
    assert all(piece.site is None or piece.site in program.sites for piece in pieces)


@law
@given(TEMPLATES, st.sampled_from(OUTSIDE))
def test_the_roots_of_a_value_include_each_name_that_changes_it(source: str, changed: str) -> None:
    program = compile_program(source)
    before: dict[str, object] = {
        "a": "one",
        "b": "two",
        "c": "three",
        "d": {"a": "four", "b": "five"},
        "rows": [{"c": "six"}, {"c": "seven"}],
    }
    try:
        first = list(program.trace(before).pieces())
        second = list(program.trace({**before, changed: "other"}).pieces())
    except TemplateError:
        return
    if len(first) != len(second):
        return
    for one, two in zip(first, second, strict=True):
        if one != two:
            assert one.site is not None
            assert changed in one.site.roots


@law
@given(TEMPLATES, TEXTS)
def test_the_names_of_a_template_include_all_external_reads(source: str, text: str) -> None:
    program = compile_program(source)
    given = values(text, text, text)
    read: set[str] = set()

    class Watched(dict[str, object]):
        def get(self, key: str, default: object = None) -> object:  # type: ignore[override]
            read.add(key)
            return super().get(key, default)

    try:
        program.trace(Watched(given))
    except TemplateError:
        return
    assert read - FUNCTIONS <= set(program.names)
    assert program.required <= set(program.names)
    used = {name for site in program.sites for name in site.roots}
    assert used <= set(program.names)


@law
@given(st.text(alphabet="{}%# abx.[]()|'\"~+*-_0\n<media:", max_size=60))
def test_any_text_compiles_or_is_refused_with_a_template_error(source: str) -> None:
    for syntax in ("jinja", "fstring"):
        try:
            program = compile_program(source, syntax=syntax)  # type: ignore[arg-type]
            program.trace({"a": "1", "b": [1, 2], "x": {"a": 1}})
        except TemplateError as error:
            assert error.file is None


@law
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    )
)
def test_any_json_value_prints_the_same_text_each_time(value: object) -> None:
    program = compile_program("{{ v }}|{{ v|tojson }}")
    assert program.trace({"v": value}).text == program.trace({"v": value}).text
