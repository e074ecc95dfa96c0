"""Compositions as requests of the Responses API of OpenAI."""

from __future__ import annotations

import json

from agentkit.prompts import Image, Layers, Message, PromptContext, TextPrompt, ToolCall, ToolSpec, compose

CALLED = [Message("assistant", "", (ToolCall("c1", "add"),)), Message("tool", "3", tool_call_id="c1", name="add")]
LAYERS = Layers("Be brief.", after_intermediate="Answer now.")


def test_a_request_has_instructions_items_and_tools() -> None:
    ctx = PromptContext(user_input="1 + 2?", tools=[ToolSpec("add", "Adds.")], intermediate=CALLED)
    payload = json.loads(json.dumps(compose(LAYERS, ctx).to_responses()))
    assert payload["instructions"] == "Be brief."
    assert [item.get("type", item.get("role")) for item in payload["input"]] == [
        "user",
        "function_call",
        "function_call_output",
        "user",
    ]
    assert payload["input"][-1]["content"] == "Answer now."
    assert [(tool["type"], tool["name"], tool["description"]) for tool in payload["tools"]] == [
        ("function", "add", "Adds.")
    ]


def test_a_request_without_tools_and_system_text_has_only_its_input() -> None:
    assert compose(Layers(), PromptContext(user_input="x")).to_responses().keys() == {"input"}


def test_a_system_text_with_media_is_an_item_because_instructions_are_text() -> None:
    ctx = PromptContext(user_input="x", extra={"logo": Image(b"\x89PNG\r\n\x1a\n")})
    layers = Layers(TextPrompt("Know this: {{ extra.logo }}"))
    payload = compose(layers, ctx).to_responses()
    assert "instructions" not in payload
    assert [part["type"] for part in payload["input"][0]["content"]] == ["input_text", "input_image"]
