"""Thinking and signatures go back to the endpoint and the model that sent them, and to no other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentkit import AnthropicModel, Message, OpenAIModel, OpenAIResponsesModel
from agentkit.prompts import Layers, PromptContext, compose
from agentkit_prompts.context.wire.owner import Owner
from agentkit_prompts.context.wire.read_messages import read_messages

HERE, ELSEWHERE = "http://one.example:8000", "http://two.example:8000"
MODELS = {"anthropic": AnthropicModel, "responses": OpenAIResponsesModel, "openai": OpenAIModel}
CALL = {"id": "t1", "name": "weather"}
SIGNED = {"type": "thinking", "thinking": "MARK", "signature": "SIG"}
STEPS = [
    {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
    {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"encrypted_content": "MARK"}]},
]
REASONING = {"type": "reasoning", "id": "MARK", "summary": [], "encrypted_content": "E"}
PARTS = [{"type": "thinking", "thinking": [{"type": "text", "text": "MARK"}]}, {"type": "text", "text": "Hi"}]
ENCRYPTED = {"type": "reasoning.encrypted", "data": "MARK"}
SIGNED_CALL = {"id": "t1", "function": {"name": "f"}, "extra_content": {"google": {"thought_signature": "MARK"}}}
SIGNATURES = {"thought_signatures": ["MARK"]}
HOST, MODEL = "the host", "the model"
BLOCKS: dict[str, tuple[str, list[Any], str]] = {
    "signed": ("anthropic", [SIGNED, {"type": "text", "text": "Hi"}, {"type": "tool_use", **CALL, "input": {}}], MODEL),
    "redacted": ("anthropic", [{"type": "redacted_thinking", "data": "MARK"}, {"type": "text", "text": "Hi"}], MODEL),
    "unsigned": ("anthropic", [{**SIGNED, "signature": ""}, {"type": "text", "text": "Hi"}], HOST),
    "steps": ("anthropic", [*STEPS, {"type": "text", "text": "Hi"}], HOST),
    "cited": ("anthropic", [{"type": "text", "text": "Hi", "citations": [{"encrypted_index": "MARK"}]}], HOST),
    "encrypted": ("responses", [REASONING, {"role": "assistant", "content": "Hi"}], MODEL),
    "ids": ("responses", [{"type": "message", "role": "assistant", "id": "MARK", "content": "Hi"}], MODEL),
    "thoughts": ("openai", [{"role": "assistant", "content": "Hi", "reasoning_content": "MARK"}], HOST),
    "parts": ("openai", [{"role": "assistant", "content": PARTS}], HOST),
    "details": ("openai", [{"role": "assistant", "content": "Hi", "reasoning_details": [ENCRYPTED]}], MODEL),
    "signatures": ("openai", [{"role": "assistant", "content": "Hi", "provider_specific_fields": SIGNATURES}], MODEL),
    "opaque": ("openai", [{"role": "assistant", "content": "Hi", "reasoning_opaque": "MARK"}], MODEL),
    "signed call": ("openai", [{"role": "assistant", "content": "Hi", "tool_calls": [SIGNED_CALL]}], MODEL),
}


def reply(form: str, blocks: list[Any], owner: Owner | None) -> tuple[Message, ...]:
    """Read a reply as an endpoint sent it, or as a list of messages if `owner` is None."""
    if form == "anthropic":
        blocks = [{"role": "assistant", "content": blocks}]
    return read_messages(blocks, form=form, owner=owner, is_linked=False)


def sent(form: str, url: str, name: str, messages: tuple[Message, ...]) -> str:
    """Return the messages of a request that continues a conversation."""
    results = [Message("tool", "r", tool_call_id=call.id) for message in messages for call in message.tool_calls]
    base = url if form == "anthropic" else f"{url}/v1"
    context = PromptContext(user_input="So?", conversation=[Message("user", "Q"), *messages, *results])
    model = MODELS[form](name, base_url=base, api_key="k")
    return json.dumps(model.request_body(compose(Layers(), context)))


@pytest.mark.parametrize("case", BLOCKS)
def test_data_of_a_reply_go_back_to_their_owner_only(case: str) -> None:
    form, blocks, owned_by = BLOCKS[case]
    messages = reply(form, blocks, Owner(form, "one.example:8000", "m"))
    expected = {(HERE, "m"): True, (HERE, "other"): owned_by == HOST, (ELSEWHERE, "m"): False}
    bodies = {where: sent(form, *where, messages) for where in expected}
    assert {where: "MARK" in body for where, body in bodies.items()} == expected
    assert all("Hi" in body for body in bodies.values())
    foreign = [sent(other, HERE, "m", messages) for other in MODELS if other != form]
    assert not any("MARK" in body for body in foreign)
    # A list of messages has no endpoint.
    assert "MARK" in sent(form, ELSEWHERE, "other", reply(form, blocks, None))


def test_a_thought_in_the_content_is_sent_back_before_its_text() -> None:
    messages = reply("openai", [{"role": "assistant", "content": PARTS}], None)
    body = json.loads(sent("openai", HERE, "m", messages))
    assert body["messages"][1]["content"] == PARTS
    assert read_messages(body["messages"])[1].reasoning == "MARK"
