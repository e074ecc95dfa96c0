"""Behaviour of every adapter: the same replies, tool loops with thoughts, settings, errors; over official SDKs."""

from __future__ import annotations

import asyncio
import json
import pickle
from typing import Any

import pytest

from agentkit import Agent, Message, ModelSettings, Session, ToolCall, Usage, tool
from agentkit.errors import AgentDefinitionError
from agentkit.models import (
    Delta,
    ModelAuthError,
    ModelInterrupted,
    ModelRateLimited,
    ModelRequestError,
    ModelUnavailable,
)
from agentkit.prompts import ToolSpec
from tests.cases import collected
from tests.effort import spread
from tests.models.asking import ADD, KEY, NOTHING_LEFT_OPEN, ask, both, composed, failure
from tests.models.test_model_secrets import everything
from tests.models.wire_forms import WIRES, Wire, as_event, every_wire, model_of, wire_reply
from tests.raising import raises
from tests.servers import ChatServer, hangs, in_turn, sends, streams
from tests.waiting import longer

pytestmark = NOTHING_LEFT_OPEN
CALLS = (("x", "add", '{"a": 2, "b": 3}'), ("y", "add", '{"a": 4, "b": 5}'))


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@every_wire
@both
def test_a_reply_has_thought_text_calls_usage_and_model(server: ChatServer, wire: Wire, stream: bool) -> None:
    name = server.on("full", wire_reply(wire, "Hm, sums.", "Let me see.", *CALLS))
    heard: list[str] = []
    reply = ask(model_of(wire, server, name), composed(tools=[ADD]), heard.append if stream else None)
    message = reply.message
    assert (message.text, message.reasoning) == ("Let me see.", "Hm, sums.")
    assert [(call.id, call.name, json.loads(call.arguments)) for call in message.tool_calls] == [
        (id_, tool_name, json.loads(given)) for id_, tool_name, given in CALLS
    ]
    # Anthropic counts the tokens of thinking with the tokens of the reply only.
    usage = Usage(12, 5, 8, reasoning_tokens=0 if wire.name == "anthropic" else 2)
    assert (reply.usage, reply.finish_reason, reply.model) == (usage, "tool_calls", "served")
    assert "".join(heard) == ("Let me see." if stream else "")


@every_wire
def test_every_kind_of_delta_is_streamed(server: ChatServer, wire: Wire) -> None:
    name = server.on("kinds", wire_reply(wire, "Hm", "So.", *CALLS))
    heard: list[Delta] = []
    asyncio.run(model_of(wire, server, name).request(composed(tools=[ADD]), on_delta=heard.append))
    joined: dict[Any, str] = {}
    for one in heard:
        joined[one[1:]] = joined.get(one[1:], "") + one.text
    assert joined == {
        ("thinking", 0, ""): "Hm",
        ("text", 0, ""): "So.",
        ("arguments", 0, "add"): CALLS[0][2],
        ("arguments", 1, "add"): CALLS[1][2],
    }


@every_wire
@both
def test_a_tool_loop_sends_thoughts_back_step_by_step(server: ChatServer, wire: Wire, stream: bool) -> None:
    name = server.on(
        "loop",
        in_turn(
            wire_reply(wire, "First", "On it.", CALLS[0]),
            wire_reply(wire, "Second", "", CALLS[1]),
            wire_reply(wire, "Third", "5 and 9."),
            wire_reply(wire, "", "Yes."),
        ),
    )
    before = len(server.to(name))
    agent, session = Agent(model_of(wire, server, name), "Be brief.", tools=[add]), Session()
    listening: dict[str, Any] = {"on_event": lambda event: None} if stream else {}

    async def main() -> list[str]:
        first = await agent.run("2+3 and 4+5?", session=session, **listening)
        return [first.output, (await agent.run("Sure?", session=session, **listening)).output]

    assert asyncio.run(main()) == ["5 and 9.", "Yes."]
    thoughts = [wire.thought_in(asked.body) for asked in server.to(name)[before:]]
    assert thoughts == [[], ["First"], ["First", "Second"], ["First", "Second", "Third"]]


@every_wire
def test_a_conversation_of_another_endpoint_is_accepted(server: ChatServer, wire: Wire) -> None:
    for other in WIRES:
        elsewhere = server.on("elsewhere", in_turn(wire_reply(other, "Hm", "", CALLS[0]), wire_reply(other, "", "5.")))
        here = server.on("here", wire_reply(wire, "", "Yes."))
        session = Session()

        there = Agent(model_of(other, server, elsewhere), tools=[add])
        now = Agent(model_of(wire, server, here), tools=[add])
        asyncio.run(there.run("2+3?", session=session))
        assert asyncio.run(now.run("Sure?", session=session)).output == "Yes."
        if wire is not other:
            assert "Hm" not in json.dumps(server.to(here)[-1].body)


# Settings

SENT: dict[str, dict[str, tuple[Any, Any]]] = {
    "chat": {
        "temperature": (0.5, {"temperature": 0.5}), "top_p": (0.5, {"top_p": 0.5}), "top_k": (5, {"top_k": 5}),
        "max_tokens": (9, {"max_tokens": 9}), "stop": (["X"], {"stop": ["X"]}), "seed": (7, {"seed": 7}),
        "effort": ("low", {"reasoning_effort": "low"}), "service_tier": ("flex", {"service_tier": "flex"}),
        "prompt_cache_key": ("k", {"prompt_cache_key": "k"}),
        "tool_choice": ("add", {"tool_choice": {"type": "function", "function": {"name": "add"}}}),
        "parallel_tool_calls": (False, {"parallel_tool_calls": False}),
    },
    "responses": {
        "temperature": (0.5, {"temperature": 0.5}), "top_p": (0.5, {"top_p": 0.5}),
        "max_tokens": (9, {"max_output_tokens": 9}), "effort": ("low", {"reasoning": {"effort": "low"}}),
        "prompt_cache_key": ("k", {"prompt_cache_key": "k"}), "service_tier": ("flex", {"service_tier": "flex"}),
        "compact_above": (9, {"context_management": [{"type": "compaction", "compact_threshold": 9}]}),
        "tool_choice": ("add", {"tool_choice": {"type": "function", "name": "add"}}),
        "parallel_tool_calls": (False, {"parallel_tool_calls": False}),
    },
    "anthropic": {
        "temperature": (0.5, {"temperature": 0.5}), "top_p": (0.5, {"top_p": 0.5}), "top_k": (5, {"top_k": 5}),
        "max_tokens": (9, {"max_tokens": 9}), "stop": ("X", {"stop_sequences": ["X"]}),
        "effort": ("low", {"output_config": {"effort": "low"}}),
        "thinking_tokens": (1024, {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 9216}),
        "service_tier": ("auto", {"service_tier": "auto"}),
        "compact_above": (9, {"context_management": {"edits": [
            {"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": 9}},
        ]}}),
        "tool_choice": ("add", {"tool_choice": {"type": "tool", "name": "add"}}),
        "parallel_tool_calls": (False, {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}),
    },
}  # fmt: skip
OTHERS = {"seed": 7, "stop": "X", "top_k": 5, "thinking_tokens": 1024, "prompt_cache_key": "k"}


@every_wire
def test_each_setting_is_written_in_the_wire_form_or_is_an_error(server: ChatServer, wire: Wire) -> None:
    name = server.on("settings", wire_reply(wire, "", "Hi"))
    ask(model_of(wire, server, name), composed(tools=[ADD]))
    plain = server.to(name)[-1].body
    for setting, (value, sent) in SENT[wire.name].items():
        ask(model_of(wire, server, name, settings={setting: value}), composed(tools=[ADD]))
        assert server.to(name)[-1].body == {**plain, **sent}, setting
    for setting, value in OTHERS.items():
        if setting not in SENT[wire.name]:
            with raises(AgentDefinitionError, name=setting):
                model_of(wire, server, name, settings={setting: value})
            with raises(AgentDefinitionError, name=setting):
                Agent(model_of(wire, server, name)).run_sync("Hi", settings=ModelSettings(**{setting: value}))


@pytest.mark.parametrize(
    "settings",
    [
        {"effort": "minimal"},
        {"thinking_tokens": 1},
        {"temperature": 1.5},
        {"max_tokens": 2000, "thinking_tokens": 2000},
        {"temperature": 0, "thinking_tokens": 2000},
        {"tool_choice": "required", "thinking_tokens": 2000},
        {"top_k": 3, "thinking_tokens": 2000},
    ],
)
def test_settings_that_the_messages_api_refuses_are_refused_by_the_constructor(
    server: ChatServer, settings: dict[str, Any]
) -> None:
    with raises(AgentDefinitionError, name=next(iter(settings))):
        model_of(WIRES[2], server, "m", settings=settings)


def test_cache_marks_are_at_the_breakpoints_of_the_composition(server: ChatServer) -> None:
    name = server.on("cached", in_turn(wire_reply(WIRES[2], "", "", CALLS[0]), wire_reply(WIRES[2], "", "5.")))
    asyncio.run(Agent(model_of(WIRES[2], server, name), "Be brief. " * 50, tools=[add]).run("2+3?"))
    for asked in server.to(name):
        assert asked.body["system"][0]["cache_control"] == {"type": "ephemeral"}
        assert asked.body["tools"][-1]["cache_control"] == {"type": "ephemeral"}


# Errors


STATUSES: list[Any] = [
    (400, ModelRequestError),
    (401, ModelAuthError),
    (404, ModelRequestError),
    (413, ModelRequestError),
    (429, ModelRateLimited),
    (500, ModelUnavailable),
    (529, ModelUnavailable),
]


def test_a_status_is_a_typed_error_without_the_key(server: ChatServer) -> None:
    failures: list[str] = []
    for status, kind in STATUSES:
        for stream in (False, True):
            for wire in WIRES:
                with collected(failures, status, kind, stream, wire):
                    body = {"type": "error", "error": {"type": "some_error", "message": f"because of {KEY}"}}
                    name = server.on("status", sends(body, status, headers={"retry-after": "3"}))
                    error = failure(model_of(wire, server, name, api_key=KEY), stream=stream)
                    assert type(error) is kind
                    assert "because of ***" in str(error)
                    assert (error.status, error.host) == (status, server.host)
                    assert error.retry_after == 3
                    assert not any(KEY in text for text in everything(error))
    assert failures == []


@every_wire
@both
def test_temporary_errors_are_retried(server: ChatServer, wire: Wire, stream: bool) -> None:
    fails = sends({"error": {"message": "no"}}, 503, headers={"retry-after-ms": "1"})
    name = server.on(f"flaky-{wire.name}-{stream}", in_turn(fails, fails, wire_reply(wire, "", "At last.")))
    heard: list[str] = []
    reply = ask(model_of(wire, server, name, max_retries=2), on_text=heard.append if stream else None)
    assert reply.message.text == "At last."
    assert len(server.to(name)) == 3


@every_wire
def test_a_stream_keeps_its_text_at_any_cut(server: ChatServer, wire: Wire) -> None:
    events = [as_event(event) for event in wire.events("", "Hello there.", [CALLS[0]])]
    text = "Hello there."
    for end in range(1, len(events)):
        name = server.on("cut", streams(*events[:end], cut=b"ff\r\nhalf"))
        heard: list[str] = []
        try:
            reply = ask(model_of(wire, server, name), on_text=heard.append)
        except ModelInterrupted as error:
            assert error.text == "".join(heard) == text[: len(error.text)]
        except ModelUnavailable:
            assert not heard
        else:  # the reply was complete
            assert reply.message.tool_calls
            assert "".join(heard) == text


@every_wire
@pytest.mark.parametrize("kind", ["overloaded_error", "rate_limit_error"])
def test_an_error_in_a_stream_has_the_class_of_its_code(server: ChatServer, wire: Wire, kind: str) -> None:
    error = {"type": "error", "error": {"type": kind, "message": "because"}}
    name = server.on("event", streams(as_event(error)))
    expected = ModelUnavailable if kind == "overloaded_error" else ModelRateLimited
    assert type(failure(model_of(wire, server, name), stream=True)) is expected
    begun = [as_event(event) for event in wire.events("", "So far", ())][:4]
    name = server.on("event", streams(*begun, as_event(error)))
    caught = failure(model_of(wire, server, name), stream=True)
    assert isinstance(caught, ModelInterrupted)
    assert "because" in str(caught)


@every_wire
def test_a_missing_answer_and_endless_pings_end_at_the_time_limit(server: ChatServer, wire: Wire) -> None:
    slow = model_of(wire, server, server.on("slow", hangs(60)), settings={"timeout": 0.2})
    assert isinstance(failure(slow), ModelUnavailable)
    assert isinstance(failure(slow, stream=True), ModelUnavailable)
    ping = b'event: ping\ndata: {"type": "ping"}\n\n'
    begun = [as_event(event) for event in wire.events("", "So far", ())][: 3 if wire.name == "chat" else 4]
    endless = server.on("pings", streams(lambda: iter(_then(begun, ping)), pause=0.02))
    for seconds in longer(0.3):
        error = failure(model_of(wire, server, endless, settings={"timeout": seconds}), stream=True)
        if isinstance(error, ModelInterrupted):  # the reply had started
            break
    assert error.text in ("So ", "So far")


def _then(first: list[bytes], again: bytes) -> Any:
    yield from first
    while True:
        yield again


@pytest.mark.parametrize("wire", spread(WIRES[1:], every=2), ids=lambda wire: wire.name)
def test_the_input_of_a_provider_tool_counts_as_progress(server: ChatServer, wire: Wire) -> None:
    events = wire.events("", "Done.", ())
    if wire.name == "anthropic":
        opening = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {}}
        pieces = ['{"code": "', *"0123456789", '"}']
        written = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        made: list[Any] = [{"type": "content_block_start", "index": 0, "content_block": opening}]
        made += [{"type": "content_block_delta", "index": 0, "delta": delta} for delta in written]
        rest = [{**event, "index": 1} if "index" in event else event for event in events[1:]]
        events = [events[0], *made, {"type": "content_block_stop", "index": 0}, *rest]
    else:
        kind = "response.code_interpreter_call_code.delta"
        events[2:2] = [{"type": kind, "output_index": 0, "item_id": "ci_1", "delta": one} for one in "0123456789ab"]
    name = server.on("provider-tool", streams(*map(as_event, events), pause=0.25, done=False))
    model = model_of(wire, server, name, settings={"timeout": 3})
    assert ask(model, on_text=lambda text: None).message.text == "Done."


def test_steps_of_the_provider_and_redacted_thoughts_are_sent_back_unchanged(server: ChatServer) -> None:
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"type": "web_search_result"}]}
    redacted = {"type": "redacted_thinking", "data": "abc"}
    whole = WIRES[2].whole("", "", [CALLS[0]])
    whole["content"] = [redacted, search, found, *whole["content"]]
    name = server.on("steps", in_turn(sends(whole), wire_reply(WIRES[2], "", "5.")))
    before = len(server.to(name))
    asyncio.run(Agent(model_of(WIRES[2], server, name), tools=[add]).run("2+3?"))
    (sent,) = [one for one in server.to(name)[before + 1].body["messages"] if one["role"] == "assistant"]
    assert sent["content"] == whole["content"]


@every_wire
def test_the_error_of_a_missing_key_names_its_variable(wire: Wire) -> None:
    name = "ANTHROPIC_API_KEY" if wire.name == "anthropic" else "OPENAI_API_KEY"
    with raises(ModelAuthError, name=name):
        ask(wire.model("m"))
    assert pickle.loads(pickle.dumps(wire.model("m"))).name == "m"


@every_wire
def test_simultaneous_requests_are_limited_across_threads(server: ChatServer, wire: Wire) -> None:
    import threading

    going: list[int] = [0, 0]
    lock = threading.Lock()

    def handler(asked: Any) -> Any:
        async def pieces() -> Any:
            with lock:
                going[0] += 1
                going[1] = max(going)
            await asyncio.sleep(0.03)
            with lock:
                going[0] -= 1
            yield json.dumps(wire.whole("", "Hi", ())).encode()

        from starlette.responses import StreamingResponse

        return StreamingResponse(pieces(), media_type="application/json")

    model = model_of(wire, server, server.on("limited", handler), max_concurrency=2)
    other = model.with_settings(ModelSettings(max_tokens=5))  # type: ignore[attr-defined]

    async def main() -> None:
        asked = [asyncio.create_task(asyncio.to_thread(asyncio.run, model.request(composed()))) for _ in range(4)]
        asked += [asyncio.create_task(other.request(composed())) for _ in range(3)]
        await asyncio.sleep(0.02)
        waiting = asyncio.create_task(model.request(composed()))
        await asyncio.sleep(0.005)
        waiting.cancel()
        await asyncio.gather(*asked)

    asyncio.run(main())
    assert going[1] <= 2
    with raises(AgentDefinitionError, name="max_concurrency"):
        wire.model("m", max_concurrency=0)
    for wrong in (-1, True, "2"):
        with raises(AgentDefinitionError, name="max_retries"):
            wire.model("m", max_retries=wrong)


def test_messages_of_replies_are_instances_of_message(server: ChatServer) -> None:
    for wire in WIRES:
        message = ask(model_of(wire, server, server.on("ours", wire_reply(wire, "", "Hi")))).message
        assert message.text == "Hi"
        assert isinstance(message, Message)
        assert not [call for call in message.tool_calls if not isinstance(call, ToolCall)]


HALF = "cut \ud83d here"
CUT_CALL = ToolCall("c1", "look", json.dumps({"a": HALF}, ensure_ascii=False))
HALVES: dict[str, dict[str, Any]] = {
    "input": {"text": HALF},
    "conversation": {"conversation": [Message("user", HALF, name=HALF), Message("assistant", HALF)]},
    "call": {"intermediate": [Message("assistant", "", (CUT_CALL,)), Message("tool", HALF, tool_call_id="c1")]},
    "tool": {"tools": [ToolSpec("look", HALF, {"type": "object", "properties": {"a": {"description": HALF}}})]},
}


@every_wire
def test_a_lone_surrogate_anywhere_is_sent_as_a_replacement_character(server: ChatServer, wire: Wire) -> None:
    failures: list[str] = []
    for place, context in HALVES.items():
        with collected(failures, place):
            model = model_of(wire, server, server.on("half", wire_reply(wire, "", "fine")))
            assert ask(model, composed(**context)).message.text == "fine"
            assert "cut \ufffd here" in json.dumps(server.asked[-1].body, ensure_ascii=False)
    assert failures == []
