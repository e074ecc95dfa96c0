"""Programs like the examples of OpenAI's SDK, against agents with the names of their models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel

from agentkit import Agent, Message, ScriptedModel, ToolCall
from agentkit.prompts import Composition
from tests.raising import raises
from tests.server.serving_agents import Client, served

MODEL = "gpt-4o-2024-08-06"


class Table(StrEnum):
    orders = "orders"
    customers = "customers"


class Named(BaseModel):
    column: str


class Condition(BaseModel):
    column: str
    value: str | int | Named


class Query(BaseModel):
    """Look rows up."""

    table: Table
    conditions: list[Condition]


class Step(BaseModel):
    explanation: str
    output: str


class Solution(BaseModel):
    steps: list[Step]
    answer: str


class Weather(BaseModel):
    city: str


QUERY = {"table": "orders", "conditions": [{"column": "due", "value": {"column": "sent"}}, {"column": "n", "value": 3}]}
SOLVED = {"steps": [{"explanation": "Subtract 31.", "output": "8x = -29"}], "answer": "x = -29/8"}


def reply(sent: Composition) -> Message:
    """Answer by the last message."""
    messages = sent.messages
    asked = next(message.text for message in reversed(messages) if message.role == "user")
    results = [message.text for message in messages if message.role == "tool"]
    calls: list[tuple[str, Any]] = []
    if asked == "Query" and not results:
        calls = [("Query", QUERY)]
    elif asked == "Weather" and len(results) < 2:
        calls = [("weather", {"city": "Paris"}), ("weather", {"city": "Oslo"})][len(results) :]
    if calls:
        made = [ToolCall(f"c{at}", name, json.dumps(arguments)) for at, (name, arguments) in enumerate(calls)]
        return Message("assistant", tool_calls=tuple(made))
    if asked == "Solve":
        return Message("assistant", json.dumps(SOLVED))
    return Message("assistant", f"You asked {asked}; {', '.join(results) or 'nothing was looked up'}.")


@pytest.fixture(scope="module")
def server() -> Iterator[Client]:
    with served(Agent(ScriptedModel.repeat(reply), name=MODEL)) as made:
        yield made


@pytest.fixture
def client(server: Client, monkeypatch: pytest.MonkeyPatch) -> OpenAI:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    return OpenAI()


def user(text: str) -> Any:
    return [{"role": "system", "content": "You help."}, {"role": "user", "content": text}]


async def test_chat_streams(client: OpenAI) -> None:
    stream = client.chat.completions.create(model=MODEL, messages=user("A"), stream=True, max_tokens=5, temperature=0)
    first = next(stream)
    assert first.choices[0].delta.role == "assistant"
    assert "".join([one.choices[0].delta.content or "" for one in stream]).startswith("You asked A")
    async with openai.AsyncOpenAI() as asked:
        chunks = await asked.chat.completions.create(model=MODEL, messages=user("B"), stream=True)
        found = [one async for one in chunks]
    assert found[-1].choices[0].finish_reason == "stop"
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=user("C"))
    assert raw.status_code == 200 and raw.parse().choices[0].message.content


def test_chat_streams_a_parsed_answer(client: OpenAI) -> None:
    with client.chat.completions.stream(model=MODEL, messages=user("Solve"), response_format=Solution) as stream:
        events = {event.type: event for event in stream}
    done: Any = events["content.done"]
    assert done.parsed == Solution(**SOLVED)
    assert stream.get_final_completion().choices[0].message.parsed == Solution(**SOLVED)


def test_chat_parses_the_arguments_of_tools(client: OpenAI) -> None:
    tools = [openai.pydantic_function_tool(Query)]
    done = client.chat.completions.parse(model=MODEL, messages=user("Query"), tools=tools)
    call: Any = (done.choices[0].message.tool_calls or [])[0]
    assert call.function.parsed_arguments == Query(**QUERY)


def test_chat_streams_parallel_calls(client: OpenAI) -> None:
    tools = [openai.pydantic_function_tool(Weather, name="weather")]
    with client.chat.completions.stream(
        model=MODEL, messages=user("Weather"), tools=tools, parallel_tool_calls=True
    ) as stream:
        events: list[Any] = list(stream)
    done = [event for event in events if event.type == "tool_calls.function.arguments.done"]
    assert [event.parsed_arguments for event in done] == [Weather(city="Paris"), Weather(city="Oslo")]
    calls = stream.get_final_completion().choices[0].message.tool_calls or []
    assert [call.function.name for call in calls] == ["weather", "weather"]


def test_responses_call_tools_in_a_loop(client: OpenAI) -> None:
    schema = Weather.model_json_schema()
    tools: Any = [{"type": "function", "name": "weather", "description": "The weather.", "parameters": schema}]
    response = client.responses.create(model=MODEL, input="Weather", tools=tools)
    while calls := [item for item in response.output if item.type == "function_call"]:
        outputs: Any = []
        for call in calls:
            found = f"rain in {json.loads(call.arguments)['city']}"
            outputs.append({"type": "function_call_output", "call_id": call.call_id, "output": found})
        response = client.responses.create(model=MODEL, previous_response_id=response.id, input=outputs, tools=tools)
    assert response.output_text == "You asked Weather; rain in Paris, rain in Oslo."


def test_responses_continue_with_an_id_and_with_items(client: OpenAI) -> None:
    first = client.responses.create(model=MODEL, input="One")
    second = client.responses.create(model=MODEL, input="Two", previous_response_id=first.id)
    assert second.output_text.startswith("You asked Two")
    items: Any = [{"role": "user", "content": "One"}, *first.output, {"role": "user", "content": "Three"}]
    assert client.responses.create(model=MODEL, input=items).output_text.startswith("You asked Three")
    given: Any = [
        {"role": "developer", "content": "Use what the functions returned."},
        {"role": "user", "content": "Where is my order?"},
        {"type": "function_call", "call_id": "call_1", "name": "status", "arguments": '{"order": "1"}'},
        {"type": "function_call_output", "call_id": "call_1", "output": '{"status": "shipped"}'},
    ]
    assert "shipped" in client.responses.create(model=MODEL, input=given).output_text


def test_responses_parse_and_stream(client: OpenAI) -> None:
    assert client.responses.parse(model=MODEL, input="Solve", text_format=Solution).output_parsed == Solution(**SOLVED)
    tools: Any = [openai.pydantic_function_tool(Query)]
    item: Any = client.responses.parse(model=MODEL, input="Query", tools=tools).output[0]
    assert item.parsed_arguments == Query(**QUERY)
    with client.responses.stream(model=MODEL, input="Query", tools=tools) as stream:
        kinds = [event.type for event in stream]
        made: Any = stream.get_final_response().output[0]
    assert made.parsed_arguments == Query(**QUERY) and kinds[0] == "response.created"
    with client.responses.stream(model=MODEL, input="Solve", text_format=Solution) as parsing:
        text = "".join([event.delta for event in parsing if event.type == "response.output_text.delta"])
        assert parsing.get_final_response().output_parsed == Solution(**SOLVED)
    assert json.loads(text) == SOLVED


def test_errors_have_the_classes_of_the_sdk(client: OpenAI) -> None:
    with raises(openai.NotFoundError, code="model_not_found", param="model"):
        client.chat.completions.create(model="nothing", messages=user("x"))
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=MODEL, messages=user("x"), temperature=-1)
    assert caught.value.param == "temperature" or "temperature" in str(caught.value)
    assert [one.id for one in client.models.list()] == [MODEL]
