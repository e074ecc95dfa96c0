"""The body of a request: unchanged JSON, with a long conversation written once."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agentkit import Agent, Session, tool
from agentkit.models.http.request_body import body_bytes
from agentkit_prompts.context.frozen import FrozenDict, FrozenList, freeze
from tests.models.asking import NOTHING_LEFT_OPEN
from tests.models.wire_forms import Wire, every_wire, model_of, wire_reply
from tests.servers import ChatServer, in_turn

pytestmark = NOTHING_LEFT_OPEN


def plain(body: Any) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"model": "m", "messages": [], "n": None, "x": {"a": [1.5, True]}, 'é"\n': "\u2028\x00"},
        {"messages": [freeze({"role": "user", "content": [{"a": {"b": "é"}}]}), {"role": "tool"}, "text", 5]},
        {"tools": FrozenList([freeze({"name": "a", "parameters": {"type": "object"}})]), "stop": ("a", "b")},
    ],
)
def test_a_body_is_the_text_of_json_for_any_number_of_writes(body: dict[str, Any]) -> None:
    assert [body_bytes(body), body_bytes(body)] == [plain(body)] * 2


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}])
def test_a_value_without_a_json_form_is_refused_in_each_attempt(value: Any) -> None:
    item = FrozenDict(content=value)
    for _ in range(2):
        with pytest.raises((ValueError, TypeError)):
            body_bytes({"messages": [item]})


def test_a_message_is_written_only_once() -> None:
    item = FrozenDict(role="user", content="Hi")
    first = body_bytes({"messages": [item]})
    item.json = item.json.replace("Hi", "Hello")  # shows the source of the text
    assert body_bytes({"messages": [item]}) == first.replace(b"Hi", b"Hello")
    assert freeze(dict(item)) == item and "json" not in repr(item)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@every_wire
def test_a_conversation_is_sent_completely_in_each_turn(server: ChatServer, wire: Wire) -> None:
    call = ("c", "add", '{"a": 2, "b": 3}')
    name = server.on("turns", in_turn(*[wire_reply(wire, "Hm", "", call), wire_reply(wire, "", "5.")] * 3))
    before = len(server.to(name))
    agent, session = Agent(model_of(wire, server, name), "Be brief.", tools=[add]), Session()

    async def main() -> None:
        for number in range(3):
            await agent.run(f"2+3? ({number})", session=session)

    asyncio.run(main())
    bodies = [asked.body for asked in server.to(name)[before:]]
    sent = [json.dumps(body.get("messages") or body["input"]) for body in bodies]
    assert [[f"({number})" in text for number in range(3)] for text in sent] == [
        [turn >= number for number in range(3)] for turn in (0, 0, 1, 1, 2, 2)
    ]
    again = agent.chain.model._body(agent.compose("And now?", session=session))  # type: ignore[attr-defined]
    assert body_bytes(again) == plain(again)
