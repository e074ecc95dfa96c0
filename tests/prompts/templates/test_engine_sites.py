"""Names that a program reads, and the origins of printed values."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from agentkit.prompts import Template, TemplateError, Trusted
from agentkit_prompts.templates.sandbox.program import Program, compile_program
from agentkit_prompts.templates.sandbox.values import RenderedText, Site
from tests.cases import for_cases

DOCUMENTS = [{"text": "first", "title": "A"}, {"text": "second", "title": ""}]


def pieces(source: str, values: Mapping[str, object]) -> list[str | tuple[str, str]]:
    """Return the parts of a text; the parts of values with their pointers."""
    parts = compile_program(source).trace(values).pieces()
    return [str(part.text) if part.site is None else (part.pointer, str(part.text)) for part in parts]


def sites(source: str) -> list[tuple[str, tuple[str, ...]]]:
    return [(site.pointer, site.roots) for site in compile_program(source).sites]


def roots(source: str) -> tuple[str, ...]:
    return compile_program(source).sites[-1].roots


def test_text_without_expressions_is_a_literal_without_compilation() -> None:
    program = compile_program("plain text\n{# a comment #}")
    assert program.literal == "plain text\n"
    assert program.sites == ()
    assert pieces(program.source, {}) == ["plain text\n"]
    assert pieces("", {}) == []
    assert program.trace({}).text == "plain text\n"


def test_a_path_is_its_own_pointer() -> None:
    assert sites("{{ user_input.input }}") == [("user_input.input", ("user_input",))]
    assert sites("{{ d['a b'][0] }}") == [("d['a b'][0]", ("d",))]
    assert sites("{{ d['{0}'] }}")[0][0].format(7) == "d['{0}']"
    assert sites("{{ documents[0].text }}")[0][0] == "documents[0].text"


def test_an_expression_that_is_more_than_a_path_has_roots_only() -> None:
    assert sites("{{ a.b | upper }}") == [("", ("a",))]
    assert sites("{{ a ~ b.c }}") == [("", ("a", "b"))]
    assert sites("{{ documents[:2] }}") == [("", ("documents",))]
    assert sites("{{ documents[i] }}") == [("", ("documents", "i"))]
    assert sites("{{ 'text' }}") == [("", ())]


def test_pieces_contain_the_index_of_their_loop() -> None:
    program = compile_program("{% for d in documents %}{{ d.text }} {% endfor %}")
    assert program.sites == (Site(1, "documents[{0}].text", ("documents",)),)
    first, second = ("documents[0].text", "first"), ("documents[1].text", "second")
    assert pieces(program.source, {"documents": DOCUMENTS}) == [first, " ", second, " "]


def test_pieces_contain_the_index_of_each_printed_value() -> None:
    source = (
        "{% for d in ds %}{% if not loop.first %}, {% endif %}{{ d.a }}{% if d.b %}={{ d.b }}{% endif %}{% endfor %}"
    )
    values = [{"a": "x", "b": 1}, {"a": 2, "b": ""}, {"a": Trusted("z"), "b": "c"}]
    first = [("ds[0].a", "x"), "=", ("ds[0].b", "1"), ", ", ("ds[1].a", "2"), ", "]
    assert pieces(source, {"ds": values}) == [*first, ("ds[2].a", "z"), "=", ("ds[2].b", "c")]


def test_a_filtered_loop_keeps_the_index_of_the_complete_list() -> None:
    program = compile_program("{% for d in documents if not d.title %}{{ loop.index }}{{ d.text }}{% endfor %}")
    assert pieces(program.source, {"documents": DOCUMENTS}) == [("", "1"), ("documents[1].text", "second")]


def test_each_nested_loop_has_an_index() -> None:
    program = compile_program("{% for row in rows %}{% for cell in row.cells %}{{ cell }}{% endfor %}{% endfor %}")
    assert program.sites[0].pointer == "rows[{0}].cells[{1}]"
    rows = [{"cells": ["a"]}, {"cells": ["b", "c"]}]
    expected = [("rows[0].cells[0]", "a"), ("rows[1].cells[0]", "b"), ("rows[1].cells[1]", "c")]
    assert pieces(program.source, {"rows": rows}) == expected


@for_cases(
    "source",
    [
        "{% for k in additional_kwargs %}{{ k }}{% endfor %}",
        "{% for k, v in extra.items() %}{{ v }}{% endfor %}",
        "{% for d in documents|sort(attribute='text') %}{{ d }}{% endfor %}",
        "{% for d in documents[1:] %}{{ d }}{% endfor %}",
        "{% for d in [documents] %}{{ d }}{% endfor %}",
        "{% for a, b in documents %}{{ a }}{% endfor %}",
    ],
)
def test_only_a_loop_over_a_list_by_path_has_a_pointer(source: str) -> None:
    site = compile_program(source).sites[0]
    assert site.pointer == ""
    assert len(site.roots) == 1


def test_set_copies_pointer_and_roots() -> None:
    assert sites("{% set x = a.b %}{{ x.c }}") == [("a.b.c", ("a",))]
    assert sites("{% if q %}{% set x = a %}{% else %}{% set x = b %}{% endif %}{{ x }}")[0] == ("", ("a", "b"))
    assert roots("{% set x %}{{ a }} {{ b }}{% endset %}{{ x }}") == ("a", "b")
    assert roots("{% set x | replace(c, '') %}{{ a }}{% endset %}{{ x }}") == ("a", "c")
    assert roots("{% set x, y = a, b %}{{ y }}") == ("a", "b")
    assert roots("{% set x = a %}{% for i in b %}{% set x = i %}{% endfor %}{{ x }}") == ("a",)
    assert roots("{% with x = a %}{{ x }}{% endwith %}") == ("a",)


def test_macros_and_blocks_have_the_roots_of_their_printed_values() -> None:
    macro = "{% macro m(x) %}{{ x }}{{ a }}{% endmacro %}"
    assert roots(macro + "{{ m('') }}") == ("a",)
    assert roots(macro + "{{ m(b) }}") == ("a", "b")
    assert roots(macro + "{% set f = m %}{{ f('') }}") == ("a",)
    assert roots("{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}{{ c }}{% endcall %}") == ("c",)
    assert roots("{% filter replace(a, b) %}{{ c }}{% endfilter %}") == ("a", "b", "c")
    assert roots("{% for x in a recursive %}{{ loop(x.kids) }}{{ b }}{% endfor %}") == ("a", "b")


def test_a_macro_reads_values_that_are_set_after_it() -> None:
    assert roots("{% set x = '' %}{% macro m() %}{{ x }}{% endmacro %}{% set x = late %}{{ m() }}") == ("late",)
    assert roots("{% macro m() %}{{ n() }}{% endmacro %}{% macro n() %}{{ late }}{% endmacro %}{{ m() }}") == (
        "late",
        "n",
    )


def test_a_namespace_has_the_roots_of_all_assigned_values() -> None:
    assert roots("{% set ns = namespace(v=a) %}{% for d in b %}{% set ns.v = d %}{% endfor %}{{ ns.v }}") == ("a", "b")
    keep = "{% set ns = namespace(v='') %}{% macro keep(p) %}{% set ns.v = p %}{% endmacro %}{{ keep(a) }}"
    assert roots(keep + "{{ ns.v }}") == ("a",)
    assert roots(keep + "{% set other = [ns] %}{{ other[0].v }}") == ("a",)


def test_counters_of_a_loop_have_no_roots_but_its_items_have() -> None:
    assert sites("{% for d in a %}{{ loop.index }}{% endfor %}") == [("", ())]
    assert roots("{% for d in a %}{{ loop.previtem }}{% endfor %}") == ("a",)


def test_only_expressions_of_rendered_prompts_are_nested() -> None:
    assert compile_program("{{ wrapped_str }}").sites[0].nested
    assert compile_program("{{ '  ' ~ wrapped_str | trim }}").sites[0].nested
    assert not compile_program("{{ wrapped_str ~ a }}").sites[0].nested
    assert not compile_program("{{ 'x' }}").sites[0].nested


def test_names_are_the_external_names_with_their_first_lines() -> None:
    program = compile_program(
        "{% set x = a %}\n{{ x }}{% for i in range(3) %}{{ i }}{{ b }}{% endfor %}\n{{ b }}{{ loop }}"
    )
    assert dict(program.names) == {"a": 1, "b": 2, "loop": 3}


@for_cases(
    ("source", "required"),
    [
        ("{{ a }}", ["a"]),
        ("{{ a | default(1) }}", []),
        ("{{ a or 1 }}", []),
        ("{{ a or b }}", ["b"]),
        ("{{ a or b or 1 }}", []),
        ("{% if a or b %}{% endif %}", ["b"]),
        ("{% if a is defined %}{{ a }}{% endif %}", []),
        ("{% if a is defined %}{{ a }}{% endif %}{{ a }}", ["a"]),
        ("{% if a is undefined %}x{% else %}{{ a }}{% endif %}", []),
        ("{{ a if a is defined else b }}", ["b"]),
        ("{{ a and b }}", ["a", "b"]),
        ("{{ a.b | default(1) }}", ["a"]),
        ("{% if range %}{% endif %}", []),
    ],
)
def test_a_name_is_required_if_the_template_fails_without_it(source: str, required: list[str]) -> None:
    template = Template(source)
    schema = template.json_schema
    assert schema is not None
    assert schema.get("required", []) == required == sorted(template.required)
    values = {name: {"x": 1} for name in required}
    template.run(values)
    for name in required:
        with pytest.raises(TemplateError):
            template.run({other: value for other, value in values.items() if other != name})


def test_a_value_precedes_a_function_of_the_same_name() -> None:
    names = ("cycler", "dict", "joiner", "namespace", "range")
    text = Template(" ".join(f"{{{{ {name} }}}}" for name in names)).render({name: name.upper() for name in names})
    assert text == "CYCLER DICT JOINER NAMESPACE RANGE"
    assert Template("{{ dict is mapping }} {{ range(2) | list }}").render({"dict": {}}) == "True [0, 1]"


@for_cases(
    ("source", "kwargs"),
    [
        ("{{ additional_kwargs.a }}", {"a": True}),
        ("{{ additional_kwargs['a'] }}", {"a": True}),
        ("{{ user_input.additional_kwargs.a.b }}", {"a": True}),
        ("{% set k = additional_kwargs %}{{ k.a }}", {"a": True}),
        ("{{ additional_kwargs.a | default('x') }}", {"a": False}),
        ("{{ additional_kwargs.get('a', 1) }}", {"a": False}),
        ("{% if additional_kwargs.a is defined %}{{ additional_kwargs.a }}{% endif %}", {"a": False}),
        ("{% if additional_kwargs.a is defined and additional_kwargs.a %}x{% endif %}", {"a": False}),
        ("{% if 'a' in additional_kwargs %}{{ additional_kwargs.a }}{% endif %}", {"a": False}),
        ("{% if 'a' not in additional_kwargs %}{% else %}{{ additional_kwargs.a }}{% endif %}", {"a": False}),
        ("{% if additional_kwargs.get('a') %}{{ additional_kwargs.a }}{% endif %}", {"a": False}),
        ("{% if additional_kwargs.a is undefined or not additional_kwargs.a %}{% else %}x{% endif %}", {"a": False}),
        ("{{ additional_kwargs.a if additional_kwargs.a is defined else '' }}", {"a": False}),
        (
            "{% for d in documents if additional_kwargs.a is defined %}{{ additional_kwargs.a }}{% endfor %}",
            {"a": False},
        ),
        ("{% if additional_kwargs.a is defined %}{% endif %}{{ additional_kwargs.a }}", {"a": True}),
        ("{% if additional_kwargs.b is defined %}{{ additional_kwargs.a }}{% endif %}", {"a": True, "b": False}),
        ("{% set k = additional_kwargs %}{% if k.a is defined %}{{ k.a }}{% endif %}", {"a": False}),
        (
            "{% set k = user_input.additional_kwargs %}{% if 'a' in k %}{{ additional_kwargs['a'] }}{% endif %}",
            {"a": False},
        ),
        ("{% if additional_kwargs[name] is defined %}{{ additional_kwargs.a }}{% endif %}", {"a": True}),
        ("{% for k, v in additional_kwargs.items() %}{{ k }}{% endfor %}", {}),
        ("{{ additional_kwargs[name] }}", {}),
        ("{{ documents[0].metadata.a }}", {}),
    ],
)
def test_additional_kwargs_are_named_and_required_unless_guarded(source: str, kwargs: dict[str, bool]) -> None:
    assert dict(compile_program(source).kwargs) == kwargs


def test_lines_are_counted_from_the_start_of_the_file() -> None:
    program = compile_program("one\n{{ a }}\n\n{{ b }}", file="x.prompt.j2", first_line=10)
    assert [site.line for site in program.sites] == [11, 13]
    assert dict(program.names) == {"a": 11, "b": 13}


def test_programs_are_shared_by_source_and_cannot_be_changed() -> None:
    program = compile_program("{{ shared }}")
    assert compile_program("{{ shared }}") is program
    assert compile_program("{{ shared }}", file="other") is not program
    assert repr(program) == "Program('{{ shared }}')"
    with pytest.raises(AttributeError):
        program.source = ""  # type: ignore[misc]
    with pytest.raises(TypeError):
        program.names["x"] = 1  # type: ignore[index]


def test_a_source_above_the_limit_of_the_cache_is_compiled_each_time() -> None:
    source = "x" * 100_000 + "{{ a }}"
    assert compile_program(source) is not compile_program(source)
    assert compile_program(source).trace({"a": "!"}).text == "x" * 100_000 + "!"


def test_rendered_text_is_the_same_object_if_printed_directly() -> None:
    rendered = RenderedText("inner", rendered=object())
    trace = compile_program("<{{ wrapped_str }}>").trace({"wrapped_str": rendered})
    assert trace.text == "<inner>"
    assert trace.has_parts
    assert [piece.text for piece in trace.pieces()][1] is rendered


def test_trusted_text_is_the_same_object_if_printed_directly() -> None:
    value = Trusted("checked")
    plain, upper = compile_program("{{ a }}{{ a|upper }}").trace({"a": value}).pieces()
    assert plain.text is value
    assert type(upper.text) is str


def test_a_program_is_a_program() -> None:
    assert isinstance(compile_program("{{ a }}"), Program)
