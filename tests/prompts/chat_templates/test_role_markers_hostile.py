"""What role-marker templates do with what is no conversation: an error that names every fault, and no other effect."""

from __future__ import annotations

from typing import Any

import pytest

from agentkit.prompts.chat_templates import CHAT_TEMPLATES, ChatTemplateError

QWEN: Any = CHAT_TEMPLATES.get("qwen2d5")()
HI = {"role": "user", "content": "hi"}
CYCLE: list[Any] = []
CYCLE.append(CYCLE)
DEEP: list[Any] = []
for _ in range(10_000):
    DEEP = [DEEP]


class Fails(dict[str, Any]):
    """A message whose fields cannot be read."""

    def get(self, *_: Any) -> Any:
        raise ZeroDivisionError("mine")


@pytest.mark.parametrize("name", CHAT_TEMPLATES)
def test_an_empty_conversation_is_refused(name: str) -> None:
    with pytest.raises(ChatTemplateError, match=f"{name}: there are no messages"):
        CHAT_TEMPLATES.get(name)().render([])


@pytest.mark.parametrize("messages", ["hi", b"hi", HI, None, 7])
def test_what_is_no_list_of_messages_is_refused(messages: Any) -> None:
    with pytest.raises(ChatTemplateError, match="qwen2d5: expected a list of messages, got"):
        QWEN.render(messages)


def test_an_unknown_role_is_named_with_a_near_one() -> None:
    with pytest.raises(ChatTemplateError, match=r"messages\[1\]: unknown role 'assitant'; did you mean 'assistant'\?"):
        QWEN.render([HI, {"role": "assitant", "content": "x"}])
    with pytest.raises(ChatTemplateError, match="unknown role 'robot'"):
        QWEN.messages2prompt([{"role": "robot", "content": "x"}])


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ("hi", ": expected a Message or a mapping, got str"),
        ({}, ".role: missing"),
        ({"content": "x", "name": "y"}, ".role: missing"),
        ({"role": 7, "content": "x"}, ".role: expected text, got int"),
        ({"role": ["user"], "content": "x"}, ".role: expected text, got list"),
        ({"role": DEEP, "content": "x"}, ".role: expected text, got list"),
        ({"role": 10**5_000, "content": "x"}, ".role: expected text, got int"),
        (Fails(role="user", content="x"), ": cannot be read: ZeroDivisionError: mine"),
        ({"role": "user", "content": [Fails(type="text")]}, ": cannot be read: ZeroDivisionError: mine"),
        ({"role": "user"}, ".content: missing"),
        ({"role": "user", "content": 7}, ".content: expected text or a list of parts, got int"),
        ({"role": "user", "content": {"text": "x"}}, ".content: expected text or a list of parts, got dict"),
        ({"role": "user", "content": [7]}, r".content\[0\]: expected text or a part, got int"),
        ({"role": "user", "content": [{"type": "smell"}]}, r".content\[0\]: unknown type 'smell'"),
        ({"role": "user", "content": [{"type": ["text"]}]}, r".content\[0\].type: expected text, got list"),
        ({"role": "user", "content": "x", "name": 7}, ".name: expected text, got int"),
        ({"role": "assistant", "content": "x", "tool_calls": "y"}, ".tool_calls: expected a list, got str"),
        ({"role": "assistant", "tool_calls": [7]}, r".tool_calls\[0\]: expected a tool call, got int"),
        ({"role": "assistant", "tool_calls": [{"id": "1"}]}, r".tool_calls\[0\].name: missing"),
        ({"role": "assistant", "tool_calls": [{"function": "f"}]}, r".tool_calls\[0\].function: expected a mapping"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {1j}}}]},
            r".tool_calls\[0\].function.arguments: set is not JSON",
        ),
    ],
)
def test_a_message_that_cannot_be_read_is_named(message: Any, why: str) -> None:
    with pytest.raises(ChatTemplateError, match=rf"qwen2d5: messages\[1\]{why}"):
        QWEN.render([HI, message])


def test_all_faults_are_named_at_once() -> None:
    with pytest.raises(ChatTemplateError, match=r"messages\[0\].role: missing; .*messages\[2\]: unknown role 'x'"):
        QWEN.render([{}, HI, {"role": "x", "content": ""}])


@pytest.mark.parametrize(
    ("tools", "why"),
    [
        ("weather", "tools: expected a list of tools, got str"),
        ({"name": "f"}, "tools: expected a list of tools, got dict"),
        (7, "tools: expected a list of tools, got int"),
        ([7], r"tools\[0\]: expected a ToolSpec or a mapping with a name, got int"),
        ([{"function": "f"}], r"tools\[0\]: expected a ToolSpec or a mapping with a name, got str"),
        ([{"description": "x"}], r"tools\[0\]: has no name"),
        (
            [{"name": "f"}, {"name": "g", "parameters": {"x": object()}}],
            r"tools\[1\].parameters.x: object is not",
        ),
        ([{"name": "f", "parameters": {"x": float("nan")}}], r"tools\[0\]\.parameters\.x: nan is not JSON"),
        ([{"name": "f", "parameters": CYCLE}], r"tools\[0\]: is cyclic or nests too deeply"),
    ],
)
def test_a_tool_that_cannot_be_written_is_named(tools: Any, why: str) -> None:
    with pytest.raises(ChatTemplateError, match=f"qwen2d5: {why}"):
        QWEN.render([HI], tools=tools)


@pytest.mark.parametrize("name", ["base", "qwen", "chatglm", "codellama"])
def test_a_prompt_that_is_no_text_is_refused(name: str) -> None:
    made: Any = CHAT_TEMPLATES.get(name)()
    with pytest.raises(ChatTemplateError, match=f"{name}: expected a prompt as text, got list; messages go to"):
        made.get_prompt([HI])


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (
            {"meta_instructions": "x"},
            r"unknown field 'meta_instructions' \(did you mean 'meta_instruction'\?\); there are .* user",
        ),
        ({"writes_tools": True}, "unknown field 'writes_tools'"),
        ({"user": 7}, "user: expected str, got 7"),
        ({"user": None}, "user: expected str, got None"),
        ({"stop_words": "</s>"}, "stop_words: expected Sequence"),
        ({"stop_words": [7]}, "stop_words: expected Sequence"),
        ({"session_len": "2k"}, "session_len: expected int"),
        ({"session_len": True}, "session_len: expected int"),
        ({"top_p": "high"}, "top_p: expected float"),
        ({"bos_always": "yes"}, "bos_always: expected bool"),
        ({"trim_opening": "sometimes"}, "trim_opening: expected Literal"),
        ({"eoh": 1, "eoa": 2}, "eoh: expected str, got 1; eoa: expected str, got 2"),
    ],
)
def test_a_field_that_is_none_or_of_another_type_is_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ChatTemplateError, match=f"qwen2d5: {why}"):
        CHAT_TEMPLATES.get("qwen2d5")(**fields)


def test_fields_take_every_value_of_their_type() -> None:
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


def test_text_of_any_kind_passes_through() -> None:
    for text in ("", "\ud800", "\x00", "<|im_end|>", "{{ x }}", "a" * 100_000):
        assert text in QWEN.render([{"role": "user", "content": text}])
