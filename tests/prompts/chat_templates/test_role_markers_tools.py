"""Role-marker templates of models that call tools, and of tasks other than chat."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from agentkit.prompts import Message, ToolSpec
from agentkit.prompts.chat_templates import CHAT_TEMPLATES, ChatTemplateError
from tests.cases import for_cases

NAMES = [name for name in CHAT_TEMPLATES if CHAT_TEMPLATES.get(name).writes_tools]  # type: ignore[attr-defined]
SPEC = ToolSpec("météo", "Say the weather.", {"type": "object", "properties": {"city": {"type": "string"}}})
FUNCTION = {"name": SPEC.name, "description": SPEC.description, "parameters": SPEC.parameters}
CALLS = [
    {"id": "1", "type": "function", "function": {"name": "météo", "arguments": '{"city": "Kyōto"}'}},
    {"id": "2", "type": "function", "function": {"name": "météo", "arguments": {"city": "Lyon"}}},
]
TALK: list[dict[str, Any]] = [
    {"role": "user", "content": "weather?"},
    {"role": "assistant", "content": "a moment", "tool_calls": CALLS},
    {"role": "tool", "tool_call_id": "1", "content": "rain"},
    {"role": "tool", "tool_call_id": "2", "content": "sun"},
]


def template(name: str, **fields: Any) -> Any:
    return CHAT_TEMPLATES.get(name)(**fields)


@for_cases("name", NAMES)
def test_tools_calls_and_results_are_written(name: str) -> None:
    before = copy.deepcopy(TALK)
    text = template(name).render(TALK, tools=[SPEC])
    assert before == TALK
    assert template(name).render(TALK, tools=[SPEC]) == text
    for said in ("Say the weather.", "a moment", '{"city": "Kyōto"}', '{"city": "Lyon"}', "rain", "sun"):
        assert said in text
    assert text.index("Say the weather.") < text.index("weather?") < text.index("Kyōto") < text.rindex("rain")


@for_cases("name", NAMES)
def test_a_tool_has_the_same_text_as_spec_function_or_wire_form(name: str) -> None:
    forms: list[Any] = [SPEC, FUNCTION, {"type": "function", "function": FUNCTION}]
    assert len({template(name).render(TALK, tools=[form]) for form in forms}) == 1


@for_cases("name", NAMES)
def test_an_empty_list_of_tools_is_equivalent_to_no_tools(name: str) -> None:
    assert template(name).render(TALK, tools=[]) == template(name).render(TALK)


@for_cases("name", NAMES)
def test_tools_join_the_system_message_of_the_conversation(name: str) -> None:
    text = template(name).render([{"role": "system", "content": "be brief"}, *TALK], tools=[SPEC])
    assert text.index("be brief") < text.index("weather?")
    default = template(name).meta_instruction
    # The system message of gpt-oss describes the format: instructions have a separate message.
    assert not default or (default in text) == (name == "gpt-oss")


@for_cases("name", NAMES)
def test_a_template_without_a_default_system_message_writes_tools(name: str) -> None:
    text = template(name, meta_instruction=None).render(TALK, tools=[SPEC])
    assert "Say the weather." in text
    assert "None" not in text


@for_cases("name", NAMES)
def test_tools_are_written_when_a_sequence_continues(name: str) -> None:
    assert "Say the weather." in template(name).render(TALK, tools=[SPEC], sequence_start=False)


@for_cases("name", NAMES)
def test_arguments_that_are_not_json_are_written_unchanged(name: str) -> None:
    for arguments in ('{"city": ', "NaN", '{"x": Infinity}'):
        calls = [{"id": "1", "function": {"name": "météo", "arguments": arguments}}]
        text = template(name).render([{"role": "user", "content": "?"}, {"role": "assistant", "tool_calls": calls}])
        assert json.dumps(arguments, ensure_ascii=False) in text


@for_cases("name", NAMES)
def test_a_call_without_arguments_has_none(name: str) -> None:
    for function in ({"name": "now"}, {"name": "now", "arguments": " "}, {"name": "now", "arguments": None}):
        messages = [{"role": "user", "content": "?"}, {"role": "assistant", "tool_calls": [{"function": function}]}]
        assert "{}" in template(name).render(messages)


LOOKUP = {
    "name": "find",
    "description": "Finds places\nby name.",
    "parameters": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "Start of the name"},
            "kind": {"enum": ["park", "shop"], "default": "park"},
            "limit": {"type": "integer", "default": 3},
            "area": {
                "type": "object",
                "properties": {"size": {"type": ["number", "null"]}, "of-town": {"type": "boolean"}},
                "required": ["size"],
            },
            "inner": {"type": "array", "items": {"anyOf": [{"$ref": "#"}, {"type": "string"}]}},
            "parts": {"type": "array", "items": {"$ref": "#/$defs/Part"}},
            "label": {"const": "x"},
            "other": {},
        },
        "required": ["name"],
        "$defs": {"Part": {"type": "object", "properties": {"part": {"$ref": "#/$defs/Part"}}}},
    },
}


def test_gpt_oss_writes_tools_in_the_developer_message_and_calls_as_messages_to_functions() -> None:
    talk = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": "Hello.", "reasoning_content": "A greeting."},
        {"role": "user", "content": "A park?"},
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "Call find.",
            "tool_calls": [
                {"id": "1", "function": {"name": "find", "arguments": '{"name": "A"}'}},
                {"id": "2", "function": {"name": "now", "arguments": ""}},
            ],
        },
        {"role": "tool", "tool_call_id": "2", "content": "noon"},
        {"role": "tool", "tool_call_id": "1", "name": "find", "content": '["Ada Park"]'},
        {"role": "assistant", "tool_calls": [{"id": "3", "function": {"name": "now", "arguments": "{}"}}]},
        {"role": "tool", "content": "noon"},
    ]
    assert template("gpt-oss", meta_instruction="You are Ada.").render(talk, tools=[{"name": "now"}, LOOKUP]) == (
        "<|start|>system<|message|>You are Ada.\nCalls to these tools must go to the commentary channel: 'functions'."
        "<|end|><|start|>developer<|message|># Instructions\n\nBe brief.\n\n# Tools\n\n## functions\n\n"
        "namespace functions {\n\ntype now = () => any;\n\n// Finds places\n// by name.\ntype find = (_: {\n"
        "// Start of the name\nname: string,\n"
        'kind?: "park" | "shop", // default: park\n'
        "limit?: number, // default: 3\n"
        'area?: {\n    size: number | null,\n    "of-town"?: boolean,\n    },\n'
        "inner?: (any | string)[],\n"
        "parts?: {\n    part?: any,\n    }[],\n"
        'label?: "x",\nother?: any,\n'
        "}) => any;\n\n} // namespace functions<|end|>"
        "<|start|>user<|message|>Hi.<|end|><|start|>assistant<|channel|>final<|message|>Hello.<|end|>"
        "<|start|>user<|message|>A park?<|end|>"
        "<|start|>assistant<|channel|>analysis<|message|>Call find.<|end|>"
        "<|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
        '<|start|>assistant to=functions.find<|channel|>commentary <|constrain|>json<|message|>{"name": "A"}<|call|>'
        "<|start|>assistant to=functions.now<|channel|>commentary <|constrain|>json<|message|>{}<|call|>"
        "<|start|>functions.now to=assistant<|channel|>commentary<|message|>noon<|end|>"
        '<|start|>functions.find to=assistant<|channel|>commentary<|message|>["Ada Park"]<|end|>'
        "<|start|>assistant to=functions.now<|channel|>commentary <|constrain|>json<|message|>{}<|call|>"
        "<|start|>functions.now to=assistant<|channel|>commentary<|message|>noon<|end|><|start|>assistant"
    )
    with pytest.raises(ChatTemplateError) as caught:
        template("gpt-oss").render([talk[1], talk[5]])
    assert [place for place, _ in caught.value.problems] == ["messages[1]"]


def test_qwen_lists_tools_in_the_system_message_and_results_in_one_user_message() -> None:
    assert template("qwen2d5", meta_instruction="m").render(TALK, tools=[{"name": "now"}]).split("\n\n")[-1] == (
        "For each function call, return a json object with function name and arguments within "
        "<tool_call></tool_call> XML tags:\n<tool_call>\n"
        '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\nweather?<|im_end|>\n"
        '<|im_start|>assistant\na moment\n<tool_call>\n{"name": "météo", "arguments": {"city": "Kyōto"}}\n</tool_call>'
        '\n<tool_call>\n{"name": "météo", "arguments": {"city": "Lyon"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\nrain\n</tool_response>\n<tool_response>\nsun\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_qwen_writes_a_call_without_text_on_the_first_line() -> None:
    messages = [TALK[0], {"role": "assistant", "content": None, "tool_calls": CALLS[:1]}, TALK[2], TALK[0]]
    text = template("qwen2d5").render(messages)
    assert "<|im_start|>assistant\n<tool_call>\n" in text
    assert "</tool_response><|im_end|>\n<|im_start|>user\nweather?" in text


def test_qwen_opens_a_new_reply_after_the_assistant() -> None:
    messages = [TALK[0], {"role": "assistant", "content": "rain"}]
    assert template("qwen2d5").render(messages).endswith("assistant\nrain<|im_end|>\n<|im_start|>assistant\n")
    assert template("qwen2d5").render(messages, add_generation_prompt=False).endswith("assistant\nrain<|im_end|>\n")


def test_qwen_continues_without_its_system_message_as_lmdeploy() -> None:
    messages = [{"role": "system", "content": "be brief"}, TALK[0]]
    text = template("qwen2d5").messages2prompt(messages, sequence_start=False)
    assert text == "<|im_start|>user\nweather?<|im_end|>\n<|im_start|>assistant\n"


def test_llama_writes_calls_in_the_form_of_its_system_message() -> None:
    text = template("llama3_1").render(TALK, tools=[SPEC])
    assert "Use the function 'météo' to: Say the weather.\n" in text
    assert (
        'a moment<function=météo>{"city": "Kyōto"}</function><function=météo>{"city": "Lyon"}</function><|eom_id|>'
        "<|start_header_id|>ipython<|end_header_id|>\n\nrain<|eot_id|>"
    ) in text
    assert "Kyōto" not in template("llama3_1").messages2prompt(TALK)  # as LMDeploy writes it


def test_llama_ends_a_call_in_text_with_the_token_of_calls() -> None:
    messages = [TALK[0], {"role": "assistant", "content": "<|python_tag|>1 + 1"}, {"role": "ipython", "content": "2"}]
    text = template("llama3_1").render(messages)
    assert "<|python_tag|>1 + 1<|eom_id|><|start_header_id|>ipython<|end_header_id|>\n\n2<|eot_id|>" in text
    assert template("llama3_1").render(messages[:2]).endswith("<|python_tag|>1 + 1")


def test_llama_writes_its_knowledge_date_only_in_its_default_system_message() -> None:
    llama = template("llama3_1")
    assert "Cutting Knowledge Date" in llama.render(TALK[:1])
    assert "Cutting Knowledge Date" not in llama.render([{"role": "system", "content": "be brief"}, *TALK])


def test_internlm_writes_tools_after_the_system_message_with_their_plugin() -> None:
    messages = [
        {"role": "system", "content": "be brief"},
        TALK[0],
        {"role": "environment", "name": "interpreter", "content": "3"},
        {"role": "user", "name": "bob", "content": "ok"},
    ]
    assert template("internlm2").render(messages, tools=[{"name": "now"}]) == (
        "<|im_start|>system\nbe brief<|im_end|>\n"
        '<|im_start|>system name=<|plugin|>\n[{"name": "now"}]<|im_end|>\n'
        "<|im_start|>user\nweather?<|im_end|>\n"
        "<|im_start|>environment name=<|interpreter|>\n3<|im_end|>\n"
        "<|im_start|>user\nok<|im_end|>\n<|im_start|>assistant\n"
    )


def test_intern_s1_shows_the_reasoning_after_the_last_user_message() -> None:
    messages = [
        TALK[0],
        {"role": "assistant", "content": "rain", "reasoning_content": "old thoughts"},
        TALK[0],
        {"role": "assistant", "content": "a moment", "reasoning_content": "new thoughts", "tool_calls": CALLS[:1]},
        TALK[2],
    ]
    text = template("interns1").render(messages)
    assert "old thoughts" not in text
    assert "<think>\nnew thoughts\n</think>\na moment<|action_start|><|plugin|>\n" in text
    assert "old thoughts" not in template("interns1").render(messages[1:2])


def test_intern_s1_requests_no_reasoning_if_thinking_is_disabled() -> None:
    text = template("interns1").render(TALK[:1], tools=[{"name": "now"}], enable_thinking=False)
    assert text.startswith("<|im_start|>system name=<|plugin|>\nYour response should consist")
    assert template("interns1").render(TALK[:1], enable_thinking=False).startswith("<|im_start|>user\n")


def test_infilling_writes_the_text_around_the_gap() -> None:
    llama = template("codellama", capability="infilling")
    assert llama.get_prompt("a<FILL>b") == "<PRE> a <SUF>b <MID>"
    assert llama.stop_words == ("<EOT>",)
    first = template("codellama", capability="infilling", suffix_first=True, stop_words=["x"])
    assert first.get_prompt("a<FILL>b") == "<PRE> <SUF>b <MID> a"
    assert first.stop_words == ["x"]
    assert {"<PRE>", "<MID>", "<EOT>"} <= set(llama.control_tokens)


@for_cases("prompt", ["no gap", "<FILL> and <FILL>"])
def test_infilling_needs_one_gap(prompt: str) -> None:
    with pytest.raises(ChatTemplateError) as caught:
        template("codellama", capability="infilling").get_prompt(prompt)
    assert caught.value.name == "<FILL>"


def test_sampling_depends_on_the_task_unless_it_is_set() -> None:
    assert (template("codellama").top_p, template("codellama").temperature) == (0.95, 0.2)
    fills = template("codellama", capability="infilling", top_p=0.5)
    assert (fills.top_p, fills.temperature) == (0.5, 0.0)
    assert template("codellama", capability="python").get_prompt("def f():") == "def f():"
    assert template("codellama").get_prompt("hi") == "[INST] <<SYS>>\n\n<</SYS>>\n\nhi [/INST] "
    with pytest.raises(ChatTemplateError) as caught:
        template("codellama", capability="search")
    assert [problem.place for problem in caught.value.problems] == ["capability"]


def test_a_typed_conversation_with_a_named_tool_message_is_read() -> None:
    messages = [Message("user", "?", name="bob"), Message("tool", "rain", tool_call_id="1", name="plugin")]
    assert "<|im_start|>environment name=<|plugin|>\nrain" in template("internlm2").render(messages)


def test_lmdeploy_writes_a_line_for_empty_content_but_not_for_missing_content() -> None:
    qwen = template("qwen2d5")
    call = CALLS[0]["function"]["name"]
    said = {
        content: [TALK[0], {"role": "assistant", "content": content, "tool_calls": CALLS[:1]}] for content in ("", None)
    }
    assert f'assistant\n\n<tool_call>\n{{"name": "{call}"' in qwen.messages2prompt(said[""])
    assert f'assistant\n<tool_call>\n{{"name": "{call}"' in qwen.messages2prompt(said[None])
    assert qwen.render(said[""]) == qwen.render(said[None]) == qwen.messages2prompt(said[None])


def test_qwen_ends_tool_results_with_the_end_of_the_user() -> None:
    text = template("qwen2d5", eoh="</u>").render([TALK[0], {"role": "tool", "content": "rain"}])
    assert "rain\n</tool_response></u><|im_start|>assistant" in text


def test_lmdeploy_repeats_tools_in_each_system_message_and_render_writes_them_once() -> None:
    messages = [TALK[0], {"role": "system", "content": "be brief"}, TALK[0]]
    llama, tools = template("llama3_1"), [{"name": "now", "description": "the time"}]
    assert llama.messages2prompt(messages, tools=tools).count("Use the function 'now' to: the time") == 2
    assert llama.messages2prompt(messages, sequence_start=False, tools=tools).count("Use the function 'now'") == 1
    assert llama.render(messages, tools=tools).count("Use the function 'now'") == 1
    assert llama.render(messages, tools=tools, sequence_start=False).count("Use the function 'now'") == 1


def test_intern_s1_writes_the_result_of_a_named_tool_as_plugin() -> None:
    result = {"role": "tool", "name": "get_weather", "content": "rain"}
    assert "<|im_start|>environment name=<|plugin|>\nrain" in template("interns1").messages2prompt([TALK[0], result])
    assert "<|im_start|>environment\nrain" in template("internlm2").messages2prompt([TALK[0], result])
