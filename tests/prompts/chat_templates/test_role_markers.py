"""Role-marker chat templates: texts of conversations, for each built-in model."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.prompts import Image, Message, Text, ToolCall, ToolSpec
from agentkit.prompts.chat_templates import CHAT_TEMPLATES, ChatTemplateError, RoleMarkerTemplate
from tests.cases import for_cases

MODELS = tuple(CHAT_TEMPLATES)
WEATHER = {"name": "weather", "description": "Say the weather.", "parameters": {"type": "object", "properties": {}}}
TALK = [
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "two"},
    {"role": "user", "content": "three"},
]


def template(name: str, **fields: Any) -> Any:
    return CHAT_TEMPLATES.get(name)(**fields)


class Tags(RoleMarkerTemplate):
    """Readable markers for the output of failing tests."""

    system = "<S>"
    meta_instruction = "be kind"
    eosys = "</S>"
    user = "<U>"
    eoh = "</U>"
    assistant = "<A>"
    eoa = "</A>"
    separator = "|"


def test_sixty_models_and_the_five_of_the_document_are_built_in() -> None:
    assert len(MODELS) == 65
    assert all(name in repr(CHAT_TEMPLATES) for name in MODELS)


def test_each_message_is_between_the_markers_of_its_role() -> None:
    assert Tags().render(TALK) == "<S>be kind</S><U>one</U><A>two</A>|<U>three</U><A>"


def test_a_system_message_replaces_the_default_system_message() -> None:
    messages = [{"role": "system", "content": "be brief"}, *TALK]
    assert Tags().render(messages) == "<S>be brief</S><U>one</U><A>two</A>|<U>three</U><A>"


def test_messages_without_a_marker_between_them_are_on_separate_lines() -> None:
    messages = [{"role": "system", "content": "be brief"}, *TALK]
    assert RoleMarkerTemplate(system="<S>").render(messages[:2]) == "<S>be brief\none"
    made = RoleMarkerTemplate(eosys="</S>", assistant="<A>").render(messages)
    assert made == "be brief</S>one<A>two\nthree<A>"


def test_no_default_system_message_differs_from_an_empty_message() -> None:
    assert Tags(meta_instruction=None).render(TALK[:1]) == "<U>one</U><A>"
    assert Tags(meta_instruction="").render(TALK[:1]) == "<S></S><U>one</U><A>"


def test_without_a_generation_prompt_the_text_ends_at_the_last_message() -> None:
    assert Tags().render(TALK, add_generation_prompt=False) == "<S>be kind</S><U>one</U><A>two</A>|<U>three</U>"
    assert Tags().render(TALK[:2], add_generation_prompt=False) == "<S>be kind</S><U>one</U><A>two</A>"


def test_a_last_message_of_the_assistant_stays_open() -> None:
    assert Tags().render(TALK[:2]) == "<S>be kind</S><U>one</U><A>two"


def test_a_reply_stays_open_for_a_model_without_an_end_of_replies() -> None:
    assert template("baichuan2").render(TALK[:2]) == "<reserved_106>one<reserved_107>two"


def test_a_prompt_that_continues_a_sequence_starts_with_the_separator() -> None:
    assert Tags().get_prompt("hi") == "<S>be kind</S><U>hi</U><A>"
    assert Tags().get_prompt("hi", sequence_start=False) == "|<U>hi</U><A>"
    assert Tags(meta_instruction=None).get_prompt("hi") == "<U>hi</U><A>"
    assert Tags().messages2prompt("hi", sequence_start=False) == "|<U>hi</U><A>"


@for_cases("name", MODELS)
def test_messages_that_continue_a_sequence_have_no_default_system_message(name: str) -> None:
    made = template(name, meta_instruction="be kind")
    text = made.render(TALK, sequence_start=False, add_generation_prompt=False)
    assert "be kind" not in text
    assert made.render(TALK, add_generation_prompt=False).endswith(text.removeprefix(made.bos))
    assert "brief" in made.render([{"role": "system", "content": "be brief"}, *TALK], sequence_start=False)


def test_a_completion_model_gets_the_prompt_unchanged() -> None:
    assert Tags(capability="completion").get_prompt("hi") == "hi"
    assert template("llama3", capability="completion").get_prompt("hi") == "<|begin_of_text|>hi"
    assert template("llama3", capability="completion").get_prompt("hi", sequence_start=False) == "hi"


def test_a_base_model_gets_a_line_for_each_text_of_a_conversation() -> None:
    assert template("base").render(TALK) == "one\ntwo\nthree"
    assert template("base").get_prompt("one") == "one"


def test_a_reply_can_open_without_the_space_of_its_marker() -> None:
    vicuna = template("vicuna", meta_instruction=None)
    assert vicuna.render(TALK[:1]) == "USER: one ASSISTANT:"
    assert vicuna.render(TALK) == "USER: one ASSISTANT: two</s>USER: three ASSISTANT:"
    assert vicuna.get_prompt("one") == "USER: one ASSISTANT:"
    assert template("vicuna", capability="completion").get_prompt("one") == "one"  # the text of the user is complete


@for_cases("name", ["vicuna", "deepseek", "deepseek-vl2", "internvl-zh"])
def test_an_open_reply_keeps_its_last_character(name: str) -> None:
    assert template(name).render(TALK[:2]).endswith("two")


def test_the_prompt_of_a_reasoning_model_ends_with_the_start_of_its_thoughts() -> None:
    r1 = template("deepseek-r1")
    assert r1.render(TALK[:1]).endswith("<｜Assistant｜><think>\n")
    assert r1.render(TALK[:1], add_generation_prompt=False).endswith("<｜User｜>one")
    assert r1.render(TALK[:2]).endswith("<｜Assistant｜>two")  # its thoughts are complete


def test_the_same_keyword_disables_thinking_for_all_models() -> None:
    assert template("qwen3").render(TALK, enable_thinking=False).endswith("assistant\n<think>\n\n</think>\n\n")
    assert template("qwen3").render(TALK).endswith("assistant\n")
    assert template("interns1").render(TALK).endswith("assistant\n<think>")
    assert template("interns1").render(TALK, enable_thinking=False).endswith("assistant\n")
    assert template("qwen").render(TALK, enable_thinking=False) == template("qwen").render(TALK)


def test_messages_and_mappings_have_the_same_text() -> None:
    typed = [Message(message["role"], message["content"]) for message in TALK]  # type: ignore[arg-type]
    for name in MODELS:
        assert template(name).render(typed) == template(name).render(TALK)


def test_parts_become_text_and_media_their_alt_text() -> None:
    mapping = {
        "role": "user",
        "content": [
            {"type": "text", "text": "see "},
            {"type": "image_url", "image_url": {"url": "https://example.org/a/cat.png"}},
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
            " and ",
            {"text": "say"},
        ],
    }
    assert (
        Tags(meta_instruction=None).render([mapping]) == "<U>see [image: cat.png][audio: 7b79be5e9b37] and say</U><A>"
    )
    typed = Message("user", (Text("see "), Image("https://example.org/a/cat.png")))
    assert Tags(meta_instruction=None).render([typed]) == "<U>see [image: cat.png]</U><A>"
    mixed = {"role": "user", "content": [Text("see "), Image("https://example.org/a/cat.png")]}
    assert Tags(meta_instruction=None).render([mixed]) == "<U>see [image: cat.png]</U><A>"


def test_media_without_a_name_still_have_an_alt_text() -> None:
    for part in (
        {"type": "video"},
        {"type": "image_url", "image_url": {"url": "http://["}},
        {"type": "file", "file": 3},
    ):
        kind = part["type"].removesuffix("_url")  # type: ignore[attr-defined]
        assert Tags(meta_instruction=None).render([{"role": "user", "content": [part]}]) == f"<U>[{kind}]</U><A>"


def test_adjacent_messages_of_one_role_are_both_written() -> None:
    messages = [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}]
    for name in MODELS:
        text = template(name).render(messages)
        assert text.index("one") < text.index("two")
        assert "onetwo" not in text, name


def test_a_conversation_can_start_with_the_assistant() -> None:
    messages = [{"role": "assistant", "content": "welcome"}, {"role": "user", "content": "hi"}]
    assert Tags().render(messages) == "<S>be kind</S><A>welcome</A>|<U>hi</U><A>"
    assert template("chatglm").render(messages) == "答：welcome[Round 1]\n\n问：hi\n\n答："
    for name in MODELS:
        text = template(name).render(messages)
        assert text.rindex("welcome") < text.rindex("hi")


def test_the_system_message_is_kept_for_a_model_without_a_system_role() -> None:
    messages = [{"role": "system", "content": "be brief"}, *TALK]
    assert template("chatglm").render(messages).startswith("be brief\n\n[Round 1]\n\n问：one")
    # Users of LMDeploy compare with its text, which omits the system message.
    assert "brief" not in template("chatglm").messages2prompt(messages)


def test_rounds_are_numbered_within_each_conversation() -> None:
    chatglm = template("chatglm")
    assert chatglm.render(TALK) == "[Round 1]\n\n问：one\n\n答：two[Round 2]\n\n问：three\n\n答："
    assert chatglm.render(TALK, add_generation_prompt=False).endswith("问：three\n\n")
    assert chatglm.get_prompt("hi") == chatglm.get_prompt("hi") == "[Round 1]\n\n问：hi\n\n答："


def test_messages_without_markers_between_them_stay_separate() -> None:
    messages = [{"role": "system", "content": "sys"}, *TALK]
    assert template("puyu").render(messages) == "sys\none\ntwo\nthree"
    assert template("puyu", meta_instruction="sys").render(TALK[:1]) == "sys\none"
    assert template("puyu").messages2prompt(messages) == "sysonetwothree"  # as LMDeploy writes it
    two = template("llama2", meta_instruction=None).render([TALK[0], TALK[2]])
    assert two == "one\nthree [/INST] "


@for_cases("name", MODELS)
def test_a_conversation_grows_by_its_new_messages(name: str) -> None:
    made = template(name)
    for end in range(1, len(TALK) + 1):
        text = made.render(TALK[:end], add_generation_prompt=False)
        assert made.render(TALK).startswith(text)


@for_cases("name", MODELS)
def test_overriding_a_field_changes_only_the_instance(name: str) -> None:
    assert template(name, session_len=7, stop_words=["X"]).session_len == 7
    assert template(name).session_len == CHAT_TEMPLATES.get(name)().session_len != 7
    assert "X" in template(name, stop_words=["X"]).control_tokens


@for_cases("name", MODELS)
def test_a_template_survives_copying_and_pickling(name: str) -> None:
    made = template(name)
    assert copy.deepcopy(made).render(TALK) == pickle.loads(pickle.dumps(made)).render(TALK) == made.render(TALK)


words = st.text(st.characters(codec="utf-8"), max_size=12)
turns = st.lists(
    st.tuples(st.sampled_from(["user", "assistant"]), words).map(lambda said: {"role": said[0], "content": said[1]}),
    min_size=1,
    max_size=6,
)


@given(st.sampled_from(MODELS), turns, st.none() | words, st.booleans())
def test_each_text_is_written_in_order_and_unchanged(
    name: str, said: list[dict[str, str]], system: str | None, opens: bool
) -> None:
    messages = said if system is None else [{"role": "system", "content": system}, *said]
    before = copy.deepcopy(messages)
    text = template(name).render(messages, add_generation_prompt=opens)
    assert messages == before
    at = 0
    for message in messages:
        at = text.index(message["content"], at) + len(message["content"])


@for_cases("name", MODELS)
def test_the_text_around_messages_consists_of_control_tokens(name: str) -> None:
    made = template(name, meta_instruction=None) if name != "chatglm" else template(name)
    text = made.render([{"role": "system", "content": ""}, *TALK])
    for token in made.control_tokens:
        text = text.replace(token, "")
    for bracket in "<>[|":
        assert bracket not in text, (name, text)


def test_markers_of_words_are_control_tokens_without_the_space_around_them() -> None:
    assert {"USER:", "ASSISTANT:", "</s>"} <= set(template("vicuna").control_tokens)
    assert "### Response:" in template("deepseek-coder").control_tokens
    assert Tags().control_tokens == ("<S>", "</S>", "<U>", "</U>", "<A>", "</A>", "|")


@for_cases("name", [name for name in MODELS if not CHAT_TEMPLATES.get(name).writes_tools])  # type: ignore[attr-defined]
def test_a_template_without_a_place_for_tools_refuses_them(name: str) -> None:
    with pytest.raises(ChatTemplateError) as caught:
        template(name).render(TALK, tools=[WEATHER])
    assert [place for place, _ in caught.value.problems] == ["tools"]


def test_the_error_names_all_unsupported_parts() -> None:
    calls = [{"id": "1", "function": {"name": "weather", "arguments": "{}"}}]
    messages = [
        *TALK,
        {"role": "assistant", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "1", "content": "rain"},
    ]
    with pytest.raises(ChatTemplateError) as caught:
        template("qwen").render(messages, tools=[ToolSpec("weather")])
    assert [place for place, _ in caught.value.problems] == ["tools", "messages[3].tool_calls", "messages[4]"]


def test_a_template_with_a_marker_for_results_writes_results() -> None:
    messages = [*TALK, {"role": "tool", "content": "rain"}]
    assert Tags(tool="<T>", eotool="</T>").render(messages).endswith("<U>three</U><T>rain</T><A>")


def test_messages2prompt_writes_the_text_of_lmdeploy() -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}]
    assert Tags().messages2prompt(parts) == "<S>be kind</S><U>one</U><A>"  # the first text only
    assert Tags().messages2prompt([{"role": "user", "content": [{"type": "image"}]}]).endswith("<U>[image]</U><A>")
    assert Tags().messages2prompt(TALK, tools=[WEATHER]) == Tags().messages2prompt(TALK)
    assert Tags().messages2prompt([*TALK, {"role": "tool", "content": "x"}]).endswith("</U>x<A>")
    assert Tags().messages2prompt([]) == "<A>"
    assert Tags().messages2prompt(TALK, sequence_start=False) == "<U>one</U><A>two</A>|<U>three</U><A>"
    assert template("deepseek-r1").messages2prompt(TALK[:2]).endswith("two<think>\n")
    assert template("glm4").messages2prompt(TALK[:1], sequence_start=False).startswith("[gMASK]<sop><|user|>")


def test_a_subclass_overrides_only_its_differences() -> None:
    class Shouting(CHAT_TEMPLATES.get("qwen")):  # type: ignore[misc]
        meta_instruction = "SHOUT"

    assert Shouting().render(TALK[:1]).startswith("<|im_start|>system\nSHOUT<|im_end|>")

    class Reversed(Tags):
        def messages2prompt(self, messages: Any, sequence_start: bool = True, **kwargs: Any) -> str:
            return "".join(message["content"] for message in reversed(messages))

    assert Reversed().render(TALK) == "threetwoone"


def test_calls_of_a_typed_message_are_written() -> None:
    messages = [
        Message("user", "weather?"),
        Message("assistant", "", tool_calls=(ToolCall("1", "weather", '{"city": "Kyoto"}'),)),
        Message("tool", "rain", tool_call_id="1"),
    ]
    assert template("internlm2", meta_instruction=None).render(messages) == (
        "<|im_start|>user\nweather?<|im_end|>\n<|im_start|>assistant\n"
        '<|action_start|><|plugin|>\n{"name": "weather", "parameters": {"city": "Kyoto"}}<|action_end|><|im_end|>\n'
        "<|im_start|>environment\nrain<|im_end|>\n<|im_start|>assistant\n"
    )
