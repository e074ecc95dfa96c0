"""Tool calls in text that cannot be read: an error for the model, repaired by tools with `repair`, never an answer."""

from __future__ import annotations

import warnings
from datetime import datetime
from typing import Any

import pytest
from starlette.responses import Response

from agentkit import Agent, CompletionModel, tool
from agentkit.errors import OutputError
from agentkit.models import UnreadableCallsWarning
from agentkit.prompts.chat_templates import JinjaChatTemplate
from tests.cases import collected
from tests.servers import Asked, ChatServer, Handler, completes

TEMPLATE = (
    "SIGN{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ m.content }}{% for c in m.tool_calls or [] %}<CALL>{{ c.function | tojson }}</CALL>{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CALLED: list[str] = []


@tool
def weather(city: str) -> str:
    """Return the weather."""
    CALLED.append(city)
    return "sun"


@tool(repair=True)
def lenient_weather(city: str) -> str:
    """Return the weather."""
    CALLED.append(city)
    return "sun"


def call(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


def in_order(*texts: str) -> Handler:
    """Answer the requests with the texts, and further requests with the last text."""
    replies = [*texts]

    def handler(asked: Asked) -> Response:
        return completes(replies.pop(0) if len(replies) > 1 else replies[0])(asked)

    return handler


TAGGED = JinjaChatTemplate(
    TEMPLATE.replace("SIGN", "")
    .replace("<CALL>{{ c.function | tojson }}</CALL>", "<tool_call>\n<function={{ c.function.name }}>\nEACH</function>")
    .replace(
        "EACH", "{% for k, v in c.function.arguments.items() %}<parameter={{ k }}>\n{{ v }}\n</parameter>{% endfor %}"
    )
)
UNREADABLE: list[tuple[Any, list[str]]] = [
    (
        "qwen2d5",
        [
            call('{"name": "weather", "arguments": {"city": "Oslo"}'),
            call('{"name": weather, "arguments": {"city": "Oslo"}}'),
            call('weather(city="Oslo")'),
            "Let me look.\n" + call('{"name": "weather", "arguments": {"city": "Oslo"') + "\nDone.",
            '<tool_call>{"name": "weather", "arguments": {"city": "Oslo"',
            call('{"city": "Oslo"}'),
            '{"name": "weather", "arguments": {"city": Oslo}}',
            '{"arguments": {"city": Oslo}, "name": "weather"}',
            '{name: "weather", "arguments": {"city": "Oslo"}}',
            "{'name': 'weather', 'arguments': {'city': Oslo}}",
            # The call starts a line, so that the sentence after it does not mention it.
            call('{"name": "weather", "arguments": {"city": "Oslo"}') + " and more.",
            "Let me look.\n" + call('{"name": "weather", "arguments": {"city": "Oslo"}') + " and more.",
        ],
    ),
    (
        TAGGED,
        [
            "<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</function>\n</tool_call>",
            # The template cannot render arguments that are nearly JSON.
            call('{"name": "weather", "arguments": {"city": "Oslo",}}'),
            '{"name": "weather", "arguments": {"city": "Oslo",}}',
        ],
    ),
    (
        "llama3_1",
        [
            '<|python_tag|>{"name": "weather", "parameters": {"city": "Oslo"',
            "<function=weather>{city}</function>",
        ],
    ),
]


def test_a_call_that_cannot_be_read_is_corrected_once_and_is_never_the_answer(server: ChatServer) -> None:
    failures: list[str] = []
    for template, texts in UNREADABLE:
        for text in texts:
            for is_streamed in (False, True):
                for replies in ([text, "Sun."], [text]):
                    CALLED.clear()
                    name = server.on(f"unreadable-{len(server.asked)}", in_order(*replies))
                    agent = Agent(CompletionModel(name, template, base_url=server.url), tools=[weather])
                    listener = (lambda event: None) if is_streamed else None
                    with collected(failures, template, text, is_streamed, replies):
                        if len(replies) > 1:
                            assert agent.run_sync("Weather?", on_event=listener).output == "Sun."
                        else:
                            with pytest.raises(OutputError) as caught:
                                agent.run_sync("Weather?", on_event=listener)
                            assert (caught.value.name, caught.value.text) == ("tool_call", text)
                        assert (len(server.to(name)), CALLED) == (2, [])
    assert failures == []


@pytest.mark.parametrize(
    ("arguments", "called"),
    [
        ('{"city": "Oslo",}', ["Oslo"]),
        ("{'city': 'Oslo'}", ["Oslo"]),
        ('{"city": "O}slo",}', ["O}slo"]),
        ('{"city": "Oslo"', []),
        ('{"city": Oslo}', []),
    ],
)
def test_repair_reaches_calls_in_text(server: ChatServer, arguments: str, called: list[str]) -> None:
    for text in (
        call(f'{{"name": "lenient_weather", "arguments": {arguments}}}'),
        f'{{"name": "lenient_weather", "arguments": {arguments}}}',
    ):
        for tools, expected in (([lenient_weather], called), ([weather], [])):
            CALLED.clear()
            written = text.replace("lenient_weather", tools[0].name)
            name = server.on(f"repaired-{len(server.asked)}", in_order(written, "Sun."))
            model = CompletionModel(name, "qwen2d5", base_url=server.url)
            assert Agent(model, tools=tools).run_sync("Weather?").output == "Sun."
            assert expected == CALLED


@pytest.mark.parametrize(
    "text",
    [
        "Use <tool_call> for calls.",
        'Write `<tool_call>{"name": ...}</tool_call>`, as the page shows.',
        '{"answer": 1}',
        "[1, 2",
        "<think>" + call("{oh") + "</think>Sun.",
    ],
)
def test_a_text_that_only_names_calls_is_an_answer(server: ChatServer, text: str) -> None:
    name = server.on(f"named-{len(server.asked)}", completes(text))
    agent = Agent(CompletionModel(name, "qwen2d5", base_url=server.url), tools=[weather])
    assert agent.run_sync("How?").output in (text, "Sun.")


@pytest.mark.parametrize(("tag", "count"), [("tool_call", 0), ("new_call", 1)])
def test_an_agent_with_tools_warns_of_a_template_with_unreadable_calls(
    server: ChatServer, tag: str, count: int
) -> None:
    template = JinjaChatTemplate(TEMPLATE.replace("SIGN", "<tool_call>").replace("CALL", tag), now=datetime(2026, 1, 1))
    model = CompletionModel(server.on(f"warned-{tag}", completes("Hi.")), template, base_url=server.url)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Agent(model).run_sync("Hello?")
        assert caught == []
        for _ in range(2):
            Agent(model, tools=[weather]).run_sync("Hello?")
    assert [warning.category for warning in caught] == [UnreadableCallsWarning] * count
