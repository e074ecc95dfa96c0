"""Replies of a chat endpoint that does not read tool calls: the text is the answer, with one warning for a model."""

from __future__ import annotations

import warnings

from agentkit import Agent, OpenAIModel, tool
from agentkit.models import CallAsTextWarning, ModelSettings
from tests.servers import ChatServer, chat_reply


@tool
def weather(city: str) -> str:
    """Return the weather."""
    return "sun"


JSON = '{"name": "weather", "arguments": {"city": "Bern"}}'
CALLS = (
    f"<tool_call>\n{JSON}\n</tool_call>",
    f"<think>The tool weather.</think>\n\n<tool_call>{JSON}</tool_call>",
    f"<tool_call>{JSON}</tool_call>\n<tool_call>{JSON}</tool_call>",
    f"<tool_call>\n{JSON}",
    JSON,
    f"[TOOL_CALLS][{JSON}]",
    f"<|python_tag|>{JSON}",
    '[weather(city="Bern")]',
    "<function=weather><parameter=city>Bern</parameter></function>",
    "<tool_call>weather<arg_key>city</arg_key><arg_value>Bern</arg_value></tool_call>",
    "<tool_call>weather</tool_call>",
)
ANSWERS = (
    "The weather is good.",
    f"Write <tool_call>{JSON}</tool_call> to call it.",
    f"<tool_call>{JSON}</tool_call> is a call.",
    JSON.replace("weather", "price"),
    f"<tool_call>{JSON.replace('weather', 'price')}</tool_call> weather",
    '{"city": "Bern", "is": "weather"}',
    "weather",
)


def test_a_call_as_text_is_a_warning_and_other_texts_are_answers(server: ChatServer) -> None:
    wrong = []
    for number, text in enumerate((*CALLS, *ANSWERS)):
        model = OpenAIModel(server.on(f"text-{number}", chat_reply(text)), base_url=server.url)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for each in (model, model.with_settings(ModelSettings(temperature=0.5))):
                output = Agent(each, tools=[weather]).run_sync("Weather in Bern?").output
            Agent(model).run_sync("Without tools")
        categories = [warning.category for warning in caught]
        if output != text or categories != [CallAsTextWarning] * (text in CALLS):
            wrong.append((text, output, categories))
    assert not wrong
