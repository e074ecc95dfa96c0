"""`ModelSettings`: settings of a model and of a run, and settings that are refused before any request."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import pytest
from pydantic import TypeAdapter

from agentkit import Agent, Composition, ModelSettings, OpenAIModel, ScriptedModel, tool
from agentkit.errors import AgentDefinitionError
from agentkit.models import ModelAuthError, ModelRequestError
from tests.models.asking import ADD, ask, composed, failure, model_for
from tests.raising import raises
from tests.servers import ChatServer, chat_reply, in_turn, sends


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def agent_for(server: ChatServer, name: str, **settings: Any) -> Agent[None, str]:
    return Agent(model_for(server, name, **settings), "Be brief.", tools=[add])


CALLS = chat_reply("", ("x", "add", '{"a": 2, "b": 3}'))
WRONG: dict[str, Any] = {
    "temperature": -1,
    "top_p": 0,
    "top_k": 1.5,
    "max_tokens": 0,
    "stop": [""],
    "seed": "7",
    "effort": "a lot",
    "thinking_tokens": -1,
    "tool_choice": " ",
    "parallel_tool_calls": 1,
    "headers": {"x y": "z"},
    "timeout": float("inf"),
    "prompt_cache_key": "",
    "compact_above": 0,
    "service_tier": 3,
    "extra": {"messages": []},
}


def test_all_values_that_no_model_accepts_are_named_together() -> None:
    with pytest.raises(AgentDefinitionError) as caught:
        ModelSettings(**WRONG)
    assert [name for name in WRONG if f"{name}" not in str(caught.value)] == []
    for name, value in WRONG.items():
        with pytest.raises(AgentDefinitionError) as found:
            ModelSettings(**{name: value})
        assert str(found.value.name).startswith(name)


@pytest.mark.parametrize("value", [True, "1", [], {}, object(), float("nan"), float("-inf"), 1j])
def test_a_number_is_a_finite_number(value: Any) -> None:
    for name in ("temperature", "top_p", "top_k", "max_tokens", "seed", "thinking_tokens", "timeout"):
        with raises(AgentDefinitionError, name=name):
            ModelSettings(**{name: value})


@pytest.mark.parametrize(
    "value", [float("nan"), float("-inf"), 10**5000, -(10**400)], ids=["nan", "inf", "huge", "low"]
)
def test_a_number_without_a_json_form_is_refused(value: Any) -> None:
    with raises(AgentDefinitionError, name="extra['a'][1]"):
        ModelSettings(extra={"a": [1, value]})


@pytest.mark.parametrize("key", ["model", "messages", "input", "prompt", "system", "tools", "stream"])
def test_a_key_that_a_model_writes_itself_is_not_replaced(key: str) -> None:
    with raises(AgentDefinitionError, name=f"extra['{key}']"):
        ModelSettings(extra={key: True})


def test_settings_do_not_change_with_the_mapping_that_they_were_created_from() -> None:
    extra: dict[str, Any] = {"a": {"b": 1}}
    settings = ModelSettings(extra=extra, stop=["x"])
    extra["a"]["b"] = 2
    assert settings.extra == {"a": {"b": 1}}
    assert hash(ModelSettings(temperature=0)) == hash(ModelSettings(temperature=0))
    assert pickle.loads(pickle.dumps(settings)) == settings
    adapter = TypeAdapter(ModelSettings)
    assert adapter.validate_python(adapter.dump_python(settings)) == settings


@pytest.mark.parametrize(
    ("name", "value"),
    [("x", " a"), ("x", "a "), ("x", " "), ("x", "a\n"), ("x", "\u00e9"), ("Content-Length", "5"), ("x", 5)],
)
def test_headers_that_cannot_be_sent_are_refused(name: str, value: Any) -> None:
    with raises(AgentDefinitionError, name=f"headers['{name}']"):
        ModelSettings(headers={name: value})
    assert ModelSettings(headers={"x": "", "y": "a b"}).headers == {"x": "", "y": "a b"}


def test_values_of_headers_are_not_shown() -> None:
    assert "hunter2" not in repr(ModelSettings(headers={"x-key": "hunter2"}))
    with pytest.raises(AgentDefinitionError) as caught:
        ModelSettings(headers={"x-key": "hunter2\n"})
    assert "hunter2" not in str(caught.value)


def test_headers_are_sent_and_removed_from_errors(server: ChatServer) -> None:
    headers = {"X-Team": "blue", "Authorization": "Bearer a-very-secret-value"}
    name = server.on("headers", sends({"error": {"message": "no a-very-secret-value here"}}, 401))
    model = model_for(server, name, headers=headers)
    error = failure(model)
    assert isinstance(error, ModelAuthError)
    assert "a-very-secret-value" not in str(error)
    assert error.__cause__ is None
    sent = server.to(name)[-1].headers
    assert (sent["x-team"], sent["authorization"]) == ("blue", "Bearer a-very-secret-value")
    with pytest.raises(TypeError):
        pickle.dumps(model)


def test_extra_is_merged_by_key_and_none_removes_a_key(server: ChatServer) -> None:
    name = server.on("extra", chat_reply("Hi"))
    extra = {"provider": {"order": ["a"]}, "seed": None, "top_k": 3}
    model = model_for(server, name, seed=1, extra=extra).with_settings(
        ModelSettings(extra={"provider": {"only": True}})
    )
    ask(model)
    body = server.to(name)[-1].body
    assert body["provider"] == {"order": ["a"], "only": True}
    assert body["top_k"] == 3
    assert "seed" not in body


def test_a_setting_of_a_run_replaces_the_setting_of_the_model_for_this_run(server: ChatServer) -> None:
    name = server.on("per-run", chat_reply("Hi"))
    agent = agent_for(server, name, temperature=0.1, seed=3)
    settings = ModelSettings(temperature=0.9, max_tokens=7)
    agent.run_sync("Hello", settings=settings)
    with agent.override(settings=ModelSettings(seed=4)):
        agent.run_sync("Hello")
        agent.run_sync("Hello", settings=settings)
    agent.run_sync("Hello")
    asked = [{key: asked.body.get(key) for key in ("temperature", "seed", "max_tokens")} for asked in server.to(name)]
    assert asked == [
        {"temperature": 0.9, "seed": 3, "max_tokens": 7},
        {"temperature": 0.1, "seed": 4, "max_tokens": None},
        {"temperature": 0.9, "seed": 4, "max_tokens": 7},
        {"temperature": 0.1, "seed": 3, "max_tokens": None},
    ]


def test_stream_and_resume_accept_settings(server: ChatServer) -> None:
    name = server.on(
        "ways", in_turn(CALLS, chat_reply("5"), sends({"error": {"message": "away"}}, 500), chat_reply("6"))
    )
    agent = agent_for(server, name)

    async def streamed() -> None:
        async for _ in agent.stream("2+3?", settings=ModelSettings(seed=1)):
            pass

    asyncio.run(streamed())
    with raises(Exception, status=500) as caught:
        agent.run_sync("Again", settings=ModelSettings(seed=2))
    assert agent.resume_sync(caught.value.journal, settings=ModelSettings(seed=3)).output == "6"
    assert [asked.body["seed"] for asked in server.to(name)] == [1, 1, 2, 3]


def test_a_setting_that_an_endpoint_does_not_support_is_an_error_of_the_model_or_the_run(server: ChatServer) -> None:
    settings = ModelSettings(top_k=5, thinking_tokens=9, temperature=0)
    with raises(AgentDefinitionError, name="top_k, thinking_tokens"):
        OpenAIModel("gpt", settings=settings)
    name = server.on("cannot", chat_reply("Hi"))
    agent = agent_for(server, name)
    before = len(server.to(name))
    with raises(AgentDefinitionError, name="thinking_tokens"):
        agent.run_sync("Hello", settings=settings)
    assert len(server.to(name)) == before


@pytest.mark.parametrize("settings", [{7: 0}, ["temperature"], "hot", 3])
def test_settings_of_another_type_are_refused(settings: Any) -> None:
    with raises(AgentDefinitionError, name="settings"):
        OpenAIModel("gpt", settings=settings)
    with raises(AgentDefinitionError, name="settings"):
        Agent(ScriptedModel(["Hi"])).run_sync("Hello", settings=settings)


def test_a_model_without_settings_refuses_settings() -> None:
    class Own:
        name = "own"

        async def request(self, composition: Composition, *, on_delta: Any = None) -> Any:
            raise NotImplementedError

    with raises(AgentDefinitionError, name="settings", value="Own"):
        Agent(Own()).run_sync("Hello", settings=ModelSettings(seed=1))


def test_a_scripted_model_has_the_settings_of_the_run_and_shares_its_replies() -> None:
    model = ScriptedModel(["one", "two"])
    agent = Agent(model)
    assert agent.run_sync("Hello", settings=ModelSettings(seed=1)).output == "one"
    assert agent.run_sync("Hello").output == "two"
    assert len(model.requests) == 2


# Choice of tools


def chosen(server: ChatServer, choice: str, **more: Any) -> list[Any]:
    name = server.on(f"choice-{choice}", in_turn(CALLS, chat_reply("It is 5.")))
    before = len(server.to(name))
    agent_for(server, name, tool_choice=choice, **more).run_sync("2+3?")
    return [asked.body.get("tool_choice") for asked in server.to(name)[before:]]


def test_a_forced_choice_applies_until_a_tool_was_called(server: ChatServer) -> None:
    assert chosen(server, "required") == ["required", "auto"]
    assert chosen(server, "add") == [{"type": "function", "function": {"name": "add"}}, "auto"]
    assert chosen(server, "none") == ["none", "none"]


@pytest.mark.parametrize(("choice", "tools"), [("required", []), ("add", []), ("mul", [ADD])])
def test_a_tool_that_is_not_offered_cannot_be_chosen(server: ChatServer, choice: str, tools: list[Any]) -> None:
    name = server.on("not-offered", chat_reply("Hi"))
    with raises(ModelRequestError, name="tool_choice"):
        ask(model_for(server, name, tool_choice=choice), composed(tools=tools))
    assert not server.to(name)


def test_without_tools_no_field_of_tools_is_sent(server: ChatServer) -> None:
    name = server.on("no-tools", chat_reply("Hi"))
    ask(model_for(server, name, tool_choice="auto", parallel_tool_calls=False))
    assert not {"tool_choice", "parallel_tool_calls", "tools"} & server.to(name)[-1].body.keys()
    ask(model_for(server, name, parallel_tool_calls=False), composed(tools=[ADD]))
    assert server.to(name)[-1].body["parallel_tool_calls"] is False
