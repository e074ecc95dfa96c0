"""Details of Anthropic: turns that the provider pauses, and the settings of each family of models."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from agentkit import Agent, AnthropicModel, ModelSettings, Tool
from agentkit.errors import AgentDefinitionError
from agentkit.models import Delta, ModelInterrupted
from agentkit_prompts.context.wire.owner import Owner
from agentkit_prompts.context.wire.write_anthropic import anthropic_writer
from tests.models.asking import NOTHING_LEFT_OPEN, ask, composed, efforts_of, failure
from tests.models.wire_forms import WIRES, as_event, model_of, wire_reply
from tests.raising import raises
from tests.servers import Asked, ChatServer, Handler, in_turn, sends, streams

pytestmark = NOTHING_LEFT_OPEN
ANTHROPIC = WIRES[2]

SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "weather Oslo"}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [{"type": "web_search_result", "url": "https://a.example", "title": "A", "encrypted_content": "Eq"}],
}
THOUGHT = {"type": "thinking", "thinking": "I look.", "signature": "EqQB"}
FIRST = [THOUGHT, {"type": "text", "text": "Let me see. "}, SEARCH, FOUND]
SECOND = [
    {
        "type": "text",
        "text": "It rains.",
        "citations": [{"type": "web_search_result_location", "url": "https://a.example"}],
    }
]


def message(content: list[Any], reason: str, output: int = 5) -> dict[str, Any]:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 2, "output_tokens": output}
    shape = {"id": "msg_1", "type": "message", "role": "assistant", "model": "served", "stop_sequence": None}
    return {**shape, "content": content, "stop_reason": reason, "usage": usage}


def events(content: list[Any], reason: str) -> list[bytes]:
    made: list[Any] = [{"type": "message_start", "message": {**message([], "", 1), "stop_reason": None}}]
    for index, block in enumerate(content):
        deltas: list[Any] = []
        opening = dict(block)
        if block["type"] == "text":
            opening["text"] = ""
            deltas = [{"type": "text_delta", "text": piece} for piece in (block["text"][:3], block["text"][3:])]
            deltas += [{"type": "citations_delta", "citation": one} for one in opening.pop("citations", [])]
        elif block["type"] == "thinking":
            opening |= {"thinking": "", "signature": ""}
            deltas = [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        elif block["type"] == "server_tool_use":
            opening["input"] = {}
            deltas = [
                {"type": "input_json_delta", "partial_json": piece} for piece in ('{"query": ', '"weather Oslo"}')
            ]
        made.append({"type": "content_block_start", "index": index, "content_block": opening})
        made += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        made.append({"type": "content_block_stop", "index": index})
    made.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}})
    return [as_event(event) for event in [*made, {"type": "message_stop"}]]


def answers(content: list[Any], reason: str) -> Handler:
    def handler(asked: Asked) -> Any:
        if asked.body.get("stream"):
            return streams(*events(content, reason), done=False)(asked)
        return sends(message(content, reason))(asked)

    return handler


# Paused turns


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_paused_turn_is_sent_back_unchanged_and_continues(server: ChatServer, is_streamed: bool) -> None:
    name = server.on("paused", in_turn(answers(FIRST, "pause_turn"), answers(SECOND, "end_turn")))
    model, before = model_of(ANTHROPIC, server, name), len(server.to(name))
    heard: list[str] = []
    reply = ask(model, on_text=heard.append if is_streamed else None)
    first, second = [asked.body for asked in server.to(name)[before:]]
    assert second["messages"] == [*first["messages"], {"role": "assistant", "content": FIRST}]
    assert {**second, "messages": 0} == {**first, "messages": 0}
    assert (reply.message.text, reply.finish_reason) == ("Let me see. It rains.", "stop")
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.cached_tokens) == (24, 10, 4)
    assert not is_streamed or "".join(heard) == "Let me see. It rains."
    (sent_back,) = anthropic_writer(Owner("anthropic", model.host, model.name))(reply.message)[1:]
    assert [*sent_back] == [*FIRST, *SECOND]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_call_after_a_pause_is_executed(server: ChatServer, is_streamed: bool) -> None:
    call = [{"type": "text", "text": "Now add."}, {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 2}}]
    name = server.on(
        "paused-call",
        in_turn(answers(FIRST, "pause_turn"), answers(FIRST[1:2], "pause_turn"), answers(call, "tool_use"),
                wire_reply(ANTHROPIC, "", "2.")),
    )  # fmt: skip

    def add(a: int) -> int:
        """Add."""
        return a

    agent, before = Agent(model_of(ANTHROPIC, server, name), tools=[add]), len(server.to(name))
    result = agent.run_sync("?", on_event=(lambda event: None) if is_streamed else None)
    asked = [one.body["messages"] for one in server.to(name)[before:]]
    assert asked[2][-2:] == [asked[0][0], {"role": "assistant", "content": [*FIRST, FIRST[1]]}]
    assert asked[3][1]["content"] == [*FIRST, FIRST[1], *call]
    assert [message.role for message in result.messages] == ["user", "assistant", "tool", "assistant"]
    assert result.output == "2."


def test_a_turn_that_never_ends_is_returned_with_its_text(server: ChatServer) -> None:
    name = server.on("endless-pause", answers(FIRST, "pause_turn"))
    error = failure(model_of(ANTHROPIC, server, name))
    assert isinstance(error, ModelInterrupted)
    assert error.text.startswith("Let me see. Let me see. ")
    assert "paused" in str(error)
    assert len(server.to(name)) < 30


def test_the_parts_of_a_paused_turn_share_its_limit_of_tokens(server: ChatServer) -> None:
    name = server.on("pause-limit", answers(FIRST, "pause_turn"))
    reply = ask(model_of(ANTHROPIC, server, name, settings={"max_tokens": 12}))
    assert [asked.body["max_tokens"] for asked in server.to(name)] == [12, 7, 2]
    assert (reply.finish_reason, reply.usage.output_tokens) == ("length", 15)


def test_a_part_that_fails_is_requested_again_and_keeps_the_earlier_text(server: ChatServer) -> None:
    def cut(asked: Asked) -> Any:
        return streams(*events(SECOND, "end_turn")[:1], cut=b"")(asked)

    name = server.on("pause-cut", in_turn(answers(FIRST, "pause_turn"), cut, answers(SECOND, "end_turn")))
    heard: list[str] = []
    assert ask(model_of(ANTHROPIC, server, name, max_retries=1), on_text=heard.append).message.text == "".join(heard)
    name = server.on("pause-lost", in_turn(answers(FIRST, "pause_turn"), cut))
    error = failure(model_of(ANTHROPIC, server, name), stream=True)
    assert isinstance(error, ModelInterrupted)
    assert error.text == "Let me see. "


def test_calls_in_a_paused_turn_are_answered_first(server: ChatServer) -> None:
    def add(a: int) -> int:
        """Add."""
        return a

    call = {"type": "tool_use", "id": "t_1", "name": "add", "input": {"a": 1}}
    name = server.on("pause-places", in_turn(answers([*FIRST, call], "pause_turn"), answers(SECOND, "end_turn")))
    result = Agent(model_of(ANTHROPIC, server, name), tools=[add]).run_sync("?")
    sent = server.to(name)[-1].body["messages"]
    assert sent[1:] == [
        {"role": "assistant", "content": [*FIRST, call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t_1", "content": "1"}]},
    ]
    assert result.output == "It rains."


def test_indexes_of_calls_after_a_pause_continue(server: ChatServer) -> None:
    call = {"type": "tool_use", "id": "t_1", "name": "add", "input": {"a": 1}}
    name = server.on(
        "pause-counts", in_turn(answers(FIRST, "pause_turn"), answers([call, {**call, "id": "t_2"}], "tool_use"))
    )
    heard: list[Delta] = []
    reply = asyncio.run(model_of(ANTHROPIC, server, name).request(composed(), on_delta=heard.append))
    assert [(one.name, one.call) for one in heard if one.kind == "arguments"] == [("add", 0), ("add", 1)]
    assert len({one.id for one in reply.message.tool_calls}) == 2


# Settings of a family of models

REFUSED = [
    ("claude-opus-4-7", {"temperature": 0.5}, "temperature"),
    ("claude-opus-4-8", {"top_p": 0.9, "top_k": 3}, "top_p, top_k"),
    ("claude-sonnet-5", {"temperature": 1}, "temperature"),
    ("us.anthropic.claude-fable-5-v1:0", {"top_k": 3}, "top_k"),
    ("anthropic/claude-haiku-5.5", {"temperature": 0}, "temperature"),
    ("claude-next-9", {"temperature": 0}, "temperature"),
    ("claude-opus-4-1-20250805", {"temperature": 0.5, "top_p": 0.5}, "temperature"),
    ("claude-sonnet-4-5", {"temperature": 0.5, "top_p": 0.5}, "temperature"),
    ("claude-opus-4-7", {"thinking_tokens": 2048}, "thinking_tokens"),
    ("claude-3-5-haiku-latest", {"thinking_tokens": 2048}, "thinking_tokens"),
    ("claude-opus-5-5", {"thinking_tokens": 0}, "thinking_tokens"),
    ("claude-fable-5-1", {"effort": "none"}, "effort"),
    ("claude-sonnet-5-5", {"tool_choice": "required"}, "tool_choice"),
    ("claude-sonnet-4-6", {"thinking_tokens": 2048, "top_p": 0.5}, "top_p"),
]


@pytest.mark.parametrize(("model", "settings", "names"), REFUSED)
def test_a_setting_that_a_model_does_not_support_is_an_error_at_construction(
    model: str, settings: Any, names: str
) -> None:
    with raises(AgentDefinitionError, name=names):
        AnthropicModel(model, settings=ModelSettings(**settings))
    with raises(AgentDefinitionError, name=names):
        Agent(AnthropicModel(model)).run_sync("Hi", settings=ModelSettings(**settings))


EFFORTS = {
    "claude-haiku-4-5": ["none"],
    "claude-opus-4-5": ["none", "low", "medium", "high"],
    "claude-opus-4-6": ["none", "low", "medium", "high", "max"],
}


def test_a_model_accepts_the_efforts_of_its_family() -> None:
    assert {name: efforts_of(AnthropicModel, name) for name in EFFORTS} == EFFORTS


def test_all_refused_settings_are_named_together() -> None:
    settings = ModelSettings(temperature=0.5, thinking_tokens=2048, tool_choice="add", effort="minimal")
    with raises(AgentDefinitionError, name="temperature, thinking_tokens, effort, tool_choice"):
        AnthropicModel("claude-opus-5-5", settings=settings)


@pytest.mark.parametrize(
    ("model", "settings", "sent"),
    [
        ("claude-sonnet-4-20250514", {"temperature": 0.5, "top_p": 0.5}, {"temperature": 0.5, "top_p": 0.5}),
        ("claude-opus-4-6", {"temperature": 0.5, "top_k": 3}, {"temperature": 0.5, "top_k": 3}),
        ("claude-opus-4-7", {"effort": "xhigh"}, {"output_config": {"effort": "xhigh"}}),
        ("claude-opus-5", {"effort": "none"}, {"thinking": {"type": "disabled"}}),
        ("claude-sonnet-5-5", {"thinking_tokens": 0}, {"thinking": {"type": "between_tools"}}),
        ("claude-opus-4-7", {"extra": {"temperature": 0.5}}, {"temperature": 0.5}),
        ("a-model-of-another-house", {"temperature": 0.5, "top_p": 0.5}, {"temperature": 0.5, "top_p": 0.5}),
    ],
)
def test_supported_settings_are_sent(server: ChatServer, model: str, settings: Any, sent: Any) -> None:
    name = server.on(model, wire_reply(ANTHROPIC, "", "Hi"))
    ask(model_of(ANTHROPIC, server, name))
    plain = server.to(name)[-1].body
    ask(model_of(ANTHROPIC, server, name, settings=settings))
    assert server.to(name)[-1].body == {**plain, **sent}


# Names of parameters


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("is_strict", [False, True])
def test_the_parameters_of_a_tool_have_their_original_names(
    server: ChatServer, is_streamed: bool, is_strict: bool
) -> None:
    """The API accepts no property named `filter[id]`: its replacement in the call reaches the tool as `filter[id]`."""
    called: list[dict[str, Any]] = []

    async def find(**arguments: Any) -> str:
        called.append(arguments)
        return "found"

    properties = {
        "filter[id]": {"type": "string"},
        "deep": {"type": "object", "properties": {"$top": {"type": "integer"}}},
    }
    required = {"required": [*properties], "additionalProperties": False}
    parameters = {"type": "object", "properties": properties, **required}
    parameters["properties"]["deep"] |= {"required": ["$top"], "additionalProperties": False}
    made = Tool.from_json_schema("find", "", parameters, find)

    def answer(asked: Asked) -> Any:
        if any("tool_result" in str(one["content"]) for one in asked.body["messages"]):
            return wire_reply(ANTHROPIC, "", "Found.")(asked)
        schema = asked.body["tools"][0]["input_schema"]
        first, deep = schema["properties"]
        (top,) = schema["properties"][deep]["properties"]
        assert re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", first)
        assert re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", top)
        assert (first != "filter[id]", top != "$top") == (True, True)
        return wire_reply(ANTHROPIC, "", "", ("t1", "find", json.dumps({first: "7", deep: {top: 3}})))(asked)

    name = server.on("renamed", answer)
    agent = Agent(model_of(ANTHROPIC, server, name), tools=[made.strict() if is_strict else made])
    result = agent.run_sync("?", on_event=(lambda event: None) if is_streamed else None)
    assert called == [{"filter[id]": "7", "deep": {"$top": 3}}]
    assert result.output == "Found."
    (sent_back,) = [
        block for block in server.to(name)[-1].body["messages"][1]["content"] if block["type"] == "tool_use"
    ]
    assert "filter[id]" not in sent_back["input"]  # the model reads its own text


def test_clearing_by_the_provider_is_a_beta_header_and_a_field(server: ChatServer) -> None:
    name = server.on("edits", wire_reply(ANTHROPIC, "", "Yes."))
    for headers, expected in (
        ({}, "context-management-2025-06-27"),
        ({"Anthropic-Beta": "files-api-2025-04-14"}, "files-api-2025-04-14,context-management-2025-06-27"),
    ):
        model = model_of(ANTHROPIC, server, name, settings={"compact_above": 50_000, "headers": headers})
        ask(model)
        asked = server.to(name)[-1]
        assert asked.headers["anthropic-beta"] == expected
        [edit] = asked.body["context_management"]["edits"]
        assert edit["trigger"] == {"type": "input_tokens", "value": 50_000}
    ask(model_of(ANTHROPIC, server, name))
    assert "anthropic-beta" not in server.to(name)[-1].headers
