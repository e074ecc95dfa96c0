"""Short representations of long values: the complete value up to a limit; above it both ends, the
first items, or the size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pytest

from agentkit.prompts import (
    Conversation,
    Document,
    Fact,
    Image,
    Message,
    PromptContext,
    Template,
    Text,
    Thinking,
    ToolCall,
    UserInput,
)
from agentkit.tools import ToolResult
from agentkit_prompts.context.short_repr import short_repr

LONG = "x" * 100_000
MANY = [Message("user", "hello " * 50) for _ in range(1_000)]


@dataclass(repr=False)
class Box:
    value: Any

    __repr__ = short_repr


class Shown:
    """Value with a representation of a given length."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __repr__(self) -> str:
        return "s" * self.length


def representation(value: Any) -> str:
    return repr(Box(value)).removeprefix("Box(value=").removesuffix(")")


@pytest.mark.parametrize(
    ("whole", "longer", "cut"),
    [
        ("a" * 500 + "b" * 500, "a" * 500 + "-" + "b" * 500, repr("a" * 500 + "..." + "b" * 500)),
        (["a" * 50 + "b" * 50], ["a" * 50 + "-" + "b" * 50], repr(["a" * 50 + "..." + "b" * 50])),
        (b"x" * 1_000, b"x" * 1_001, "<1,001 bytes>"),
        ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6, 7], "[1, 2, 3, 4, 5, 6, ...]"),
        ((1, 2, 3, 4, 5, 6), (1, 2, 3, 4, 5, 6, 7), "(1, 2, 3, 4, 5, 6, ...)"),
        (dict.fromkeys("fedcba", 1), dict.fromkeys("gfedcba", 1), f"{dict.fromkeys('gfedcb', 1)!r:.47}, ...}}"),
        ({1: {2: {3: {}}}}, {1: {2: {3: {4: 5}}}}, "{1: {2: {3: {...}}}}"),
        (Shown(2_000), Shown(2_001), "s" * 1_000 + "..."),
    ],
    ids=["text", "inner text", "bytes", "list", "tuple", "mapping", "levels", "other"],
)
def test_a_value_is_complete_up_to_a_limit_and_cut_above_it(whole: Any, longer: Any, cut: str) -> None:
    assert representation(whole) == repr(whole)
    assert representation(longer) == cut


def test_a_mapping_of_any_class_is_shown_in_its_order() -> None:
    mapping: Mapping[str, int] = MappingProxyType({"b": 1, "a": 2})
    assert representation(mapping) == "{'b': 1, 'a': 2}"


@pytest.mark.parametrize(
    "value",
    [
        Message("user", LONG),
        Message("user", (Text(LONG),) * 100),
        Message("assistant", LONG, tool_calls=(ToolCall("1", "f", LONG),) * 100, thinking=(Thinking(LONG),)),
        Image(b"\x89PNG\r\n\x1a\n" + bytes(1_000_000)),
        Document(LONG, title=LONG, metadata={f"key{number}": LONG for number in range(100)}),
        Fact(LONG),
        UserInput(LONG, {"rows": [[[[[[LONG] * 100] * 100] * 9] * 9] * 9] * 9}),
        PromptContext(
            user_input=LONG, documents=[LONG] * 1_000, conversation=Conversation(MANY), knowledge=[LONG] * 99
        ),
        ToolResult("1", "f", LONG, "success", [LONG] * 1_000, whole=LONG),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_long_text_or_list_makes_no_long_representation(value: Any) -> None:
    assert len(repr(value)) < 40_000


def test_a_short_representation_is_complete() -> None:
    call = ToolCall("1", "add", '{"a": 1}')
    assert repr(call) == "ToolCall(id='1', name='add', arguments='{\"a\": 1}', opaque={})"
    assert repr(Text("a")) == "Text(text='a', kind='text', opaque={})"
    assert repr(UserInput("a", {"b": [1, {"c": None}]})) == (
        "UserInput(input='a', additional_kwargs={'b': [1, {'c': None}]})"
    )
    assert repr(Image(b"abc")).startswith("Image(source=b'abc', media_type=None")


def test_a_template_is_shown_by_its_file_or_by_the_start_of_its_text() -> None:
    assert repr(Template("Hello {{ name }}", file="hello.j2")) == "Template('hello.j2')"
    assert repr(Template({"en": "Hello", "de": "Hallo"})) == "Template('Hello')"
    assert repr(Template("x" * 40)) == f"Template('{'x' * 40}')"
    assert repr(Template("x" * 41)) == f"Template('{'x' * 37}...')"


def test_the_beginning_and_the_end_of_a_long_text_are_shown() -> None:
    shown = repr(Text("begin" + LONG + "end"))
    assert shown.startswith("Text(text='beginxx") and "..." in shown and "xxend'" in shown


class Broken:
    def __repr__(self) -> str:
        raise ValueError("no")


class BrokenText(str):
    def __len__(self) -> int:
        raise ValueError("no")


class BrokenMapping(dict[str, int]):
    def items(self) -> Any:
        raise ValueError("no")


@pytest.mark.parametrize("value", [Broken(), BrokenText("a"), BrokenMapping(a=1), 10**5_000], ids=type)
def test_a_value_without_a_representation_is_shown_by_its_class(value: Any) -> None:
    kind = type(value).__name__
    assert f"<{kind} instance" in representation(value)
    assert f"[<{kind} instance" in representation([value])
    assert f"<{kind} instance" in repr(PromptContext(user_input="x", extra={"value": value}))
    assert f"<{kind} instance" in repr(ToolResult("1", "f", "x", value={"a": [value]}))
