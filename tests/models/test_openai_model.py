"""The OpenAI adapter, through the official SDK, against a real server on loopback: requests and replies."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agentkit import Message, ModelError, ModelSettings, OpenAIModel, Reply, ToolCall, Usage
from agentkit.errors import AgentDefinitionError
from agentkit.models import ModelUnavailable
from agentkit.prompts import Conversation
from agentkit_prompts.system.per_loop import _OPEN
from tests.models.asking import ADD, KEY, NOTHING_LEFT_OPEN, ask, both, composed, failure, model_for
from tests.raising import raises
from tests.servers import ChatServer, chat_reply, chunk, sends, streams
from tests.waiting import until

pytestmark = NOTHING_LEFT_OPEN

# Requests


def test_the_composition_and_the_settings_are_sent(server: ChatServer) -> None:
    name = server.on("settings", chat_reply("Hello."))
    model = model_for(
        server, name, temperature=0.0, max_tokens=9, top_p=0.5, seed=7, stop=["END"], extra={"top_k": 3, "seed": 8}
    )
    ask(model, composed(tools=[ADD]))
    body = server.to(name)[-1].body
    messages = body.pop("messages")
    assert [(message["role"], message["content"]) for message in messages] == [
        ("system", "Be brief."),
        ("user", "Say hello."),
    ]
    assert body.pop("tools")[0]["function"]["parameters"] == ADD.parameters
    assert body == {
        "model": name, "temperature": 0.0, "max_tokens": 9, "top_p": 0.5, "seed": 8, "stop": ["END"], "top_k": 3,
    }  # fmt: skip


def test_without_tools_and_settings_only_model_and_messages_are_sent(server: ChatServer) -> None:
    name = server.on("bare", chat_reply("Hello."))
    ask(model_for(server, name))
    assert set(server.to(name)[-1].body) == {"model", "messages"}


def test_a_history_with_tool_messages_is_accepted(server: ChatServer) -> None:
    name = server.on("history", chat_reply("5"))
    history = Conversation(
        [
            Message("user", "2+3?"),
            Message("assistant", tool_calls=(ToolCall("1", "add", '{"a":2,"b":3}'), ToolCall("2", "add", "{}"))),
            Message("tool", "5", tool_call_id="1"),
            Message("tool", "a is missing", tool_call_id="2"),
            Message("assistant", "5"),
        ]
    )
    assert ask(model_for(server, name), composed("Sure?", conversation=history)).message.text == "5"


def test_text_of_any_script_arrives_unchanged(server: ChatServer) -> None:
    text = "Grüße, 你好, \U0001f9ea\u200d, \x00 and \u2028."
    name = server.on("echo", lambda asked: chat_reply(asked.body["messages"][-1]["content"])(asked))
    pieces: list[str] = []
    assert ask(model_for(server, name), composed(text)).message.text == text
    assert ask(model_for(server, name), composed(text), pieces.append).message.text == "".join(pieces) == text


def test_settings_without_a_json_form_are_refused(server: ChatServer) -> None:
    odd: Any = {"x": object()}
    for settings in ({"temperature": float("nan")}, {"extra": odd}):
        with raises(AgentDefinitionError, name=next(iter(settings))):
            model_for(server, "odd", **settings)


def test_the_official_endpoint_receives_max_completion_tokens() -> None:
    model = OpenAIModel("gpt", api_key=KEY, settings=ModelSettings(max_tokens=5))
    assert model.host == "api.openai.com"
    assert model._settings_body == {"max_completion_tokens": 5}


# Replies


def test_a_complete_reply_has_text_usage_finish_reason_and_model(server: ChatServer) -> None:
    reply = ask(model_for(server, server.on("plain", chat_reply("Hello there."))))
    assert reply == Reply(Message("assistant", "Hello there."), Usage(12, 5, 8), "stop", "served")


def test_a_streamed_reply_is_the_same_and_its_pieces_arrive_in_order(server: ChatServer) -> None:
    pieces: list[str] = []
    reply = ask(model_for(server, server.on("streamed", chat_reply("Hello there, you."))), on_text=pieces.append)
    assert pieces == ["Hello", " there,", " you."]
    assert reply == Reply(Message("assistant", "Hello there, you."), Usage(12, 5, 8), "stop", "served")


@both
def test_parallel_tool_calls_are_complete_and_in_order(server: ChatServer, stream: bool) -> None:
    name = server.on(
        "calls", chat_reply("Let me see.", ("x", "add", '{"a": 1, "b": 2}'), ("y", "add", '{"a": 3, "b": 4}'))
    )
    reply = ask(model_for(server, name), composed(tools=[ADD]), on_text=(lambda text: None) if stream else None)
    assert reply.message.tool_calls == (
        ToolCall("x", "add", '{"a": 1, "b": 2}'),
        ToolCall("y", "add", '{"a": 3, "b": 4}'),
    )
    assert reply.message.text == "Let me see."
    assert reply.finish_reason == "tool_calls"


def test_characters_split_over_packets_and_surrogates_split_over_chunks_are_joined(server: ChatServer) -> None:
    event = b"data: %s\n\n" % json.dumps(chunk(content="né \U0001f600"), ensure_ascii=False).encode()
    bytewise = [event[i : i + 1] for i in range(len(event))]
    halves = [
        b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % half for half in (rb"\ud83d", rb"\ude80!")
    ]
    name = server.on("unicode", streams(*bytewise, *halves, chunk("stop")))
    pieces: list[str] = []
    reply = ask(model_for(server, name), on_text=pieces.append)
    assert reply.message.text == "né \U0001f600\U0001f680!"
    assert pieces == ["né \U0001f600", "\U0001f680!"]


def test_a_huge_stream_is_received_completely(server: ChatServer) -> None:
    name = server.on("huge", streams(*[chunk(content=f"{i:09d} ") for i in range(5_000)], chunk("stop")))
    heard: list[str] = []
    reply = ask(model_for(server, name), on_text=heard.append)
    assert reply.message.text == "".join(f"{i:09d} " for i in range(5_000)) == "".join(heard)


def test_one_huge_event_is_received_completely(server: ChatServer) -> None:
    name = server.on("wide", streams(chunk(content="x" * 4_000_000), chunk("stop")))
    assert len(ask(model_for(server, name), on_text=lambda text: None).message.text) == 4_000_000


def test_a_server_without_stream_options_receives_no_stream_options_after_its_error(server: ChatServer) -> None:
    refuses = sends({"error": {"message": "Unrecognized request argument: stream_options"}}, 400)
    name = server.on(
        "no-options",
        lambda asked: (refuses if "stream_options" in asked.body else streams(chunk("stop", content="Hi")))(asked),
    )
    model = model_for(server, name)
    assert [ask(model, on_text=lambda text: None).message.text for _ in range(2)] == ["Hi", "Hi"]
    assert ["stream_options" in asked.body for asked in server.to(name)] == [True, False, False]


# Event loops, listeners and cancellation


def test_one_model_serves_many_event_loops(server: ChatServer) -> None:
    model = model_for(server, server.on("loops", chat_reply("Hi")))
    for _ in range(3):
        assert ask(model).message.text == "Hi"
    assert not [loop for loop in _OPEN if loop.is_closed()]


def test_many_simultaneous_requests_in_one_loop(server: ChatServer) -> None:
    name = server.on("many", lambda asked: chat_reply(asked.body["messages"][-1]["content"])(asked))
    model = model_for(server, name)

    async def all_of_them() -> list[str]:
        replies = await asyncio.gather(*(model.request(composed(f"number {i}")) for i in range(50)))
        return [reply.message.text for reply in replies]

    assert asyncio.run(all_of_them()) == [f"number {i}" for i in range(50)]


def test_two_threads_with_a_loop_each_share_a_model(server: ChatServer) -> None:
    model = model_for(server, server.on("threads", chat_reply("Hi there")))

    async def main() -> list[str]:
        asked = [asyncio.to_thread(asyncio.run, model.request(composed())) for _ in range(4)]
        return [reply.message.text for reply in await asyncio.gather(*asked)]

    assert asyncio.run(main()) == ["Hi there"] * 4


def test_a_closed_model_can_be_used_again(server: ChatServer) -> None:
    model = model_for(server, server.on("closing", chat_reply("Hi")))

    async def main() -> str:
        await model.aclose()
        await model.request(composed())
        await model.aclose()
        return (await model.request(composed())).message.text

    assert asyncio.run(main()) == "Hi"


def test_a_custom_client_is_used_and_stays_open(server: ChatServer) -> None:
    from openai import AsyncOpenAI

    async def main() -> tuple[str, bool]:
        async with AsyncOpenAI(base_url=server.url, api_key=KEY, max_retries=0) as client:
            model = OpenAIModel(server.on("own", chat_reply("Hi")), client=client)
            reply = await model.request(composed())
            await model.aclose()
            assert model.host == server.host
            return reply.message.text, client.is_closed()

    assert asyncio.run(main()) == ("Hi", False)


def test_a_closed_client_of_the_caller_is_not_reported_as_a_model_error(server: ChatServer) -> None:
    from openai import AsyncOpenAI

    async def main() -> None:
        client = AsyncOpenAI(base_url=server.url, api_key=KEY, max_retries=0)
        await client.close()
        await OpenAIModel("m", client=client).request(composed())

    with pytest.raises(RuntimeError):
        asyncio.run(main())


def test_an_event_loop_that_was_closed_without_cleanup_is_forgotten(server: ChatServer) -> None:
    model = model_for(server, server.on("abrupt", chat_reply("Hi")))
    loop = asyncio.new_event_loop()
    loop.run_until_complete(model._clients.client())  # no request, because its socket would never be closed
    loop.close()
    assert asyncio.run(model.request(composed())).message.text == "Hi"
    assert not [loop for loop in _OPEN if loop.is_closed()]


def test_a_complete_reply_that_is_cut_is_an_unavailable_model(server: ChatServer) -> None:
    name = server.on("cut-whole", streams(b'{"choices": [', cut=b"40\r\n"))
    assert type(failure(model_for(server, name))) is ModelUnavailable


def test_an_exception_of_a_listener_reaches_the_caller_and_ends_the_stream(server: ChatServer) -> None:
    name = server.on("listener", streams(lambda: (chunk(content="word ") for _ in range(10_000_000)), pause=0.001))

    def listener(text: str) -> None:
        raise json.JSONDecodeError("mine", text, 0)

    dropped = server.dropped
    with raises(json.JSONDecodeError, msg="mine"):
        ask(model_for(server, name), on_text=listener)
    assert until(lambda: server.dropped > dropped)


def test_cancelling_ends_the_stream_and_the_model_can_be_used_again(server: ChatServer) -> None:
    name = server.on("endless", streams(lambda: (chunk(content="word ") for _ in range(10_000_000)), pause=0.001))
    model = model_for(server, name)
    dropped = server.dropped

    async def main() -> str:
        heard = asyncio.Event()
        task = asyncio.create_task(model.request(composed(), on_delta=lambda delta: heard.set()))
        await heard.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        server.on(name, chat_reply("Hi"))
        return (await model.request(composed())).message.text

    assert asyncio.run(main()) == "Hi"
    assert until(lambda: server.dropped > dropped)


def test_without_the_sdk_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "openai", None)
    with raises(ModelError, name="openai"):
        ask(OpenAIModel("m", api_key=KEY))


def test_importing_the_models_loads_no_sdk() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from agentkit import CompletionModel, OpenAIModel; "
        "print(sorted({'openai', 'httpx', 'httpx2', 'sqlalchemy'} & set(sys.modules)))"
    )
    paths = [str(Path(path).resolve()) for path in sys.path if path]
    shown = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {paths!r}; {code}"], capture_output=True, text=True
    )
    assert shown.stdout.strip() == "[]", shown.stderr
