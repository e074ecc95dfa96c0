"""Examples of the LazyLLM document. If their output differs from the output of LazyLLM, the test lists them."""

from __future__ import annotations

import ast
import re
from types import SimpleNamespace
from typing import Any

import pytest

from agentkit import Chain, CompletionModel, OpenAIModel
from agentkit.prompts.prompters import LAZYLLM_SYSTEM, AlpacaPrompter, ChatPrompter, PrompterError
from tests.paths import SHARED
from tests.servers import chat_reply, completes, serve

DOCUMENT = SHARED / "seeds" / "lazyllm_prompter.md"
SYSTEM = "You are an AI-Agent developed by LazyLLM."
ALPACA = (
    "Below is an instruction that describes a task, paired with extra messages such as input that provides further "
    "context if possible. Write a response that appropriately completes the request."
)
EXTRA = "Here are some extra messages you can referred to:"
QUESTION = "你根据上下文回答。上下文是{context}，问题是{input}。"
ANSWERED = "你根据上下文回答。上下文是背景，问题是输入。"
SLOTS = {"context": "背景", "input": "输入"}
ADD = "请完成加法运算"
TOOLS: list[dict[str, Any]] = [{"type": "function", "function": {"name": "example"}}]
LISTED = '[{"type": "function", "function": {"name": "example"}}]'
PICK = "请挑选最合适的工具"
WEATHER = "今天的天气"
TALK = "你要和用户友好地对话"
BEFORE = ["你好", "你好，有什么能为您服务的"]


def printed_by_the_document(text: str) -> str:
    """Return an Alpaca prompt as the document prints it: with a space before the heading, and one line break less
    before the reply.
    """
    return text.replace("\n\n### Instruction:", "\n\n ### Instruction:").replace("\n\n### Response:", "\n### Response:")


def chat(*args: Any, **kwargs: Any) -> ChatPrompter:
    """Return a chat prompter with the tokens of the output of the document."""
    tokens = {"sos": "<|start_system|>", "eos": "<|end_system|>", "soh": "<|Human|>:", "soa": "<|Assistant|>:"}
    return ChatPrompter(*args, **kwargs, system=LAZYLLM_SYSTEM, **tokens)


def alpaca(*args: Any, **kwargs: Any) -> AlpacaPrompter:
    """Return an Alpaca prompter with the first line of all prompts of LazyLLM."""
    return AlpacaPrompter(*args, **kwargs, system=LAZYLLM_SYSTEM)


def lazy(*args: Any, **kwargs: Any) -> ChatPrompter:
    """Return a chat prompter with this line."""
    return ChatPrompter(*args, **kwargs, system=LAZYLLM_SYSTEM)


def test_quick_start_with_a_user_instruction() -> None:
    prompter = alpaca({"user": QUESTION})
    # The document prints the instruction inside the system text. LazyLLM writes it in the message of the user.
    assert prompter.generate_prompt(SLOTS) == f"{SYSTEM}\n{ALPACA}\n\n### Instruction:\n\n\n{ANSWERED}### Response:\n"
    assert prompter.generate_prompt(SLOTS, return_dict=True) == {
        "messages": [
            {"role": "system", "content": f"{SYSTEM}\n{ALPACA}\n\n### Instruction:\n"},
            {"role": "user", "content": ANSWERED},
        ]
    }


def test_an_instruction_of_one_text_is_at_the_place_of_the_document() -> None:
    prompter = alpaca(QUESTION)
    said = prompter.generate_prompt(SLOTS)
    assert said == f"{SYSTEM}\n{ALPACA}\n\n### Instruction:\n{ANSWERED}\n\n\n\n### Response:\n"
    assert printed_by_the_document(said) == (
        f"{SYSTEM}\n{ALPACA}\n\n ### Instruction:\n{ANSWERED}\n\n\n### Response:\n"
    )
    assert prompter.generate_prompt(SLOTS, return_dict=True)["messages"][1] == {"role": "user", "content": ""}


def test_a_text_fills_the_single_slot_of_any_name() -> None:
    said = alpaca(f"{ADD}, 输入为{{instruction}}").generate_prompt("a+b")
    assert said == f"{SYSTEM}\n{ALPACA}\n\n### Instruction:\n{ADD}, 输入为a+b\n\n\n\n### Response:\n"


def test_an_extra_key_is_a_slot_under_a_separate_heading() -> None:
    said = alpaca(ADD, extra_keys="input").generate_prompt("a+b")
    assert said == (
        f"{SYSTEM}\n{ALPACA}\n\n### Instruction:\n{ADD}\n\n{EXTRA}\n\n### input:\na+b\n\n\n\n### Response:\n"
    )


def test_chat_with_a_slot_writes_the_input_in_the_system_text() -> None:
    said = chat(f"{ADD}，输入为{{input}}").generate_prompt("a+b")
    assert said == (f"<|start_system|>{SYSTEM}{ADD}，输入为a+b\n\n<|end_system|>\n\n\n<|Human|>:\n\n<|Assistant|>:\n")


def test_chat_without_a_slot_writes_the_input_in_the_turn_of_the_user() -> None:
    # The output in the document ends after "<|Assistant|>".
    said = chat(ADD).generate_prompt("a+b")
    assert said == f"<|start_system|>{SYSTEM}{ADD}\n\n<|end_system|>\n\n\n<|Human|>:\na+b\n<|Assistant|>:\n"


@pytest.mark.parametrize("given", ["at construction", "with the call"])
def test_tools_are_listed_as_json_in_a_text(given: str) -> None:
    made, asked = (TOOLS, None) if given == "at construction" else (None, TOOLS)
    said = alpaca(PICK, extra_keys="input", tools=made).generate_prompt(WEATHER, tools=asked)
    assert said == (
        f"{SYSTEM}\n{ALPACA}\n\n### Instruction:\n{PICK}\n\n{EXTRA}\n\n### input:\n{WEATHER}\n\n\n"
        f"### Function-call Tools. \n\n{LISTED}\n\n\n### Response:\n"
    )
    assert chat(PICK, tools=made).generate_prompt(WEATHER, tools=asked) == (
        f"<|start_system|>{SYSTEM}{PICK}\n\n### Function-call Tools. \n\n{LISTED}\n\n<|end_system|>\n\n\n"
        f"<|Human|>:\n{WEATHER}\n<|Assistant|>:\n"
    )


def test_tools_are_next_to_the_messages_of_a_request() -> None:
    prompter = alpaca(PICK, extra_keys="input", tools=TOOLS)
    system = f"{SYSTEM}\n{ALPACA}\n\n### Instruction:\n{PICK}\n\n{EXTRA}\n\n### input:\n{WEATHER}\n\n"
    assert prompter.generate_prompt(WEATHER, return_dict=True) == {
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": ""}],
        "tools": TOOLS,
    }


def test_tools_at_construction_prohibit_tools_with_the_call() -> None:
    with pytest.raises(PrompterError) as caught:
        ChatPrompter(PICK, tools=TOOLS).generate_prompt(WEATHER, tools=TOOLS)
    assert caught.value.name == "tools"


def test_history_as_pairs_in_a_text() -> None:
    assert chat(TALK).generate_prompt("聊会儿天吧", history=[BEFORE]) == (
        f"<|start_system|>{SYSTEM}{TALK}\n\n<|end_system|>\n\n<|Human|>:{BEFORE[0]}<|Assistant|>:{BEFORE[1]}\n"
        "<|Human|>:\n聊会儿天吧\n<|Assistant|>:\n"
    )


def test_history_in_both_forms_in_a_request() -> None:
    messages = [{"role": "user", "content": BEFORE[0]}, {"role": "assistant", "content": BEFORE[1]}]
    expected = [
        {"role": "system", "content": f"{SYSTEM}\n{TALK}\n\n"},
        *messages,
        {"role": "user", "content": "聊会儿天吧"},
    ]
    for history in ([BEFORE], messages):
        assert lazy(TALK).generate_prompt("聊会儿天吧", history=history, return_dict=True) == {"messages": expected}


def test_message_dicts_work_in_a_text_against_the_document() -> None:
    messages = [{"role": "user", "content": BEFORE[0]}, {"role": "assistant", "content": BEFORE[1]}]
    assert chat(TALK).generate_prompt("x", history=messages) == chat(TALK).generate_prompt("x", history=[BEFORE])


def test_alpaca_has_no_history() -> None:
    with pytest.raises(PrompterError) as caught:
        alpaca(ADD).generate_prompt("", history=[BEFORE])
    assert caught.value.name == "history"
    assert alpaca(ADD).generate_prompt("", history=[]) == alpaca(ADD).generate_prompt("")


def test_tools_can_have_each_field_of_the_document_and_can_be_incomplete() -> None:
    parameters = {"type": "object", "properties": {"arg-1": {"type": "string", "description": "x"}, "arg-2": {}}}
    function = {"name": "f", "description": "d", "parameters": parameters, "required": ["arg-1", "arg-2"]}
    tools = [{"type": "function", "function": function}]
    assert ChatPrompter(PICK, tools=tools).generate_prompt("x", return_dict=True)["tools"] == tools


async def test_a_prompter_with_a_hosted_and_with_a_local_model() -> None:
    with serve() as server:
        server.on("hosted", chat_reply("Fine."))
        server.on("local", completes("Fine too."))
        hosted = Chain(OpenAIModel("hosted", base_url=server.url), AlpacaPrompter(QUESTION))
        assert await hosted.run(SLOTS) == "Fine."
        local = ChatPrompter(QUESTION).for_model("internlm2-chat-7b")
        model = CompletionModel("local", local.chat_template, base_url=server.url)
        assert await Chain(model, local).run(SLOTS) == "Fine too."
        (asked,) = server.to("hosted")
        assert asked.body["messages"] == AlpacaPrompter(QUESTION).generate_prompt(SLOTS, return_dict=True)["messages"]
        (asked,) = server.to("local")
        assert asked.body["prompt"] == local.generate_prompt(SLOTS) and ANSWERED in asked.body["prompt"]


@pytest.mark.skipif(not DOCUMENT.is_file(), reason="the documents are not next to this checkout")
def test_the_calls_of_the_document_have_its_output() -> None:
    """Run the calls of the document unchanged, and compare the results with the output after each call."""
    scope: dict[str, Any] = {"lazyllm": SimpleNamespace(AlpacaPrompter=alpaca, ChatPrompter=chat)}
    compared: list[str] = []
    found: Any = None
    for line in DOCUMENT.read_text("utf-8").splitlines():
        call = re.match(r" *>>?> *(.+)", line)
        if call and "generate_prompt" in call[1]:
            found = eval(call[1], scope)
        elif call and call[1].startswith(("p =", "prompter =", "tools=")):
            exec(call[1], scope)
            # A prompt without a preceding call is the output of the previous call.
            made = scope.get("p") if call[1].startswith("p =") else None
            found = made.generate_prompt("a+b") if made is not None else None
        elif found is not None and re.match(r" *['{]", line):
            printed = _literal(line.strip())
            if isinstance(found, dict):
                found = {"messages": found["messages"]}
            compared.append(type(found).__name__)
            assert _normal(found) == _normal(printed), line
            found = None
    assert compared == ["str"] * 4 + ["str"] * 4 + ["dict", "str", "dict", "dict"]


def _literal(printed: str) -> Any:
    """Return a printed value that is complete, without its closing quote, or with its tools on the next line."""
    closed = printed if printed[-1] in "'}" else printed + ("'" if printed[0] == "'" else "}")
    return ast.literal_eval(closed)


def _normal(value: Any) -> Any:
    """Return a printed value without the known differences: literal line ends, white space around headings."""
    if isinstance(value, dict):
        return {key: _normal(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_normal(item) for item in value]
    text = value.replace("\\n", "\n").replace("\n\n ### Instruction:", "\n\n### Instruction:")
    text = re.sub(r"\n+### (Response|Function-call)", r"\n### \1", text)
    return text + ":\n" if text.endswith("<|Assistant|>") else text  # one output ends there
