"""Jinja chat templates: files, arguments, and errors."""

# ruff: noqa: E501 (a template is one line)

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from agentkit.prompts import Document, Message, ToolCall, ToolSpec
from agentkit.prompts.chat_templates import ChatTemplateConfig, ChatTemplateError, JinjaChatTemplate
from tests.cases import for_cases
from tests.raising import raises

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
HI = [{"role": "user", "content": "Hi"}]


def show(source: str, messages: Any = HI, tools: Any = None, **kwargs: Any) -> str:
    return JinjaChatTemplate(source, normalise=False).render(messages, tools, **kwargs)


def test_the_template_writes_a_conversation_up_to_the_start_of_the_reply() -> None:
    template = JinjaChatTemplate(CHATML)
    assert template.render(HI) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert template.render(HI, add_generation_prompt=False) == "<|im_start|>user\nHi<|im_end|>\n"


def test_messages_and_tools_of_agentkit_are_accepted() -> None:
    source = "{{ tools | tojson }}{% for m in messages %}[{{ m.role }}:{{ m.content }}{{ m.tool_calls | tojson }}]{% endfor %}"
    call = ToolCall("c1", "weather", '{"city": "Köln"}')
    text = show(source, [Message("assistant", "", (call,))], [ToolSpec("weather", "Tells.")])
    assert '"name": "weather", "description": "Tells."' in text
    assert '"arguments": "{\\"city\\": \\"Köln\\"}"' in text


def test_a_rendering_does_not_change_its_arguments() -> None:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "content": "done"},
    ]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    before = json.dumps([messages, tools])
    source = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}{% endfor %}{{ tools }}"
    assert "f" in JinjaChatTemplate(source).render(messages, tools)
    assert json.dumps([messages, tools]) == before


class Role(StrEnum):
    USER = "user"


def test_a_template_gets_only_plain_json_types() -> None:
    source = "{{ messages[0].role }} {{ messages[0].image }} {{ messages[0].size[0] + 1 }} {{ messages[0].flag }}"
    message = {"role": Role.USER, "content": "", "image": object(), "size": (1, 2.5), "flag": True}
    assert show(source, [message]) == "user <object> 2 True"


def test_reasoning_is_read_under_each_of_its_names() -> None:
    source = "{{ messages[0].reasoning_content }}|{{ messages[0].thinking }}"
    for name in ("reasoning", "thinking", "reasoning_content"):
        assert show(source, [{"role": "assistant", "content": "", name: "hm"}]) == "hm|hm"


def test_tojson_writes_no_escapes_and_has_the_options_of_transformers() -> None:
    assert show("{{ {'a': '<ü>'} | tojson }}") == '{"a": "<ü>"}'
    assert show("{{ {'b': 'ü', 'a': 1} | tojson(ensure_ascii=True, sort_keys=True) }}") == '{"a": 1, "b": "\\u00fc"}'
    assert show("{{ [1, 2] | tojson(indent=1) }}") == "[\n 1,\n 2\n]"
    assert show("{{ [1, 2] | tojson(separators=(',', ':')) }}") == "[1,2]"


def test_lines_of_blocks_leave_no_blank_line_and_break_and_continue_work() -> None:
    source = "  {% for i in range(9) %}\n  {% if i == 1 %}{% continue %}{% endif %}\n{{ i }}\n  {% if i == 3 %}{% break %}{% endif %}\n{% endfor %}\n"
    assert show(source) == "0\n2\n3\n"


def test_templates_read_only_the_date_that_is_passed() -> None:
    source = "{% if strftime_now is defined %}{{ strftime_now('%d %b %Y') }}{% else %}26 Jul 2024{% endif %}"
    assert JinjaChatTemplate(source, now=datetime(2031, 3, 2), normalise=False).render(HI) == "02 Mar 2031"
    assert show(source) == "26 Jul 2024"
    with pytest.raises(ChatTemplateError) as caught:
        show("{{ strftime_now('%Y') }}")
    assert caught.value.name == "strftime_now"


def test_other_variables_and_documents_are_passed_to_the_template() -> None:
    source = "{{ enable_thinking }} {{ documents[0].title }}{{ bos_token }}"
    assert show(source, enable_thinking=False, documents=[{"title": "T", "text": "x"}], bos_token="<s>") == "False T<s>"
    document = Document("x", title="T", source="a.md", metadata={"page": 3})
    assert show("{{ documents[0].source }} {{ documents[0].metadata.page }}", documents=[document]) == "a.md 3"


@for_cases(("content", "expected"), [("Once upon ", "<assistant> Once upon "), ("Once upon", "<assistant> Once upon")])
def test_the_last_message_can_stay_open(content: str, expected: str) -> None:
    source = "{% for m in messages %}<{{ m.role }}> {{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}!{% endif %}"
    assert show(source, [{"role": "assistant", "content": content}], continue_final_message=True) == expected


def test_an_open_message_ends_at_the_stripped_text() -> None:
    source = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</s>{% endfor %}"
    assert show(source, [{"role": "assistant", "content": " so "}], continue_final_message=True) == "<assistant>so"


def test_the_last_text_part_or_the_reasoning_can_stay_open() -> None:
    parts = "{% for p in messages[-1].content %}{{ p.text }}/{% endfor %}"
    message = {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    assert show(parts, [message], continue_final_message=True) == "a/b"
    thought = {"role": "assistant", "content": "x", "reasoning": "hm"}
    source = "<think>{{ messages[-1].reasoning_content }}</think>{{ messages[-1].content }}"
    assert show(source, [thought], continue_final_message="reasoning") == "<think>hm"


@for_cases(
    ("messages", "field", "name", "places"),
    [
        ([], True, None, ["messages"]),
        ([{"role": "assistant", "content": None}], True, "content", ["messages[0].content"]),
        ([{"role": "assistant", "content": [{"type": "image"}]}], True, "content", ["messages[0].content"]),
        ([{"role": "assistant", "content": "hidden"}], True, "content", []),
        ([{"role": "assistant", "content": "x"}], "reasoning", "reasoning", ["messages[0].reasoning"]),
    ],
)
def test_a_message_that_cannot_be_continued_is_refused(
    messages: Any, field: Any, name: str | None, places: list[str]
) -> None:
    with pytest.raises(ChatTemplateError) as caught:
        show("nothing", messages, continue_final_message=field)
    assert caught.value.name == name
    assert [place for place, _ in caught.value.problems] == places


def test_an_error_raised_by_a_template_has_its_text_file_and_line() -> None:
    template = JinjaChatTemplate("\n\n{{ raise_exception('Roles must alternate!') }}", file="m.jinja")
    with pytest.raises(ChatTemplateError) as caught:
        template.render(HI)
    error = caught.value
    assert (error.template, error.line, error.refusal) == ("m.jinja", 3, "Roles must alternate!")


@for_cases(
    ("source", "line", "name"),
    [
        ("{% for %}", 1, None),
        ("\n{{ messages | nosuch }}", 2, None),
        ("\n\n{{ eos_token + 'x' }}", 3, "eos_token"),
        ("{{ mode + 'x' }}", 1, "mode"),
        ("{{ messages[0].content + 1 }}", 1, None),
        ("{% include 'x' %}", 1, None),
    ],
)
def test_a_failing_template_raises_a_typed_error(source: str, line: int, name: str | None) -> None:
    with pytest.raises(ChatTemplateError) as caught:
        show(source)
    assert (caught.value.line, caught.value.name, caught.value.refusal) == (line, name, None)


@for_cases("messages", ["hi", {"role": "user"}, 3, None])
def test_invalid_messages_are_refused(messages: Any) -> None:
    with pytest.raises(ChatTemplateError) as caught:
        show(CHATML, messages)
    assert [place for place, _ in caught.value.problems] == ["messages"] or isinstance(messages, dict)


def test_the_error_names_all_invalid_messages_and_tools() -> None:
    with pytest.raises(ChatTemplateError) as caught:
        show(CHATML, ["a", HI[0], 7])
    assert [place for place, _ in caught.value.problems] == ["messages[0]", "messages[2]"]
    bad = [{"name": object()}, 3, {"parameters": [{1: b"x"}]}]
    with pytest.raises(ChatTemplateError) as caught:
        show(CHATML, HI, bad)
    places = [place for place, _ in caught.value.problems]
    assert places == ["tools[0].name", "tools[1]", "tools[2].parameters[0]", "tools[2].parameters[0].1"]


def test_cyclic_messages_and_tools_are_refused() -> None:
    cyclic: dict[str, Any] = {"role": "user", "content": "a"}
    cyclic["self"] = cyclic
    for messages, tools in (([cyclic], None), (HI, [{"name": "f", "parameters": cyclic}])):
        with pytest.raises(ChatTemplateError) as caught:
            show(CHATML, messages, tools)
        assert len(caught.value.problems) == 1


def test_the_template_decides_about_an_empty_conversation() -> None:
    assert JinjaChatTemplate(CHATML).render([]) == "<|im_start|>assistant\n"
    with pytest.raises(ChatTemplateError) as caught:
        JinjaChatTemplate("{{ messages[0].role }}").render([])
    assert caught.value.line == 1


def test_a_file_of_a_template_is_read(tmp_path: Path) -> None:
    (tmp_path / "m.jinja").write_text(CHATML, encoding="utf-8")
    template = JinjaChatTemplate.from_file(tmp_path / "m.jinja", eos_token="<|im_end|>")
    assert template.render(HI).startswith("<|im_start|>user")
    assert template.stop_words == ("<|im_end|>",)
    assert str(tmp_path / "m.jinja") == template.file


def config(folder: Path, **fields: Any) -> Path:
    (folder / "tokenizer_config.json").write_text(json.dumps(fields), encoding="utf-8")
    return folder / "tokenizer_config.json"


def test_a_tokenizer_configuration_contains_template_and_tokens(tmp_path: Path) -> None:
    source = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token }}"
    path = config(
        tmp_path,
        chat_template=source,
        bos_token="<s>",
        eos_token={"content": "</s>"},
        pad_token="<pad>",
        unk_token=None,
    )
    for given in (path, tmp_path):
        template = JinjaChatTemplate.from_file(given, lossy=True)
        assert template.render(HI) == "<s>Hi</s><pad>"
        assert template.stop_words == ("</s>",)
        assert template.control_tokens[:3] == ("<s>", "</s>", "<pad>")


def test_a_template_file_precedes_the_configuration(tmp_path: Path) -> None:
    path = config(tmp_path, chat_template="old", bos_token="<s>")
    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }}new{{ messages[0].content }}", encoding="utf-8")
    assert JinjaChatTemplate.from_file(path).render(HI) == "<s>newHi"
    assert JinjaChatTemplate.from_file(tmp_path / "chat_template.jinja").render(HI) == "<s>newHi"


def test_the_template_for_tools_is_used_if_tools_are_passed(tmp_path: Path) -> None:
    named = [
        {"name": "default", "template": "plain {{ messages[0].content }}"},
        {"name": "tool_use", "template": "{{ tools[0].function.name }} {{ messages[0].content }}"},
    ]
    path = config(tmp_path, chat_template=named)
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "rag.jinja").write_text("rag {{ messages[0].content }}", encoding="utf-8")
    template = JinjaChatTemplate.from_file(path)
    assert template.render(HI) == "plain Hi"
    assert template.render(HI, [ToolSpec("look")]) == "look Hi"
    assert JinjaChatTemplate.from_file(path, name="rag").render(HI) == "rag Hi"
    with pytest.raises(ChatTemplateError) as caught:
        JinjaChatTemplate.from_file(path, name="toool_use")
    assert (caught.value.template, caught.value.name) == (str(path), "toool_use")
    assert not [finding for finding in template.diagnose() if finding.code == "ignores_tools"]


@pytest.mark.parametrize(
    ("text", "name", "line"),
    [
        ("{", None, None),
        ("[]", None, None),
        ("{}", "chat_template", None),
        ('{"chat_template": 3}', "chat_template", None),
        ('{"chat_template": [{"name": "a"}]}', "chat_template", None),
        ('{"chat_template": {"default": "x", "b": 1}}', "chat_template", None),
        (
            '{"chat_template": [{"name": "a", "template": "x"}, {"name": "a", "template": "y"}]}',
            "chat_template",
            None,
        ),
        ('{"chat_template": "{% if %}"}', None, 1),
    ],
)
def test_a_configuration_without_a_template_is_refused(
    tmp_path: Path, text: str, name: str | None, line: int | None
) -> None:
    (tmp_path / "tokenizer_config.json").write_text(text, encoding="utf-8")
    with pytest.raises(ChatTemplateError) as caught:
        JinjaChatTemplate.from_file(tmp_path)
    error = caught.value
    assert (error.template, error.name, error.line) == (str(tmp_path / "tokenizer_config.json"), name, line)


def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.jinja").write_bytes(b"\xff\xfe")
    for name in ("none.jinja", "bad.jinja"):
        with pytest.raises(ChatTemplateError) as caught:
            JinjaChatTemplate.from_file(tmp_path / name)
        assert caught.value.template == str(tmp_path / name)
    (tmp_path / "weights").mkdir()
    with raises(ChatTemplateError, template=str(tmp_path / "weights"), name="chat_template"):
        JinjaChatTemplate.from_file(tmp_path / "weights")
    with pytest.raises(ChatTemplateError):
        JinjaChatTemplate(3)  # type: ignore[arg-type]


@for_cases(
    ("source", "expected"),
    [
        (CHATML, {"<|im_start|>", "<|im_end|>"}),
        ("{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% endfor %}", {"<|user|>", "<|assistant|>"}),
        ("{{ '[INST] <<SYS>>' + messages[0].content + '[/INST]</s>' }}", {"[INST]", "<<SYS>>", "[/INST]", "</s>"}),
        (
            "{% for m in messages %}{{ '\n\nHuman: ' if m.role == 'user' else '\n\nAssistant: ' }}{{ m.content }}{% endfor %}",
            {"Human:", "Assistant:"},
        ),
        (
            "{% for m in messages %}### {{ m.role | title }}:\n{{ m.content }}\n{% endfor %}",
            {"### User:", "### Assistant:"},
        ),
    ],
)
def test_the_markers_of_a_template_are_its_control_tokens(source: str, expected: set[str]) -> None:
    assert expected <= set(JinjaChatTemplate(source).control_tokens)


def test_the_error_names_a_misplaced_field_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "m.jinja").write_text("x", "utf-8")
    makers: list[Callable[..., object]] = [
        JinjaChatTemplate,
        ChatTemplateConfig,
        lambda *args, **fields: JinjaChatTemplate.from_file(tmp_path / "m.jinja", **fields),
    ]
    for make in makers:
        with pytest.raises(ChatTemplateError) as caught:
            make("x", session_len=8, tokenizer=None, stop_word=["x"])
        for name in ("session_len", "tokenizer", "stop_word"):
            assert repr(name) in str(caught.value)


def test_a_line_of_a_template_in_a_json_file_is_not_a_line_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer_config.json"
    file.write_text(json.dumps({"chat_template": "a\n{% if }"}, indent=2), "utf-8")
    with pytest.raises(ChatTemplateError) as caught:
        JinjaChatTemplate.from_file(tmp_path)
    assert (caught.value.template, caught.value.line) == (str(file), 2)
    assert f"{file}:2" not in str(caught.value)


def test_the_error_of_a_template_file_next_to_a_configuration_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ 1 }}"}), "utf-8")
    (tmp_path / "chat_template.jinja").write_text("a\n{% if }", "utf-8")
    with pytest.raises(ChatTemplateError) as caught:
        JinjaChatTemplate.from_file(tmp_path)
    assert (caught.value.template, caught.value.line) == (str(tmp_path / "chat_template.jinja"), 2)
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0]['content'] }}", "utf-8")
    assert JinjaChatTemplate.from_file(tmp_path).file == str(tmp_path / "chat_template.jinja")


@for_cases(
    ("fields", "name"),
    [
        ({"eos_token": 5}, "eos_token"),
        ({"bos_token": 5}, "bos_token"),
        ({"stop_words": "<e>"}, "stop_words"),
        ({"added_tokens": "<e>"}, "added_tokens"),
        ({"special_tokens": ["<e>"]}, "special_tokens"),
        ({"named": {"tool_use": 5}}, "named"),
    ],
)
def test_fields_of_invalid_types_are_refused(fields: dict[str, Any], name: str) -> None:
    with pytest.raises(ChatTemplateError) as caught:
        JinjaChatTemplate(CHATML, **fields)
    assert [problem.place for problem in caught.value.problems] == [name]
