"""Prompters: slots, history, tools, tokens, and errors."""

from __future__ import annotations

import copy
import logging
import pickle
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.prompts import (
    Conversation,
    KwargsError,
    Message,
    MessageError,
    PromptContext,
    PromptError,
    ToolCall,
    ToolSpec,
    Trusted,
    UserInput,
    compose,
)
from agentkit.prompts.chat_templates import ChatTemplateError
from agentkit.prompts.prompters import AlpacaPrompter, ChatPrompter, EmptyPrompter, Prompter, PrompterError

IM = {
    "sos": "<|im_start|>system\n",
    "eos": "<|im_end|>",
    "soh": "<|im_start|>user\n",
    "eoh": "<|im_end|>\n",
    "soa": "<|im_start|>assistant\n",
    "eoa": "<|im_end|>\n",
    "soe": "<|im_start|>tool\n",
    "eoe": "<|im_end|>\n",
}
ADD: dict[str, Any] = {"type": "function", "function": {"name": "add", "description": "Add.", "parameters": {}}}
WORDS = st.text(st.sampled_from("ab {}<>|\n\r问é\\\"'%$"), max_size=20)
SLOT_NAMES = st.sampled_from(
    ["topic", "问题", "0", "_x", "class", "range", "dict", "extra", "tools", "now", "user_input", "slot_1", "x" * 300]
)


def fault(make: Callable[[], object], kind: type[PromptError] = PrompterError) -> str | None:
    """Return the name in the error that `make` raises."""
    with pytest.raises(kind) as caught:
        make()
    assert type(caught.value) is kind
    return caught.value.name or ", ".join([problem.place for problem in caught.value.problems])


def system_of(prompter: Prompter, *args: Any, **kwargs: Any) -> str:
    return prompter.generate_prompt(*args, **kwargs, return_dict=True)["messages"][0]["content"]


def user_of(prompter: Prompter, *args: Any, **kwargs: Any) -> str:
    return prompter.generate_prompt(*args, **kwargs, return_dict=True)["messages"][-1]["content"]


# Slots


@given(st.dictionaries(SLOT_NAMES, WORDS, min_size=2, max_size=5), st.data())
def test_values_are_inserted_literally_and_not_expanded(values: dict[str, str], data: st.DataObject) -> None:
    hostile = {
        name: value + data.draw(st.sampled_from(["", *(f"{{{other}}}" for other in values)]))
        for name, value in values.items()
    }
    prompter = ChatPrompter(" | ".join(f"{{{name}}}" for name in hostile)).for_model(system="")
    assert system_of(prompter, hostile) == "\n" + " | ".join(hostile.values()) + "\n\n"
    shuffled = dict(data.draw(st.permutations(list(hostile.items()))))
    assert prompter.generate_prompt(shuffled) == prompter.generate_prompt(hostile)


@pytest.mark.parametrize(
    "text", ["{}", "{a b}", "{x:>8}", "{q!r}", "{q.upper}", '{"a": 1}', "{", "}", "{{}}", "{% x %}", "{{ 1 }}"]
)
def test_braces_without_a_plain_word_do_not_change(text: str) -> None:
    prompter = ChatPrompter(f"{text} then {{topic}}").for_model(system="S")
    assert system_of(prompter, "v") == f"S\n{text} then v\n\n"
    assert system_of(prompter, {"topic": "v"}) == system_of(prompter, "v")


def test_attributes_of_a_value_are_not_read() -> None:
    assert "{topic.__class__}" in system_of(ChatPrompter("{topic} {topic.__class__}"), "v")


def test_an_additional_pair_of_braces_is_text() -> None:
    assert system_of(ChatPrompter("{{topic}}").for_model(system="S"), "v") == "S\n{v}\n\n"


def test_line_breaks_of_an_instruction_do_not_change() -> None:
    assert system_of(ChatPrompter("a\r\n{x}\n\n").for_model(system="S"), "v") == "S\na\r\nv\n\n\n\n"


def test_numbers_are_written_as_text() -> None:
    assert user_of(ChatPrompter("Hi"), 7) == "7"
    assert user_of(ChatPrompter("Hi"), {"n": 0.5}) == "0.5"
    assert "n=True" in system_of(ChatPrompter("n={n}"), True)


def test_a_key_without_a_slot_is_the_input_of_the_user() -> None:
    prompter = ChatPrompter("About {topic}", extra_keys=["tone"])
    assert user_of(prompter, {"topic": "a", "tone": "b", "anything": "hello {topic}"}) == "hello {topic}"
    assert user_of(prompter, {"topic": "a", "tone": "b"}) == ""


def test_the_error_names_all_missing_and_unexpected_keys() -> None:
    prompter = ChatPrompter("{topic} {tone} {limit}")
    with pytest.raises(PrompterError) as caught:
        prompter.generate_prompt({"topik": "a", "limit": ["b"], "x": "c"})
    assert [problem.place for problem in caught.value.problems] == ["topic", "tone", "topik", "x", "limit"]


def test_two_keys_without_a_slot_are_refused() -> None:
    assert fault(lambda: ChatPrompter("Hi").generate_prompt({"a": "1", "b": "2"})) == "a, b"


@pytest.mark.parametrize("given", [None, "text", 3])
def test_text_cannot_fill_two_slots(given: object) -> None:
    assert fault(lambda: AlpacaPrompter("{a} {b}").generate_prompt(given)) == "a, b"  # type: ignore[call-overload]


class Unwritable:
    def __str__(self) -> str:
        raise ValueError("no text")


def test_the_error_names_values_of_a_wrong_type_before_any_conversion() -> None:
    prompter = ChatPrompter("{a}")
    with pytest.raises(PrompterError) as caught:
        prompter.generate_prompt({"a": "1", "question": Unwritable()})
    assert [problem.place for problem in caught.value.problems] == ["question"]
    with pytest.raises(PrompterError) as caught:
        prompter.generate_prompt({"a": Unwritable(), "question": "x"})
    assert [problem.place for problem in caught.value.problems] == ["a"]


@pytest.mark.parametrize("given", [["a"], b"a", object()])
def test_input_that_is_neither_text_nor_slots_is_refused(given: object) -> None:
    assert fault(lambda: ChatPrompter("Hi").generate_prompt(given)) == "input"  # type: ignore[call-overload]


def test_a_missing_input_is_an_error_for_a_slot_and_empty_in_a_chat() -> None:
    assert fault(lambda: ChatPrompter("{topic}").generate_prompt()) == "topic"
    assert user_of(ChatPrompter("Hi")) == ""


def test_alpaca_refuses_text_without_a_slot() -> None:
    assert fault(lambda: AlpacaPrompter("Hi").generate_prompt("lost?")) == "input"
    assert fault(lambda: AlpacaPrompter("{topic}").generate_prompt({"topic": "a", "more": "lost?"})) == "more"
    assert AlpacaPrompter("{topic}").generate_prompt({"topic": "a", "more": ""})
    assert fault(lambda: compose(AlpacaPrompter("Hi").layers, PromptContext(user_input="lost?"))) == "input"
    slots = UserInput("lost?", additional_kwargs={"a": "1", "b": "2"})
    assert fault(lambda: AlpacaPrompter("{a} {b}").generate_prompt(slots)) == "input"


# Instructions


def test_extra_keys_follow_each_form_of_instruction() -> None:
    block = "Here are some extra messages you can referred to:\n\n### tone:\nwarm\n\n"
    assert system_of(ChatPrompter("Hi", "tone").for_model(system="S"), "warm") == f"S\nHi\n{block}\n"
    assert system_of(ChatPrompter(extra_keys="tone").for_model(system="S"), "warm") == f"S\n\n{block}\n"
    assert user_of(ChatPrompter({"user": "Hi\n"}, ["tone"]), {"tone": "warm", "q": "ok"}) == f"Hi\n{block}ok"
    assert user_of(AlpacaPrompter({"user": "Hi"}, ("tone",)), "warm") == f"Hi\n\n{block}"
    assert system_of(AlpacaPrompter("Hi", ["tone", "tone"]), "warm").count(block) == 1


@pytest.mark.parametrize("keys", [{"a": "b"}, 7, ["a b"], ["{x}"], [1], [""]])
def test_extra_keys_that_cannot_be_slots_are_refused(keys: Any) -> None:
    assert fault(lambda: ChatPrompter("Hi", extra_keys=keys)) == "extra_keys"


def test_an_unused_part_of_an_instruction_is_a_warning() -> None:
    with pytest.warns(UserWarning) as caught:
        ChatPrompter({"assistant": "Hi"})
    assert caught[0].filename == __file__


@pytest.mark.parametrize("instruction", [["a"], 1, {"system": 1, "user": None}])
def test_an_instruction_that_is_not_text_is_refused(instruction: Any) -> None:
    assert fault(lambda: ChatPrompter(instruction)) == "instruction"


def test_an_empty_instruction_does_not_change_the_system_line() -> None:
    for instruction in (None, "", {}, {"system": ""}, {"system": "{topic}"}):
        prompter = ChatPrompter(instruction).for_model(system="S")
        assert system_of(prompter, "" if not prompter.slots else {"topic": ""}) == "S"


# History


def test_both_forms_of_history_can_be_mixed_with_system_messages() -> None:
    prompter = ChatPrompter("Hi", history=[["q0", "a0"]]).for_model(**IM)
    history: list[Any] = [
        Message("user", "q1"),
        {"role": "assistant", "content": "a1"},
        {"role": "system", "content": "Be kind."},
        ("q2", "a2"),
    ]
    messages = prompter.generate_prompt("q3", history, return_dict=True)["messages"]
    assert [message["content"] for message in messages[1:]] == ["q0", "a0", "q1", "a1", "Be kind.", "q2", "a2", "q3"]
    text = prompter.generate_prompt("q3", history)
    assert "<|im_start|>assistant\na1<|im_end|>\n<|im_start|>system\nBe kind.<|im_end|><|im_start|>user\nq2" in text


def test_the_error_names_each_invalid_item_of_a_history() -> None:
    history = [
        ["only"],
        ["a", "b", "c"],
        "text",
        {"content": "x"},
        {"role": "robot", "content": "x"},
        {"role": "user", "contnt": "x"},
        ["a", None],
    ]
    with pytest.raises(PrompterError) as caught:
        ChatPrompter("Hi").generate_prompt("q", history)  # type: ignore[arg-type]
    places = [problem.place for problem in caught.value.problems]
    assert sorted(places) == [
        "history[0]",
        "history[1]",
        "history[2]",
        "history[3].role",
        "history[4]",
        "history[5].content",
        "history[6]",
    ]


@pytest.mark.parametrize("history", ["text", {"role": "user"}, 5])
def test_a_history_that_is_not_a_list_is_refused(history: Any) -> None:
    assert fault(lambda: ChatPrompter("Hi", history=history)) == "history"


CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": {"q": "{x} é"}}}
TRAFFIC: list[Any] = [
    ["q", "a"],
    {"role": "user", "content": [{"type": "text", "text": "look"}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": '{"t": 21}'},
    {"role": "assistant", "content": "21"},
]


def test_tool_calls_of_a_history_are_written_as_json_or_with_the_models_tokens() -> None:
    prompter = ChatPrompter("Hi").for_model(**IM)
    text = prompter.generate_prompt("thanks", TRAFFIC)
    assert '<|im_start|>assistant\n\n{"name": "look", "arguments": {"q": "{x} é"}}\n<|im_end|>' in text
    assert '<|im_start|>tool\n{"t": 21}<|im_end|>' in text
    tokens = {"tool_start_token": "<tool>", "tool_args_token": "<args>", "tool_end_token": "</tool>"}
    assert '<tool>\nlook<args>{"q": "{x} é"}</tool>\n' in prompter.for_model(**tokens).generate_prompt(
        "thanks", TRAFFIC
    )
    (call,) = prompter.generate_prompt("thanks", TRAFFIC, return_dict=True)["messages"][4]["tool_calls"]
    assert call["function"] == {"name": "look", "arguments": '{"q": "{x} é"}'}


def test_arguments_that_are_not_json_are_written_unchanged() -> None:
    history = [
        Message("user", "q"),
        Message("assistant", tool_calls=(ToolCall("c1", "look", "{oops"),)),
        Message("tool", "no", tool_call_id="c1"),
    ]
    assert '{"name": "look", "arguments": "{oops"}' in ChatPrompter("Hi").generate_prompt(
        "q", [history[0], {"role": "assistant", "tool_calls": history[1].tool_calls}, history[2]]
    )
    assert '{"name": "look", "arguments": "{oops"}' in ChatPrompter("Hi").generate_prompt("q", Conversation(history))


@pytest.mark.parametrize("cut", [slice(0, 3), slice(3, 5)])
def test_an_incomplete_tool_call_in_a_history_is_refused(cut: slice) -> None:
    assert fault(lambda: ChatPrompter("Hi").generate_prompt("q", TRAFFIC[cut])) == "history"


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ({"role": "assistant", "tool_calls": {"id": "c"}}, "tool_calls"),
        ({"role": "assistant", "tool_calls": ["c"]}, "tool_calls[0]"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {1j: 2}}}]},
            "tool_calls[0].function.arguments",
        ),
        ({"role": "user", "content": [{"type": "image_url"}]}, "content[0]"),
    ],
)
def test_unsupported_parts_of_a_message_are_refused(message: Any, place: str) -> None:
    with pytest.raises(PrompterError) as caught:
        ChatPrompter("Hi").generate_prompt("q", [message])
    assert [problem.place for problem in caught.value.problems] == [f"history[0].{place}"]


# Tools


def test_a_request_contains_the_tools_unchanged() -> None:
    bare = {"type": "function", "function": {"name": "noop"}}
    assert ChatPrompter("Hi", tools=[bare]).generate_prompt("q", return_dict=True)["tools"] == [bare]
    spec = ToolSpec("add", "Add.")
    assert (
        ChatPrompter("Hi").generate_prompt("q", tools=[spec], return_dict=True)["tools"][0]["function"]["name"] == "add"
    )
    assert "tools" not in ChatPrompter("Hi", tools=[]).generate_prompt("q", tools=[], return_dict=True)


def test_required_next_to_the_parameters_is_moved_into_the_parameters() -> None:
    tool = {
        "type": "function",
        "function": {
            "name": "f",
            "description": None,
            "parameters": {"properties": {"a": {}}},
            "required": ["a"],
            "strict": True,
        },
    }
    (spec,) = ChatPrompter("Hi", tools=[tool]).context("q").tools
    assert spec.parameters == {"type": "object", "properties": {"a": {}}, "required": ["a"]}
    assert spec.strict and spec.description == ""


def test_the_error_names_each_invalid_tool() -> None:
    tools = [
        "f",
        {"name": "f"},
        {"function": {"name": ""}},
        {"function": {"name": "g", "parameters": []}},
        {"function": {"name": "h", "parameters": [1]}},
        {"function": {"name": "i", "x": {1, 2}}},
        ADD,
        ADD,
    ]
    with pytest.raises(PrompterError) as caught:
        ChatPrompter("Hi").generate_prompt("q", tools=tools)  # type: ignore[arg-type]
    places = {problem.place for problem in caught.value.problems}
    assert places == {"tools[0]", "tools[1]", "tools[2]", "tools[4]", "tools[5].function.x", "tools"}
    assert fault(lambda: ChatPrompter("Hi", tools=ADD)) == "tools"  # type: ignore[arg-type]


# The model


def test_for_model_returns_a_copy_with_the_tokens() -> None:
    plain = ChatPrompter("Hi")
    local = plain.for_model(system="S", soh="<h>", eoh=None)
    again = local.for_model(soa="<a>", system=None)
    assert plain.generate_prompt("q") == ChatPrompter("Hi").generate_prompt("q")
    assert again.generate_prompt("q") == "SHi\n\n\n\n\n<h>\nq\n<a>\n"
    assert local.for_model(system="", soh="").generate_prompt("q") == "Hi\n\n\n\n\n\nq\n\n"


def test_the_error_suggests_a_name_for_each_unknown_token() -> None:
    with pytest.raises(PrompterError) as caught:
        ChatPrompter("Hi").for_model(soo="x", tool_start="y", eoa=1, system=2)  # type: ignore[arg-type]
    assert [problem.place for problem in caught.value.problems] == ["soo", "tool_start", "eoa", "system"]


def test_a_system_line_with_braces_is_not_a_template() -> None:
    assert system_of(ChatPrompter("Hi").for_model(system="Use {json} only."), "q") == "Use {json} only.\nHi\n\n"


def test_the_reply_is_the_text_after_the_prompt_or_the_split() -> None:
    local = ChatPrompter("Hi").for_model(**IM)
    prompt = local.generate_prompt("q")
    assert local.get_response(prompt + "yes", prompt) == "yes"
    assert local.get_response(prompt + "yes") == "\nyes"
    assert local.get_response("yes", prompt) == "yes"
    assert ChatPrompter("Hi").get_response("yes") == "yes"
    assert AlpacaPrompter().get_response("a### Response:\nb### Response:\nyes") == "\nyes"


# Hooks, labels, logs


def test_a_hook_can_replace_all_parts_and_must_return_all_four() -> None:
    def hook(input: Any, history: Any, tools: Any, label: Any) -> tuple[Any, ...]:
        return f"<<{input}>>", [*(history or []), ["q", "a"]], [ADD], f"{label}!"

    prompter = ChatPrompter("Hi", pre_hook=hook)  # type: ignore[arg-type]
    assert prompter.generate_prompt("x", label="yes").endswith("qa\n\n<<x>>\n\nyes!")
    assert prompter.context("x").user_input.input == "<<x>>"
    assert [tool.name for tool in prompter.context("x").tools] == ["add"]
    assert fault(lambda: ChatPrompter("Hi", pre_hook=lambda *given: given[0]).generate_prompt("x")) == "pre_hook"


def test_a_label_is_literal_text_at_the_end() -> None:
    assert ChatPrompter("Hi").generate_prompt("q", label="yes").endswith("q\n\nyes")
    assert ChatPrompter("Hi").generate_prompt("q", label="yes", return_dict=True) == ChatPrompter("Hi").generate_prompt(
        "q", return_dict=True
    )
    assert fault(lambda: ChatPrompter("Hi").generate_prompt("q", label=1)) == "label"  # type: ignore[call-overload]


def test_show_logs_the_generated_prompt(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "agentkit.prompters"):
        said = ChatPrompter("Hi").generate_prompt("q", show=True)
        ChatPrompter("Hi").generate_prompt("q")
        ChatPrompter("Hi", show=True).for_model(system="S").generate_prompt("q", return_dict=True)
        EmptyPrompter(show=True).generate_prompt("q")
    request = {"messages": [{"role": "system", "content": "S\nHi\n\n"}, {"role": "user", "content": "q"}]}
    assert caplog.messages == [f"ChatPrompter: {said}", f"ChatPrompter: {request}", "EmptyPrompter: q"]


def test_arguments_and_results_are_not_shared_with_the_prompter() -> None:
    slots, history, tools = {"a": "1", "q": "2"}, [["x", "y"], {"role": "user", "content": "z"}], [ADD]
    before = copy.deepcopy((slots, history, tools))
    prompter = ChatPrompter("{a}")
    made = prompter.generate_prompt(slots, history, tools, return_dict=True)
    made["messages"][0]["content"] = "changed"
    made["tools"][0]["function"]["name"] = "changed"
    assert (slots, history, tools) == before
    assert prompter.generate_prompt(slots, history, tools, return_dict=True)["tools"] == [ADD]


# The composition of both forms


def test_values_of_the_user_are_untrusted_with_their_pointers() -> None:
    prompter = ChatPrompter({"system": "About {topic}.", "user": "In {lang}: "})
    composition = compose(prompter.layers, prompter.context({"topic": "x", "lang": "en", "q": "hello"}, [["a", "b"]]))
    said = [
        (composition.marked_text(s.message)[s.start : s.end], s.pointer)
        for s in composition.spans
        if s.trust == "untrusted"
    ]
    assert said == [
        ("x", "additional_kwargs.topic"),
        ("a", "conversation[0].content"),
        ("b", "conversation[1].content"),
        ("en", "additional_kwargs.lang"),
        ("hello", "user_input"),
    ]
    assert "".join(composition.marked_text(s.message)[s.start : s.end] for s in composition.spans) == "".join(
        message.text for message in composition.messages
    )
    one = AlpacaPrompter("{topic}")
    assert [s.pointer for s in compose(one.layers, one.context("x")).spans if s.trust == "untrusted"] == ["user_input"]


def test_a_value_with_the_mark_trusted_is_trusted() -> None:
    prompter = ChatPrompter("{a} {b}")
    composition = compose(prompter.layers, prompter.context({"a": Trusted("mine"), "b": "theirs"}))
    assert [s.trust for s in composition.spans if s.pointer] == ["trusted", "untrusted"]


def test_slots_are_part_of_the_schema_of_kwargs() -> None:
    schema = ChatPrompter({"system": "{a}", "user": "{b}"}).layers.additional_kwargs_schema
    assert schema is not None and set(schema["required"]) == {"a", "b"}
    with pytest.raises(KwargsError) as caught:
        compose(ChatPrompter({"system": "{a}", "user": "{b}"}).layers, PromptContext(user_input="q"))
    assert set(caught.value.problems) == {"a", "b"}
    needs_b = ChatPrompter({"system": "{a}", "user": "{b}"}).layers.input[0]
    assert fault(lambda: needs_b.render(PromptContext(user_input="q"))) == "b"
    single = ChatPrompter("{a}").layers.additional_kwargs_schema
    assert single is not None and "required" not in single


def test_a_custom_context_is_equivalent_to_the_context_of_the_prompter() -> None:
    prompter = ChatPrompter("{topic}")
    by_hand = PromptContext(user_input=UserInput("q", additional_kwargs={"topic": "x"}))
    assert compose(prompter.layers, by_hand).to_openai() == prompter.generate_prompt(
        {"topic": "x", "q": "q"}, return_dict=True
    )
    assert (
        compose(prompter.layers, prompter.context(by_hand.user_input)).to_openai()
        == compose(prompter.layers, by_hand).to_openai()
    )


# The layout as the chat template of any messages


def test_a_layout_writes_tool_traffic_after_the_input_and_before_the_reply() -> None:
    template = ChatPrompter("Hi").for_model(**IM, system="S").chat_template
    asked = [Message("system", "S\nHi\n\n"), Message("user", "q")]
    traffic = [Message("assistant", tool_calls=(ToolCall("c", "f", "{}"),)), Message("tool", "r", tool_call_id="c")]
    before, after = template.render(asked, add_generation_prompt=False), template.render([*asked, *traffic])
    assert before.endswith("q\n<|im_end|>\n") and template.render(asked) == before + "<|im_start|>assistant\n\n"
    assert after == before + (
        '<|im_start|>assistant\n\n{"name": "f", "arguments": {}}\n<|im_end|>\n<|im_start|>tool\nr<|im_end|>\n'
        "<|im_start|>assistant\n\n"
    )


def test_a_layout_writes_a_system_message_unchanged() -> None:
    template = ChatPrompter().for_model(sos="<s>", eos="</s>").chat_template
    assert (
        template.render([{"role": "system", "content": "Mine."}, {"role": "user", "content": "q"}])
        == "<s>Mine.</s>\n\n\n\nq\n\n"
    )
    assert template.render([]) == "<s></s>\n\n\n\n\n\n"


def test_a_layout_refuses_unsupported_messages_and_variables() -> None:
    alpaca = AlpacaPrompter("Hi").chat_template
    for messages in (
        [Message("user", "a"), Message("assistant", "b"), Message("user", "c")],
        [Message("user", "a"), Message("assistant", "b")],
    ):
        assert fault(lambda: alpaca.render(messages), ChatTemplateError) == "history"  # noqa: B023
    assert fault(lambda: alpaca.render([{"role": "robot", "content": ""}]), ChatTemplateError) == "messages[0]"
    assert fault(lambda: alpaca.render([], thinking=True), ChatTemplateError) == "thinking"


def test_a_layout_lists_its_control_tokens_and_stop_words() -> None:
    template = ChatPrompter("Hi").for_model(**{**IM, "eoh": "", "soe": "Tool: "}).chat_template
    assert template.control_tokens == ("<|im_start|>", "<|im_end|>", "Tool:")
    assert template.stop_words == ["<|im_end|>", "<|im_start|>user"]
    assert AlpacaPrompter().chat_template.control_tokens == ("### Response:", "### Instruction:")
    assert AlpacaPrompter().chat_template.stop_words is None


# Empty


def test_an_empty_prompter_returns_the_input_itself() -> None:
    thing = object()
    assert EmptyPrompter().generate_prompt(thing) is thing
    assert EmptyPrompter().generate_prompt("{x}", [["a", "b"]], [ADD], "label") == "{x}"
    assert EmptyPrompter().generate_prompt("q", [["a", "b"]], [ADD], return_dict=True) == {
        "messages": [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "user", "content": "q"},
        ],
        "tools": [ADD],
    }
    assert EmptyPrompter().get_response(" x ") == " x "
    assert fault(lambda: EmptyPrompter().generate_prompt({"a": "1", "b": "2"}, return_dict=True)) == "a, b"
    assert fault(lambda: EmptyPrompter("Hi")) == "instruction"


# Custom prompters


class Framed(Prompter):
    layout: ClassVar[str] = "<S>{system}</S><I>{instruction}</I>{history}|{user}{input}|{tools}## Out:"
    split: ClassVar[str] = "## Out:"
    system = "You are terse."


class Terser(Framed):  # inherits the layout of its base class
    system = "Say one word."


class Bare(Prompter):
    layout: ClassVar[str] = "{instruction}\n{input}\n"


def test_a_custom_prompter_is_a_layout() -> None:
    said = Framed({"system": "Do {task}.", "user": "Now: "}, "tone").generate_prompt(
        {"task": "sums", "tone": "warm", "q": "1+1"}, [["a", "b"]]
    )
    extra = "Here are some extra messages you can referred to:\n\n### tone:\nwarm\n\n"
    assert said == f"<S>You are terse.</S><I>Do sums.</I>ab|Now: {extra}1+1|## Out:"
    assert (
        Framed("Do.", "tone").generate_prompt({"tone": "warm", "q": "x"})
        == f"<S>You are terse.</S><I>Do.\n\n{extra}</I>|x|## Out:"
    )
    assert Framed().get_response("...## Out:yes") == "yes"
    assert Terser("Do.").generate_prompt("x") == "<S>Say one word.</S><I>Do.</I>|x|## Out:"


def test_a_layout_without_a_place_for_the_system_line_omits_it() -> None:
    assert Bare("Do.").generate_prompt("x") == "Do.\nx\n"
    assert Bare("Do.").generate_prompt("x", return_dict=True)["messages"][0] == {"role": "system", "content": "Do."}
    assert fault(lambda: Bare("Do.").generate_prompt("x", tools=[ADD]), ChatTemplateError) == "tools"
    assert fault(lambda: Bare("Do.", history=[["a", "b"]])) == "history"


class WithoutInstruction(Prompter):
    layout: ClassVar[str] = "{system}|{input}"


def test_a_layout_without_a_place_for_the_instruction_writes_it_after_the_system_line() -> None:
    assert WithoutInstruction("Do.").for_model(system="S").generate_prompt("x") == "S\nDo.|x"


@pytest.mark.parametrize(
    ("layout", "split", "name"),
    [
        ("{sistem}{input}", "", "sistem"),
        ("{system}", "", "input"),
        ("{input}{user}", "", "user"),
        ("{input}{input}", "", "input"),
        ("{input}", "{soa}", "split"),
        ("{input}{soa}", "{soo}", "soo, split"),
    ],
)
def test_an_invalid_layout_is_refused_in_the_definition_of_the_class(layout: str, split: str, name: str) -> None:
    assert fault(lambda: type("Wrong", (Prompter,), {"layout": layout, "split": split})) == name


def test_the_error_of_the_base_class_names_the_layout() -> None:
    assert fault(lambda: Prompter("Hi")) == "layout"


def test_an_invalid_message_is_the_cause_of_the_error_of_a_history() -> None:
    with pytest.raises(PrompterError) as caught:
        ChatPrompter("Answer.", history=[{"role": "user", "content": 5}])
    assert isinstance(caught.value.__cause__, MessageError)


def test_a_prompter_and_its_copies_do_not_warn_that_slots_change() -> None:
    prompter = ChatPrompter({"system": "Be {tone}.", "user": "{input}"})
    for each in (prompter, copy.copy(prompter), copy.deepcopy(prompter), pickle.loads(pickle.dumps(prompter))):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            request = each.generate_prompt({"tone": "kind", "input": "hi"}, history=[["a", "b"]], return_dict=True)
        assert request["messages"][0] == {"role": "system", "content": "Be kind."}
