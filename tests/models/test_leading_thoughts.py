"""Thoughts of a raw completion before the answer are thinking of the reply, not its text."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit import Agent, CompletionModel, tool
from agentkit.models import Delta
from agentkit.models.completion.leading_thoughts import LeadingThoughts
from agentkit.prompts import Layers, ToolPrompt
from agentkit.prompts.chat_templates import JinjaChatTemplate
from agentkit_prompts.chat_templates.reasoning_tags import REASONING_TAGS
from tests.cases import collected
from tests.models.asking import ask, composed
from tests.models.raw import ChatML, raw_model
from tests.models.test_cut_completions import OPENING
from tests.servers import ChatServer, completes, in_turn

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>'


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def taken(pieces: list[str], *, is_open: bool) -> tuple[str, str, str]:
    """Return the text, the thoughts, and their streamed pieces."""
    leading = LeadingThoughts(is_open=is_open)
    text, passed_on, heard = [], [], 0
    for piece in pieces:
        text.append(leading.add(piece))
        passed_on.append("".join(leading.thoughts[heard:]))
        heard = len(leading.thoughts)
    return "".join([*text, leading.end()]), "".join(leading.thoughts), "".join(passed_on)


def cut_up(said: str, size: int) -> list[str]:
    return [said[at : at + size] for at in range(0, len(said), size)]


BEGINNINGS: list[Any] = [
    ("<think>So.</think>Four.", "Four.", "So."),
    ("\n<think>\nSo.\n</think>\n\nFour.", "Four.", "\nSo.\n"),
    ("<think>a</think>\n<thinking>b</thinking> c", "c", "a\n\nb"),
    ("<think>\n\n</think>\n\nFour.", "Four.", ""),
    ("<think></think>", "", ""),
    ("<think>a</thinking></think>b", "b", "a</thinking>"),
    ("Four. <think>So.</think>", "Four. <think>So.</think>", ""),
    ("  Four.", "  Four.", ""),
    ("<thin ice", "<thin ice", ""),
    ("<th", "<th", ""),
    (" <think>a", " <think>a", ""),
    ("<think>a</think> <think>b", "<think>b", "a"),
    ("a</think>b", "a</think>b", ""),
    (" \n", " \n", ""),
    ("", "", ""),
    *[(f"{opening}So.{closing}\nFour.", "Four.", "So.") for opening, closing in REASONING_TAGS],
]


def test_the_thoughts_at_the_start_of_a_reply_are_removed_from_its_text() -> None:
    failures: list[str] = []
    for said, text, thinking in BEGINNINGS:
        with collected(failures, said, text, thinking):
            for size in (1, 3, 1000):
                assert taken(cut_up(said, size), is_open=False)[:2] == (text, thinking), size
    assert failures == []


@pytest.mark.parametrize(
    ("said", "text", "thinking"),
    [
        ("So.\n</think>\n\nFour.", "Four.", "So.\n"),
        ("<think>So.</think>Four.", "Four.", "So."),
        ("So.[/THINK]Four.", "Four.", "So."),
        ("</think>Four.", "Four.", ""),
        ("a</think> <think>b</think>c", "c", "a\n\nb"),
        ("Four.", "Four.", ""),
        ("", "", ""),
    ],
)
def test_a_prompt_may_have_opened_the_thought(said: str, text: str, thinking: str) -> None:
    for size in (1, 3, 1000):
        assert taken(cut_up(said, size), is_open=True)[:2] == (text, thinking), size


WRITTEN = st.lists(
    st.sampled_from(["<think>", "</think>", "[THINK]", "[/THINK]", "<thinking>", "</thinking>", "<thi", "</", " ", "a"])
)


@given(WRITTEN, st.booleans(), st.integers(1, 7))
def test_the_pieces_of_a_reply_do_not_matter(written: list[str], is_open: bool, size: int) -> None:
    said = "".join(written)
    text, thinking, _ = taken([said], is_open=is_open)
    again, thoughts, passed_on = taken(cut_up(said, size), is_open=is_open)
    assert (again, thoughts) == (text, thinking) and passed_on.startswith(thinking)
    assert said.endswith(text) and len(text) + len(thinking) <= len(said) + 2 * said.count(">")


@pytest.mark.parametrize("tools", [[], [add.spec]], ids=["", "tools"])
@pytest.mark.parametrize(
    ("template", "said"),
    [(ChatML(), "<think>\nTwo and two.\n</think>\n\nFour."), (OPENING, "\nTwo and two.\n</think>\n\nFour.")],
    ids=["", "opened by the prompt"],
)
def test_thoughts_are_not_text_of_the_reply(server: ChatServer, template: Any, said: str, tools: list[Any]) -> None:
    model = raw_model(server, server.on("thinks", completes(said)), chat_template=template)
    message = ask(model, composed(tools=tools)).message
    assert (message.text, message.reasoning) == ("Four.", "\nTwo and two.\n")
    heard: list[Delta] = []
    streamed = asyncio.run(model.request(composed(tools=tools), on_delta=heard.append))
    assert streamed.message == message
    for kind, text in (("text", "Four."), ("thinking", "\nTwo and two.\n")):
        assert "".join(one.text for one in heard if one.kind == kind) == text


def test_the_output_of_a_run_is_the_answer_alone(server: ChatServer) -> None:
    name = server.on("answers", completes("<think>One of {1, 2}.</think>\n2"))
    agent: Agent[Any, int] = Agent(CompletionModel(name, "qwen2d5", base_url=server.url), output=int)
    assert agent.run_sync("1 + 1?").output == 2


def test_a_thought_without_an_end_is_the_answer(server: ChatServer) -> None:
    model = raw_model(server, server.on("unended", completes("Four.")), chat_template=OPENING)
    assert ask(model, composed()).message.text == "Four."


THINKING = """{{ tools or '' }}{% for m in messages %}<|{{ m.role }}|>
{%- if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>
{% endif %}{{ m.content }}{% for call in m.tool_calls or [] %}<tool_call>
{{ call.function | tojson }}
</tool_call>{% endfor %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""


def test_a_call_after_a_thought_is_executed_and_the_next_prompt_contains_both(server: ChatServer) -> None:
    said = f"<think>Add.</think>\n{CALL}"
    name = server.on("calls", in_turn(completes(said), completes("It is 5.")))
    agent = Agent(CompletionModel(name, JinjaChatTemplate(THINKING), base_url=server.url), tools=[add])
    assert agent.run_sync("2 + 3?").output == "It is 5."
    first, second = (one.body["prompt"] for one in server.to(name))
    assert second.startswith(f"{first}{said}<|tool|>5")


WITHOUT_CALLS = re.sub("{% for call .*?{% endfor %}", "", THINKING, flags=re.S).replace("tools", "none")


@pytest.mark.parametrize(("source", "count"), [(WITHOUT_CALLS, 1), ("vicuna", 0)])
def test_if_calls_stay_text_a_thought_is_sent_if_the_template_has_a_place_for_it(
    server: ChatServer, source: str, count: int
) -> None:
    name = server.on(f"in text {count}", in_turn(completes(f"<think>Add.</think>{CALL}"), completes("It is 5.")))
    template = JinjaChatTemplate(source, lossy=True) if count else source
    agent = Agent(CompletionModel(name, template, base_url=server.url), layers=Layers([ToolPrompt()]), tools=[add])
    assert agent.run_sync("2 + 3?").output == "It is 5."
    prompt = server.to(name)[-1].body["prompt"]
    assert prompt.count("<think>Add.</think>") == prompt.count("Add.") == count and CALL in prompt
