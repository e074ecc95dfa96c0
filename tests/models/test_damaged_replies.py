"""Replies with values in wrong places are refused with a typed error, or can be sent back."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from agentkit import Reply
from agentkit.models.http.error_reply import ErrorReply
from agentkit.models.http.reader import IncompleteCall, ProtocolError
from agentkit.prompts import read_messages
from agentkit_prompts.context.messages import MESSAGES
from agentkit_prompts.context.wire.write_anthropic import anthropic_message
from agentkit_prompts.context.wire.write_openai_chat import openai_message
from agentkit_prompts.context.wire.write_openai_responses import responses_items
from tests.models.asking import NOTHING_LEFT_OPEN, ask, composed
from tests.models.wire_forms import Wire, every_form, model_of
from tests.servers import ChatServer, sends

pytestmark = NOTHING_LEFT_OPEN

JUNK: list[Any] = [
    None, True, 0, -1, 1.5, 10**30, 2**63, "", "x", "\ud800", "\x00", [], {}, [None], {"a": None}, [[]], {"error": {}},
    "tool_use", "message", "function_call", "reasoning", "thinking", "pause_turn", {"type": 5}, {"type": {"a": 1}},
    {"type": "text"}, {"type": "tool_use", "id": "a", "name": "b", "input": [1]}, {"type": "message"},
    {"type": "tool_use", "id": "", "name": "b", "input": "\ud800"}, {"type": "message", "content": None},
    {"type": "message", "content": 5}, {"type": "function_call", "name": "f"}, {"type": "output_text", "text": None},
    {"type": "tool_use", "name": "f", "call_id": ""}, {"type": "refusal", "refusal": "no"},
]  # fmt: skip
REMOVED = object()


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    inner = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in inner:
        yield from places(value, (*path, key))


def damaged(document: Any, path: tuple[Any, ...], value: object) -> None:
    for key in path[:-1]:
        document = document[key]
    if value is REMOVED:
        del document[path[-1]]
    else:
        document[path[-1]] = copy.deepcopy(value)


def check(reply: Reply) -> None:
    """Check that a reply can be stored and sent back, to any endpoint."""
    message = reply.message
    for write in (responses_items, anthropic_message, openai_message):
        json.dumps(write(message), allow_nan=False, ensure_ascii=False).encode()  # type: ignore[operator]
    assert MESSAGES.validate_json(MESSAGES.dump_json(message)) == message
    ids = [call.id for call in message.tool_calls]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    assert all(call.name for call in message.tool_calls)
    f"{reply.finish_reason}{reply.model}".encode()
    assert reply.usage.input_tokens >= 0


@every_form
@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_reply_is_refused_or_can_be_stored(wire: Wire, seed: int) -> None:
    chance = random.Random(seed)
    outcomes = set()
    for _ in range(250):
        calls = [(f"c{number}", "add", '{"a": 2}') for number in range(chance.randint(0, 2))]
        make = wire.events if chance.random() < 0.7 else lambda *said: [wire.whole(*said)]
        documents = copy.deepcopy(make(chance.choice(["", "Hm."]), chance.choice(["", "It is é."]), calls))
        if chance.random() < 0.3:
            chance.shuffle(documents)
        for _ in range(chance.randint(1, 4)):
            document = chance.choice(documents)
            if found := list(places(document)):
                damaged(document, chance.choice(found), chance.choice([*JUNK, *[REMOVED] * 6]))
        reader = wire.reader()
        try:
            for document in documents:
                reader.add(document)
            reader.end()
            reply = reader.reply("m")
        except (ProtocolError, ErrorReply, IncompleteCall) as error:
            outcomes.add(type(error))
        else:
            check(reply)
            outcomes.add(Reply)
    assert {Reply, ProtocolError} <= outcomes


@every_form
@pytest.mark.parametrize("number", [b"NaN", b"-Infinity", b"1e999"])
def test_an_invalid_number_does_not_break_the_next_request(server: ChatServer, wire: Wire, number: bytes) -> None:
    body = json.dumps(wire.whole("Hm.", "Five.", ())).encode()
    at = body.index(b'Five."') + len(b'Five."')
    odd = body[:at] + b', "score": ' + number + body[at:]
    name = server.on("odd-number", sends(odd))
    model = model_of(wire, server, name)
    reply = ask(model)
    check(reply)
    ask(model, composed("Sure?", conversation=[reply.message]))
    assert b"Five." in json.dumps(server.to(name)[-1].body).encode()


def test_a_message_after_a_message_without_content_is_read() -> None:
    thought = {"type": "reasoning", "summary": [], "encrypted_content": "g"}
    full = {"role": "assistant", "content": [{"type": "output_text", "text": "Five."}]}
    read = read_messages([thought, {"role": "assistant", "content": ""}, full], form="responses")
    assert "".join([message.text for message in read]) == "Five."
