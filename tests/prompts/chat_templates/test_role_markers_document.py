"""The LMDeploy document: templates derived from `BaseTemplate` as in the document, and its code if available."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from agentkit.prompts import Layers, Message, PromptContext, compose
from agentkit.prompts.chat_templates import CHAT_TEMPLATES, BaseTemplate, ChatTemplateError, ChatTemplateRegistry
from agentkit_prompts.chat_templates.builtin.builtin import builtin
from tests.cases import for_cases
from tests.paths import ROOT

SHARED = ROOT.parent / "shared"
DOCUMENT = SHARED / "seeds" / "lmdeploy_chat_template.md"
CASES = SHARED / "conformance" / "lmdeploy.jsonl"
HI = [{"role": "user", "content": "hi"}]
CALL = {"id": "1", "type": "function", "function": {"name": "x", "arguments": "{}"}}
TALK = [*HI, {"role": "assistant", "content": "hello"}]


class Derived(BaseTemplate):
    """Template derived as in the document: markers in the constructor, both methods overridden."""

    def __init__(self, user: str = "<U>", assistant: str = "<A>", stop_words: Any = ("</A>",), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.user = user
        self.assistant = assistant
        self.stop_words = stop_words

    def decorate_prompt(self, prompt: str, sequence_start: bool = True) -> str:
        return f"{'' if sequence_start else '|'}{self.user}{prompt}{self.assistant}"

    def messages2prompt(self, messages: Any, sequence_start: bool = True) -> str:
        if isinstance(messages, str):
            return self.get_prompt(messages, sequence_start)
        said = [f"{getattr(self, message['role'])}{message['content']}" for message in messages]
        return "".join(said) + self.assistant


def test_the_defaults_are_equal_to_the_document() -> None:
    base = BaseTemplate()
    assert (base.session_len, base.top_p, base.top_k, base.temperature) == (2048, 0.8, None, 0.8)
    assert (base.repetition_penalty, base.capability, base.stop_words) == (1.0, "chat", None)
    assert BaseTemplate(session_len=4096, capability="completion").session_len == 4096


def test_a_derived_template_decorates_a_prompt() -> None:
    assert Derived().get_prompt("hi") == "<U>hi<A>"
    assert Derived().get_prompt("hi", sequence_start=False) == "|<U>hi<A>"
    assert Derived(capability="completion").get_prompt("hi") == "hi"
    assert Derived().messages2prompt("hi", False) == "|<U>hi<A>"


def test_a_derived_template_renders_through_its_messages2prompt() -> None:
    assert Derived().render(TALK) == "<U>hi<A>hello<A>"
    assert Derived().render([Message("user", "hi")]) == "<U>hi<A>"
    assert Derived().render(TALK, add_generation_prompt=False) == "<U>hi<A>hello"
    assert Derived().render(TALK, enable_thinking=False) == "<U>hi<A>hello<A>"  # a keyword of other templates
    assert Derived().control_tokens == ("</A>", "<U>", "<A>")


def test_a_derived_template_cannot_change_the_caller_s_messages() -> None:
    class Greedy(Derived):
        def messages2prompt(self, messages: Any, sequence_start: bool = True) -> str:
            messages[0]["content"] += ", changed"
            messages.append({})
            return super().messages2prompt(messages[:1])

    messages = [dict(HI[0])]
    assert Greedy().render(messages) == "<U>hi, changed<A>"
    assert messages == HI


def test_a_derived_template_gets_tools_if_it_has_a_parameter_for_them() -> None:
    class Tooled(Derived):
        def messages2prompt(
            self, messages: Any, sequence_start: bool = True, tools: Any = None, add_generation_prompt: bool = True
        ) -> str:
            said = [f"{message['content']} {message.get('tool_calls', '')}" for message in messages]
            return f"{tools}{said}{add_generation_prompt}"

    calls = [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]
    messages = [*HI, {"role": "assistant", "tool_calls": calls}]
    text = Tooled().render(messages, tools=[{"name": "f"}], add_generation_prompt=False)
    call = "{'id': '1', 'type': 'function', 'function': {'name': 'f', 'arguments': '{}'}}"
    assert text == f"""[{{'name': 'f'}}]['hi ', " [{call}]"]False"""
    assert Tooled().render(HI) == "None['hi ']True"
    for given in ({"messages": HI, "tools": [{"name": "f"}]}, {"messages": messages}):
        with pytest.raises(ChatTemplateError) as caught:
            Derived().render(**given)
        assert [place for place, _ in caught.value.problems] == ["tools"]


def _texts(messages: Any) -> str:
    return "".join(f"<{message['role']}>{message['content']}" for message in messages)


def _calls(messages: Any) -> str:
    return "".join(str(message.get("tool_calls", "")) for message in messages)


def _names(messages: Any) -> str:
    return "".join(call["function"]["name"] for message in messages for call in message.get("tool_calls", ()))


@pytest.mark.parametrize(
    ("write", "dropped"),
    [
        (lambda messages, tools: _texts(messages) + _calls(messages) + str(tools), []),
        (lambda messages, tools: _texts(messages).upper() + _calls(messages) + str(tools), []),
        (lambda messages, tools: _texts(messages) + str(tools), ["messages[2]", "messages[2]"]),
        (lambda messages, tools: _texts(messages) + _names(messages) + str(tools), ["messages[2]"]),
        (lambda messages, tools: _texts(messages) + _calls(messages), ["tools[0]"]),
        (lambda messages, tools: _texts(messages[1:]) + _calls(messages) + str(tools), ["messages[0]"]),
        (lambda messages, tools: _texts(messages[:2]) + _calls(messages) + str(tools), ["messages[3]"]),
    ],
)
def test_a_derived_template_that_omits_a_part_is_refused(write: Any, dropped: list[str]) -> None:
    class Partial(BaseTemplate):
        def messages2prompt(self, messages: Any, sequence_start: bool = True, tools: Any = None) -> str:
            return str(write(messages, tools))

    call = {"id": "1", "function": {"name": "price", "arguments": '{"item": "lamp"}'}}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        *HI,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "30 EUR"},
    ]
    template = Partial()
    places: list[str] = []
    for _ in range(2):
        try:
            template.render(messages, tools=[{"name": "price"}])
        except ChatTemplateError as error:
            places = [place for place, _ in error.problems]
            assert error.template == "Partial"
        assert places == dropped


def test_the_error_of_a_derived_template_names_its_class() -> None:
    with pytest.raises(ChatTemplateError) as caught:
        Derived().render([{"role": "system", "content": "x"}])
    assert caught.value.template == "Derived"
    assert isinstance(caught.value.__cause__, AttributeError)

    class Silent(BaseTemplate):
        def messages2prompt(self, messages: Any, sequence_start: bool = True) -> str:
            return None  # type: ignore[return-value]

    with pytest.raises(ChatTemplateError) as caught:
        Silent().render(HI)
    assert caught.value.template == "Silent"
    with pytest.raises(ChatTemplateError) as caught:
        Derived().render([])
    assert [place for place, _ in caught.value.problems] == ["messages"]


def test_an_end_marker_that_can_belong_to_the_reply_is_not_removed() -> None:
    class Endless(BaseTemplate):
        def messages2prompt(self, messages: Any, sequence_start: bool = True) -> str:
            return "".join(message["content"] for message in messages)

    assert Endless().render(TALK) == "hihello"
    for template, messages in ((Endless(), TALK), (Derived(), [{"role": "user", "content": "<A>"}])):
        with pytest.raises(ChatTemplateError) as caught:
            template.render(messages, add_generation_prompt=False)
        assert caught.value.name == "add_generation_prompt"


def test_the_base_class_writes_a_conversation_only_with_capability_completion() -> None:
    assert BaseTemplate().get_prompt("hi") == BaseTemplate().messages2prompt("hi") == "hi"
    assert BaseTemplate(capability="completion").render(TALK) == "hi\nhello"
    with pytest.raises(ChatTemplateError) as caught:
        BaseTemplate().render(TALK)
    assert caught.value.name == "messages2prompt"


def test_the_names_of_the_document_exist_and_can_be_registered() -> None:
    made = {name: CHAT_TEMPLATES.get(name)() for name in CHAT_TEMPLATES if name.startswith("internlm-")}
    capable = {name: (one.capability, one.session_len) for name, one in made.items() if "xcomposer" not in name}
    assert capable == {
        "internlm-7b": ("completion", 2048),
        "internlm-20b": ("completion", 4096),
        "internlm-chat-7b": ("chat", 2048),
        "internlm-chat-7b-8k": ("chat", 8192),
        "internlm-chat-20b": ("chat", 8192),
    }
    assert made["internlm-7b"].get_prompt("hi") == made["internlm-20b"].render(HI) == "hi"
    assert made["internlm-chat-7b-8k"].render(HI) == CHAT_TEMPLATES.get("internlm")().render(HI)
    own = ChatTemplateRegistry(builtin)
    own.register_module("internlm-chat-7b")(Derived)
    assert own.get("internlm-chat-7b") is Derived
    for name in ("internlm-chat-7b", "internlm"):
        with pytest.raises(ChatTemplateError) as caught:
            own.register_module(name)(Derived)
        assert caught.value.name == name


@for_cases("name", ["internlm2", "qwen", "llama3"])
def test_a_completion_model_gets_texts_without_markers(name: str) -> None:
    made: Any = CHAT_TEMPLATES.get(name)(capability="completion")
    text = made.get_prompt("hi")
    assert made.render(HI) == text and made.render(TALK) == f"{text}\nhello"
    composition = compose(Layers(), PromptContext(user_input="hi", conversation=[]))
    assert composition.to_text(made) == text
    for part in ({"role": "tool", "content": "x"}, {"role": "assistant", "tool_calls": [CALL]}):
        with pytest.raises(ChatTemplateError) as caught:
            made.render([*HI, part])
        assert caught.value.problems


def test_an_infilling_model_gets_one_prompt() -> None:
    made: Any = CHAT_TEMPLATES.get("codellama")(capability="infilling")
    prompt = [{"role": "user", "content": "def <FILL>: pass"}]
    assert made.render(prompt) == made.get_prompt("def <FILL>: pass")
    with pytest.raises(ChatTemplateError) as caught:
        made.render(TALK)
    assert [place for place, _ in caught.value.problems] == ["messages"]


def test_the_registry_of_the_document() -> None:
    own = ChatTemplateRegistry()

    @own.register_module(name="llama2")
    class Llama2(Derived):
        pass

    assert own.get("llama2")().get_prompt("hi") == "<U>hi<A>"
    assert "[INST]" in CHAT_TEMPLATES.get("llama2")().get_prompt("hi")
    with pytest.raises(ChatTemplateError) as caught:  # the name of a model must be registered
        CHAT_TEMPLATES.get("llama22")
    assert caught.value.name == "llama22"


def test_the_rounds_of_the_document() -> None:
    made = CHAT_TEMPLATES.get("internlm-chat-7b")(meta_instruction="I")
    turns = [{"role": role, "content": f"{role[0].upper()}{n}"} for n in (1, 2) for role in ("user", "assistant")]
    text = made.render([*turns, {"role": "user", "content": "Un"}])
    # The document prints a line end after each answer; the sent text has the end token of the model before it.
    assert (
        text.replace("<eoa>", "")
        == "<|System|>:I\n<|User|>:U1\n<|Bot|>:A1\n<|User|>:U2\n<|Bot|>:A2\n<|User|>:Un\n<|Bot|>:"
    )


def blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text("utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.skipif(not DOCUMENT.is_file(), reason="the documents are not next to this checkout")
def test_the_code_of_the_document_runs_as_written() -> None:
    code = blocks()
    (decorate,) = [block for block in code if block.startswith("def decorate_prompt") and "assert" in block]
    (stitch,) = [block for block in code if block.startswith("def messages2prompt")]
    (chat,) = [block for block in code if block.startswith("class InternLMChat7B(")]
    (long,) = [block for block in code if "class InternLMChat7B8K(" in block]
    (big,) = [block for block in code if "class InternLM20B(" in block]
    (register,) = [
        block for block in code if block.strip() == "@CHAT_TEMPLATES.register_module(name='internlm-chat-7b')"
    ]
    (own,) = [block for block in code if "class YourAwesomeMModel(" in block]
    registry = ChatTemplateRegistry()
    registry.register_module(name="internlm-7b")(BaseTemplate)
    methods = f"    {decorate}\n{textwrap.indent(stitch, '    ')}"
    scope: dict[str, Any] = {"BaseTemplate": BaseTemplate, "CHAT_TEMPLATES": registry}
    exec(f"{big}\n{register}{chat}\n{methods}\n{long}\n{own}", scope)

    assert set(registry) == {
        *("internlm-7b", "internlm-20b", "internlm-chat-7b", "internlm-chat-7b-8k", "internlm-chat-20b"),
        "an-awsome-name",
    }
    assert registry.get("internlm-chat-20b") is registry.get("internlm-chat-7b-8k")
    assert registry.get("internlm-20b")().get_prompt("hi") == "hi"
    made: Any = registry.get("internlm-chat-7b-8k")()
    assert (made.session_len, made.stop_words) == (8192, ["<eoa>"])
    assert made.get_prompt("hi", sequence_start=False) == "\n<|User|>:hi\n<|Bot|>:"
    known: Any = CHAT_TEMPLATES.get("internlm")()
    assert made.get_prompt("你叫什么名字？") == known.get_prompt("你叫什么名字？")
    # The document omits `eoa`: its messages2prompt fails on any list without it.
    with pytest.raises(ChatTemplateError) as caught:
        made.render(HI)
    assert isinstance(caught.value.__cause__, AttributeError)
    made.eoa = "<eoa>\n"
    assert made.render(TALK).endswith("<|User|>:hi\n<|Bot|>:hello<eoa>\n<|Bot|>:")
    assert made.render(TALK, add_generation_prompt=False).endswith("<|Bot|>:hello<eoa>\n")
    with pytest.raises(ChatTemplateError) as caught:
        registry.get("an-awsome-name")().render(HI)
    assert caught.value.template == "YourAwesomeMModel"


@pytest.mark.skipif(not DOCUMENT.is_file(), reason="the documents are not next to this checkout")
def test_the_prompt_is_equal_to_the_prompt_in_the_document() -> None:
    printed = re.findall(r"^```text\n(.*?)^```", DOCUMENT.read_text("utf-8"), re.DOTALL | re.MULTILINE)[0]
    made: Any = CHAT_TEMPLATES.get("internlm")()
    assert f"{made.get_prompt('你叫什么名字？')}\n" == printed


@pytest.mark.skipif(not CASES.is_file(), reason="the conformance cases are not next to this checkout")
def test_each_required_case_of_lmdeploy_passes() -> None:
    command = [sys.executable, str(ROOT / "tests/conformance/run.py"), "lmdeploy", str(CASES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "488 passed, 0 failed"), done.stdout
