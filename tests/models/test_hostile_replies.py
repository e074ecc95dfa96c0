"""Any data of an endpoint, in every wire form: a reply that can be stored and sent, or a typed error."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Iterator
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit import Agent, ModelError, Session, tool
from agentkit.models.http.error_reply import ErrorReply
from agentkit.models.http.reader import IncompleteCall, ProtocolError, Reader
from tests.cases import collected
from tests.effort import pairs, thinned
from tests.models.asking import KEY, NOTHING_LEFT_OPEN, composed
from tests.models.test_model_secrets import everything
from tests.models.wire_forms import (
    COMPLETION,
    FORMS,
    WIRES,
    Wire,
    as_event,
    every_form,
    every_wire,
    model_of,
    wire_reply,
)
from tests.servers import ChatServer, in_turn, sends, streams

pytestmark = NOTHING_LEFT_OPEN
CALLS = [("x", "add", '{"a": 2, "b": 3}'), ("y", "add", '{"a": 4, "b": 5}')]
JUNK: list[Any] = [None, 5, -1, 1e308, True, "", "x", "\ud83d", [], [None], {}, {"type": "x"}, [[]], "x" * 10_000]


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value inside."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield (*path, key)
        yield from places(item, (*path, key))


def changed(document: Any, path: tuple[Any, ...], junk: Any, *, removed: bool = False) -> Any:
    made = copy.deepcopy(document)
    at = made
    for key in path[:-1]:
        at = at[key]
    if removed:
        del at[path[-1]]
    else:
        at[path[-1]] = junk
    return made


def read(reader: Reader, documents: list[Any]) -> None:
    """Read documents; the result is a typed error, or a message that can be stored and sent."""
    heard = ""
    try:
        for document in documents:
            heard += "".join([one.text for one in reader.add(document) if one.kind in ("text", "refusal")])
        heard += "".join([one.text for one in reader.end() if one.kind in ("text", "refusal")])
        message = reader.reply("m").message
    except (ProtocolError, ErrorReply, IncompleteCall):
        return
    json.dumps([message.text, *[(call.id, call.name, call.arguments) for call in message.tool_calls]]).encode()
    message.text.encode()
    assert all(call.id and call.name for call in message.tool_calls)
    assert len({call.id for call in message.tool_calls}) == len(message.tool_calls)


@every_form
def test_any_value_in_any_place_is_read_or_refused(wire: Wire) -> None:
    whole = wire.whole("Hm", "Let me see.", CALLS)
    events = wire.events("Hm", "Let me see.", CALLS)
    for path in places(whole):
        read(wire.reader(), [changed(whole, path, None, removed=True)])
        for junk in JUNK:
            read(wire.reader(), [changed(whole, path, junk)])
    for number, event in thinned([*enumerate(events)]):
        read(wire.reader(), events[:number] + events[number + 1 :])
        read(wire.reader(), [*events[: number + 1], event, *events[number + 1 :]])
        for path in places(event):
            for junk in JUNK[:8]:
                read(wire.reader(), [*events[:number], changed(event, path, junk), *events[number + 1 :]])


@every_form
@given(data=st.data())
def test_events_in_any_order_are_read_or_refused(wire: Wire, data: st.DataObject) -> None:
    events = wire.events("Hm", "Let me see.", CALLS)
    read(wire.reader(), data.draw(st.lists(st.sampled_from(events), max_size=20)))


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def bad_streams(wire: Wire) -> dict[str, list[Any]]:
    """Bodies that are sent as a stream."""
    good = [as_event(event) for event in wire.events("Hm", "Let me see.", CALLS)]
    jumps = [wire.events("", "ab", CALLS)[at] for at in (0, -1, 1, -2)]
    return {
        "nothing": [],
        "garbage": [b"\x00\xff\xfe" * 100],
        "garbage between": [*good[:3], b"data: {nonsense\n\n", *good[3:]],
        "half UTF-8": [*good[:2], b'data: {"x": "\xc3"}\n\n'],
        "a cut character": [good[0][:-10]],
        "jumps": [as_event(event) for event in jumps],
        "only the end": good[-1:],
        "twice": good + good,
        "a long line": [*good[:2], b"data: " + b"x" * (10 << 20) + b"\n\n"],
        "many lines": [b"data: x\n" * 10_000, b"\n"],
        "no data": [b"event: x\n\n" * 1_000],
        "a long thought": [as_event(event) for event in wire.events("x" * (1 << 20), "y", ())],
        "null": [b"data: null\n\n"],
        "a number": [b"data: 17\n\n"],
        "many digits": [b"data: " + b"1" * 5_000 + b"\n\n"],
        "nested": [b"data: " + b"[" * 100_000 + b"\n\n"],
        "nested, whole": [b'data: {"type":' + json.dumps(nested(900)).encode() + b"}\n\n"],
        "a page": [b"<html>Welcome to nginx!</html>"],
        "an error with a key": [as_event({"error": {"message": f"key {KEY}", "code": 401}})],
        "another form": [
            as_event(event)
            for other in [*WIRES, COMPLETION]
            if other is not wire
            for event in other.events("", "x", CALLS)
        ],
        "done at once": [b"data: [DONE]\n\n"],
        "no ends": [b"".join(good).replace(b"\n\n", b"\n")],
    }


async def ask_twice(server: ChatServer, wire: Wire, name: str, cut: bytes | None) -> str:
    """Return the answer to a second question, after a bad stream as the answer to the first one."""
    bad = streams(*bad_streams(wire)[name], cut=cut, done=False)
    served = server.on("bad", in_turn(bad, wire_reply(wire, "", "Fine.")))
    agent = Agent(model_of(wire, server, served, api_key=KEY), tools=[add])
    session = Session()
    try:
        await agent.run("2+3?", session=session, on_event=lambda event: None)
    except ModelError as error:
        for text in everything(error):
            assert KEY not in text
    return (await agent.run("Again?", session=session, on_event=lambda event: None)).output


def test_a_bad_stream_ends_with_a_typed_error_and_the_history_can_continue(server: ChatServer) -> None:
    failures: list[str] = []
    for name, wire in thinned(pairs([*bad_streams(WIRES[0])], FORMS), 4):
        for cut in (None, b"ff\r\nx"):  # closed, or cut
            with collected(failures, name, wire.name, cut):
                assert asyncio.run(ask_twice(server, wire, name, cut)) == "Fine."
    assert failures == []


WHOLE = [
    b"", b"null", b"[]", b'"x"', b"{}", b"\xff\xfe\xfd", b"[" * 100_000, b"1" * 5_000, b"<html>", b'{"a":',
    b"{" + b" " * (33 << 20),
]  # fmt: skip


async def check_bad_body(server: ChatServer, wire: Wire, body: bytes) -> None:
    for status in (200, 400, 500):
        model = model_of(wire, server, server.on("bad-body", sends(body, status)), api_key=KEY)
        for listening in ({}, {"on_delta": lambda delta: None}):
            with pytest.raises(ModelError) as caught:
                await model.request(composed(), **listening)
            assert len(str(caught.value)) < 1_200


def test_a_bad_body_is_a_typed_error(server: ChatServer) -> None:
    failures: list[str] = []
    for body, wire in thinned(pairs(WHOLE, FORMS, of=2), 3):
        with collected(failures, body[:12], wire.name):
            asyncio.run(check_bad_body(server, wire, body))
    assert failures == []


@every_wire
def test_many_pieces_of_arguments_take_time_in_proportion(wire: Wire) -> None:
    events = wire.events("", "", [("x", "add", '{"a": 2}')])
    first = next(at for at, event in enumerate(events) if '{\\"a\\"' in json.dumps(event))

    def seconds(count: int) -> float:
        reader = wire.reader()
        start = process_time()
        for event in [*events[: first + 1], *[events[first]] * count]:
            reader.add(event)
        return process_time() - start

    seconds(100)
    small, large = (min(seconds(count) for _ in range(3)) for count in (1_000, 16_000))
    assert large / small < 80  # 16 times as many; quadratic time would be 256 times as long
