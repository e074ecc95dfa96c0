"""Text of values: the same in each process, or a typed error with the remedy."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import OrderedDict, UserDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict

from agentkit.prompts import (
    Document,
    Image,
    Message,
    PromptContext,
    TemplateError,
    Text,
    Thinking,
    ToolCall,
    Url,
    UserInput,
)
from agentkit_prompts.templates.sandbox.meter import Limits
from agentkit_prompts.templates.sandbox.program import compile_program
from agentkit_prompts.templates.sandbox.values import RenderedText
from tests.cases import for_cases
from tests.paths import ROOT

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
PIXEL = Image(b"\x89PNG", name="pixel.png")
MARKER = "<|media:image:0123456789abcdef0123456789abcdef|>"
DEFUSED = "<\u200b|media:image:0123456789abcdef0123456789abcdef|>"


def show(value: object, source: str = "{{ v }}") -> str:
    return compile_program(source).trace({"v": value}).text


def error_of(value: object, source: str = "{{ v }}") -> TemplateError:
    with pytest.raises(TemplateError) as caught:
        show(value, source)
    return caught.value


class Colour(Enum):
    RED = "red"
    TWO = 2


class Word(str, Enum):  # noqa: UP042 (the older form is what is tried)
    YES = "yes"


class Level(IntEnum):
    LOW = 1


class Mood(StrEnum):
    CALM = "calm"


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Plain:
    name: str = "n"
    tags: list[str] = field(default_factory=lambda: ["a"])
    _hidden: int = 1


class Model(BaseModel):
    model_config = ConfigDict(extra="allow")
    title: str = "t"


class Shown:
    def __str__(self) -> str:
        return "shown"


class Raising:
    def __str__(self) -> str:
        raise ValueError("no text today")

    @property
    def broken(self) -> str:
        raise KeyError("broken")

    def __bool__(self) -> bool:
        raise RuntimeError("neither true nor false")

    def __iter__(self) -> Iterator[int]:
        raise OSError("no items")


class Prompted:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __prompt__(self) -> Any:
        return self.value


class Anonymous:
    pass


@for_cases(
    ("value", "text"),
    [
        ("text", "text"),
        ("", ""),
        ("x" * 1_000_000, "x" * 1_000_000),
        ("\U0001f600 עברית \u202e", "\U0001f600 עברית \u202e"),
        ("\ud800 lone", "\ud800 lone"),
        ("nul \x00", "nul \x00"),
        ("{{ a }} {% b %} {c}", "{{ a }} {% b %} {c}"),
        (1, "1"),
        (-(10**50), "-1" + "0" * 50),
        (1.5, "1.5"),
        (float("nan"), "nan"),
        (True, "True"),
        (None, "None"),
        (NOW, "2026-03-04 05:06:07+00:00"),
        (date(2026, 1, 2), "2026-01-02"),
        (time(1, 2), "01:02:00"),
        (timedelta(hours=1), "1:00:00"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Decimal("1.10"), "1.10"),
        (PurePosixPath("/a/b"), "/a/b"),
        (Url("https://example.com/a"), "https://example.com/a"),
        (Colour.RED, "red"),
        (Colour.TWO, "2"),
        (Word.YES, "yes"),
        (Level.LOW, "1"),
        (Mood.CALM, "calm"),
        (1 + 2j, "(1+2j)"),
        (Shown(), "shown"),
        (ValueError("what happened"), "what happened"),
        ([1, "a", None, True, 1.5], '[1, "a", null, true, 1.5]'),
        ((1, 2), "[1, 2]"),
        ([], "[]"),
        ({"b": 1, "a": {"é": "ü"}}, '{"b": 1, "a": {"é": "ü"}}'),
        ({1: "x", None: "y", 2.5: "z"}, '{"1": "x", "null": "y", "2.5": "z"}'),
        (MappingProxyType({"a": 1}), '{"a": 1}'),
        (OrderedDict(a=1), '{"a": 1}'),
        (UserDict({"a": 1}), '{"a": 1}'),
        (deque([1, 2]), "[1, 2]"),
        (range(3), "[0, 1, 2]"),
        (Point(1, 2), "[1, 2]"),
        (Plain(), '{"name": "n", "tags": ["a"]}'),
        (Model(more=1), '{"title": "t", "more": 1}'),
        ([Colour.RED, NOW.date(), Word.YES, Level.LOW], '["red", "2026-03-04", "yes", 1]'),
        ([Prompted("x")], None),
        (Message("user", "hi"), "hi"),
        (UserInput("hello"), "hello"),
        (Text("part"), "part"),
        (Prompted(Prompted("deep")), "deep"),
        (Prompted(["a", "b"]), "ab"),
        (["a", Text("b")], "ab"),
        ({"media": PIXEL, "text": Text("x")}, '{"media": "[image: pixel.png]", "text": "x"}'),
    ],
)
def test_a_value_has_one_text(value: object, text: str | None) -> None:
    if text is None:
        assert "has no text: print" in str(error_of(value))
    else:
        assert show(value) == text
        assert show(value, "{% set b %}{{ v }}{% endset %}{{ b }}") == text
        assert show(value, "{{ v|string }}") == text
        assert show(value, "{{ '' ~ v }}") == text


@for_cases(
    ("value", "words"),
    [
        (b"bytes", "decode"),
        (bytearray(b"x"), "decode"),
        ({"a": b"bytes"}, "decode"),
        ({1, 2}, r"\|sort"),
        (frozenset("ab"), r"\|sort"),
        ([{1}], r"\|sort"),
        (object(), "no defined text"),
        (Anonymous(), "no defined text"),
        ([Anonymous()], "no defined text"),
        (Anonymous, "no defined text"),
        (len, "no defined text"),
        (lambda: 0, "no defined text"),
        (os, "no defined text"),
        ((i for i in "a"), "no defined text"),
        ({}.keys(), "no defined text"),
        (Raising(), "__str__ of Raising failed with ValueError"),
        ({(1, 2): 3}, "keys are text or numbers"),
        (10**5000, "too many digits"),
        ([10**5000], "too many digits"),
        (ValueError("<thing at 0x7f0011223344>"), "memory address"),
        (Prompted(3), "__prompt__ must give text or content parts"),
    ],
)
def test_a_value_without_a_defined_text_is_a_template_error(value: object, words: str) -> None:
    for source in ("{{ v }}", "{{ v ~ '' }}", "{{ v|string }}", "{% set b %}{{ v }}{% endset %}"):
        with pytest.raises(TemplateError) as caught:
            show(value, source)
        assert caught.value.line == 1
        assert caught.value.__cause__ is not None


def cyclic_list() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


def cyclic_dict() -> dict[str, Any]:
    made: dict[str, Any] = {}
    made["me"] = {"again": made}
    return made


def deep_list(depth: int = 10_000) -> list[Any]:
    made: list[Any] = []
    for _ in range(depth):
        made = [made]
    return made


def deep_prompt(depth: int = 10_000) -> Prompted:
    made = Prompted("x")
    for _ in range(depth):
        made = Prompted(made)
    return made


@pytest.mark.parametrize("value", [cyclic_list(), cyclic_dict(), deep_list()], ids=["list", "dict", "deep"])
@for_cases(
    "source",
    ["{{ v }}", "{{ v|tojson }}", "{{ v ~ '' }}", "{{ [v]|join }}", "{{ '%s' % (v,) }}", "{{ '{}'.format(v) }}"],
)
def test_cyclic_and_deep_data_is_a_template_error(value: object, source: str) -> None:
    assert "nests deeper" in str(error_of(value, source))


def test_comparing_cyclic_and_deep_data_is_a_template_error() -> None:
    with pytest.raises(TemplateError):
        compile_program("{{ v == w }}").trace({"v": cyclic_list(), "w": cyclic_list()})
    try:
        rendered = show((deep_list(), deep_list()), "{{ v[0] == v[1] }}")
    except TemplateError:
        pass
    else:  # from Python 3.14 on
        assert rendered == "True"
    assert "nests deeper" in str(error_of(deep_prompt()))
    assert "nests deeper" in str(error_of(Prompted(cyclic_list())))


@for_cases(
    "source",
    [
        "{{ v.broken }}",
        "{% if v %}{% endif %}",
        "{% for x in v %}{% endfor %}",
        "{{ v|list }}",
        "{{ not v }}",
        "{{ [v]|map(attribute='broken')|list }}",
        "{{ [v]|select|list }}",
        "{{ v|default('x', true) }}",
    ],
)
def test_an_object_that_raises_is_a_template_error(source: str) -> None:
    error = error_of(Raising(), source)
    assert error.line == 1
    assert error.__cause__ is not None


def test_media_stay_media_in_the_pieces() -> None:
    program = compile_program("see {{ v }} and {{ w }}")
    trace = program.trace({"v": PIXEL, "w": UserInput(["look: ", PIXEL])})
    shown = [getattr(piece.text, "media", str(piece.text)) for piece in trace.pieces()]
    assert shown == ["see ", PIXEL, " and ", "look: ", PIXEL]
    assert trace.has_parts
    assert trace.text == f"see {PIXEL.marker} and look: {PIXEL.marker}"


def test_media_in_a_buffer_become_their_alt_text() -> None:
    assert show(PIXEL, "{% set b %}{{ v }}{% endset %}{{ b }}") == "[image: pixel.png]"
    assert show(UserInput(["a", PIXEL]), "{{ v ~ '' }}") == "a[image: pixel.png]"


def test_text_cannot_forge_media() -> None:
    program = compile_program("{{ v }}|{{ v|upper|lower }}|{% set b %}{{ v }}{% endset %}{{ b }}|{{ [v] }}")
    pieces = program.trace({"v": MARKER}).pieces()
    assert [piece.text for piece in pieces if piece.site is not None] == [DEFUSED, DEFUSED, DEFUSED, f'["{DEFUSED}"]']
    with pytest.raises(TemplateError):
        compile_program("text <|media:image:1|> text")
    with pytest.raises(TemplateError):
        compile_program("text <|media:image:1|> {a}", syntax="fstring")


def test_markers_of_rendered_text_survive() -> None:
    wrapped = RenderedText(f" {MARKER} ")
    values = {"wrapped_str": wrapped, "v": MARKER}

    def texts(source: str) -> str:
        return compile_program(source).trace(values).text

    assert texts("{{ wrapped_str }}") == f" {MARKER} "
    assert texts("{{ wrapped_str | trim }}") == MARKER
    assert texts("{{ wrapped_str | trim ~ v }}") == DEFUSED + DEFUSED
    assert texts("{% set b %}{{ v }}{{ wrapped_str }}{% endset %}{{ b }}") == f"{DEFUSED} {MARKER} "
    macro = "{% macro m(x) %}[{{ x }}{{ v }}]{% endmacro %}{{ m(wrapped_str) }}"
    assert texts(macro) == f"[ {MARKER} {DEFUSED}]"
    assert texts("{% set b %}{{ v[:2] }}{{ wrapped_str }}{{ '<' }}|media:x{% endset %}{{ b }}").count("<|media:") == 0


def test_two_adjacent_texts_do_not_form_a_marker() -> None:
    values = {"a": MARKER[:5], "b": MARKER[5:]}
    text = compile_program("{% set x %}{{ a }}{{ b }}{% endset %}{{ x }}").trace(values).text
    assert text == DEFUSED


@for_cases(
    ("source", "words"),
    [
        ("{{ v }}", r"'v' is undefined; did you mean 'vv'\? Valid names: other, vv"),
        ("{{ vv.missing }}", r"Document has no 'missing'; valid names: .*text"),
        ("{{ vv['txt'] }}", r"Document has no 'txt'; did you mean 'text'\?"),
        ("{{ other.c }}", r"dict has no 'c'; valid names: a, b"),
        ("{{ other['c'].d }}", "dict has no 'c'"),
        ("{{ other[3] }}", "dict has no element 3"),
        ("{% for x in v %}{% endfor %}", "'v' is undefined"),
        ("{% if v %}{% endif %}", "'v' is undefined"),
        ("{{ v + 1 }}", "'v' is undefined"),
        ("{{ v ~ '' }}", "'v' is undefined"),
        ("{{ v == 1 }}", "'v' is undefined"),
        ("{{ 1 < v }}", "'v' is undefined"),
        ("{{ v in [1] }}", "'v' is undefined"),
        ("{{ 1 in v }}", "'v' is undefined"),
        ("{{ -v }}", "'v' is undefined"),
        ("{{ v() }}", "'v' is undefined"),
        ("{{ v.x() }}", "'v' is undefined"),
        ("{{ v[1:] }}", "'v' is undefined"),
        ("{{ other[v] }}", "'v' is undefined"),
        ("{{ v|upper }}", "'v' is undefined"),
        ("{{ v|length }}", "'v' is undefined"),
        ("{{ v|int }}", "'v' is undefined"),
        ("{{ v|float }}", "'v' is undefined"),
        ("{{ [v] }}", "'v' is undefined"),
        ("{{ {'k': v} }}", "'v' is undefined"),
        ("{{ v is none }}", "'v' is undefined"),
        ("{{ v is string }}", "'v' is undefined"),
        ("{{ v is iterable }}", "'v' is undefined"),
        ("{{ v is lower }}", "'v' is undefined"),
        ("{{ v ** 2 }}", "'v' is undefined"),
        ("{{ dict(**v) }}", "'v' is undefined"),
        ("{{ []|first }}", "the list is empty"),
        ("{{ []|last }}", "the list is empty"),
        ("{{ []|min }}", "the list is empty"),
        ("{% set v.a = 1 %}", "'v' is undefined"),
    ],
)
def test_the_error_of_an_undefined_name_lists_the_valid_names(source: str, words: str) -> None:
    with pytest.raises(TemplateError) as caught:
        compile_program(source).trace({"vv": Document("t"), "other": {"a": 1, "b": 2}})
    assert caught.value.line == 1
    assert caught.value.variable


def test_undefined_values_can_be_tested_and_replaced() -> None:
    source = "{{ v is defined }} {{ v is undefined }} {{ v|default('d') }} {{ w.x is defined }} {{ w.x|default('e') }}"
    assert compile_program(source).trace({"w": {}}).text == "False True d False e"
    assert show(0, "{{ 'x' if v }}|{{ ('x' if v) is defined }}|{% for i in ('x' if v) %}{% endfor %}") == "|False|"


def test_the_text_does_not_depend_on_the_hash_seed() -> None:
    code = (
        "from agentkit_prompts.templates.sandbox.program import compile_program\n"
        'p = compile_program(\'{{ s|sort|join }} {{ d }} {{ [d, "b", "a"]|length }} {{ s|length }} {{ u|unique|join }}'
        ' {% for g, i in o|groupby("k") %}{{ g }}{{ i|length }}{% endfor %} {{ "A" in s }}\')\n'
        "print(p.trace({'s': {'b', 'a', 'A', 'c'}, 'd': {'z': 1, 'y': 2}, 'u': list('banana'),"
        " 'o': [{'k': 'x'}, {'k': 'y'}, {'k': 'X'}]}).text, [s.roots for s in p.sites], dict(p.names))\n"
        "try:\n    compile_program('{{ misspelt }}').trace(dict.fromkeys('qwertyuiopasdfghjklzxcvbnm'))\n"
        "except Exception as error:\n    print(error)\n"
    )
    roots = [str(ROOT / "prompts")]
    answers = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(roots)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "42")
    }
    assert len(answers) == 1
    assert answers.pop().startswith("Aabc ")


@pytest.mark.parametrize(
    "source", ["{{ '%d' % v }}", "{{ v|round(0, 'ceil') }}", "{{ v|round(0, 'floor') }}", "{{ '%x'|format(v) }}"]
)
def test_a_decimal_with_a_giant_exponent_is_not_expanded(source: str) -> None:
    assert "too large" in str(error_of(Decimal("1E+999999"), source))
    assert show(Decimal("1E+999999"), "{{ v }} {{ v|int(7) }} {{ v|float }}") == "1E+999999 7 inf"


@pytest.mark.untraced
def test_an_endless_iterator_stops_at_a_limit() -> None:
    def endless() -> Iterator[int]:
        number = 0
        while True:
            number += 1
            yield number

    patient = Limits(seconds=3_600)  # The number of rounds decides, on slow machines too.
    for template in ("{% for x in v %}{{ x }}{% endfor %}", "{{ v|join }}"):
        with pytest.raises(TemplateError):
            compile_program(template, limits=patient).trace({"v": endless()})


def test_long_valid_contexts_render() -> None:
    context = PromptContext(
        user_input="q",
        conversation=[Message("user", f"message {number}") for number in range(1_000)],
        documents=[Document(f"text {number}", title=f"title {number}", score=0.5) for number in range(10_000)],
    )
    source = (
        "{% for m in conversation %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
        "{% for d in documents %}{% if d.title and not loop.first %}{{ loop.index }}. {{ d.title|title }}: {% endif %}"
        "{{ d.text|trim|indent }}{% if not loop.last %}\n{% endif %}{% endfor %}"
    )
    text = compile_program(source).trace(context.view).text
    assert text.count("\n") == 1_000 + 9_999


@for_cases(
    "shown",
    [
        "{{ conversation }}",
        "{{ conversation|tojson }}",
        "{{ conversation|tojson(indent=2) }}",
        "{{ conversation|list }}",
        "{{ conversation[1] }}",
        "{{ conversation[1]|tojson }}",
        "{{ conversation[1].thinking }}",
        "{{ conversation[1].tool_calls|tojson }}",
        "{{ conversation|join }}",
        "{{ '%s' % (conversation,) }}",
        "{{ conversation ~ '' }}",
        "{{ {'all': conversation} }}",
    ],
)
def test_opaque_data_of_a_message_is_printed_only_by_name(shown: str) -> None:
    thought = Thinking("so", "anthropic", signature="SIGNED", opaque={"anthropic": {"type": "SECRET"}})
    call = ToolCall("1", "search", "{}", opaque={"google": {"thought_signature": "SECRET"}})
    answer = Message("assistant", "yes", tool_calls=[call], thinking=[thought], opaque={"openai": {"id": "SECRET"}})
    values = {"conversation": (Message("user", "hi"), answer)}
    text = compile_program(shown).trace(values).text
    assert text and "SECRET" not in text and "SIGNED" not in text
    named = "{{ conversation[1].thinking[0].signature }} {{ conversation[1].opaque|tojson }}"
    assert compile_program(named).trace(values).text == 'SIGNED {"openai": {"id": "SECRET"}}'
