"""Deltas of a raw completion next to its text: thoughts and calls; delayed text counts as progress."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentkit import Agent, ModelSettings, OutputSpec, PartialOutput
from agentkit.models import Delta
from tests.effort import spread
from tests.models.asking import ADD, NOTHING_LEFT_OPEN, composed
from tests.models.raw import ChatML, raw_model
from tests.servers import ChatServer, completes, streams

pytestmark = NOTHING_LEFT_OPEN

ARGUMENTS = '{"a": 2, "b": 3}'
HERMES = f'Sums.<tool_call>{{"name": "add", "arguments": {ARGUMENTS}}}</tool_call>'
HARMONY = (
    "<|channel|>analysis<|message|>Two<|end|><|start|>assistant<|channel|>analysis<|message|>sums.<|end|>"
    f"<|start|>assistant<|channel|>commentary to=functions.add <|constrain|>json<|message|>{ARGUMENTS}<|call|>"
    "<|start|>assistant<|channel|>final<|message|>Sums.<|return|>"
)
FUNCTIONARY = f">>>all\nSums.\n>>>add\n{ARGUMENTS}"


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(("format", "said"), [("hermes", HERMES), ("harmony", HARMONY), ("functionary", FUNCTIONARY)])
def test_thoughts_and_calls_are_separate_deltas(server: ChatServer, format: str, said: str, size: int) -> None:
    model = raw_model(
        server, server.on("raw-kinds", completes(said, size=size)), chat_template=ChatML(tool_call_format=format)
    )
    heard: list[Delta] = []
    message = asyncio.run(model.request(composed(tools=[ADD]), on_delta=heard.append)).message
    joined: dict[Any, str] = {}
    for one in heard:
        joined[one[1:]] = joined.get(one[1:], "") + one.text
    assert joined.pop(("thinking", 0, ""), "") == message.reasoning
    assert message.reasoning == ("Two\n\nsums." if format == "harmony" else "")
    assert joined == {("text", 0, ""): message.text, ("arguments", 0, "add"): ARGUMENTS}


def test_an_answer_in_a_call_is_a_partial_output(server: ChatServer) -> None:
    said = '<tool_call>{"name": "final_answer", "arguments": {"value": 5}}</tool_call>'
    model = raw_model(server, server.on("raw-partial", completes(said)))
    events: list[Any] = []
    assert Agent(model, output=OutputSpec(int, mode="tool")).run_sync("go", on_event=events.append).output == 5
    assert [event.output for event in events if isinstance(event, PartialOutput)] == [5]


@pytest.mark.parametrize("said", spread([HERMES, HARMONY], every=2), ids=["hermes", "harmony"])
def test_a_call_that_takes_longer_than_the_time_limit_of_a_piece_is_read(server: ChatServer, said: str) -> None:
    choice = {"index": 0, "finish_reason": None, "logprobs": None}
    size = len(said) // 12
    pieces = [
        {"id": "c1", "object": "text_completion", "choices": [{**choice, "text": said[at : at + size]}]}
        for at in range(0, len(said), size)
    ]
    end = {**pieces[0], "choices": [{**choice, "text": "", "finish_reason": "stop"}]}
    name = server.on("raw-slow", streams(*pieces, end, pause=0.25))
    template = ChatML(tool_call_format="harmony" if said is HARMONY else "hermes")
    model = raw_model(server, name, chat_template=template, settings=ModelSettings(timeout=3))
    message = asyncio.run(model.request(composed(tools=[ADD]), on_delta=lambda delta: None)).message
    assert [call.arguments for call in message.tool_calls] == [ARGUMENTS]
