"""Classes of replies: an error by its code, a cut call, a legacy call, an empty reply; the start and end of streams."""

from __future__ import annotations

import asyncio
import gzip
from itertools import chain, repeat
from typing import Any

import pytest

from agentkit import Agent, ToolCall, tool
from agentkit.models import (
    Delta,
    ModelInterrupted,
    ModelUnavailable,
)
from tests.effort import spread
from tests.models.asking import ADD, NOTHING_LEFT_OPEN, ask, both, composed, failure, model_for
from tests.servers import ChatServer, calls, chat_reply, chunk, completion, in_turn, sends, streams
from tests.waiting import longer

pytestmark = NOTHING_LEFT_OPEN


HALF = calls(("x", "add", '{"a": 2, "b"'))


# Streams


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def deltas_of(server: ChatServer, name: str, **settings: Any) -> list[Delta]:
    heard: list[Delta] = []
    asyncio.run(model_for(server, name, **settings).request(composed(tools=[ADD]), on_delta=heard.append))
    return heard


def test_thoughts_text_refusals_and_arguments_are_separate_deltas(server: ChatServer) -> None:
    name = server.on(
        "kinds",
        streams(
            chunk(reasoning_content="Hm"),
            chunk(content="Let me "),
            chunk(content="see."),
            chunk(tool_calls=[{"index": 0, "id": "x", "function": {"name": "add", "arguments": '{"a"'}}]),
            chunk(tool_calls=[{"index": 1, "id": "y", "function": {"name": "mul", "arguments": "{}"}}]),
            chunk(tool_calls=[{"index": 0, "function": {"arguments": ": 1}"}}]),
            chunk(refusal="No."),
            chunk("tool_calls"),
        ),
    )
    assert deltas_of(server, name) == [
        Delta("Hm", "thinking"),
        Delta("Let me "),
        Delta("see."),
        Delta('{"a"', "arguments", 0, "add"),
        Delta(": 1}", "arguments", 0, "add"),
        Delta("No.", "refusal"),
        # Other arguments may replace empty arguments.
        Delta("{}", "arguments", 1, "mul"),
    ]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_events_are_read_with_any_line_ends(server: ChatServer, end: bytes) -> None:
    events = [b'data: {"choices":[{"delta":{"content":"a"}}]}', b": ping", b"id: 7", b"retry: 1", b"unknown"]
    last = b'data:{"choices":[{"delta":{"content":"b"},\ndata: "finish_reason":"stop"}]}'.replace(b"\n", end)
    whole = (end * 2).join([*events, last]) + end * 2
    for size in (1, 7, len(whole)):
        pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
        assert "".join([one.text for one in deltas_of(server, server.on("lines", streams(*pieces)))]) == "ab"


def test_a_last_event_without_an_end_is_read(server: ChatServer) -> None:
    event = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}'
    assert deltas_of(server, server.on("unclosed", streams(event, done=False))) == [Delta("a")]


def test_a_stream_that_is_cut_before_its_first_piece_is_retried(server: ChatServer) -> None:
    cut = streams(chunk(role="assistant"), cut=b"ff\r\n")
    name = server.on("cut-early", in_turn(cut, streams(done=False), chat_reply("At last.")))
    heard: list[str] = []
    assert ask(model_for(server, name, max_retries=2), on_text=heard.append).message.text == "At last."
    assert "".join(heard) == "At last."
    assert len(server.to(name)) == 3
    name = server.on("cut-always", cut)
    assert isinstance(failure(model_for(server, name, max_retries=1), stream=True), ModelUnavailable)
    assert len(server.to(name)) == 2


@pytest.mark.parametrize("first", [chunk(reasoning_content="Hm"), chunk(tool_calls=[{"index": 0, **HALF[0]}])])
def test_a_stream_that_is_cut_after_any_piece_is_not_retried(server: ChatServer, first: Any) -> None:
    name = server.on("cut-late", streams(first, cut=b"ff\r\n"))
    asked = len(server.to(name))
    assert isinstance(failure(model_for(server, name, max_retries=3), stream=True), ModelInterrupted)
    assert len(server.to(name)) == asked + 1


PINGS = [b": ping\n\n", chunk(), {"choices": []}, b"event: ping\ndata: {}\n\n", b"\n", b" ", chunk(content="")]


@both
@pytest.mark.parametrize("ping", PINGS, ids=str)
def test_pings_do_not_keep_a_run_forever(server: ChatServer, ping: Any, stream: bool) -> None:
    name = server.on("pings", streams(lambda: repeat(ping), pause=0.02))
    assert isinstance(failure(model_for(server, name, timeout=0.3), stream=stream), ModelUnavailable)
    name = server.on("pings", streams(lambda: chain([chunk(content="So far")], repeat(ping)), pause=0.02))
    for seconds in longer(0.3):
        error = failure(model_for(server, name, timeout=seconds), stream=True)
        if isinstance(error, ModelInterrupted):  # the reply had started
            break
    assert error.text == "So far"


def test_an_event_that_arrives_byte_by_byte_does_not_keep_a_run_forever(server: ChatServer) -> None:
    name = server.on("drip", streams(lambda: chain([b"data: "], repeat(b"x")), pause=0.02))
    assert isinstance(failure(model_for(server, name, timeout=0.3), stream=True), ModelUnavailable)


def test_a_complete_reply_is_not_kept_open_by_its_server(server: ChatServer) -> None:
    pieces = [chunk(content="Hi"), chunk("stop"), b"data: [DONE]\n\n"]
    name = server.on("open", streams(lambda: chain(pieces, repeat(b": ping\n\n")), pause=0.01))
    assert deltas_of(server, name) == [Delta("Hi")]


def test_the_time_of_a_slow_listener_is_not_the_time_of_the_server(server: ChatServer) -> None:
    name = server.on("slow-listener", streams(*[chunk(content="x")] * 3, chunk("stop")))

    heard: list[Delta] = []

    async def main() -> str:
        async def slow(delta: Delta) -> None:
            await asyncio.sleep(0 if heard else 3)
            heard.append(delta)

        return (await model_for(server, name, timeout=2).request(composed(), on_delta=slow)).message.text

    assert asyncio.run(main()) == "xxx"


@pytest.fixture(scope="module")
def bomb() -> bytes:
    return gzip.compress(b'{"error": "' + b" " * (200 << 20) + b'"}', compresslevel=1)


@both
@pytest.mark.parametrize("status", spread([200, 400, 500], 3))
def test_a_compressed_bomb_is_refused_in_bounded_memory(
    server: ChatServer, status: int, stream: bool, bomb: bytes
) -> None:
    import tracemalloc

    name = server.on(f"bomb-{status}", sends(bomb, status, headers={"content-encoding": "gzip"}))
    model = model_for(server, name)
    tracemalloc.start()
    error = failure(model, stream=stream)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 110 << 20
    assert len(str(error)) < 1_000
    if status == 200:
        assert "larger than 32 MiB" in str(error)


def test_one_event_of_many_lines_is_refused_in_bounded_memory(server: ChatServer) -> None:
    name = server.on("lines", streams(lambda: repeat(b"data: " + b" " * (4 << 20) + b"\n")))
    assert "larger than 32 MiB" in str(failure(model_for(server, name, max_retries=0), stream=True))


def test_a_compressed_reply_is_read(server: ChatServer) -> None:
    import json

    body = gzip.compress(json.dumps(completion("Hello.")).encode())
    name = server.on("gzip", sends(body, headers={"content-encoding": "gzip"}))
    assert ask(model_for(server, name)).message.text == "Hello."
    refusal = gzip.compress(b'{"error": {"message": "because"}}')
    name = server.on("gzip-400", sends(refusal, 400, headers={"content-encoding": "gzip"}))
    assert "because" in str(failure(model_for(server, name)))


def test_arguments_in_many_pieces_take_time_in_proportion(server: ChatServer) -> None:
    from time import process_time

    from agentkit.models.http.reply_reader import ReplyReader

    def seconds(count: int) -> float:
        reader = ReplyReader()
        again = {"index": 0, "function": {"name": "add", "arguments": '{"a": "}"}, '}}
        start = process_time()
        reader.add(chunk(tool_calls=[{"index": 0, "id": "x", "function": {"name": "add", "arguments": "["}}]))
        for _ in range(count):
            reader.add(chunk(tool_calls=[again]))
        taken = process_time() - start
        reader.add(chunk(tool_calls=[{"index": 0, "function": {"name": "add", "arguments": "0]"}}]))
        assert len(reader.reply("m").message.tool_calls[0].arguments) == 12 * count + 3
        return taken

    seconds(100)
    small, large = (min(seconds(count) for _ in range(3)) for count in (1_000, 16_000))
    assert large / small < 80  # 16 times as many; quadratic time would be 256 times as long


def test_a_backslash_at_the_end_of_a_piece_belongs_to_the_next(server: ChatServer) -> None:
    pieces = ['{"a": "\\', '"}', '{"', "}"]
    deltas = [chunk(tool_calls=[{"index": 0, "function": {"name": "add", "arguments": one}}]) for one in pieces]
    name = server.on("escape", streams(*deltas, chunk("tool_calls")))
    heard: list[Delta] = []
    reply = asyncio.run(model_for(server, name).request(composed(), on_delta=heard.append))
    assert [call.arguments for call in reply.message.tool_calls] == ["".join(pieces)]
    assert all(isinstance(call, ToolCall) for call in reply.message.tool_calls)


def test_an_agent_streams_every_kind_of_delta(server: ChatServer) -> None:
    from agentkit import ArgumentsDelta, TextDelta, ThinkingDelta

    call = {"index": 0, **calls(("x", "add", '{"a":1,"b":2}'))[0]}
    pieces = [chunk(reasoning_content="Hm"), chunk(content="So."), chunk(tool_calls=[call]), chunk("tool_calls")]
    first = streams(*pieces)
    name = server.on("heard", in_turn(first, chat_reply("3")))
    heard: list[Any] = []
    asyncio.run(Agent(model_for(server, name), tools=[add]).run("1+2?", on_event=heard.append))
    kinds = (ArgumentsDelta, TextDelta, ThinkingDelta)
    assert [event for event in heard if isinstance(event, kinds)] == [
        ThinkingDelta(1, "Hm"),
        TextDelta(1, "So."),
        ArgumentsDelta(1, '{"a":1,"b":2}', 0, "add"),
        TextDelta(2, "3"),
    ]
