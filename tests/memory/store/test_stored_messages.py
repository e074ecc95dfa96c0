"""Messages that are read as they were stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentkit.memory import InvalidArgument, Memory
from agentkit.prompts import Image, Message, Text, Thinking, ToolCall, Url
from agentkit.testing import StoreProbe

PIXEL = b"\x89PNG\r\n\x1a\n"
WRITTEN = [
    Message("system", "Be brief."),
    Message(
        "user",
        (Text("What is this?"), Image(PIXEL, name="a.png"), Image(Url("https://example.org/cat.png"))),
    ),
    Message("assistant", "I look it up.", (ToolCall("c1", "look", '{"q": "café"}'),)),
    Message("tool", (Text("found"),), tool_call_id="c1", name="look"),
    Message(
        "user",
        (
            Text("Look.", opaque={"anthropic": {"citations": [{"start": 0}]}}),
            Image(PIXEL, opaque={"openai": {"image_url": {"detail": "high"}}}),
        ),
    ),
    Message(
        "assistant",
        (Text("No.", kind="refusal"),),
        (ToolCall("c1", "look", opaque={"openai": {"extra_content": {"google": {"thought_signature": "s"}}}}),),
        thinking=(Thinking("hm", "anthropic", "sig"), Thinking(provider="anthropic", redacted="abc", at=1)),
        opaque={"openai": {"reasoning_details": [{"type": "x"}]}},
    ),
    Message("tool", "r", tool_call_id="c1", name="look"),
]


def test_a_session_opens_as_it_was_written_and_each_message_has_its_format(home: Path) -> None:
    with Memory(home) as memory:
        memory.session("trip").append(*WRITTEN)
    with Memory(home) as again:
        assert list(again.session("trip").conversation) == WRITTEN
        assert set(StoreProbe(again).values("SELECT format FROM messages")) == {1}


@pytest.mark.parametrize(
    "text", ["", "u:", "a: b", "{", '{"role":"user"}', "é\u2028\ufeff", " \n\t", "nul \0", "\x07", "😀"]
)
def test_a_text_is_stored_without_json_and_read_as_it_was(either: Memory, text: str) -> None:
    written = [
        Message("user", text),
        Message("assistant", text),
        Message("system", text),
        Message("user", text, name="Ann"),
    ]
    either.session("s").append(*written)
    assert list(either.session("s").conversation) == written
    either.worker().drain()
    bodies = StoreProbe(either).values("SELECT body FROM messages ORDER BY seq")
    assert bodies[3].startswith("{")
    if "\0" not in text:
        assert bodies[:3] == [f"u:{text}", f"a:{text}", f"s:{text}"]
    assert either.admin.verify(sample=0).ok
    if text.strip():
        assert {each.text for each in StoreProbe(either).items()} == {text.replace("\0", "\ufffd")}


def test_a_session_accepts_messages_in_the_form_of_a_provider(memory: Memory) -> None:
    call: dict[str, Any] = {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    session = memory.session("s")
    session.append({"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [call]}, key="k")
    assert session.append_now({"role": "tool", "tool_call_id": "c", "content": "r"})
    asked, answer = session.conversation
    assert asked.tool_calls == (ToolCall("c", "f", '{"a": 1}'),)
    assert asked.reasoning == "hm"
    assert answer == Message("tool", "r", tool_call_id="c", name="f")
    with pytest.raises(InvalidArgument) as caught:
        session.append({"role": "tool", "tool_call_id": "c", "content": "again"}, {"content": "x"})
    assert [problem.place for problem in caught.value.problems] == ["append[0]", "append[1].role"]
    assert len(session.conversation) == 2


def test_a_redacted_message_has_no_opaque_data_of_providers(memory: Memory) -> None:
    session = memory.session("s")
    secret = "4711"
    session.append(
        Message(
            "assistant",
            f"Your code is {secret}.",
            (ToolCall("c", "f", opaque={"openai": {"signature": secret}}),),
            thinking=(Thinking(f"The code is {secret}."),),
            opaque={"openai": {"reasoning_details": [secret]}},
        )
    )
    session.redact(1)
    (body,) = StoreProbe(memory).values("SELECT body FROM messages")
    assert secret not in body
    assert json.loads(body)["tool_calls"] == [{"id": "c", "name": "f", "arguments": "{}"}]
