"""Representations of values are short, however long what is in them is: whoever logs or prints one is not flooded."""

from __future__ import annotations

from typing import Any

import pytest

from agentkit_prompts import (
    Conversation,
    Document,
    Fact,
    Image,
    Message,
    PromptContext,
    Template,
    Text,
    ToolCall,
    UserInput,
)
from agentkit_prompts.context.thinking import Thinking
from agentkit_tools import ToolResult

LONG = "x" * 100_000
MANY = [Message("user", "hello " * 50) for _ in range(1_000)]


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


def test_a_short_one_is_whole() -> None:
    call = ToolCall("1", "add", '{"a": 1}')
    assert repr(call) == "ToolCall(id='1', name='add', arguments='{\"a\": 1}', opaque={})"
    assert repr(Text("a")) == "Text(text='a', kind='text', opaque={})"
    assert repr(UserInput("a", {"b": [1, {"c": None}]})) == (
        "UserInput(input='a', additional_kwargs={'b': [1, {'c': None}]})"
    )
    assert repr(Image(b"abc")).startswith("Image(source=b'abc', media_type=None")


def test_the_beginning_and_the_end_of_a_long_text_are_shown() -> None:
    shown = repr(Text("begin" + LONG + "end"))
    assert shown.startswith("Text(text='beginxx") and "..." in shown and "xxend'" in shown


def test_a_template_is_shown_by_its_file_or_by_how_its_text_begins() -> None:
    assert repr(Template("Hello {{ name }}", file="hello.j2")) == "Template('hello.j2')"
    assert repr(Template({"en": "Hello", "de": "Hallo"})) == "Template('Hello')"
    assert repr(Template("x" * 40)) == f"Template('{'x' * 40}')"
    assert repr(Template("x" * 41)) == f"Template('{'x' * 37}...')"


def test_what_cannot_be_represented_ends_no_representation() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise ValueError("no")

    assert "<Broken instance at" in repr(ToolResult("1", "f", "x", value=Broken()))
    assert "<Broken instance at" in repr(ToolResult("1", "f", "x", value={"a": [Broken()]}))
