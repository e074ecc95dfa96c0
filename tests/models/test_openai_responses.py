"""Details of the Responses API: a reply is a list of items, which is sent back unchanged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentkit import Agent, Session, tool
from agentkit.models.openai.responses_reader import ResponsesReader
from agentkit_prompts.context.wire.write_openai_responses import responses_items
from tests.models.asking import NOTHING_LEFT_OPEN
from tests.models.wire_forms import WIRES, as_event, model_of, wire_reply
from tests.servers import ChatServer, in_turn, sends, streams

pytestmark = NOTHING_LEFT_OPEN


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def item(number: int, text: str, **more: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    shape = {"id": f"msg_{number}", "type": "message", "status": "completed", "role": "assistant", "content": [part]}
    return {**shape, **more}


def called(number: int) -> dict[str, Any]:
    return {
        "id": f"fc_{number}", "type": "function_call", "status": "completed", "call_id": f"call_{number}",
        "name": "add", "arguments": '{"a": 2, "b": 3}',
    }  # fmt: skip


def thought(number: int) -> dict[str, Any]:
    return {"id": f"rs_{number}", "type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}


OUTPUTS = [
    [item(1, "Let me see."), item(2, "It is easy.", phase="commentary"), called(1)],
    [thought(1), item(1, "First."), called(1), thought(2), item(2, "Second."), called(2)],
    [called(1), item(1, "Behind a call.")],
    [item(1, "One."), called(1), thought(1), item(2, "Two."), item(3, "Three.")],
    [called(1), thought(1), called(2)],
    [{"id": "cmp_1", "type": "compaction", "encrypted_content": "gAAAA"}, thought(1), called(1)],
]


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("output", OUTPUTS)
def test_the_items_of_a_reply_are_sent_back_unchanged(server: ChatServer, output: list[Any], is_streamed: bool) -> None:
    made = {"id": "r", "object": "response", "status": "completed", "model": "served", "output": output, "usage": None}
    events = [{"type": "response.output_item.done", "output_index": at, "item": one} for at, one in enumerate(output)]
    done = {"type": "response.completed", "response": made}
    first = streams(*map(as_event, [*events, done]), done=False) if is_streamed else sends(made)
    name = server.on("items", in_turn(first, wire_reply(WIRES[1], "", "5.")))
    session = Session()
    agent = Agent(model_of(WIRES[1], server, name), tools=[add])
    result = agent.run_sync("2+3?", session=session, on_event=(lambda event: None) if is_streamed else None)
    sent = server.to(name)[-1].body["input"]
    assert sent[1 : len(output) + 1] == output
    assert result.output == "5."
    agent.run_sync("Sure?", session=session)
    assert server.to(name)[-1].body["input"][1 : len(output) + 1] == output


def test_a_changed_message_does_not_use_the_stored_order_of_items() -> None:
    reply = ResponsesReader()
    reply.add({"object": "response", "status": "completed", "output": OUTPUTS[1]})
    message = reply.reply("m").message
    changed = replace(message, content="Short.")
    kinds = [one.get("type", "message") for one in responses_items(changed)]
    assert sorted(kinds) == ["function_call", "function_call", "message", "reasoning", "reasoning"]
    assert "items" not in str(responses_items(changed))
    broken = replace(message, opaque={"responses": {"items": [{"parts": 9}, 5, {"type": []}]}})
    assert len(responses_items(broken)) == 5
