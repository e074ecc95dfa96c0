"""Request bodies as public clients send them: fields that change no answer are accepted, other fields are refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel
from starlette.testclient import TestClient

from agentkit import Agent, ScriptedModel
from agentkit.server import Server

HI: Any = [{"role": "user", "content": "Hi"}]
TOOL: Any = {"type": "function", "function": {"name": "look", "description": None, "parameters": None, "strict": None}}
RESPONSES_TOOL: Any = {"type": "function", "name": "look", "strict": None}
CITY: Any = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CHAT_FIELDS = (
    *("audio", "function_call", "functions", "logit_bias", "logprobs", "metadata", "modalities", "moderation", "n"),
    *("parallel_tool_calls", "prediction", "reasoning_effort", "response_format", "seed", "service_tier", "stop"),
    *("stream", "stream_options", "tools", "tool_choice", "top_logprobs", "user", "verbosity", "web_search_options"),
    *("max_tokens", "temperature", "additional_kwargs", "a_future_field"),
)
RESPONSES_FIELDS = (
    *("background", "context_management", "conversation", "include", "instructions", "max_output_tokens"),
    *("max_tool_calls", "metadata", "previous_response_id", "prompt", "reasoning", "safety_identifier", "store"),
    *("stream", "text", "tool_choice", "tools", "top_logprobs", "top_p", "truncation", "user", "a_future_field"),
)
ACCEPTED: list[tuple[str, dict[str, Any]]] = [
    ("every field null", dict.fromkeys(CHAT_FIELDS)),
    ("labels", {"metadata": {"a": "b"}, "store": True, "safety_identifier": "u1", "prompt_cache_retention": "24h"}),
    ("empty values", {"logit_bias": {}, "functions": [], "frequency_penalty": 0, "top_logprobs": 0}),
    ("hints", {"verbosity": "low", "prediction": {"type": "content", "content": "x"}, "service_tier": "flex"}),
    ("nested nulls", {"tools": [TOOL], "stream": True, "stream_options": {"include_usage": None}}),
    ("nulls of a dumped reply", {"messages": [*HI, {"role": "assistant", "content": "a", "audio": None}, *HI]}),
    ("null detail", {"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": None}}]}]}),
    ("responses: every field null", dict.fromkeys(RESPONSES_FIELDS)),
    ("responses: labels", {"truncation": "auto", "max_tool_calls": 2, "metadata": {"a": "b"}, "service_tier": "fast"}),
    ("responses: hints", {"text": {"verbosity": "high", "format": None}, "reasoning": {"summary": "detailed"}}),
    ("responses: includes", {"include": ["web_search_call.action.sources"], "tools": [RESPONSES_TOOL]}),
    ("responses: zeros", {"presence_penalty": 0, "frequency_penalty": 0.0, "top_logprobs": 0, "background": False}),
    ("responses: items", {"input": [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None},
        {"type": "message", "role": "assistant", "id": "m", "status": "completed", "content": "a"}, *HI]}),
]  # fmt: skip
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("logit_bias", {"logit_bias": {"5": 10}}),
    ("functions", {"functions": [{"name": "x"}]}),
    ("top_logprobs", {"top_logprobs": 3}),
    ("web_search_options", {"web_search_options": {}}),
    ("tool_choice", {"tool_choice": "required"}),
    ("verbosity", {"verbosity": "loud"}),
    ("metadata.a", {"metadata": {"a": 1}}),
    ("response_format.schema", {"response_format": {"type": "json_object", "schema": CITY}}),
    ("messages", {"messages": None}),
    ("responses: background", {"background": True}),
    ("responses: conversation", {"conversation": "conv_1"}),
    ("responses: include[0]", {"include": ["message.output_text.logprobs"]}),
    ("responses: truncation", {"truncation": "middle"}),
    ("responses: max_tool_calls", {"max_tool_calls": 0}),
    ("responses: frequency_penalty", {"frequency_penalty": 1}),
    ("responses: tools[0].type", {"tools": [{"type": "web_search"}]}),
    ("responses: text.format.schema", {"text": {"format": {"type": "json_schema", "name": "x"}}}),
    ("responses: input", {"input": None}),
    ("responses: tool_choice", {"tool_choice": "required", "tools": []}),
]


class City(BaseModel):
    city: str


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel.repeat(lambda composition: '{"city": "Bern"}' if composition.output_schema else "Hello.")


@pytest.fixture
def client(model: ScriptedModel) -> Iterator[TestClient]:
    agents: list[Any] = [
        Agent(model, name="plain"),
        Agent(model, name="typed", output=City),
        Agent(model, name="n", output=int),
    ]
    with TestClient(Server(agents).app, base_url="http://localhost", client=("127.0.0.1", 5000)) as opened:
        yield opened


def posted(client: TestClient, name: str, change: dict[str, Any], model: str = "plain") -> Any:
    if name.startswith("responses: "):
        return client.post("/v1/responses", json={"model": model, "input": "Hi", **change})
    return client.post("/v1/chat/completions", json={"model": model, "messages": HI, **change})


def test_nulls_labels_and_hints_are_accepted(client: TestClient) -> None:
    answers = [(name, posted(client, name, change)) for name, change in ACCEPTED]
    assert [(name, answer.text) for name, answer in answers if answer.status_code != 200] == []


def test_fields_that_would_be_ignored_are_refused_by_name(client: TestClient, model: ScriptedModel) -> None:
    wrong = []
    for name, change in REFUSED:
        answer = posted(client, name, change)
        error = answer.json().get("error", {})
        place = name.removeprefix("responses: ")
        if (answer.status_code, error.get("type")) != (400, "invalid_request_error") or place not in error["message"]:
            wrong.append((name, answer.text))
    assert wrong == [] and not model.requests


JSON_OBJECT: Any = {"type": "json_object"}


@pytest.mark.parametrize("change", [{"response_format": JSON_OBJECT}, {"text": {"format": JSON_OBJECT}}])
@pytest.mark.parametrize("stream", [False, True])
def test_json_object_accepts_any_object_or_the_output_type_of_the_agent(
    client: TestClient, model: ScriptedModel, change: dict[str, Any], stream: bool
) -> None:
    name = "chat" if "response_format" in change else "responses: "
    for agent in ("plain", "typed"):
        answer = posted(client, name, {**change, "stream": stream}, agent)
        assert answer.status_code == 200 and "Bern" in answer.text
    assert [(request.output_schema or {})["type"] for request in model.requests] == ["object", "object"]
    assert posted(client, name, {**change, "stream": stream}, "n").status_code == 400


def test_json_object_is_checked() -> None:
    model = ScriptedModel(["[1]", "no JSON", '{"a": [1]}'])
    with TestClient(
        Server([Agent(model, name="plain")]).app, base_url="http://localhost", client=("127.0.0.1", 1)
    ) as c:
        answer = posted(c, "chat", {"response_format": JSON_OBJECT})
    assert json.loads(answer.json()["choices"][0]["message"]["content"]) == {"a": [1]}
    assert len(model.requests) == 3
