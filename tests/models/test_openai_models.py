"""Settings of each family of OpenAI models: an error at construction, not a 400 in the middle of a run."""

from __future__ import annotations

from typing import Any, get_args

import openai
import pytest
from openai.types.shared import all_models

from agentkit import Agent, ModelSettings, OpenAIModel, OpenAIResponsesModel, model
from agentkit.errors import AgentDefinitionError
from agentkit.models import ModelRequestError
from agentkit.models.openai.openai_models import openai_rules
from tests.models.asking import ADD, ask, composed, efforts_of
from tests.models.wire_forms import WIRES, model_of, wire_reply
from tests.raising import raises
from tests.servers import ChatServer

CHAT, RESPONSES = OpenAIModel, OpenAIResponsesModel
REFUSED: list[tuple[Any, str, dict[str, Any], str]] = [
    (CHAT, "o3", {"temperature": 0.5, "top_p": 0.5}, "temperature, top_p"),
    (CHAT, "o4-mini-2025-04-16", {"stop": "X"}, "stop"),
    (CHAT, "o3-mini", {"parallel_tool_calls": False}, "parallel_tool_calls"),
    (CHAT, "o1-pro", {}, "model"),
    (CHAT, "gpt-5-pro", {"effort": "low"}, "model, effort"),
    (CHAT, "gpt-5-mini", {"temperature": 0}, "temperature"),
    (CHAT, "gpt-5-nano", {"effort": "minimal", "parallel_tool_calls": True}, "parallel_tool_calls"),
    (CHAT, "gpt-5", {"stop": ["X"]}, "stop"),
    (CHAT, "gpt-5", {"extra": {"logprobs": True, "top_logprobs": 3}}, "extra['logprobs'], extra['top_logprobs']"),
    (CHAT, "gpt-5", {"extra": {"max_tokens": 5}}, "extra['max_tokens']"),
    (CHAT, "gpt-5.1", {"effort": "low", "temperature": 0}, "temperature"),
    (CHAT, "gpt-5.5", {"temperature": 1}, "temperature"),
    (RESPONSES, "gpt-6.2-sol", {"top_p": 0.5}, "top_p"),
    (CHAT, "gpt-4o-mini-search-preview", {"temperature": 0}, "temperature"),
    (CHAT, "gpt-5", {"top_k": 3, "temperature": 0, "stop": "X"}, "top_k, temperature, stop"),
]


@pytest.fixture(autouse=True)
def openai_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


@pytest.mark.parametrize(("kind", "name", "settings", "names"), REFUSED)
def test_a_setting_that_a_model_does_not_support_is_an_error_at_construction(
    kind: Any, name: str, settings: dict[str, Any], names: str
) -> None:
    with raises(AgentDefinitionError, name=names):
        kind(name, settings=ModelSettings(**settings))
    if "model" not in names:
        with raises(AgentDefinitionError, name=names):
            Agent(kind(name)).run_sync("Hi", settings=ModelSettings(**settings))


EFFORTS: dict[tuple[Any, str], list[str]] = {
    (CHAT, "o1"): ["low", "medium", "high"],
    (CHAT, "o1-mini"): [],
    (RESPONSES, "o3-pro"): ["low", "medium", "high"],
    (CHAT, "gpt-5"): ["minimal", "low", "medium", "high"],
    (RESPONSES, "gpt-5-pro"): ["high"],
    (CHAT, "gpt-5.1"): ["none", "low", "medium", "high"],
    (RESPONSES, "gpt-5.2-pro"): ["medium", "high", "xhigh"],
    (CHAT, "gpt-5.2-chat-latest"): ["medium"],
    (CHAT, "gpt-5.4-mini"): ["none", "low", "medium", "high", "xhigh"],
    (CHAT, "gpt-5.6-sol"): ["none", "low", "medium", "high", "xhigh"],
    (RESPONSES, "gpt-5.6-sol"): ["none", "low", "medium", "high", "xhigh", "max"],
    (RESPONSES, "gpt-6-astra"): ["low", "medium", "high", "xhigh", "max"],
    (CHAT, "gpt-4o"): [],
    (RESPONSES, "ft:gpt-4.1-mini:acme::1"): [],
}


def test_a_model_accepts_the_efforts_of_its_family() -> None:
    assert {(kind, name): efforts_of(kind, name) for kind, name in EFFORTS} == EFFORTS


@pytest.mark.parametrize(
    ("kind", "name", "settings"),
    [
        (CHAT, "o1", {"stop": "X", "effort": "high", "max_tokens": 9}),
        (CHAT, "gpt-5-mini", {"effort": "minimal", "parallel_tool_calls": False, "seed": 1}),
        (CHAT, "gpt-5.1", {"temperature": 0, "top_p": 0.5, "extra": {"logprobs": True}}),
        (CHAT, "gpt-5.2", {"effort": "none", "temperature": 0}),
        (CHAT, "gpt-5.5", {"effort": "none", "temperature": 0}),
        (RESPONSES, "o4-mini", {"parallel_tool_calls": False}),
        (RESPONSES, "gpt-5.6", {"effort": "max"}),
        (RESPONSES, "gpt-5-pro", {"effort": "high"}),
        (CHAT, "gpt-4.1", {"temperature": 0, "stop": "X", "extra": {"max_tokens": 5, "logprobs": True}}),
        (CHAT, "gpt-5-chat-latest", {"temperature": 0}),
        (CHAT, "gpt-5", {"extra": {"temperature": 0}}),
        (CHAT, "gpt-5000", {"temperature": 0, "effort": "none"}),
        (CHAT, "a-model-nobody-knows", {"temperature": 0, "effort": "max", "stop": "X"}),
    ],
)
def test_supported_settings_are_accepted(kind: Any, name: str, settings: dict[str, Any]) -> None:
    assert kind(name, settings=ModelSettings(**settings)).settings == ModelSettings(**settings)


def test_the_table_applies_to_a_name_and_not_to_another_server() -> None:
    with raises(AgentDefinitionError, name="temperature"):
        model("openai:gpt-5-mini", settings=ModelSettings(temperature=0))
    with raises(AgentDefinitionError, name="temperature"):
        OpenAIModel("o3", client=openai.AsyncOpenAI(api_key="k" * 20), settings=ModelSettings(temperature=0))
    theirs = OpenAIModel(
        "gpt-5-mini", base_url="http://localhost:1/v1", settings=ModelSettings(temperature=0, stop="X")
    )
    assert theirs.settings.temperature == 0


@pytest.mark.parametrize(("name", "effort"), [("gpt-6-astra", None), ("gpt-6.1-sol", None), ("gpt-6-luna", "low")])
def test_a_model_with_tools_in_the_other_api_only_is_refused_before_any_request(name: str, effort: Any) -> None:
    made = OpenAIModel(name, api_key="k" * 20, settings=ModelSettings(effort=effort))
    with raises(ModelRequestError, name="tools"):
        ask(made, composed(tools=[ADD]))
    for fine in (made._body(composed()), OpenAIModel("gpt-5-mini")._body(composed(tools=[ADD]))):
        assert fine["messages"]


def test_encrypted_reasoning_is_requested_from_models_that_may_have_it(server: ChatServer) -> None:
    name = server.on("gpt-4.1", wire_reply(WIRES[1], "", "Hi"))
    ask(model_of(WIRES[1], server, name))
    assert server.to(name)[-1].body["include"] == ["reasoning.encrypted_content"]  # another server
    assert "include" not in OpenAIResponsesModel("gpt-4.1")._body(composed())
    assert "include" in OpenAIResponsesModel("gpt-5-mini")._body(composed())


def test_every_model_that_the_sdk_names_is_in_the_table() -> None:
    known = [name for part in get_args(all_models.AllModels) for name in get_args(part)]
    names = [one for name in known for one in (get_args(name) or [name]) if isinstance(one, str)]
    assert len(names) > 80
    unknown = [name for name in names if openai_rules(name) is None]
    assert [
        name for name in unknown if not name.startswith(("gpt-audio", "computer-use", "gpt-daybreak", "gpt-rosalind"))
    ] == []
