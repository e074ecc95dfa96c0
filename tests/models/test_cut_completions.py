"""Raw completions at their limit of tokens: a partial call and a partial thought are no answers, a partial text is."""

from __future__ import annotations

from typing import Any

import pytest

from agentkit import Agent, CompletionModel, Composition, tool
from agentkit.models import ModelReplyCut
from agentkit.models.completion.functionary import FunctionaryReply
from agentkit.models.completion.harmony import HarmonyReply
from agentkit.models.completion.text_tool_calls import TextToolCalls
from agentkit.prompts.chat_templates import JinjaChatTemplate
from tests.cases import collected
from tests.models.asking import ask, both, composed
from tests.models.raw import ChatML, raw_model
from tests.models.test_tool_call_formats import DOCUMENTED, RICH, SCHEMAS
from tests.servers import ChatServer, completes

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>'
HARMONY = (
    "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather"
    ' <|constrain|>json<|message|>{"city": "Oslo"}'
)
FUNCTIONARY = 'all\nLet me see.>>>get_weather\n{"city": "Oslo"}'
NO_OPENING = 5
"""Maximum number of opening characters of a call that can still be text."""


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def cut(model: CompletionModel, composition: Composition, *, stream: bool = False) -> ModelReplyCut:
    with pytest.raises(ModelReplyCut) as caught:
        ask(model, composition, (lambda text: None) if stream else None)
    return caught.value


def ended(said: str, format: str | None, size: int) -> TextToolCalls:
    inside = TextToolCalls(SCHEMAS, format)
    shown = "".join([inside.add(said[at : at + size]) for at in range(0, len(said), size)])
    shown += inside.end(at_limit=True)
    assert said.startswith(shown) or inside.calls
    return inside


def test_a_call_with_any_cut_is_read_or_reported_as_cut() -> None:
    failures: list[str] = []
    for format, said in [*DOCUMENTED, *RICH]:
        for any_format in [False, True]:
            with collected(failures, format, said, any_format):
                blank = len(said) - len(said.lstrip())
                # The name of a tool is the only sign of a list of calls.
                first = said.index("(") + 1 if said[blank] == "[" else blank + NO_OPENING
                for end in range(first, len(said)):
                    inside = ended(said[:end], None if any_format else format, 7)
                    assert inside.is_cut or inside.calls, said[:end]
    assert failures == []


def test_complete_calls_are_not_cut() -> None:
    failures: list[str] = []
    for format, said in [*DOCUMENTED, *RICH]:
        with collected(failures, format, said):
            assert not ended(said, format, 1000).is_cut
    assert failures == []


@pytest.mark.parametrize(
    "said",
    [
        "Hello, I am",
        "<tool_call> opens a call, and then",
        "Write `<tool_call>` in front and `</tool_call>` behind it, so that",
        "<tool_call>add(2, 3)</tool_call> is no call, because",
        '{"answer": [1, 2',
        '{"name": "Be',
        "[1, 2, 3",
        "a < b and b <",
        "[TOOL_CALLS] is what Mistral writes, while",
        "<think>I could write <tool_call>",
        '<tool_call>{"name": 7} cannot be',
        "functools[0] is",
    ],
)
def test_a_partial_text_is_not_a_partial_call(said: str) -> None:
    for size in (1, 1000):
        inside = TextToolCalls(SCHEMAS)
        shown = "".join([inside.add(said[at : at + size]) for at in range(0, len(said), size)])
        assert shown + inside.end(at_limit=True) == said
        assert not inside.is_cut


@pytest.mark.parametrize(
    "said",
    [
        '{"name": "get_time", "arguments": {"city',
        '[{"type": "function", "function": {"name": "get_time", "arguments": {"city": "</tool_call>',
        "[get_time(city='Li",
        '<tool_call>{"name": "get_time", "arguments": {"city": "</tool_call>',
        '<tool_call>{"name": "get_time", "arguments": {"city": "<tool_call>',
        "<tool_call>",
        "Well. <tool_c",
        '<tool_call>{"name": "get_time", "arguments": {}}</tool_call><tool_call>{"na',
        '[TOOL_CALLS]get_time[ARGS]{}[TOOL_CALLS]get_weather[ARGS]{"ci',
    ],
)
def test_a_partial_call_in_any_pieces_is_reported(said: str) -> None:
    for size in (1, 3, 1000):
        assert ended(said, None, size).is_cut


def test_a_message_of_harmony_is_read_or_reported_as_cut() -> None:
    for end in range(HARMONY.index("to=") + 4, len(HARMONY) + 1):
        inside = HarmonyReply()
        shown = inside.add(HARMONY[:end]) + inside.end(at_limit=True)
        assert shown == ""
        assert inside.is_cut == (end < len(HARMONY))


def test_a_message_of_functionary_is_read_or_reported_as_cut() -> None:
    for end in range(FUNCTIONARY.index(">>>") + 4, len(FUNCTIONARY) + 1):
        inside = FunctionaryReply(SCHEMAS)
        shown = inside.add(FUNCTIONARY[:end]) + inside.end(at_limit=True)
        assert shown == "Let me see."
        assert inside.is_cut == (end < len(FUNCTIONARY))


@both
def test_a_reply_that_ends_inside_a_call_is_an_error_like_in_chat_completions(server: ChatServer, stream: bool) -> None:
    name = server.on("half-call", completes("Let me see." + CALL[:40], "length"))
    error = cut(raw_model(server, name), composed(tools=[add.spec]), stream=stream)
    assert error.text == "Let me see."
    assert "inside a tool call" in str(error) and "max_tokens" in str(error)


@both
def test_a_partial_call_is_not_streamed_as_text(server: ChatServer, stream: bool) -> None:
    name = server.on("half-heard", completes("Let me see." + CALL[:40], "length"))
    heard: list[str] = []
    with pytest.raises(ModelReplyCut):
        ask(raw_model(server, name), composed(tools=[add.spec]), heard.append if stream else None)
    assert "".join(heard) == ("Let me see." if stream else "")


def test_a_call_that_is_complete_at_the_limit_is_executed(server: ChatServer) -> None:
    name = server.on("whole-call", completes(CALL.removesuffix("\n</tool_call>"), "length"))
    reply = ask(raw_model(server, name), composed(tools=[add.spec]))
    assert [call.arguments for call in reply.message.tool_calls] == ['{"a": 2, "b": 3}']


def test_a_broken_call_that_was_not_cut_is_the_text_of_the_reply(server: ChatServer) -> None:
    name = server.on("broken-call", completes(CALL[:40]))
    assert ask(raw_model(server, name), composed(tools=[add.spec])).message.text == CALL[:40]


def test_a_run_ends_with_the_error_and_not_with_a_partial_call(server: ChatServer) -> None:
    name = server.on("half-run", completes(CALL[:40], "length"))
    agent = Agent(CompletionModel(name, "qwen2d5", base_url=server.url), tools=[add])
    with pytest.raises(ModelReplyCut):
        agent.run_sync("2 + 3?")


OPENING = JinjaChatTemplate(
    "{{ tools or '' }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[A]<think>\n{% endif %}"
)


@pytest.mark.parametrize(
    ("template", "said", "text"),
    [
        (ChatML(), "<think>\nTwo and", None),
        (ChatML(), "\n[THINK]Two and", None),
        (ChatML(), "<think>Two.</think>It is", "It is"),
        (ChatML(), "<think>Two.</think><think>And", None),
        (ChatML(), "It is <think>", "It is <think>"),
        (OPENING, "Two and", None),
        (OPENING, "", None),
        (OPENING, "Two.\n</think>\n\nIt is", "It is"),
    ],
)
@pytest.mark.parametrize("tools", [[], [add.spec]], ids=["", "tools"])
def test_a_reply_with_only_a_partial_thought_is_cut(
    server: ChatServer, template: Any, said: str, text: str | None, tools: list[Any]
) -> None:
    model = raw_model(server, server.on("half-thought", completes(said, "length")), chat_template=template)
    if text is None:
        error = cut(model, composed(tools=tools))
        assert "thinking" in str(error) and error.text == ""
    else:
        reply = ask(model, composed(tools=tools))
        assert (reply.message.text, reply.finish_reason) == (text, "length")


@pytest.mark.parametrize(
    ("template", "said"),
    [(ChatML(), "<think>\nTwo and"), (ChatML(), "\n[THINK]Two and"), (OPENING, "Two and"), (ChatML(), "It is <think>")],
)
@pytest.mark.parametrize("tools", [[], [add.spec]], ids=["", "tools"])
def test_a_partial_thought_of_a_reply_that_was_not_cut_is_its_text(
    server: ChatServer, template: Any, said: str, tools: list[Any]
) -> None:
    whole = raw_model(server, server.on("thought", completes(said)), chat_template=template)
    assert ask(whole, composed(tools=tools)).message.text == said
