"""Role-marker templates with invalid conversations: an error that names each problem, and no other effect."""

from __future__ import annotations

from typing import Any

import pytest

from agentkit.prompts.chat_templates import CHAT_TEMPLATES, ChatTemplateError
from tests.cases import for_cases


def places(error: ChatTemplateError) -> list[str]:
    """Return the places that an error names."""
    return [place for place, _ in error.problems]


QWEN: Any = CHAT_TEMPLATES.get("qwen2d5")()
HI = {"role": "user", "content": "hi"}
CYCLE: list[Any] = []
CYCLE.append(CYCLE)
DEEP: list[Any] = []
for _ in range(10_000):
    DEEP = [DEEP]
LONG_NUMBER = 10**5_000


class Failing(dict[str, Any]):
    """Message with unreadable fields."""

    def get(self, *_: Any) -> Any:
        raise ZeroDivisionError("mine")


@for_cases("name", CHAT_TEMPLATES)
def test_an_empty_conversation_is_refused(name: str) -> None:
    with pytest.raises(ChatTemplateError) as caught:
        CHAT_TEMPLATES.get(name)().render([])
    assert caught.value.template == name
    assert places(caught.value) == ["messages"]


@for_cases("messages", ["hi", b"hi", HI, None, 7])
def test_messages_that_are_not_a_list_are_refused(messages: Any) -> None:
    with pytest.raises(ChatTemplateError) as caught:
        QWEN.render(messages)
    assert places(caught.value) == ["messages"]


def test_the_error_names_an_unknown_role() -> None:
    with pytest.raises(ChatTemplateError) as caught:
        QWEN.render([HI, {"role": "assitant", "content": "x"}])
    assert places(caught.value) == ["messages[1]"]
    with pytest.raises(ChatTemplateError) as caught:
        QWEN.messages2prompt([{"role": "robot", "content": "x"}])
    assert places(caught.value) == ["messages[0]"]


@for_cases(
    ("message", "place"),
    [
        ("hi", ""),
        ({"content": "x", "name": "y"}, ".role"),
        ({"role": 7, "content": "x"}, ".role"),
        ({"role": ["user"], "content": "x"}, ".role"),
        ({"role": DEEP, "content": "x"}, ".role"),
        ({"role": LONG_NUMBER, "content": "x"}, ".role"),
        (Failing(HI), ""),
        ({"role": "user"}, ".content"),
        ({"role": "user", "content": 7}, ".content"),
        ({"role": "user", "content": {"text": "x"}}, ".content"),
        ({"role": "user", "content": [7]}, ".content[0]"),
        ({"role": "user", "content": [{"type": "smell"}]}, ".content[0]"),
        ({"role": "user", "content": [{"type": ["text"]}]}, ".content[0].type"),
        ({"role": "user", "content": "x", "name": 7}, ".name"),
        ({"role": "assistant", "content": "x", "tool_calls": "y"}, ".tool_calls"),
        ({"role": "assistant", "tool_calls": [7]}, ".tool_calls[0]"),
        ({"role": "assistant", "tool_calls": [{"id": "1"}]}, ".tool_calls[0].name"),
        ({"role": "assistant", "tool_calls": [{"function": "f"}]}, ".tool_calls[0].function"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {1j}}}]},
            ".tool_calls[0].function.arguments",
        ),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {LONG_NUMBER: 1}}}]},
            ".tool_calls[0].function.arguments",
        ),
    ],
)
def test_the_error_names_an_unreadable_message(message: Any, place: str) -> None:
    with pytest.raises(ChatTemplateError) as caught:
        QWEN.render([HI, message])
    assert places(caught.value) == [f"messages[1]{place}"]


def test_the_error_names_all_problems() -> None:
    with pytest.raises(ChatTemplateError) as caught:
        QWEN.render([{}, HI, {"role": "x", "content": ""}])
    assert places(caught.value) == ["messages[0].role", "messages[0].content", "messages[2]"]


@for_cases(
    ("tools", "place"),
    [
        ("weather", "tools"),
        ({"name": "f"}, "tools"),
        (7, "tools"),
        ([7], "tools[0]"),
        ([{"function": "f"}], "tools[0]"),
        ([{"description": "x"}], "tools[0]"),
        (
            [{"name": "f"}, {"name": "g", "parameters": {"x": object()}}],
            "tools[1].parameters.x",
        ),
        ([{"name": "f", "parameters": {"x": float("nan")}}], "tools[0].parameters.x"),
        ([{"name": "f", "parameters": CYCLE}], "tools[0]"),
    ],
)
def test_the_error_names_a_tool_that_cannot_be_serialized(tools: Any, place: str) -> None:
    with pytest.raises(ChatTemplateError) as caught:
        QWEN.render([HI], tools=tools)
    assert (caught.value.template, places(caught.value)) == ("qwen2d5", [place])


@for_cases("name", ["base", "qwen", "chatglm", "codellama"])
def test_a_prompt_that_is_not_text_is_refused(name: str) -> None:
    made: Any = CHAT_TEMPLATES.get(name)()
    with pytest.raises(ChatTemplateError) as caught:
        made.get_prompt([HI])
    assert caught.value.template == name


@for_cases(
    "fields",
    [
        {"meta_instructions": "x"},
        {"writes_tools": True},
        {"user": 7},
        {"user": None},
        {"stop_words": "</s>"},
        {"stop_words": [7]},
        {"session_len": "2k"},
        {"session_len": True},
        {"top_p": "high"},
        {"bos_always": "yes"},
        {"trim_opening": "sometimes"},
        {"eoh": 1, "eoa": 2},
    ],
)
def test_an_unknown_field_or_a_value_of_another_type_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ChatTemplateError) as caught:
        CHAT_TEMPLATES.get("qwen2d5")(**fields)
    assert caught.value.template == "qwen2d5"
    assert places(caught.value) == [*fields]


def test_fields_accept_each_value_of_their_type() -> None:
    fields = {"top_p": 1, "top_k": None, "stop_words": ("a",), "bos_always": True, "trim_opening": "always"}
    made: Any = CHAT_TEMPLATES.get("qwen")(**fields)
    assert {name: getattr(made, name) for name in fields} == fields


def test_other_sequences_of_messages_are_read_and_subclasses_of_text_are_text() -> None:
    class Word(str):
        __slots__ = ()

    plain = QWEN.render([HI])
    assert QWEN.render((HI,)) == QWEN.render(iter([HI])) == QWEN.render([{"role": Word("user"), "content": Word("hi")}])
    assert QWEN.render([{**HI, "id": 7}]) == plain == QWEN.render([{"content": "hi", "role": "user", "name": None}])
    assert type(QWEN.render([{"role": "user", "content": Word("hi")}])) is str


def test_any_text_is_written() -> None:
    for text in ("", "\ud800", "\x00", "<|im_end|>", "{{ x }}", "a" * 100_000):
        assert text in QWEN.render([{"role": "user", "content": text}])
